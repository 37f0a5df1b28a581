//! `outport resource`: writes resource files by reading a database's schema, and compares them
//! with it. Needs the configuration and the databases, not the state of an installation.

mod compare;
mod draft;
mod init;
mod naming;

use std::{collections::BTreeMap, io::Write, process::ExitCode, time::Duration};

use clap::Subcommand;
use outport_domain::spec::Catalogue;
use outport_source::SourceConfig;

use super::Failure;
use crate::{config::Config, process};
use compare::{Report, Weight};

#[derive(Subcommand)]
pub(super) enum ResourceCommand {
    /// Writes a resource file from a table or view
    Init(init::Options),
    /// Compares every resource with its database, and tells all that differs
    Check,
}

pub(super) async fn run(command: ResourceCommand, config: Config) -> Result<ExitCode, Failure> {
    match command {
        ResourceCommand::Init(options) => init::run(options, &config).await,
        ResourceCommand::Check => {
            let catalogue = process::catalogue(&config)?;
            let mut out = std::io::stdout();
            let connections = &config.connections;
            let fits = check(&mut out, &catalogue, connections, config.limits.no_progress).await?;
            if catalogue.0.is_empty() {
                return Err(Failure::Failed(none_in(&config)));
            }
            Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// What to say where there is no resource file.
pub(super) fn none_in(config: &Config) -> String {
    let folder = config.resources_dir.display();
    format!("there is no resource file in {folder}; `outport resource init` writes one")
}

/// Compares all resources with their databases and prints a table of what it finds, a line for
/// each; hints are worth a thought and no faults. Whether there is no fault.
pub(super) async fn check(
    out: &mut impl Write,
    catalogue: &Catalogue,
    connections: &BTreeMap<String, SourceConfig>,
    limit: Duration,
) -> std::io::Result<bool> {
    let reports = compare::all(catalogue, connections, limit).await;
    let width = |of: fn(&Report) -> &str| {
        reports.iter().map(|report| of(report).chars().count()).max().unwrap_or_default()
    };
    let (resources, members) = (width(|r| &r.resource), width(|r| &r.member));
    for Report { weight, resource, member, text } in &reports {
        let line = format!(
            "{:<5} resource {resource:<resources$}  {member:<members$}  {text}",
            weight.name()
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(!reports.iter().any(|report| report.weight == Weight::Fault))
}
