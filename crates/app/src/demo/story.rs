//! The story of the demo: a request, a file, a committed job, a mail, an event. Every step is
//! checked; the first that fails ends the story.

use std::{fs, io::Write as _, path::PathBuf, time::Duration};

use outport_contract::{
    digest::Sha256Digest,
    export_event::{ExportEvent, ExportEventType},
};
use outport_domain::id::{JobId, OrganizationId};
use outport_store::{Store, events};
use serde_json::{Value, json};

use super::{
    During, Failed,
    stage::{COMPANY, EMAIL, Stage},
};

/// How long any one step may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// Between looks.
pub(super) const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Story<'a> {
    pub(super) stage: &'a Stage,
    pub(super) store: &'a Store,
    pub(super) token: &'a str,
    pub(super) human: bool,
}

struct Mail {
    path: PathBuf,
    text: String,
}

impl Mail {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().take_while(|line| !line.is_empty());
        lines
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }
}

fn request() -> Value {
    json!({
        "resource": "order",
        "columns": ["code", "status", "totalAmount", "createdAt", "customerName", "note"],
        "filters": {"createdAt": {"operator": "BETWEEN", "value": ["2026-07-01", "2026-07-04"]}},
        "scopeType": "COMPANY",
        "companyId": COMPANY,
    })
}

impl Story<'_> {
    /// Tells it, and returns the same as one JSON object.
    pub(super) async fn tell(&self) -> Result<Value, Failed> {
        self.say(&format!("Outport runs at {}", self.stage.url("/")))?;
        self.say("\n1. An export is requested")?;
        let body = request().to_string();
        self.say(&format!("   POST /v1/exports {body}"))?;
        let job = self.submit(body).await?;
        let id = member(&job, "exportJobId")?;
        let status = member(&job, "status")?;
        self.say(&format!("   job {id}: {status}"))?;
        let job = self.watch(&id, status).await?;
        must_be(&job, "COMPLETED")?;
        self.say("\n2. Its file")?;
        let file = self.file(&job)?;
        self.say("\n3. The event, committed together with the job")?;
        let event = self.event(&id).await?;
        self.say(&indented(&serde_json::to_string_pretty(&event).during("reading the event")?))?;
        self.say("\n4. The mail, sent by a handler outside that transaction")?;
        let mail = self.mail(&id).await?;
        Ok(json!({ "job": job, "file": file, "event": event, "mail": mail }))
    }

    /// What to try on the running demo.
    pub(super) fn what_next(&self) -> Result<(), Failed> {
        let authorization = format!("-H 'Authorization: Bearer {}'", self.token);
        self.say("\nIt stays up. Next, try:\n")?;
        self.say(&format!(
            "  curl -s {authorization} -H 'Content-Type: application/json' {} -d '{}'",
            self.stage.url("/v1/exports"),
            json!({"resource": "order", "columns": ["code", {"key": "note", "label": "Remarks"}], "csv": {"delimiter": ";", "bom": true}}),
        ))?;
        self.say(&format!(
            "  curl -s {authorization} '{}'",
            self.stage.url("/v1/exports?limit=1")
        ))?;
        self.say(&format!(
            "  curl -s {authorization} '{}'",
            self.stage.url("/v1/resources/order")
        ))?;
        self.say(&format!("\nThe reference is at {} - stop with Ctrl-C.", self.stage.url("/docs")))
    }

    pub(super) fn say(&self, text: &str) -> Result<(), Failed> {
        if self.human {
            writeln!(std::io::stdout(), "{text}").during("printing")?;
        }
        Ok(())
    }

    async fn call(
        &self,
        request: reqwest::RequestBuilder,
        step: &'static str,
    ) -> Result<Value, Failed> {
        let answer = request.bearer_auth(self.token).timeout(PATIENCE).send().await.during(step)?;
        let status = answer.status();
        let body: Value = answer.json().await.during(step)?;
        if status.is_success() {
            Ok(body)
        } else {
            Err(Failed { step, reason: format!("{status}: {body}") })
        }
    }

    pub(super) async fn submit(&self, body: String) -> Result<Value, Failed> {
        let request = reqwest::Client::new().post(self.stage.url("/v1/exports"));
        let request = request.header("content-type", "application/json").body(body);
        self.call(request, "requesting the export").await
    }

    /// Follows the job to its end and says each new status.
    pub(super) async fn watch(&self, id: &str, mut last: String) -> Result<Value, Failed> {
        const STEP: &str = "waiting for the job";
        let client = reqwest::Client::new();
        let watching = async {
            loop {
                let job = self
                    .call(client.get(self.stage.url(&format!("/v1/exports/{id}"))), STEP)
                    .await?;
                let status = member(&job, "status")?;
                if status != last {
                    self.say(&format!("   job {id}: {status}"))?;
                    last.clone_from(&status);
                }
                if matches!(status.as_str(), "COMPLETED" | "FAILED" | "CANCELED" | "EXPIRED") {
                    return Ok(job);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, watching).await.during(STEP)?
    }

    /// Reads the file back and compares it with what the job says.
    fn file(&self, job: &Value) -> Result<Value, Failed> {
        const STEP: &str = "checking the file";
        let path = self.stage.object(&member(job, "fileKey")?);
        let bytes = fs::read(&path).during(STEP)?;
        let sha256 = Sha256Digest::of(&bytes).hex();
        let rows = csv::Reader::from_reader(bytes.as_slice())
            .records()
            .map(|record| record.map(|_| 1_u64))
            .sum::<Result<u64, _>>();
        let rows = rows.during(STEP)?;
        let told = (job["sizeBytes"].as_u64(), job["totalRows"].as_u64(), job["sha256"].as_str());
        if told != (Some(bytes.len() as u64), Some(rows), Some(&sha256)) || rows == 0 {
            let reason = format!(
                "the job says {told:?}, the file has {} bytes, {rows} rows, {sha256}",
                bytes.len()
            );
            return Err(Failed { step: STEP, reason });
        }
        let head: Vec<String> =
            String::from_utf8_lossy(&bytes).lines().take(6).map(str::to_owned).collect();
        self.say(&indented(&head.join("\n")))?;
        self.say("   …")?;
        self.say(&format!("   path    {}", path.display()))?;
        self.say(&format!("   size    {} bytes, {rows} rows", bytes.len()))?;
        self.say(&format!("   sha256  {sha256}"))?;
        self.say(&format!(
            "   changed {} cell(s) that a spreadsheet would have run as a formula",
            job["warnings"]["guardedCells"]
        ))?;
        Ok(json!({ "path": path, "sha256": sha256, "sizeBytes": bytes.len(), "rows": rows }))
    }

    /// The committed event, read from the outbox.
    async fn event(&self, id: &str) -> Result<Value, Failed> {
        const STEP: &str = "reading the event";
        let job: JobId = id.parse().during(STEP)?;
        let row =
            outport_store::jobs::find_in_any_organization(self.store, job).await.during(STEP)?;
        let organization: OrganizationId =
            row.map(|row| row.scope.organization).ok_or("the job has no row").during(STEP)?;
        let stored = events::of_job(self.store, organization, job).await.during(STEP)?;
        let name = ExportEventType::Completed.name();
        let event = stored.iter().find(|event| event.event_type == name);
        let event = event.ok_or("there is none").during(STEP)?;
        let typed: ExportEvent = serde_json::from_str(&event.body).during(STEP)?;
        if typed.event_type != ExportEventType::Completed || typed.data.status != "COMPLETED" {
            let reason = format!("it tells of a job that is {}", typed.data.status);
            return Err(Failed { step: STEP, reason });
        }
        serde_json::from_str(&event.body).during(STEP)
    }

    /// Waits for the mail, and reads it back.
    async fn mail(&self, id: &str) -> Result<Value, Failed> {
        const STEP: &str = "waiting for the mail";
        let waiting = async {
            loop {
                if let Some(mail) = self.find_mail().during(STEP)? {
                    return Ok::<_, Failed>(mail);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let mail = match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(mail) => mail?,
            Err(elapsed) => {
                let url = self.stage.url(&format!("/v1/deliveries?jobId={id}"));
                let deliveries = self.call(reqwest::Client::new().get(url), STEP).await?;
                return Err(Failed { step: STEP, reason: format!("{elapsed}; {deliveries}") });
            }
        };
        let header = |name: &str| mail.header(name).unwrap_or_default().to_owned();
        for name in ["From", "To", "Subject", "Message-ID"] {
            self.say(&format!("   {name}: {}", header(name)))?;
        }
        self.say(&format!("   path    {}", mail.path.display()))?;
        if !header("To").contains(EMAIL) || header("Message-ID").is_empty() {
            return Err(Failed {
                step: STEP,
                reason: "it is not addressed to the requester".to_owned(),
            });
        }
        Ok(json!({ "path": mail.path, "to": EMAIL, "messageId": header("Message-ID") }))
    }

    fn find_mail(&self) -> std::io::Result<Option<Mail>> {
        let entries = match fs::read_dir(self.stage.mails()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "eml") {
                return Ok(Some(Mail { text: fs::read_to_string(&path)?, path }));
            }
        }
        Ok(None)
    }
}

pub(super) fn must_be(job: &Value, status: &str) -> Result<(), Failed> {
    if job["status"] == status {
        return Ok(());
    }
    let reason = format!("it ended as {}: {}", job["status"], job["failure"]);
    Err(Failed { step: "waiting for the job", reason })
}

pub(super) fn member(value: &Value, name: &str) -> Result<String, Failed> {
    let missing =
        || Failed { step: "reading the answer", reason: format!("{name} is missing in {value}") };
    value[name].as_str().map(str::to_owned).ok_or_else(missing)
}

pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("   {line}")).collect::<Vec<_>>().join("\n")
}
