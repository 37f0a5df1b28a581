//! `outport check`: configuration, resources and reachability of everything, in words.

use std::{
    io::{Stdout, Write as _},
    process::ExitCode,
    time::Duration,
};

use outport_contract::link::LinkKeys;
use outport_domain::spec::Catalogue;
use outport_relay::broker::Unusable;

use super::{
    Failure,
    resource::{self, answered, patience},
    terminal,
};
use crate::{
    config::Config,
    process::{self, certificate_fault},
};

/// How long the state database may take: its schema may have to be brought up to date.
const STATE_WITHIN: Duration = Duration::from_mins(1);

/// Checks everything and says a line for each, whatever came before it and however long another
/// takes. Exit code 1 when one fails, 2 when a resource file is among them: that is configuration.
pub(super) async fn run(config: Config) -> Result<ExitCode, Failure> {
    let mut report = Report { out: std::io::stdout(), failed: false };
    for notice in &config.notices {
        report.note(notice)?;
    }
    report.line("configuration", Ok(()))?;
    let (catalogue, faults) = process::sound_resources(&config);
    let answer = answered(STATE_WITHIN, state(&config)).await;
    let answer = answer.unwrap_or_else(|late| Err(format!("{late}; is a table locked?")));
    report.line("state database, migrated", answer)?;
    report.line("object store", answered(patience(&config), objects(&config)).await.flatten())?;
    mails(&config, &catalogue, &mut report).await?;
    broker(&config, &mut report).await?;
    sources(&config, &mut report).await?;
    for fault in &faults {
        report.line("resources", Err(fault.clone()))?;
    }
    if catalogue.0.is_empty() && faults.is_empty() {
        report.line("resources", Err(resource::none_in(&config)))?;
    }
    let fits = resource::check(&mut report.out, &catalogue, &config).await?;
    Ok(match (faults.is_empty(), report.failed || !fits) {
        (false, _) => ExitCode::from(2),
        (true, true) => ExitCode::FAILURE,
        (true, false) => ExitCode::SUCCESS,
    })
}

async fn state(config: &Config) -> Result<(), String> {
    process::make_private(&config.data_dir)
        .map_err(|error| format!("dataDir cannot be made: {error}"))?;
    let store = process::state(config).await.map_err(|error| error.to_string())?;
    store.close().await;
    Ok(())
}

async fn objects(config: &Config) -> Result<(), String> {
    let objects = process::objects(config).await.map_err(|error| error.to_string())?;
    objects.check().await.map_err(|error| error.to_string())
}

async fn mails(config: &Config, catalogue: &Catalogue, report: &mut Report) -> std::io::Result<()> {
    let keys = LinkKeys::from(&config.keys);
    match process::correspondence(config, catalogue, keys) {
        Ok(correspondence) => {
            report.line("mail templates", Ok(()))?;
            let mail = answered(patience(config), process::check_mailer(&correspondence)).await;
            report.line("mail", mail.flatten())
        }
        Err(error) => report.line("mail", Err(error.to_string())),
    }
}

/// The broker, where there is one: every fault names the variable to look at, and nothing of what
/// the URL holds.
async fn broker(config: &Config, report: &mut Report) -> std::io::Result<()> {
    let Some(broker) = &config.broker else { return Ok(()) };
    let checked = match answered(patience(config), outport_relay::broker::check(broker)).await {
        Err(late) => Err(Unusable::Connection(late)),
        Ok(checked) => checked,
    };
    report.line(
        "broker",
        checked.map_err(|unusable| match unusable {
            Unusable::Connection(why) => format!("OUTPORT_BROKER_URL: {why}"),
            Unusable::Certificate(why) => certificate_fault(&why),
            Unusable::Exchange(why) => format!("RABBITMQ_JOB_EVENTS_EXCHANGE: {why}"),
        }),
    )
}

async fn sources(config: &Config, report: &mut Report) -> std::io::Result<()> {
    for (name, source) in &config.connections {
        let source = outport_source::connect(source);
        let checked = async { source.check().await.map_err(|error| error.to_string()) };
        let checked = answered(patience(config), checked).await.flatten();
        report.line(&format!("connection '{name}'"), checked)?;
        if let Some(note) = source.note() {
            report.note(&format!("connection '{name}' is {note}"))?;
        }
    }
    Ok(())
}

/// What was found so far, told as it is found.
struct Report {
    out: Stdout,
    failed: bool,
}

impl Report {
    fn note(&mut self, text: &str) -> std::io::Result<()> {
        writeln!(self.out, "note  {}", terminal::lines(text))
    }

    fn line(&mut self, what: &str, result: Result<(), String>) -> std::io::Result<()> {
        let what = terminal::text(what);
        match result {
            Ok(()) => writeln!(self.out, "ok    {what}"),
            Err(error) => {
                self.failed = true;
                writeln!(self.out, "FAIL  {what}: {}", terminal::lines(&error))
            }
        }
    }
}
