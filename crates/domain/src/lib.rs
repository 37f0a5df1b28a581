//! The words and the rules of an export, with no input, no output and nothing that waits
//! (but for [`crash`], whose pauses exist for tests).
//!
//! **Words.** A *resource* is what may be exported. A *request* asks for some of it; parsed
//! against its resource and its caller it is an [`spec::ExportSpec`]. An [`job::ExportJob`]
//! carries it through the total state machine of [`job::JobStatus`]. A *run* is one attempt
//! of a job; its number only grows.
//!
//! **Invariants.** Tenant scope is compiled from the caller and AND-ed outside anything that
//! a body can say. Every wrong field of a request is reported, not the first one. No value of
//! a request passes through a float.
//!
//! **Absent on purpose.** SQL, HTTP, serialisation of jobs (the wire types are the contract's),
//! and clocks: who needs the time is given it.

pub mod caller;
pub mod canonical;
pub mod column;
pub mod connection;
pub mod crash;
pub mod data_request;
pub mod dialect;
pub mod failure;
pub mod file_name;
pub mod filter;
pub mod id;
pub mod job;
pub mod json;
pub mod limits;
pub mod locale;
pub mod object_key;
pub mod resource;
pub mod selection;
pub mod spec;
