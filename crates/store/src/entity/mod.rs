//! The rows as they lie in the tables. Instants are milliseconds since 1970 in UTC, states are
//! their wire names; what they mean is said where they are turned into the domain's words.

pub mod connection;
pub mod delivery;
pub mod download;
pub mod event;
pub mod handler;
pub mod handler_event;
pub mod idempotency_key;
pub mod job;
pub mod part;
pub mod receipt;
pub mod requester;
pub mod revocation;
pub mod run;
pub mod token;
