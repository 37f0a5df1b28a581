//! Channels of the live stream: numbered from 1 without gaps, in the order of the commits, and
//! read without one missing, on both engines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use outport_contract::stream::{self, Channel, ChannelKind, Scope, StreamEvent};
use outport_store::{
    Engine, Store, Tx,
    channels::{self, NewEvent, Page, Replayed},
};
use tokio::time::timeout;
use uuid::Uuid;

use crate::bench::{self, Bench};

on_both_engines!(
    events_are_numbered_by_their_commits,
    an_event_of_several_channels_has_one_id,
    a_rollback_leaves_no_hole,
    many_events_of_one_transaction_keep_their_order,
    a_cursor_that_cannot_be_trusted_is_told_to_resync,
    a_new_epoch_ends_all_cursors,
    a_commit_tells_who_waits_for_its_channels,
    whoever_reads_while_others_write_sees_no_gap,
);

fn scope() -> Scope {
    Scope::of_job(Uuid::now_v7(), "shop", Uuid::now_v7())
}

fn of(scope: &Scope, kind: ChannelKind) -> Channel {
    scope.channel(kind).expect("the scope has such a member")
}

fn append(tx: &mut Tx, name: &str, scope: &Scope, note: &str) {
    let event_type = stream::find(name).expect("a type of the catalogue");
    tx.append(NewEvent::new(event_type, scope.clone(), format!("{{\"note\":\"{note}\"}}")));
}

async fn appended(store: &Store, name: &str, scope: &Scope, note: &str) {
    let mut tx = store.begin().await.expect("a transaction");
    append(&mut tx, name, scope, note);
    tx.commit().await.expect("a commit");
}

async fn page(store: &Store, channel: &Channel, after: u64, limit: u64) -> Page {
    match channels::replay(store, channel, after, None, limit).await.expect("an answer") {
        Replayed::Page(page) => page,
        Replayed::Resync(page) => panic!("resync after {after}: {page:?}"),
    }
}

fn notes(events: &[StreamEvent]) -> Vec<(u64, String)> {
    let note = |event: &StreamEvent| {
        let data: serde_json::Value = serde_json::from_str(event.data.get()).expect("JSON");
        data["note"].as_str().expect("a note").to_owned()
    };
    events.iter().map(|event| (event.sequence.expect("numbered"), note(event))).collect()
}

async fn events_are_numbered_by_their_commits(bench: Bench) {
    let scope = scope();
    let channel = of(&scope, ChannelKind::Job);
    let empty = page(&bench.store, &channel, 0, 10).await;
    assert_eq!((empty.head, empty.floor, empty.events.len()), (0, 0, 0));
    for note in ["a", "b", "c"] {
        appended(&bench.store, "turn.started", &scope, note).await;
    }
    let expected = [(1, "a"), (2, "b"), (3, "c")].map(|(at, note)| (at, note.to_owned()));
    let whole = page(&bench.store, &channel, 0, 10).await;
    assert_eq!((whole.head, notes(&whole.events)), (3, expected.to_vec()));
    let rest = page(&bench.store, &channel, 1, 1).await;
    assert_eq!((rest.head, notes(&rest.events)), (3, expected[1..2].to_vec()));
    let event = &whole.events[0];
    assert!(event.id.starts_with("evt_") && event.stream == scope, "{event:?}");
    assert_eq!(event.event_type, "turn.started");
    let other = self::scope();
    assert_eq!(page(&bench.store, &of(&other, ChannelKind::Job), 0, 10).await.head, 0);
}

async fn an_event_of_several_channels_has_one_id(bench: Bench) {
    let scope = scope();
    appended(&bench.store, "turn.started", &scope, "job alone").await;
    appended(&bench.store, "job.queued", &scope, "both").await;
    let job = page(&bench.store, &of(&scope, ChannelKind::Job), 0, 10).await;
    let application = page(&bench.store, &of(&scope, ChannelKind::Application), 0, 10).await;
    assert_eq!((job.events.len(), application.events.len()), (2, 1));
    assert_eq!(job.events[1].id, application.events[0].id);
    assert_eq!(job.events[1].time, application.events[0].time);
    assert_eq!((job.events[1].sequence, application.events[0].sequence), (Some(2), Some(1)));
    assert_eq!(page(&bench.store, &of(&scope, ChannelKind::Organization), 0, 10).await.head, 0);
    assert_eq!(bench.count("SELECT COUNT(*) FROM stream_events").await, 2);
}

async fn a_rollback_leaves_no_hole(bench: Bench) {
    let scope = scope();
    appended(&bench.store, "turn.started", &scope, "a").await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    append(&mut tx, "turn.started", &scope, "never");
    drop(tx);
    appended(&bench.store, "turn.started", &scope, "b").await;
    let page = page(&bench.store, &of(&scope, ChannelKind::Job), 0, 10).await;
    assert_eq!(notes(&page.events), [(1, "a".to_owned()), (2, "b".to_owned())]);
}

async fn many_events_of_one_transaction_keep_their_order(bench: Bench) {
    let scope = scope();
    let mut tx = bench.store.begin().await.expect("a transaction");
    // More than one statement takes.
    for note in 0..400 {
        append(&mut tx, "job.running", &scope, &note.to_string());
    }
    tx.commit().await.expect("a commit");
    let expected: Vec<_> = (0..400).map(|note| (note + 1, note.to_string())).collect();
    for kind in [ChannelKind::Job, ChannelKind::Application] {
        let page = page(&bench.store, &of(&scope, kind), 0, 1000).await;
        assert_eq!(notes(&page.events), expected);
    }
}

async fn a_cursor_that_cannot_be_trusted_is_told_to_resync(bench: Bench) {
    let scope = scope();
    let channel = of(&scope, ChannelKind::Job);
    for note in ["a", "b", "c"] {
        appended(&bench.store, "turn.started", &scope, note).await;
    }
    bench.force("UPDATE channels SET floor = 1").await;
    let asked = async |after, epoch: Option<&str>| {
        let answer = channels::replay(&bench.store, &channel, after, epoch, 10).await;
        match answer.expect("an answer") {
            Replayed::Page(page) => Some(page.events.len()),
            Replayed::Resync(page) => {
                assert_eq!((page.floor, page.head, page.events.len()), (1, 3, 0));
                None
            }
        }
    };
    assert_eq!(asked(0, None).await, None, "below the floor");
    assert_eq!(asked(1, None).await, Some(2), "at the floor");
    assert_eq!(asked(3, None).await, Some(0), "at the head");
    assert_eq!(asked(4, None).await, None, "above the head");
    assert_eq!(asked(u64::MAX, None).await, None, "far above the head");
    let epoch = channels::epoch(&bench.store).await.expect("an epoch");
    assert_eq!(asked(3, Some(&epoch)).await, Some(0), "its epoch");
    assert_eq!(asked(3, Some("another")).await, None, "another epoch");
}

async fn a_new_epoch_ends_all_cursors(bench: Bench) {
    let scope = scope();
    appended(&bench.store, "turn.started", &scope, "a").await;
    let before = channels::epoch(&bench.store).await.expect("an epoch");
    bench.store.migrate().await.expect("once more");
    assert_eq!(channels::epoch(&bench.store).await.expect("an epoch"), before, "a restart");
    let mut tx = bench.store.begin().await.expect("a transaction");
    let after = channels::new_epoch(&mut tx).await.expect("an epoch");
    tx.commit().await.expect("a commit");
    assert_ne!(after, before);
    let channel = of(&scope, ChannelKind::Job);
    let answer = channels::replay(&bench.store, &channel, 1, Some(&before), 10).await;
    assert!(matches!(answer, Ok(Replayed::Resync(page)) if page.epoch == after));
}

async fn a_commit_tells_who_waits_for_its_channels(bench: Bench) {
    let scope = scope();
    let other = Store::connect(&bench.config).await.expect("the store connects");
    // SQLite serves one process alone.
    let listening = if bench.store.engine() == Engine::Postgres { &other } else { &bench.store };
    let mut heard = listening.subscribe_to_channels();
    appended(&bench.store, "job.queued", &scope, "a").await;
    let mut channels = Vec::new();
    for _ in 0..2 {
        let hint = timeout(Duration::from_secs(10), heard.recv()).await.expect("in time");
        channels.push(hint.expect("a hint").expect("of a channel").to_string());
    }
    channels.sort();
    let mut expected =
        [ChannelKind::Job, ChannelKind::Application].map(|kind| of(&scope, kind).to_string());
    expected.sort();
    assert_eq!(channels, expected);
    other.close().await;
}

/// Eight writers, every tenth transaction rolled back, and a reader all the while: at every look
/// the count is the maximum is the head.
async fn whoever_reads_while_others_write_sees_no_gap(bench: Bench) {
    const WRITERS: usize = 8;
    const TRANSACTIONS: usize = 50;
    let scopes: Vec<_> = {
        let first = scope();
        (0..3).map(|_| Scope { job: Some(Uuid::now_v7()), ..first.clone() }).collect()
    };
    let channel = of(&scopes[0], ChannelKind::Application);
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (store, channel, done) = (bench.store.clone(), channel.clone(), Arc::clone(&done));
        tokio::spawn(async move {
            let mut looks = 0;
            loop {
                let last = done.load(Ordering::Acquire);
                let page = page(&store, &channel, 0, 100_000).await;
                let numbers = page.events.iter().filter_map(|event| event.sequence);
                assert!(numbers.eq(1..=page.head), "{page:?}");
                looks += 1;
                if last {
                    return (page.head, looks);
                }
            }
        })
    };
    let writers = (0..WRITERS).map(|writer| {
        let (store, scopes) = (bench.store.clone(), scopes.clone());
        tokio::spawn(async move {
            let mut committed = 0;
            for at in 0..TRANSACTIONS {
                let mut tx = store.begin().await.expect("a transaction");
                // In an order of its own each time: locks are taken in that of the channels.
                for step in 0..scopes.len() {
                    let scope = &scopes[(writer + at + step) % scopes.len()];
                    append(&mut tx, "job.running", scope, "x");
                }
                if (writer + at) % 10 == 0 {
                    drop(tx);
                } else {
                    tx.commit().await.expect("a commit");
                    committed += scopes.len();
                }
            }
            committed
        })
    });
    let mut committed = 0;
    for writer in writers.collect::<Vec<_>>() {
        committed += writer.await.expect("a writer");
    }
    done.store(true, Ordering::Release);
    let (head, looks) = reader.await.expect("the reader");
    assert_eq!(head as usize, committed);
    assert!(looks > 1);
}

/// The transaction that began first commits last: its event has the higher number, and who read
/// up to the other has missed nothing.
#[tokio::test]
async fn numbers_follow_the_commits_not_the_beginnings() {
    bench::run(Engine::Postgres, async |bench| {
        let scope = scope();
        let mut first = bench.store.begin().await.expect("a transaction");
        append(&mut first, "turn.started", &scope, "began first");
        appended(&bench.store, "turn.started", &scope, "committed first").await;
        let channel = of(&scope, ChannelKind::Job);
        let seen = page(&bench.store, &channel, 0, 10).await;
        assert_eq!(notes(&seen.events), [(1, "committed first".to_owned())]);
        first.commit().await.expect("a commit");
        let rest = page(&bench.store, &channel, seen.head, 10).await;
        assert_eq!(notes(&rest.events), [(2, "began first".to_owned())]);
        assert!(rest.events[0].time >= seen.events[0].time);
    })
    .await;
}

/// A copy of the database has an epoch of its own as soon as a process starts on it.
#[tokio::test]
async fn a_copy_of_a_database_has_its_own_epoch() {
    let (config, _) = bench::fresh(Engine::Postgres).await;
    let store = Store::connect(&config).await.expect("the store connects");
    store.migrate().await.expect("the schema");
    appended(&store, "turn.started", &scope(), "a").await;
    let before = channels::epoch(&store).await.expect("an epoch");
    store.close().await;
    let mut copy = config.clone();
    copy.url.push_str("_copy");
    bench::copy(&config, &copy).await;
    let store = Store::connect(&copy).await.expect("the store connects");
    store.migrate().await.expect("the schema");
    let after = channels::epoch(&store).await.expect("an epoch");
    store.close().await;
    bench::remove(Engine::Postgres, &copy).await;
    bench::remove(Engine::Postgres, &config).await;
    assert_ne!(after, before);
}
