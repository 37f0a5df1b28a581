//! Events appended to channels, and what is heard of them.

use std::{fmt::Write as _, time::Duration};

use outport_contract::stream::{self, Batch, Channel, ChannelKind, POINTER, Pointer, Scope};
use outport_relay::{Event, Notifier, NotifierConfig, Sent, Subscription};
use outport_store::{Store, channels::NewEvent};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::PATIENCE;

/// A type of event that may wait for others.
pub const WAITS: &str = "stage.progress";
/// One that does not.
pub const GOES: &str = "turn.started";

/// Longer than any test.
pub const NEVER: Duration = Duration::from_hours(1);

/// A notifier that does nothing by the clock: hints alone wake it, and what may wait waits for
/// what does not.
pub fn by_hints() -> NotifierConfig {
    NotifierConfig { interval: NEVER, max_age: NEVER, poll: NEVER, ..NotifierConfig::default() }
}

/// The same without hints, as it were: it looks often.
pub fn by_polls() -> NotifierConfig {
    NotifierConfig { poll: Duration::from_millis(20), ..by_hints() }
}

/// A job of somebody.
pub fn scope() -> Scope {
    Scope::of_job(Uuid::now_v7(), "shop", Uuid::now_v7())
}

pub fn job(scope: &Scope) -> Channel {
    scope.channel(ChannelKind::Job).expect("it is of a job")
}

/// Appends events, each its type and a note, in one transaction.
pub async fn append(store: &Store, scope: &Scope, events: &[(&str, &str)]) {
    let mut tx = store.begin().await.expect("a transaction");
    for (name, note) in events {
        tx.append(event(scope, name, note));
    }
    tx.commit().await.expect("a commit");
}

pub fn event(scope: &Scope, name: &str, note: &str) -> NewEvent {
    let event_type = stream::find(name).expect("a type of the catalogue");
    let data = format!(r#"{{"stage":"generate","done":1,"total":null,"note":"{note}"}}"#);
    NewEvent::new(event_type, scope.clone(), data)
}

/// A notifier that runs.
pub struct Running {
    pub notifier: Notifier,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub fn start(store: &Store, config: NotifierConfig) -> Self {
        Self::again(Notifier::new(store.clone(), config))
    }

    pub fn again(notifier: Notifier) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (notifier, stop) = (notifier.clone(), stop.clone());
            async move { notifier.run(stop).await }
        });
        Self { notifier, stop, task }
    }

    pub async fn subscribe(&self, channel: &Channel) -> Subscription {
        self.notifier.subscribe(channel).await.expect("a subscription")
    }

    /// Tells it to stop, and waits for it.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("an end in order");
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(self) -> Notifier {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it runs until then");
        self.notifier
    }
}

/// The next so many messages as texts: `1:a 2:b` of a batch, `stale 7` of a pointer.
pub async fn hear(subscription: &mut Subscription, messages: usize) -> Vec<String> {
    let mut heard = Vec::new();
    for _ in 0..messages {
        let told = match next(subscription, &heard).await {
            Some(Event::Sent(sent)) => read(subscription, &sent),
            Some(Event::Resync) => "resync".to_owned(),
            None => "end".to_owned(),
        };
        heard.push(told);
    }
    heard
}

/// Messages until this sequence is reached.
pub async fn hear_until(subscription: &mut Subscription, sequence: u64) -> Vec<String> {
    let (mut heard, mut reached) = (Vec::new(), subscription.from());
    while reached < sequence {
        match next(subscription, &heard).await {
            Some(Event::Sent(sent)) => {
                assert_eq!(sent.after, reached, "after {heard:?}");
                reached = sent.sequence;
                heard.push(read(subscription, &sent));
            }
            other => panic!("{other:?} after {heard:?}"),
        }
    }
    heard
}

async fn next(subscription: &mut Subscription, heard: &[String]) -> Option<Event> {
    let next = timeout(PATIENCE, subscription.next()).await;
    next.unwrap_or_else(|_| panic!("nothing more comes after {heard:?}"))
}

/// What it says, once it is what the contract says.
fn read(subscription: &Subscription, sent: &Sent) -> String {
    let frame = format!(r#"{{"event":"{}","data":{}}}"#, sent.name, sent.text());
    assert_eq!(sent.frame(), frame.as_bytes());
    if sent.name == POINTER {
        let pointer: Pointer = serde_json::from_str(sent.text()).expect("a pointer");
        assert_eq!(pointer.channel, *subscription.channel());
        assert_eq!(pointer.epoch.as_deref(), Some(subscription.epoch()));
        assert_eq!(pointer.sequence, sent.sequence);
        return format!("{} {}", pointer.reason, pointer.sequence);
    }
    let batch: Batch = serde_json::from_str(sent.text()).expect("a batch");
    assert_eq!(batch.channel, *subscription.channel());
    assert_eq!(batch.epoch.as_deref(), Some(subscription.epoch()));
    let numbers = batch.events.iter().filter_map(|event| event.sequence);
    assert!(numbers.eq(sent.after + 1..=sent.sequence), "{sent:?}");
    let mut text = String::new();
    for event in &batch.events {
        let data: serde_json::Value = serde_json::from_str(event.data.get()).expect("JSON");
        let note = data["note"].as_str().expect("a note");
        let space = if text.is_empty() { "" } else { " " };
        let sequence = event.sequence.expect("a number");
        write!(text, "{space}{sequence}:{note}").expect("memory");
    }
    text
}
