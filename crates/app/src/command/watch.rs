//! `outport watch`: an export to its end. Exit code 0 when it succeeded, else 1.

use std::{
    io::{IsTerminal as _, Stdout, Write as _},
    process::ExitCode,
};

use clap::Args;
use futures::StreamExt as _;
use outport_client::{Backoff, Client, FollowConfig, Follower, Item, Snapshot, Start};
use outport_contract::stream::{Channel, StreamEvent};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    Failure,
    server::{Server, again, line},
    terminal,
};

/// Columns of the bar.
const BAR: u64 = 30;

#[derive(Args)]
pub(super) struct WatchArguments {
    /// The export's id
    id: Uuid,
    /// One JSON object a line: what is so at first, then each event
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(arguments: WatchArguments) -> Result<ExitCode, Failure> {
    let WatchArguments { id, json, server } = arguments;
    let channel = Channel::Job(id);
    let client = server.client()?;
    let start = [(channel.clone(), Start::Snapshot)];
    let mut items = Follower::start(client.clone(), start, FollowConfig::default());
    let mut screen = Screen::new(json);
    while let Some(item) = items.next().await {
        let seen = match &item {
            Item::Event(told) => Seen::of_event(&told.event),
            Item::Snapshot(taken) => Seen::of_snapshot(&taken.snapshot),
            Item::Reconnecting { .. } | Item::Retrying { .. } => None,
            Item::Ended { end, .. } => return Err(Failure::of_server(&end)),
        };
        screen.show(&item, seen.as_ref())?;
        if seen.is_some_and(|seen| seen.ended.is_some()) {
            let Some(is_success) = ended(&client, &channel, &mut screen).await? else { continue };
            screen.close()?;
            return Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    Ok(ExitCode::FAILURE)
}

/// Whether the export is over, and well. Others may post events to its channel too: how it ended,
/// the server alone says, however often it must be asked.
async fn ended(
    client: &Client,
    channel: &Channel,
    screen: &mut Screen,
) -> Result<Option<bool>, Failure> {
    let FollowConfig { backoff, most_backoff, seed, .. } = FollowConfig::default();
    let mut backoff = Backoff::new(backoff, most_backoff, seed);
    let mut tries = 0;
    loop {
        let error = match client.snapshot(channel).await {
            Ok(snapshot) => return Ok(Seen::of_snapshot(&snapshot).and_then(|seen| seen.ended)),
            Err(error) => error,
        };
        let is_refused =
            |status| (400..500).contains(&status) && !matches!(status, 408 | 425 | 429);
        if error.status().is_some_and(is_refused) {
            return Err(Failure::of_server(&error));
        }
        let delay = backoff.delay(tries, error.retry_after());
        let (channel, why) = (channel.clone(), error.to_string());
        screen.show(&Item::Retrying { channel, delay, why }, None)?;
        tokio::time::sleep(delay).await;
        tries += 1;
    }
}

/// An export as the API shows it, as far as it is shown here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    status: String,
    progress: Option<Progress>,
    failure: Option<Trouble>,
}

/// How far a stage is.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    stage: Option<String>,
    done: Option<u64>,
    total: Option<u64>,
}

/// What went wrong, of an export or an event.
#[derive(Default, Deserialize)]
struct Trouble {
    code: Option<String>,
    message: Option<String>,
}

/// What is worth a line.
struct Seen {
    what: String,
    progress: Option<Progress>,
    /// Whether it is over, and well.
    ended: Option<bool>,
}

impl Seen {
    fn of_snapshot(snapshot: &Snapshot) -> Option<Self> {
        let job = serde_json::from_str(snapshot.jobs.first()?.get()).ok()?;
        Some(Self::of_job(job))
    }

    fn of_job(job: Job) -> Self {
        let ended = match job.status.as_str() {
            "COMPLETED" | "EXPIRED" => Some(true),
            "FAILED" | "CANCELED" => Some(false),
            _ => None,
        };
        let mut what = job.status.to_lowercase();
        what.push_str(&job.failure.unwrap_or_default().text());
        Self { what, progress: job.progress, ended }
    }

    /// None: nothing that is shown.
    fn of_event(event: &StreamEvent) -> Option<Self> {
        let name = event.event_type.as_str();
        let (family, word) = name.split_once('.')?;
        let progress = || serde_json::from_str::<Progress>(event.data.get()).ok();
        let mut seen = Self { what: word.replace('_', " "), progress: None, ended: None };
        match (family, word) {
            ("job", _) => {
                let trouble: Trouble = serde_json::from_str(event.data.get()).unwrap_or_default();
                seen.what.push_str(&trouble.text());
                seen.ended = match word {
                    "succeeded" => Some(true),
                    "failed" | "cancelled" | "limit_exceeded" => Some(false),
                    _ => None,
                };
            }
            ("stage", _) => {
                seen.progress = progress();
                let stage = seen.progress.as_ref().and_then(|progress| progress.stage.clone());
                seen.what = format!("{} {}", stage.unwrap_or_default(), seen.what);
            }
            ("retry", _) => "another try follows".clone_into(&mut seen.what),
            _ => return None,
        }
        Some(seen)
    }
}

impl Trouble {
    fn text(&self) -> String {
        let code = self.code.as_ref().map(|code| format!(": {code}")).unwrap_or_default();
        let message = self.message.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        format!("{code}{message}")
    }
}

/// Where it is shown: JSON, a terminal whose last line is a bar, or lines.
struct Screen {
    out: Stdout,
    json: bool,
    is_terminal: bool,
    /// Characters of the bar that stands on the last line.
    bar: usize,
}

impl Screen {
    fn new(json: bool) -> Self {
        let out = std::io::stdout();
        Self { json, is_terminal: out.is_terminal(), bar: 0, out }
    }

    fn show(&mut self, item: &Item, seen: Option<&Seen>) -> std::io::Result<()> {
        if self.json {
            writeln!(self.out, "{}", line(item))?;
            return self.out.flush();
        }
        if let Item::Reconnecting { delay, why } | Item::Retrying { delay, why, .. } = item {
            self.wipe()?;
            return again(*delay, why);
        }
        let Some(seen) = seen else { return Ok(()) };
        let bar = seen.progress.as_ref().and_then(Progress::bar).map(|bar| self.fitted(&bar));
        let is_progress = seen.what.ends_with(" progress");
        if !is_progress {
            self.wipe()?;
            writeln!(self.out, "{}", terminal::text(&seen.what))?;
        }
        if let Some(bar) = bar.filter(|_| self.is_terminal && seen.ended.is_none()) {
            self.wipe()?;
            self.bar = bar.chars().count();
            write!(self.out, "{bar}")?;
        }
        self.out.flush()
    }

    /// As much of a bar as one line of the terminal holds: of one that breaks into two, the first
    /// could not be taken away.
    fn fitted(&self, bar: &str) -> String {
        let size = rustix::termios::tcgetwinsize(&self.out).ok().filter(|size| size.ws_col > 0);
        let columns = size.map_or(usize::MAX, |size| usize::from(size.ws_col) - 1);
        bar.chars().take(columns).collect()
    }

    /// Takes the bar away.
    fn wipe(&mut self) -> std::io::Result<()> {
        if self.bar > 0 {
            write!(self.out, "\r{:width$}\r", "", width = self.bar)?;
            self.bar = 0;
        }
        Ok(())
    }

    fn close(&mut self) -> std::io::Result<()> {
        self.wipe()?;
        self.out.flush()
    }
}

impl Progress {
    /// `generate [######------] 20 % 500 of 2500`, or without a total `generate 500`.
    fn bar(&self) -> Option<String> {
        let (stage, done) = (terminal::text(self.stage.as_deref()?), self.done?);
        let Some(total) = self.total.filter(|total| *total > 0) else {
            return Some(format!("{stage} {done}"));
        };
        let (part, whole) = (u128::from(done.min(total)), u128::from(total));
        let share = |of: u64| (part * u128::from(of) / whole) as u64;
        let full = "#".repeat(share(BAR) as usize);
        let percent = share(100);
        Some(format!("{stage} [{full:-<30}] {percent} % {done} of {total}"))
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A client of a server that gives these answers, one a connection.
    async fn client_of(answers: Vec<(&'static str, String)>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            for (status, body) in answers {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let asked = socket.read(&mut [0; 4096]).await.expect("a request");
                assert!(asked > 0);
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                socket.write_all(answer.as_bytes()).await.expect("it reads");
            }
        });
        Client::new(&format!("http://{address}"), "t").expect("a client")
    }

    #[tokio::test]
    async fn how_it_ended_is_asked_for_until_the_server_says() {
        let channel = Channel::Job(Uuid::nil());
        let snapshot = |status| {
            let jobs = serde_json::json!([{ "status": status }]);
            serde_json::json!({ "channel": channel, "sequence": 1, "jobs": jobs }).to_string()
        };
        for (status, expected) in
            [("PROCESSING", None), ("COMPLETED", Some(true)), ("FAILED", Some(false))]
        {
            let busy = ("503 Service Unavailable", "{}".to_owned());
            let elsewhere = ("302 Found", String::new());
            // What ended is another export.
            let other =
                snapshot("FAILED").replace("\"status\"", "\"exportJobId\":\"x\",\"status\"");
            let answers = vec![busy, elsewhere, ("200 OK", other), ("200 OK", snapshot(status))];
            let client = client_of(answers).await;
            let seen = ended(&client, &channel, &mut Screen::new(false)).await;
            assert_eq!(seen.expect("an answer"), expected, "{status}");
        }
        let client = client_of(vec![("404 Not Found", "{}".to_owned())]).await;
        let seen = ended(&client, &channel, &mut Screen::new(false)).await;
        assert!(seen.is_err(), "nobody can say any more");
    }

    #[test]
    fn a_bar_is_full_when_all_is_done_and_never_fuller() {
        let bar = |done, total| {
            let progress = Progress { stage: Some("generate".to_owned()), done, total };
            progress.bar()
        };
        let whole = format!("generate [{}] 100 % 7 of 7", "#".repeat(30));
        assert_eq!(bar(Some(7), Some(7)), Some(whole));
        let half = format!("generate [{}{}] 50 % 5 of 10", "#".repeat(15), "-".repeat(15));
        assert_eq!(bar(Some(5), Some(10)), Some(half));
        let estimated = format!("generate [{}] 100 % 9 of 7", "#".repeat(30));
        assert_eq!(bar(Some(9), Some(7)), Some(estimated), "a total may be an estimate");
        assert_eq!(bar(Some(5), None), Some("generate 5".to_owned()));
        assert_eq!(bar(Some(0), Some(0)), Some("generate 0".to_owned()));
        assert_eq!(bar(None, Some(7)), None);
    }

    #[test]
    fn what_is_over_is_told_from_what_goes_on() {
        let job = |status: &str| {
            let job = Job { status: status.to_owned(), progress: None, failure: None };
            Seen::of_job(job).ended
        };
        assert_eq!(job("PROCESSING"), None);
        assert_eq!(job("CANCELING"), None);
        assert_eq!(job("COMPLETED"), Some(true));
        assert_eq!(job("CANCELED"), Some(false));
        let trouble = Trouble { code: Some("LIMIT".to_owned()), message: Some("much".to_owned()) };
        let job = Job { status: "FAILED".to_owned(), progress: None, failure: Some(trouble) };
        assert_eq!(Seen::of_job(job).what, "failed: LIMIT (much)");
    }
}
