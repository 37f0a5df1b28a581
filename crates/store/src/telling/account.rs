//! What a run has to tell: its stages, how far it is, and its log for people.

use std::collections::HashSet;

use chrono::Utc;
use outport_contract::{redaction::redact, stream, time::Instant};
use outport_domain::job::{Progress, Stage};
use sea_orm::{ConnectionTrait as _, Value};
use serde_json::json;
use uuid::Uuid;

use super::scope_of;
use crate::{StoreError, Tx, channels::NewEvent, entity::job};

/// What happened to a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStep {
    /// It began.
    Started,
    /// It goes on.
    Progress,
    /// It did what it is for.
    Succeeded,
    /// It did not, or was broken off.
    Failed,
}

impl StageStep {
    const fn event_type(self) -> &'static str {
        match self {
            Self::Started => "stage.started",
            Self::Progress => "stage.progress",
            Self::Succeeded => "stage.succeeded",
            Self::Failed => "stage.failed",
        }
    }
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// The result is whole, and somebody should look.
    Warn,
    /// The run is over.
    Error,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// What a run has to tell the live stream and has not told yet, in order.
#[derive(Clone, Debug, Default)]
pub struct Account {
    events: Vec<Told>,
    lines: Vec<serde_json::Value>,
    /// Whether it is not known if some of the events are stored.
    in_doubt: bool,
}

#[derive(Clone, Debug)]
struct Told {
    id: Uuid,
    event_type: &'static str,
    data: String,
}

impl Account {
    /// What happened to the stage that the run is in; nothing before its first.
    pub fn stage(&mut self, step: StageStep, progress: &Progress) {
        let Some(stage) = progress.stage else { return };
        // No row is done before rows are read.
        let done = (stage >= Stage::Generate).then_some(progress.done);
        let mut data = json!({"stage": stage.name(), "done": done, "total": progress.total});
        if progress.total_is_estimate {
            data["totalIsEstimate"] = true.into();
        }
        self.push(step.event_type(), &data);
    }

    /// What a person should know. Redacted here.
    pub fn line(&mut self, level: Level, stage: Option<Stage>, message: &str) {
        self.lines.push(json!({
            "time": Instant::from(Utc::now()),
            "level": level.name(),
            "stage": stage.map(Stage::name),
            "message": redact(message),
        }));
    }

    fn push(&mut self, event_type: &'static str, data: &serde_json::Value) {
        self.events.push(Told { id: Uuid::now_v7(), event_type, data: data.to_string() });
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.lines.is_empty()
    }

    /// All that there is to tell now. Until [`Account::told`] nobody knows whether it is.
    #[must_use]
    pub fn outgoing(&mut self) -> Self {
        if !self.lines.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            self.push("log.batch", &json!({"lines": lines}));
        }
        let outgoing = self.clone();
        self.in_doubt |= !self.events.is_empty();
        outgoing
    }

    /// What went out is stored.
    pub fn told(&mut self, outgoing: &Self) {
        self.events.drain(..outgoing.events.len());
        self.in_doubt = false;
    }
}

/// Appends what a run has to tell, but for what is stored already. The job's row is locked.
pub(crate) async fn tell_account(
    tx: &mut Tx,
    job: &job::Model,
    account: &Account,
) -> Result<(), StoreError> {
    let scope = scope_of(job);
    let known = if account.in_doubt { known(tx, account).await? } else { HashSet::new() };
    for told in account.events.iter().filter(|told| !known.contains(&told.id)) {
        let event_type = stream::find(told.event_type).expect("a type of the catalogue");
        let data = told.data.clone();
        tx.append(NewEvent { id: told.id, event_type, scope: scope.clone(), data });
    }
    Ok(())
}

async fn known(tx: &Tx, account: &Account) -> Result<HashSet<Uuid>, StoreError> {
    let places = (1..=account.events.len()).map(|at| format!("${at}")).collect::<Vec<_>>();
    let sql = format!("SELECT id FROM stream_events WHERE id IN ({})", places.join(", "));
    let ids = account.events.iter().map(|told| Value::from(told.id));
    let rows = tx.connection().query_all_raw(tx.engine().statement(sql, ids)).await?;
    rows.iter().map(|row| Ok(row.try_get("", "id")?)).collect()
}
