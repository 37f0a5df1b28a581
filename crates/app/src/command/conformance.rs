//! `outport conformance stream`: whether a server keeps the live stream's rules, case by case.
//! Exit code 1 when it does not.

use std::{
    io::{Stdout, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Subcommand, builder::RangedU64ValueParser};
use outport_client::conformance::{self, KitConfig, Outcome, Verdict};
use uuid::Uuid;

use super::{Failure, server::Token, terminal};

#[derive(Subcommand)]
pub(super) enum ConformanceCommand {
    /// A server of the live stream, from outside. It appends events of test applications, so the
    /// token needs events:write and events:read; with tokens:admin, revocation is checked too
    Stream(StreamArguments),
}

#[derive(Args)]
pub(super) struct StreamArguments {
    /// The server's address; several of its processes, separated by commas, take turns
    #[arg(
        long,
        env = "OUTPORT_URL",
        hide_env_values = true,
        value_name = "URL",
        value_delimiter = ',',
        required = true
    )]
    url: Vec<String>,
    #[command(flatten)]
    token: Token,
    /// The token's organization [default: as the server says]
    #[arg(long, value_name = "ID")]
    organization: Option<Uuid>,
    /// An export of the organization, for the types of events that only a job has: test events
    /// are appended to its channel
    #[arg(long, value_name = "ID")]
    job: Option<Uuid>,
    /// Bytes of a message, at most, as the server is configured: 1024 to 4194304
    #[arg(
        long,
        default_value_t = 64 * 1024,
        value_name = "BYTES",
        value_parser = RangedU64ValueParser::<usize>::new().range(1024..=4 * 1024 * 1024)
    )]
    message_bytes: usize,
    /// How often the server says where a channel is, as it is configured: 1 to 3600
    #[arg(
        long,
        default_value_t = 15,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    heartbeat: u64,
    /// Only the cases whose rule or name has this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// One JSON object a case: {"rule", "case", "verdict", "why", "millis"}, with pass, fail or
    /// notApplicable as the verdict
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(command: ConformanceCommand) -> Result<ExitCode, Failure> {
    let ConformanceCommand::Stream(arguments) = command;
    let clients: Result<Vec<_>, _> =
        arguments.url.iter().map(|url| arguments.token.client(url)).collect();
    let config = KitConfig {
        organization: arguments.organization,
        job: arguments.job,
        message_bytes: arguments.message_bytes,
        heartbeat: Duration::from_secs(arguments.heartbeat),
        only: arguments.only,
        ..KitConfig::new(clients?)
    };
    let (mut out, mut written) = (std::io::stdout(), Ok(()));
    let outcomes = conformance::run(config, |outcome| {
        if written.is_ok() {
            written = tell(&mut out, outcome, arguments.json);
        }
    })
    .await;
    written?;
    let count =
        |is: fn(&Verdict) -> bool| outcomes.iter().filter(|outcome| is(&outcome.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Fail(_)));
    let passed = count(|verdict| *verdict == Verdict::Pass);
    if !arguments.json {
        let others = outcomes.len() - passed - failed;
        writeln!(out, "{passed} passed, {failed} failed, {others} not applicable")?;
    }
    // A run that checked nothing has not found a server that keeps the rules.
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(out: &mut Stdout, outcome: &Outcome, json: bool) -> std::io::Result<()> {
    if json {
        writeln!(out, "{}", terminal::json(&serde_json::json!(outcome).to_string()))?;
    } else {
        let (word, why) = match &outcome.verdict {
            Verdict::Pass => ("pass", None),
            Verdict::Fail(why) => ("FAIL", Some(why)),
            Verdict::NotApplicable(why) => ("n/a ", Some(why)),
        };
        let why = why.map(|why| format!(": {}", terminal::text(why))).unwrap_or_default();
        writeln!(out, "{word}  {:<12}  {}{why}", outcome.rule, outcome.case)?;
    }
    out.flush()
}
