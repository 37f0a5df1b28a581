//! The bodies and attributes of job events, byte for byte.

use outport_contract::{
    job_event::{
        Attributes, DEFAULT_TYPE_PREFIX, Integrity, JobCompleted, JobError, JobEvent, JobEventType,
        JobFailed, JobResult, Metadata, Protection, SINGLE_TENANT,
    },
    time::Instant,
};
use uuid::Uuid;

/// The contract's sample, without its white space.
const COMPLETED: &str = r#"{"jobId":"6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88","status":"completed","metadata":{"source":"payments","correlationId":"settlement-2026-07-13"},"result":{"path":"external-data/6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88.json","sizeBytes":184320,"rowCount":1204,"format":"json","hmac":"9f1c…","integrity":{"algorithm":"HMAC-SHA256","signature":"9f1c…"},"protection":{"encrypted":true,"appliedBy":"adapter","mode":"adapter-managed"}},"executionTimeMs":8421,"completedAt":"2026-07-13T18:04:11.204Z"}"#;
const FAILED: &str = r#"{"jobId":"8f2c1a9e-4b30-4c02-9a1b-2d5e6f7a1c33","status":"failed","metadata":{"source":"payments","error":{"message":"failed to connect to datasource"}}}"#;

fn id(text: &str) -> Uuid {
    text.parse().expect("a UUID")
}

fn instant() -> Instant {
    Instant("2026-07-13T18:04:11.204Z".parse().expect("an instant"))
}

fn metadata(text: &str) -> Metadata {
    Metadata::parse(text).expect("metadata")
}

fn integrity(key_version: u16) -> Integrity {
    Integrity::new("9f1c…".to_owned(), key_version)
}

fn completed(
    metadata: Metadata,
    rows: u64,
    integrity: Integrity,
    protection: Protection,
) -> String {
    let result = JobResult::new(
        "external-data/6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88.json".to_owned(),
        184_320,
        rows,
        "JSON",
        integrity,
        protection,
    );
    let job_id = id("6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88");
    let event = JobCompleted::new(job_id, metadata, result, 8_421, instant());
    JobEvent::Completed(Box::new(event)).body()
}

#[test]
fn a_completed_job_is_the_contracts_sample_byte_for_byte() {
    let metadata = metadata(r#"{"source":"payments","correlationId":"settlement-2026-07-13"}"#);
    let body = completed(metadata, 1_204, integrity(1), Protection::ADAPTER_MANAGED);
    assert_eq!(body, COMPLETED);
}

#[test]
fn a_failed_job_is_the_contracts_sample_and_a_code() {
    let error = JobError::new("SOURCE_UNREACHABLE", "failed to connect to datasource");
    let metadata = metadata(r#"{"source":"payments"}"#);
    let job_id = id("8f2c1a9e-4b30-4c02-9a1b-2d5e6f7a1c33");
    let failed = JobFailed::new(job_id, metadata, &error);
    assert_eq!(failed.error(), Some(error));
    let body = JobEvent::Failed(failed).body();
    let code = r#","code":"SOURCE_UNREACHABLE""#;
    assert!(body.contains(code));
    assert_eq!(body.replace(code, ""), FAILED);
}

#[test]
fn the_samples_are_read_and_come_back() {
    for (sample, event_type) in
        [(COMPLETED, JobEventType::Completed), (FAILED, JobEventType::Failed)]
    {
        let event = JobEvent::parse(sample.as_bytes()).expect("the sample reads");
        assert_eq!(event.event_type(), event_type);
        assert!(sample.contains(&event.job_id().to_string()));
        assert_eq!(event.body(), sample);
    }
    let JobEvent::Failed(failed) = JobEvent::parse(FAILED.as_bytes()).expect("reads") else {
        panic!("a failed job")
    };
    let error = failed.error().expect("an error");
    assert_eq!((error.message.as_str(), error.code), ("failed to connect to datasource", None));
}

#[test]
fn the_first_key_is_not_written_and_later_ones_are() {
    let body = completed(Metadata::empty(), 0, integrity(2), Protection::SEALED);
    let signed = r#""integrity":{"algorithm":"HMAC-SHA256","signature":"9f1c…","keyVersion":2}"#;
    assert!(body.contains(signed), "{body}");
    let JobEvent::Completed(event) = JobEvent::parse(body.as_bytes()).expect("reads") else {
        panic!("a completed job")
    };
    assert_eq!(event.result.integrity, integrity(2));
    let JobEvent::Completed(event) = JobEvent::parse(COMPLETED.as_bytes()).expect("reads") else {
        panic!("a completed job")
    };
    assert_eq!(event.result.integrity, integrity(1));
}

#[test]
fn counts_are_there_when_zero_and_protection_claims_what_was_done() {
    let body = completed(Metadata::empty(), 0, integrity(1), Protection::NONE);
    assert!(body.contains(r#""metadata":{},"#), "{body}");
    assert!(body.contains(r#""rowCount":0,"format":"json","#), "{body}");
    assert!(body.contains(r#""protection":{"encrypted":false}}"#), "{body}");
    let sealed = completed(Metadata::empty(), 0, integrity(1), Protection::SEALED);
    let claim = r#"{"encrypted":true,"appliedBy":"adapter","mode":"outport-sealed-v1"}"#;
    assert!(sealed.contains(claim), "{sealed}");
}

#[test]
fn metadata_comes_back_to_the_digit_in_both_events() {
    let sent = r#"{"b":1.10,"a":12345678901234567890123,"c":{"x": [1e5]}}"#;
    let body = completed(metadata(sent), 0, integrity(1), Protection::NONE);
    assert!(body.contains(&format!(r#""metadata":{sent},"result""#)), "{body}");
    let failed =
        JobFailed::new(Uuid::nil(), metadata(sent), &JobError::new("CANCELED", "canceled"));
    let expected = sent.replacen("}}", r#"},"error":{"message":"canceled","code":"CANCELED"}}"#, 1);
    assert_eq!(failed.metadata.get(), expected);
    let failed = JobFailed::new(Uuid::nil(), Metadata::empty(), &JobError::new("X", "y"));
    assert_eq!(failed.metadata.get(), r#"{"error":{"message":"y","code":"X"}}"#);
}

#[test]
fn an_errors_message_is_redacted() {
    let error = JobError::new("SOURCE_UNREACHABLE", "dial tcp 10.0.0.7:5432: connection refused");
    assert_eq!(error.message, "dial tcp [redacted] connection refused");
}

#[test]
fn a_body_of_another_status_or_without_a_member_is_refused_and_more_members_are_not() {
    for body in [
        "",
        "[]",
        "{}",
        r#"{"status":"completed"}"#,
        &COMPLETED.replace("\"completed\"", "\"failing\""),
        &COMPLETED.replace(r#""sizeBytes":184320,"#, ""),
        &COMPLETED.replace(r#""encrypted":true,"#, ""),
        &FAILED.replace("8f2c1a9e", "8f2c1a9"),
    ] {
        assert!(JobEvent::parse(body.as_bytes()).is_err(), "{body}");
    }
    assert!(serde_json::from_str::<JobFailed>(COMPLETED).is_err());
    assert!(serde_json::from_str::<JobCompleted>(FAILED).is_err());
    let more = COMPLETED.replace(r#""status""#, r#""attempt":{"of":3},"status""#);
    assert!(JobEvent::parse(more.as_bytes()).is_ok());
    let without_rows = COMPLETED.replace(r#""rowCount":1204,"#, "");
    assert!(JobEvent::parse(without_rows.as_bytes()).is_ok(), "an older producer's zero");
}

fn attributes(event_type: JobEventType) -> Attributes {
    Attributes {
        event_type,
        job_id: id("6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88"),
        source: "//outport/worker".to_owned(),
        type_prefix: DEFAULT_TYPE_PREFIX.to_owned(),
        time: instant(),
        tenant: SINGLE_TENANT.to_owned(),
    }
}

#[test]
fn the_attributes_are_those_of_the_contract() {
    let expected = [
        ("ce-specversion", "1.0"),
        ("ce-id", "fetcher.job.completed.6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88"),
        ("ce-source", "//outport/worker"),
        ("ce-type", "studio.lerian.job.completed"),
        ("ce-time", "2026-07-13T18:04:11.204Z"),
        ("ce-subject", "6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88"),
        ("ce-resourcetype", "job"),
        ("ce-eventtype", "completed"),
        ("ce-schemaversion", "1.0.0"),
        ("ce-datacontenttype", "application/json"),
        ("ce-tenantid", "single-tenant"),
        ("X-Tenant-ID", "single-tenant"),
    ];
    let headers = attributes(JobEventType::Completed).headers();
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(headers, expected);
}

#[test]
fn a_failed_event_and_another_prefix_change_what_they_must() {
    let type_prefix = "com.example".to_owned();
    let failed = Attributes { type_prefix, ..attributes(JobEventType::Failed) };
    let completed = attributes(JobEventType::Completed).headers();
    let changed: Vec<_> = failed
        .headers()
        .into_iter()
        .zip(completed)
        .filter(|(a, b)| a != b)
        .map(|(a, _)| a)
        .collect();
    let expected = [
        ("ce-id", "fetcher.job.failed.6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88"),
        ("ce-type", "com.example.job.failed"),
        ("ce-eventtype", "failed"),
    ];
    assert_eq!(changed, expected.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn the_names_of_the_types_are_read_back() {
    for event_type in JobEventType::ALL {
        assert_eq!(JobEventType::from_name(event_type.name()), Some(event_type));
        assert_eq!(event_type.name(), format!("job.{}", event_type.status()));
    }
    assert_eq!(JobEventType::from_name("job.canceled"), None);
}
