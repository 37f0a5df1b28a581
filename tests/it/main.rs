//! The tests of the whole: real processes, real servers, and the house's own rules.

mod broker;
mod broker_check;
mod broker_refusals;
mod broker_tls;
mod canceling;
mod canceling_sources;
mod consumers;
mod corpus;
mod crash_points;
mod defects;
mod demo;
mod failing;
mod fetcher;
mod formats;
mod harness;
mod keys;
mod locked_tables;
mod memory;
mod moving;
mod resource_files;
mod sealed;
mod takeover;
mod telling;
mod tidy;
mod uploads;
