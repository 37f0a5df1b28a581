//! The tests of the whole: real processes, real servers, and the house's own rules.

mod canceling;
mod canceling_sources;
mod corpus;
mod crash_points;
mod demo;
mod failing;
mod formats;
mod harness;
mod memory;
mod moving;
mod resource_files;
mod takeover;
mod telling;
mod tidy;
mod uploads;
