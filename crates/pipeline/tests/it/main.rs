//! The pipeline against real stores: what a correct file is, and what a run leaves behind.

mod batches;
mod compression;
mod csv_rules;
mod file;
mod foresight;
mod invalid_text;
mod job_events;
mod json_rules;
mod log;
mod parquet_rules;
mod progress;
mod relative_dates;
mod runs;
mod sealed;
mod slow_sources;
mod split;
mod split_endings;
mod spool;
mod telling;
mod world;
mod xlsx_rules;
