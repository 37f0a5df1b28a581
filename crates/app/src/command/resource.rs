//! `outport resource`: writes resource files by reading a database's schema, and compares them
//! with it. Needs the configuration and the databases, not the state of an installation.

mod compare;
mod draft;
mod init;
mod naming;

use std::{io::Write, process::ExitCode, time::Duration};

use clap::Subcommand;
use futures::{Stream, StreamExt as _, stream::FuturesOrdered};
use outport_domain::{resource::Resource, spec::Catalogue};

use super::{Failure, terminal};
use crate::{config::Config, process};
use compare::{Databases, Report, Weight};

/// How long a database that is connected to may take to answer a check.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

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
            let fits = check(&mut std::io::stdout(), &catalogue, &config).await?;
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

/// How long a check waits for one answer, connecting included; a run may be more patient.
pub(super) fn patience(config: &Config) -> Duration {
    config.limits.no_progress.min(config.limits.source_connect + ANSWER_WITHIN)
}

/// What an answer comes to, if it comes within this time.
pub(super) async fn answered<T>(
    limit: Duration,
    answer: impl Future<Output = T>,
) -> Result<T, String> {
    let late = |_| format!("no answer within {} s", limit.as_secs());
    tokio::time::timeout(limit, answer).await.map_err(late)
}

/// What is found of each resource, in their order, while those after it are looked at.
fn in_order<'a>(
    databases: &'a Databases<'a>,
    resources: impl Iterator<Item = &'a Resource>,
) -> impl Stream<Item = Vec<Report>> + Unpin {
    resources.map(|resource| databases.compare(resource)).collect::<FuturesOrdered<_>>()
}

/// Compares all resources with their databases and prints what it finds as it finds it, a line
/// for each; hints are worth a thought and no faults. Whether there is no fault.
pub(super) async fn check(
    out: &mut impl Write,
    catalogue: &Catalogue,
    config: &Config,
) -> std::io::Result<bool> {
    let databases = Databases::new(&config.connections, patience(config));
    let names = catalogue.0.values().map(|resource| resource.name.chars().count());
    let resources = names.max().unwrap_or_default();
    let mut fits = true;
    let mut found = in_order(&databases, catalogue.0.values().map(|resource| &**resource));
    while let Some(reports) = found.next().await {
        let members = reports.iter().map(|report| report.member.chars().count());
        let members = members.max().unwrap_or_default();
        for Report { weight, resource, member, text } in &reports {
            let line = format!(
                "{:<5} resource {resource:<resources$}  {member:<members$}  {text}",
                weight.name()
            );
            writeln!(out, "{}", terminal::lines(line.trim_end()))?;
            fits &= *weight != Weight::Fault;
        }
    }
    Ok(fits)
}
