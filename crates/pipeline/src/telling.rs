//! How far a run is, and what it has to tell the live stream: kept in memory, written by its
//! lease's look and by its end, so that a run waits for neither.

use std::sync::{Mutex, PoisonError};

use outport_domain::job::{FinishedFile, Progress, Stage};
use outport_store::{
    jobs::RunEnd,
    telling::{Account, Level, StageStep},
};
use tokio::sync::Notify;

/// What the state database is to know of a run.
#[derive(Default)]
pub(crate) struct Telling {
    known: Mutex<Known>,
    news: Notify,
}

#[derive(Default)]
struct Known {
    progress: Progress,
    account: Account,
    /// The rows that were told last.
    done: u64,
}

impl Telling {
    pub(crate) fn progress(&self) -> Progress {
        self.lock().progress
    }

    pub(crate) fn advance(&self, how: impl FnOnce(&mut Progress)) {
        how(&mut self.lock().progress);
    }

    /// A stage begins, and the one before has done what it is for.
    pub(crate) fn enter(&self, stage: Stage) {
        let mut known = self.lock();
        let known = &mut *known;
        known.account.stage(StageStep::Succeeded, &known.progress);
        known.progress.stage = Some(stage);
        known.account.stage(StageStep::Started, &known.progress);
        self.news.notify_one();
    }

    /// The run is over, and its stage with it.
    pub(crate) fn end(&self, end: &RunEnd) {
        match end {
            RunEnd::Completed(file) => self.say_what_is_in(file),
            RunEnd::Failed(failure) => {
                self.say(Level::Error, &format!("{}: {}", failure.code, failure.message));
            }
            RunEnd::Canceled => self.say(Level::Info, "The run was stopped as asked."),
            RunEnd::HandedBack => {
                self.say(Level::Info, "The worker stops; another one begins again.");
            }
        }
        let succeeded = matches!(end, RunEnd::Completed(_));
        let step = if succeeded { StageStep::Succeeded } else { StageStep::Failed };
        let mut known = self.lock();
        let known = &mut *known;
        known.account.stage(step, &known.progress);
    }

    fn say_what_is_in(&self, file: &FinishedFile) {
        let (replaced, guarded) = (file.warnings.replaced_cells, file.warnings.guarded_cells);
        if replaced > 0 {
            self.say(
                Level::Warn,
                &format!("Bytes that are no text were replaced in {replaced} cells."),
            );
        }
        if guarded > 0 {
            self.say(
                Level::Info,
                &format!("{guarded} cells that look like formulas were guarded."),
            );
        }
        let (rows, bytes) = (file.total_rows, file.size_bytes);
        self.say(Level::Info, &format!("The file is whole: {rows} rows, {bytes} bytes."));
    }

    /// A line of the log for people.
    pub(crate) fn say(&self, level: Level, message: &str) {
        let mut known = self.lock();
        let stage = known.progress.stage;
        known.account.line(level, stage, message);
    }

    /// Returns when a stage has begun.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Where the run is, and all that there is to tell now, how far it has read included.
    pub(crate) fn outgoing(&self) -> (Progress, Account) {
        let mut known = self.lock();
        let known = &mut *known;
        if known.progress.stage == Some(Stage::Generate) && known.progress.done > known.done {
            known.done = known.progress.done;
            known.account.stage(StageStep::Progress, &known.progress);
        }
        (known.progress, known.account.outgoing())
    }

    /// What is told by the end of the run.
    pub(crate) fn last(&self) -> Account {
        self.lock().account.outgoing()
    }

    /// What went out is stored.
    pub(crate) fn told(&self, outgoing: &Account) {
        self.lock().account.told(outgoing);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        // What is behind the lock is whole at any time, so a panic elsewhere spoils nothing.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
