//! `outport check`: configuration, resources and reachability of everything, in words.

use std::{io::Write as _, process::ExitCode};

use super::{Failure, build, resource};
use crate::config::Config;

/// Checks everything and says a line for each; exit code 1 when one fails.
pub(super) async fn run(config: Config) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout();
    for notice in &config.notices {
        writeln!(out, "note  {notice}")?;
    }
    writeln!(out, "ok    configuration")?;
    let (connections, limit) = (config.connections.clone(), config.limits.no_progress);
    let none = resource::none_in(&config);
    let process = build(config).await?;
    writeln!(out, "ok    state database, migrated")?;
    writeln!(out, "ok    mail templates")?;
    let mut failed = false;
    let objects = process.objects.check().await.map_err(|error| error.to_string());
    failed |= line(&mut out, "object store", objects)?;
    failed |= line(&mut out, "mail", process.check_mail().await)?;
    for (name, source) in process.sources.iter() {
        let checked = source.check().await.map_err(|error| error.to_string());
        failed |= line(&mut out, &format!("connection '{name}'"), checked)?;
        if let Some(note) = source.note() {
            writeln!(out, "note  connection '{name}' is {note}")?;
        }
    }
    if process.catalogue.0.is_empty() {
        failed |= line(&mut out, "resources", Err(none))?;
    }
    failed |= !resource::check(&mut out, &process.catalogue, &connections, limit).await?;
    process.store.close().await;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn line(
    out: &mut impl std::io::Write,
    what: &str,
    result: Result<(), String>,
) -> std::io::Result<bool> {
    match result {
        Ok(()) => writeln!(out, "ok    {what}").map(|()| false),
        Err(error) => writeln!(out, "FAIL  {what}: {error}").map(|()| true),
    }
}
