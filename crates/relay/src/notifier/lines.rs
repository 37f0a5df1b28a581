//! The lines of a process, by the names of their channels.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use outport_contract::stream::Channel;
use outport_store::channels::Positions;
use tokio::sync::Notify;

use super::{
    NotifierConfig,
    figures::Figures,
    line::{End, Line},
};

/// All lines, and those that are to be read, first come, first served.
pub(super) struct Lines {
    config: Arc<NotifierConfig>,
    figures: Arc<Figures>,
    open: Mutex<Open>,
    wake: Notify,
}

#[derive(Default)]
struct Open {
    lines: HashMap<Arc<str>, Entry>,
    ready: VecDeque<Arc<Line>>,
    subscribers: usize,
    is_stopped: bool,
}

/// A line, kept while somebody subscribes to it.
struct Entry {
    line: Arc<Line>,
    subscribers: usize,
}

impl Open {
    fn has(&self, line: &Arc<Line>) -> bool {
        self.lines.get(&line.name).is_some_and(|entry| Arc::ptr_eq(&entry.line, line))
    }
}

impl Lines {
    pub fn new(config: Arc<NotifierConfig>) -> Self {
        let (figures, open) = (Arc::default(), Mutex::default());
        Self { config, figures, open, wake: Notify::new() }
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a subscriber of a channel that has some already.
    pub fn enter(&self, name: &str) -> Option<Arc<Line>> {
        let mut open = self.lock();
        let entry = open.lines.get_mut(name)?;
        entry.subscribers += 1;
        let line = Arc::clone(&entry.line);
        open.subscribers += 1;
        self.count(&open);
        Some(line)
    }

    /// The same for a channel that had none when its position was read. It is read again, for
    /// what was appended since gave a hint that nobody heard.
    pub fn open(&self, channel: &Channel, now: &Positions) -> Arc<Line> {
        let head = now.channels.first().map_or(0, |position| position.head);
        let (config, figures) = (Arc::clone(&self.config), Arc::clone(&self.figures));
        let line = Line::new(channel.clone(), now.epoch.clone(), head, config, figures);
        let line = Arc::new(line);
        let mut open = self.lock();
        open.subscribers += 1;
        if open.is_stopped {
            line.end(End::Stopped);
            self.count(&open);
            return line;
        }
        // Two may have asked at once: the first one's line serves both.
        let entry = open.lines.entry(Arc::clone(&line.name));
        let entry = entry.or_insert_with(|| Entry { line: Arc::clone(&line), subscribers: 0 });
        entry.subscribers += 1;
        let line = Arc::clone(&entry.line);
        self.count(&open);
        drop(open);
        self.mark(&line);
        self.wake.notify_one();
        line
    }

    /// A subscriber goes; with the last one its line does.
    pub fn leave(&self, line: &Arc<Line>) {
        let mut open = self.lock();
        open.subscribers -= 1;
        if let Some(entry) = open.lines.get_mut(&line.name)
            && Arc::ptr_eq(&entry.line, line)
        {
            entry.subscribers -= 1;
            if entry.subscribers == 0 {
                open.lines.remove(&line.name);
            }
        }
        self.count(&open);
    }

    fn count(&self, open: &Open) {
        self.figures.serves(open.lines.len(), open.subscribers);
    }

    /// The line of this name is to be read, if there is one.
    pub fn mark_named(&self, name: &str) {
        let line = self.lock().lines.get(name).map(|entry| Arc::clone(&entry.line));
        if let Some(line) = line {
            self.mark(&line);
        }
    }

    /// The line is to be read, once, however often this is said before it is.
    pub fn mark(&self, line: &Arc<Line>) {
        if line.want() {
            self.lock().ready.push_back(Arc::clone(line));
        }
    }

    /// The line that has waited longest to be read, of those that somebody still subscribes to.
    pub fn next_ready(&self) -> Option<Arc<Line>> {
        let mut open = self.lock();
        loop {
            let line = open.ready.pop_front()?;
            if open.has(&line) {
                return Some(line);
            }
        }
    }

    /// Whether somebody still subscribes to the line.
    pub fn has(&self, line: &Arc<Line>) -> bool {
        self.lock().has(line)
    }

    /// Waits until a line is opened.
    pub async fn opened(&self) {
        self.wake.notified().await;
    }

    pub fn all(&self) -> Vec<Arc<Line>> {
        self.lock().lines.values().map(|entry| Arc::clone(&entry.line)).collect()
    }

    /// All lines go back to what was broadcast of them, and are read from there.
    pub fn rewind(&self) {
        self.lock().ready.clear();
        for line in self.all() {
            line.rewind();
            self.mark(&line);
        }
    }

    /// Who subscribes to the line is told to resync, and who comes next gets a new one.
    pub fn resync(&self, line: &Arc<Line>) {
        let mut open = self.lock();
        if open.has(line) {
            open.lines.remove(&line.name);
            self.figures.resync();
        }
        self.count(&open);
        drop(open);
        line.end(End::Resync);
    }

    /// What is gathered is sent, and every subscription ends, those that are yet to come too.
    pub fn stop(&self) {
        let mut open = self.lock();
        open.is_stopped = true;
        let lines = std::mem::take(&mut open.lines);
        open.ready.clear();
        self.count(&open);
        drop(open);
        for entry in lines.into_values() {
            entry.line.flush();
            entry.line.end(End::Stopped);
        }
    }
}
