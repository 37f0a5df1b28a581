//! The contract crate against the known answers of the contracts.

#[path = "it/golden.rs"]
mod golden;
#[path = "it/vectors.rs"]
mod vectors;
