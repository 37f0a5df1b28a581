//! Channels lose their beginnings, and nothing else.

use std::time::Duration;

use outport_contract::stream::{self, Channel, ChannelKind, Scope};
use outport_domain::id::OrganizationId;
use outport_store::{
    channels::{self, NewEvent, Replayed},
    jobs,
};
use uuid::Uuid;

use crate::{
    bench::{Bench, abandoned},
    stream::channel_of,
};

on_both_engines!(
    what_is_too_old_goes_from_the_beginning,
    numbers_go_on_when_all_is_gone,
    an_event_stays_while_a_channel_has_it,
    what_is_young_stays_whatever_is_behind_it,
    a_pass_is_bounded,
    a_cursor_below_the_floor_is_told_to_resync,
    a_job_that_is_forgotten_takes_its_channel_along,
);

const WEEK: Duration = Duration::from_hours(168);

fn scope() -> Scope {
    Scope::of_job(Uuid::now_v7(), "shop", Uuid::now_v7())
}

fn of(scope: &Scope, kind: ChannelKind) -> Channel {
    scope.channel(kind).expect("the scope has such a member")
}

async fn append(bench: &Bench, scope: &Scope, name: &str) {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let event_type = stream::find(name).expect("a type of the catalogue");
    tx.append(NewEvent::new(event_type, scope.clone(), "{}".to_owned()));
    tx.commit().await.expect("a commit");
}

/// All that there is now is of eight days ago.
async fn age(bench: &Bench) {
    bench.force("UPDATE stream_events SET time = time - 691200000").await;
}

async fn purge(bench: &Bench, most: u32) -> u64 {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let purged = channels::purge(&mut tx, WEEK, most).await.expect("purged");
    tx.commit().await.expect("a commit");
    purged
}

/// Floor, head, and the numbers that are there.
async fn state(bench: &Bench, channel: &Channel) -> (u64, u64, Vec<u64>) {
    let asked = channels::replay(&bench.store, channel, 0, None, 100).await.expect("an answer");
    let floor = match asked {
        Replayed::Page(page) | Replayed::Resync(page) => page.floor,
    };
    let asked = channels::replay(&bench.store, channel, floor, None, 100).await;
    let Replayed::Page(page) = asked.expect("an answer") else { panic!("at the floor") };
    let numbers = page.events.iter().filter_map(|event| event.sequence).collect();
    (page.floor, page.head, numbers)
}

async fn what_is_too_old_goes_from_the_beginning(bench: Bench) {
    let scope = scope();
    for _ in 0..3 {
        append(&bench, &scope, "turn.started").await;
    }
    age(&bench).await;
    for _ in 0..2 {
        append(&bench, &scope, "turn.started").await;
    }
    assert_eq!(purge(&bench, 100).await, 3);
    assert_eq!(state(&bench, &of(&scope, ChannelKind::Job)).await, (3, 5, vec![4, 5]));
    assert_eq!(bench.count("SELECT COUNT(*) FROM stream_events").await, 2);
    assert_eq!(purge(&bench, 100).await, 0, "once is enough");
}

async fn numbers_go_on_when_all_is_gone(bench: Bench) {
    let scope = scope();
    append(&bench, &scope, "turn.started").await;
    append(&bench, &scope, "turn.started").await;
    age(&bench).await;
    assert_eq!(purge(&bench, 100).await, 2);
    let channel = of(&scope, ChannelKind::Job);
    assert_eq!(state(&bench, &channel).await, (2, 2, vec![]));
    append(&bench, &scope, "turn.started").await;
    assert_eq!(state(&bench, &channel).await, (2, 3, vec![3]));
}

async fn an_event_stays_while_a_channel_has_it(bench: Bench) {
    let scope = scope();
    append(&bench, &scope, "job.queued").await;
    age(&bench).await;
    bench.force("DELETE FROM channel_events WHERE channel LIKE 'job:%'").await;
    bench.force("UPDATE stream_events SET time = time + 691200000").await;
    assert_eq!(purge(&bench, 100).await, 0);
    assert_eq!(bench.count("SELECT COUNT(*) FROM stream_events").await, 1);
    age(&bench).await;
    assert_eq!(purge(&bench, 100).await, 1, "the row of its application");
    assert_eq!(bench.count("SELECT COUNT(*) FROM stream_events").await, 0);
}

/// A clock was set back between the two events.
async fn what_is_young_stays_whatever_is_behind_it(bench: Bench) {
    let (scope, other) = (scope(), scope());
    append(&bench, &scope, "turn.started").await;
    append(&bench, &other, "turn.started").await;
    append(&bench, &scope, "turn.started").await;
    append(&bench, &scope, "turn.started").await;
    age(&bench).await;
    let channel = of(&scope, ChannelKind::Job);
    bench
        .force(&format!(
            "UPDATE stream_events SET time = time + 691200000 WHERE id = \
             (SELECT event_id FROM channel_events WHERE channel = '{channel}' AND sequence = 2)"
        ))
        .await;
    assert_eq!(purge(&bench, 100).await, 2, "the prefix of this one, and all of the other");
    assert_eq!(state(&bench, &channel).await, (1, 3, vec![2, 3]));
    assert_eq!(state(&bench, &of(&other, ChannelKind::Job)).await, (1, 1, vec![]));
}

async fn a_pass_is_bounded(bench: Bench) {
    let scopes = [scope(), scope()];
    for at in 0..10 {
        append(&bench, &scopes[at % 2], "job.running").await;
    }
    age(&bench).await;
    let mut left = 20;
    while left > 0 {
        let purged = purge(&bench, 3).await;
        assert!((1..=6).contains(&purged), "{purged} rows of three events");
        left -= purged;
        for channel in [&scopes[0], &scopes[1]].map(|scope| of(scope, ChannelKind::Job)) {
            let (floor, head, numbers) = state(&bench, &channel).await;
            assert!(numbers.into_iter().eq(floor + 1..=head));
        }
    }
    for table in ["channel_events", "stream_events"] {
        assert_eq!(bench.count(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
}

async fn a_cursor_below_the_floor_is_told_to_resync(bench: Bench) {
    let scope = scope();
    for _ in 0..4 {
        append(&bench, &scope, "turn.started").await;
    }
    let channel = of(&scope, ChannelKind::Job);
    let page = async |after| channels::replay(&bench.store, &channel, after, None, 2).await;
    let Replayed::Page(first) = page(0).await.expect("an answer") else { panic!("resync") };
    assert_eq!(first.events.len(), 2);
    age(&bench).await;
    append(&bench, &scope, "turn.started").await;
    purge(&bench, 100).await;
    // In the middle of a replay: never a part of it, never silence.
    assert!(matches!(page(2).await, Ok(Replayed::Resync(page)) if page.floor == 4));
    assert!(matches!(page(4).await, Ok(Replayed::Page(page)) if page.events.len() == 1));
}

async fn a_job_that_is_forgotten_takes_its_channel_along(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    bench.finish(&claim.fence, &abandoned()).await;
    let kept = bench.running(OrganizationId::new()).await;
    bench.force("UPDATE deliveries SET status = 'DONE'").await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    assert_eq!(jobs::purge(&mut tx, Duration::ZERO, 100).await.expect("purged"), 1);
    tx.commit().await.expect("a commit");
    let gone = channel_of(&claim.job);
    for table in ["channels", "channel_events"] {
        let count = format!("SELECT COUNT(*) FROM {table} WHERE channel = '{gone}'");
        assert_eq!(bench.count(&count).await, 0, "{table}");
    }
    let application = "SELECT COUNT(*) FROM channels WHERE channel LIKE 'application:%'";
    assert_eq!(bench.count(application).await, 2, "what is not of one job stays");
    assert_eq!(state(&bench, &channel_of(&kept.job)).await.1, 3);
    age(&bench).await;
    while purge(&bench, 100).await > 0 {}
    assert_eq!(bench.count("SELECT COUNT(*) FROM stream_events").await, 0, "nobody's events go");
}
