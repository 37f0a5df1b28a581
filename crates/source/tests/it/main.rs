//! One suite for both engines, against the real ones. PostgreSQL is found by
//! `OUTPORT_TEST_POSTGRES`; SQLite files live in temporary folders.

mod endings;
mod names;
mod predicates;
mod proxy;
mod ranges;
mod refusals;
mod snapshot;
mod values;
mod volume;
mod wire;
mod world;
