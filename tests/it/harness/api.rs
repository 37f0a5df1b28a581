//! The API as a client sees it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{PATIENCE, process::Process, until};

/// A running API and a token for it.
pub struct Api {
    /// The process that answers.
    pub process: Process,
    base: String,
    token: String,
    client: reqwest::Client,
}

impl Api {
    /// Waits until a just started process answers.
    pub async fn new(mut process: Process, base: String, token: String) -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
        let client = client.expect("a client");
        let url = format!("{base}/livez");
        until("the API answers", PATIENCE, async || {
            if let Some(status) = process.ended() {
                panic!("the API ended as {status}:\n{}", process.log());
            }
            client.get(&url).send().await.ok().filter(|answer| answer.status().is_success())
        })
        .await;
        Self { process, base, token, client }
    }

    /// Where it answers, and the token: what a client of another make is given.
    pub fn access(&self) -> (&str, &str) {
        (&self.base, &self.token)
    }

    /// A PATCH with a body.
    pub async fn patch(&self, path: &str, body: &Value) -> (u16, Value) {
        self.json(self.call(reqwest::Method::PATCH, path).json(body)).await
    }

    fn call(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    /// Calls and reads the JSON answer, whatever its status.
    pub async fn json(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.json().await.expect("JSON"))
    }

    /// A GET that must succeed.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.json(self.call(reqwest::Method::GET, path)).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// A POST without a body.
    pub async fn post(&self, path: &str) -> (u16, Value) {
        self.json(self.call(reqwest::Method::POST, path)).await
    }

    /// A POST with a body; `None` when no answer came.
    pub async fn try_post(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let answer = self.call(reqwest::Method::POST, path).json(body).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    /// Requests an export of everything in a resource; the job's id.
    pub async fn export(&self, resource: &str) -> String {
        let (status, body) = self.json(self.request(resource, "")).await;
        assert_eq!(status, 202, "{body}");
        id_of(&body)
    }

    /// Requests an export by a whole body; the job's id.
    pub async fn export_as(&self, body: &Value) -> String {
        let (status, job) = self.ask(body).await;
        assert_eq!(status, 202, "{job}");
        id_of(&job)
    }

    /// The same; the answer, whatever it is.
    pub async fn ask(&self, body: &Value) -> (u16, Value) {
        self.json(self.call(reqwest::Method::POST, "/v1/exports").json(body)).await
    }

    /// The same under an idempotency key; `None` when no answer came.
    pub async fn try_export(&self, resource: &str, key: &str) -> Option<String> {
        let answer = self.request(resource, key).send().await.ok()?;
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.ok()?;
        assert!(matches!(status, 200 | 202), "{status}: {body}");
        Some(id_of(&body))
    }

    fn request(&self, resource: &str, key: &str) -> reqwest::RequestBuilder {
        let request = self.call(reqwest::Method::POST, "/v1/exports");
        let request = request.json(&json!({ "resource": resource }));
        if key.is_empty() { request } else { request.header("idempotency-key", key) }
    }

    /// A job as the API shows it.
    pub async fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/exports/{id}")).await
    }

    /// Waits until a job has this status.
    pub async fn job_is(&self, id: &str, status: &str) -> Value {
        self.job_is_within(id, status, PATIENCE).await
    }

    /// The same, for a job that takes its time.
    pub async fn job_is_within(&self, id: &str, status: &str, patience: Duration) -> Value {
        until(&format!("job {id} is {status}"), patience, async || {
            let job = self.job(id).await;
            let is = job["status"].as_str().expect("a status");
            let ended = matches!(is, "COMPLETED" | "FAILED" | "CANCELED" | "EXPIRED");
            assert!(is == status || !ended, "the job ended otherwise: {job}");
            (is == status).then_some(job)
        })
        .await
    }

    /// Waits until some rows of a job are in its file, and not all.
    pub async fn rows_have_come(&self, id: &str) {
        until("rows have come", PATIENCE, async || {
            let job = self.job(id).await;
            assert_ne!(job["status"], "COMPLETED", "it ended before it could be disturbed");
            job["progress"]["done"].as_u64().filter(|done| *done > 0)
        })
        .await;
    }

    /// The answer to a GET, whatever it is.
    pub async fn answer(&self, path: &str) -> reqwest::Response {
        self.call(reqwest::Method::GET, path).send().await.expect("an answer")
    }

    /// The answer to a download.
    pub async fn download(&self, id: &str) -> reqwest::Response {
        self.answer(&format!("/v1/exports/{id}/file")).await
    }

    /// The answer to a download of a range.
    pub async fn range(&self, id: &str, range: &str) -> reqwest::Response {
        let request = self.call(reqwest::Method::GET, &format!("/v1/exports/{id}/file"));
        request.header("range", range).send().await.expect("an answer")
    }

    /// The bytes of a job's file.
    pub async fn file(&self, id: &str) -> Vec<u8> {
        self.bytes(&format!("/v1/exports/{id}/file")).await
    }

    /// The bytes of a file that must be there.
    pub async fn bytes(&self, path: &str) -> Vec<u8> {
        let answer = self.answer(path).await;
        let status = answer.status();
        let bytes = answer.bytes().await.expect("a whole file").to_vec();
        assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
        bytes
    }
}

fn id_of(job: &Value) -> String {
    job["exportJobId"].as_str().expect("an id").to_owned()
}
