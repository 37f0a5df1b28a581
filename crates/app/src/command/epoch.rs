//! `outport epoch`: after the state was restored from a backup, positions in the live stream from
//! before mean nothing. PostgreSQL tells by itself in most cases; a SQLite file cannot.

use std::process::ExitCode;

use clap::Subcommand;
use outport_store::{Store, channels};

use super::{Failure, say};

#[derive(Subcommand)]
pub(super) enum EpochCommand {
    /// Begins a new one and prints it: consumers of the live stream load what they follow anew
    New,
}

pub(super) async fn run(command: &EpochCommand, store: &Store) -> Result<ExitCode, Failure> {
    match command {
        EpochCommand::New => {
            let mut tx = store.begin().await?;
            let epoch = channels::new_epoch(&mut tx).await?;
            tx.commit().await?;
            say(&epoch)
        }
    }
}
