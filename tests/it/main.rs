//! The tests of the whole: real processes, real servers, and the house's own rules.

mod crash_points;
mod harness;
mod takeover;
mod uploads;
