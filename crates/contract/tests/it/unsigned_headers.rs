//! Headers that no signature covers, against those that one does.

use outport_contract::{
    digest::hex,
    signature::{SignatureError, header},
};

use crate::signatures::{message, ring, verify};

#[test]
fn an_unsigned_attribute_that_contradicts_the_signed_ones_is_found() {
    for (header, value) in [("ce-eventtype", "failed"), ("ce-resourcetype", "connection")] {
        let refusal = verify(&message().with(header, value));
        assert_eq!(refusal, Err(SignatureError::Mismatched { header }), "{value}");
        assert!(verify(&message().without(header)).is_ok(), "it says nothing that is not signed");
    }
    // A type that is signed as it is, by a producer that is wrong about it.
    let signed_as = |ce_type: &str| {
        let message = message().with("ce-type", ce_type);
        let names = ["ce-id", "ce-type", "ce-source", "ce-time", "ce-tenantid"];
        let parts = names.map(|name| message.headers[name].clone()).join(&b'\n');
        let tag = ring(1, 1).current().hmac(&[&parts]);
        verify(&message.with(header::ATTRIBUTES, hex(&tag)))
    };
    assert!(signed_as("another.prefix.job.completed").is_ok());
    for other in ["studio.lerian.job.failed", "xjob.completed"] {
        assert_eq!(signed_as(other), Err(SignatureError::Mismatched { header: "ce-type" }));
    }
}
