//! The contract crate against the known answers of the contracts.

#[path = "it/fuzz.rs"]
mod fuzz;
#[path = "it/golden.rs"]
mod golden;
#[path = "it/job_events.rs"]
mod job_events;
#[path = "it/redaction.rs"]
mod redaction;
#[path = "it/redaction_members.rs"]
mod redaction_members;
#[path = "it/redaction_notations.rs"]
mod redaction_notations;
#[path = "it/results.rs"]
mod results;
#[path = "it/sealed.rs"]
mod sealed;
#[path = "it/signatures.rs"]
mod signatures;
#[path = "it/unsigned_headers.rs"]
mod unsigned_headers;
#[path = "it/vectors.rs"]
mod vectors;
