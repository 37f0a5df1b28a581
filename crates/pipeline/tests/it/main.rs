//! The pipeline against real stores: what a correct file is, and what a run leaves behind.

mod csv_rules;
mod runs;
mod world;
