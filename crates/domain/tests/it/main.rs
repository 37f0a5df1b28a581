//! The rules of an export from outside.

mod fuzz;
mod metadata;
