//! The sample payload of the handler guide, there and back.

use outport_contract::export_event::{ExportEvent, ExportEventType};
use serde_json::Value;

const SAMPLE: &str = include_str!("../../../../tests/golden/export-completed.json");

#[test]
fn the_sample_event_comes_back_byte_for_byte() {
    let sample = compact(SAMPLE);
    let event: ExportEvent = serde_json::from_str(&sample).expect("the sample reads");
    assert_eq!(event.event_type, ExportEventType::Completed);
    let written = serde_json::to_string(&event).expect("the event writes");
    assert_eq!(written, sample);
}

#[test]
fn an_event_with_a_member_too_many_or_too_few_is_refused() {
    let sample = compact(SAMPLE);
    for (from, to) in [
        (r#""resource":"order","#, ""),
        (r#""resource":"order","#, r#""resource":"order","resourceId":1,"#),
        ("export.completed", "export.done"),
    ] {
        let changed = sample.replacen(from, to, 1);
        assert_ne!(changed, sample);
        assert!(serde_json::from_str::<ExportEvent>(&changed).is_err(), "{changed}");
    }
}

#[test]
fn filters_keep_their_digits_and_their_order() {
    let filters = r#"{"b":{"operator":"EQ","value":1.10},"a":{"operator":"EQ","value":12345678901234567890123}}"#;
    let sample = compact(SAMPLE);
    let (before, rest) = sample.split_once(r#""filters":"#).expect("filters");
    let (_, after) = rest.split_once(r#","fileKey""#).expect("fileKey");
    let text = format!(r#"{before}"filters":{filters},"fileKey"{after}"#);
    let event: ExportEvent = serde_json::from_str(&text).expect("the event reads");
    assert_eq!(serde_json::to_string(&event).expect("the event writes"), text);
}

#[test]
fn members_that_a_failed_job_has_not_are_null_and_present() {
    let mut value: Value = serde_json::from_str(SAMPLE).expect("the sample reads");
    let absent = ["fileKey", "sizeBytes", "totalRows", "expiresAt", "startedAt", "finishedAt"];
    for member in absent {
        value["data"][member] = Value::Null;
    }
    let text = value.to_string();
    let event: ExportEvent = serde_json::from_str(&text).expect("the event reads");
    assert_eq!(serde_json::to_string(&event).expect("the event writes"), text);
}

/// The same JSON without white space, members in their order.
fn compact(json: &str) -> String {
    serde_json::from_str::<Value>(json).expect("JSON").to_string()
}
