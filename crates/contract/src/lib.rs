//! What outsiders rely on, byte for byte: the events' wire types, the keys and what is made
//! with them (digests, signatures, stored forms, link tokens), and the redaction of texts that
//! leave the house.
//!
//! **Invariants.** Members are written in the order of the contract, always all of them.
//! Text that a client sent (`filters`, `metadata`) is carried as raw JSON, never re-printed,
//! so digits and member order survive. Comparisons of secrets take constant time.
//!
//! **Absent on purpose.** Input and output, async, and any knowledge of where a value came
//! from. Nothing else in the workspace may depend on a cryptographic library.

pub mod adapter_managed;
mod aead;
pub mod credentials;
pub mod digest;
pub mod export_event;
pub mod job_event;
pub mod key;
pub mod key_ring;
pub mod link;
pub mod manifest;
pub mod redaction;
pub mod sealed;
pub mod signature;
pub mod stream;
pub mod time;
