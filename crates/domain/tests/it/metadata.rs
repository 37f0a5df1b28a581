//! What a request may send along, to get back in the events of its end.

use std::collections::{BTreeMap, BTreeSet};

use chrono::Utc;
use outport_contract::job_event::{Metadata, RESERVED_METADATA};
use outport_domain::{
    caller::Caller,
    id::{OrganizationId, UserId},
    json::{FieldCode, FieldError},
    locale::Locale,
    resource::Resource,
    spec::{self, Catalogue, ExportSpec, RequestContext},
};

const RESOURCE: &str = r#"
name = "order"
connection = "shop"
from = "orders"
[scope]
organization = "organization_id"
[[columns]]
key = "code"
type = "text"
"#;

fn parse(metadata: &str) -> Result<ExportSpec, Vec<FieldError>> {
    let caller = Caller {
        organization: OrganizationId::new(),
        companies: None,
        cooperatives: None,
        user: UserId::new(),
        email: None,
        name: None,
        locale: None,
        scopes: BTreeSet::new(),
        token: None,
    };
    let resource = Resource::from_toml(RESOURCE).expect("a resource");
    let catalogue = Catalogue(BTreeMap::from([("order".to_owned(), resource.into())]));
    let context = RequestContext {
        caller: &caller,
        locale: Locale::En,
        requested_at: Utc::now(),
        resolved_filters: None,
    };
    let body = format!(r#"{{"resource":"order","metadata":{metadata}}}"#);
    spec::parse(&body, &catalogue, context)
}

#[test]
fn every_name_that_the_service_writes_itself_is_refused() {
    for name in RESERVED_METADATA {
        let escaped = format!("\\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..]);
        for written in [name, &escaped] {
            let errors = parse(&format!(r#"{{"a":1,"{written}":null}}"#)).expect_err(written);
            let [error] = errors.as_slice() else { panic!("{errors:?}") };
            assert_eq!(error.field, format!("metadata.{name}"));
            assert_eq!(error.code, FieldCode::NotAllowed);
            assert_eq!(error.message, "is a name that the service reserves");
        }
    }
}

#[test]
fn what_not_every_reader_takes_in_is_refused() {
    for value in [r#""\ud800""#, r#"["\udc00"]"#, "1e999", r#"{"deeper":-1e309}"#] {
        let errors = parse(&format!(r#"{{"a":{value}}}"#)).expect_err(value);
        let [error] = errors.as_slice() else { panic!("{value}: {errors:?}") };
        assert_eq!((error.field.as_str(), error.code), ("metadata", FieldCode::InvalidValue));
    }
}

#[test]
fn what_stands_twice_is_refused_however_deep() {
    for (sent, place) in [
        (r#"{"a":1,"source":"a","s\u006furce":"b"}"#, "metadata.source"),
        (r#"{"a":[{},{"b":{"c":1,"d":{},"c":1}}],"b":{"x":1,"x":2}}"#, "metadata.a[1].b.c"),
    ] {
        let errors = parse(sent).expect_err(sent);
        let [error] = errors.as_slice() else { panic!("{sent}: {errors:?}") };
        assert_eq!((error.field.as_str(), error.code), (place, FieldCode::Duplicate));
        assert_eq!(error.message, "stands twice");
    }
    parse(r#"{"a":{"a":[{"a":1},{"a":1}]},"A":1}"#).expect("each once in its own object");
}

#[test]
fn what_is_accepted_is_kept_as_sent_and_can_be_told() {
    for sent in [
        "{}",
        r#"{ "b" : 1.10, "a":12345678901234567890123, "é":"\u00e9" }"#,
        r#"{"deeper":{"error":1,"terminalEventPending":[{}]}}"#,
    ] {
        let kept = parse(sent).expect(sent).metadata.expect("what was sent");
        assert_eq!(kept, sent);
        Metadata::parse(&kept).expect("the events take it");
    }
}
