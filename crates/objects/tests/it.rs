//! Every store under one suite, then each one's own promises.

#[macro_use]
#[path = "it/conformance.rs"]
mod conformance;
#[path = "it/local.rs"]
mod local;
#[path = "it/memory.rs"]
mod memory;
#[path = "it/s3.rs"]
mod s3;
#[path = "it/s3_answers.rs"]
mod s3_answers;
#[path = "it/s3_server.rs"]
mod s3_server;
#[path = "it/sealed.rs"]
mod sealed;
