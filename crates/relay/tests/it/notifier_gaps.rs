//! The notifier: what did not travel, what cannot be trusted any more, and what was missed.

use outport_relay::{Notifier, NotifierConfig};
use outport_store::{Store, channels};

use crate::{
    listening::{
        GOES, NEVER, Running, WAITS, append, by_hints, by_polls, event, hear, hear_until, job,
        scope,
    },
    world::{World, on_both_stores},
};

on_both_stores!(
    what_is_too_old_becomes_one_pointer,
    a_slow_subscriber_gets_one_pointer_and_costs_others_nothing,
    a_new_epoch_ends_what_was_subscribed_before,
    a_new_epoch_is_seen_by_who_reads_next,
    who_is_behind_is_told_of_a_new_epoch_too,
    what_was_purged_before_it_was_sent_ends_in_a_resync,
    a_lost_hint_is_made_up_for_by_a_poll,
    two_notifiers_send_everything_once_each,
    a_loop_that_is_started_again_goes_on_where_it_stood,
    a_process_that_starts_again_owes_what_its_subscribers_ask_for,
    a_notifier_that_stopped_ends_new_subscriptions_too,
);

async fn what_is_too_old_becomes_one_pointer(world: &World) {
    let notifier = Notifier::new(world.store.clone(), by_hints());
    let scope = scope();
    let mut subscription = notifier.subscribe(&job(&scope)).await.expect("a subscription");
    // More than are read at once, of both kinds.
    append(&world.store, &scope, &[[(WAITS, "old"); 90], [(GOES, "old"); 90]].concat()).await;
    let twice = NEVER.as_millis() * 2;
    world.force(&format!("UPDATE stream_events SET time = time - {twice}")).await;
    append(&world.store, &scope, &[(WAITS, "a"), (GOES, "b")]).await;
    let running = Running::again(notifier);
    assert_eq!(hear_until(&mut subscription, 182).await, ["stale 180", "181:a", "182:b"]);
    let counts = running.notifier.figures().counts();
    assert_eq!((counts.events, counts.stale, counts.lagged), (2, 1, 0));
    running.stop().await;
}

async fn a_slow_subscriber_gets_one_pointer_and_costs_others_nothing(world: &World) {
    let config = NotifierConfig { queue: 2, ..by_hints() };
    let (scope, running) = (scope(), Running::start(&world.store, config));
    let mut slow = running.subscribe(&job(&scope)).await;
    let mut quick = running.subscribe(&job(&scope)).await;
    for number in 1..=20 {
        append(&world.store, &scope, &[(GOES, "x")]).await;
        assert_eq!(hear(&mut quick, 1).await, [format!("{number}:x")]);
    }
    assert_eq!(hear(&mut slow, 1).await, ["stale 20"]);
    append(&world.store, &scope, &[(GOES, "y")]).await;
    assert_eq!(hear(&mut quick, 1).await, ["21:y"]);
    assert_eq!(hear(&mut slow, 1).await, ["21:y"]);
    let counts = running.notifier.figures().counts();
    assert_eq!((counts.events, counts.stale, counts.lagged), (21, 0, 1));
    running.stop().await;
}

async fn new_epoch(store: &Store) -> String {
    let mut tx = store.begin().await.expect("a transaction");
    let epoch = channels::new_epoch(&mut tx).await.expect("an epoch");
    tx.commit().await.expect("a commit");
    epoch
}

async fn a_new_epoch_ends_what_was_subscribed_before(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_polls()));
    append(&world.store, &scope, &[(GOES, "a")]).await;
    let mut subscriptions = Vec::new();
    for _ in 0..3 {
        subscriptions.push(running.subscribe(&job(&scope)).await);
    }
    let epoch = new_epoch(&world.store).await;
    for subscription in &mut subscriptions {
        assert_eq!(hear(subscription, 3).await, ["resync", "end", "end"]);
    }
    let mut after = running.subscribe(&job(&scope)).await;
    assert_eq!((after.epoch(), after.from()), (&*epoch, 1));
    drop(subscriptions);
    append(&world.store, &scope, &[(GOES, "b")]).await;
    assert_eq!(hear(&mut after, 1).await, ["2:b"]);
    let counts = running.notifier.figures().counts();
    assert_eq!((counts.resyncs, counts.channels, counts.subscribers), (1, 1, 1));
    running.stop().await;
}

async fn a_new_epoch_is_seen_by_who_reads_next(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscription = running.subscribe(&job(&scope)).await;
    append(&world.store, &scope, &[(GOES, "a")]).await;
    assert_eq!(hear(&mut subscription, 1).await, ["1:a"]);
    new_epoch(&world.store).await;
    append(&world.store, &scope, &[(GOES, "b")]).await;
    assert_eq!(hear(&mut subscription, 1).await, ["resync"]);
    running.stop().await;
}

async fn who_is_behind_is_told_of_a_new_epoch_too(world: &World) {
    let config = NotifierConfig { queue: 2, ..by_hints() };
    let (scope, running) = (scope(), Running::start(&world.store, config));
    let mut slow = running.subscribe(&job(&scope)).await;
    let mut quick = running.subscribe(&job(&scope)).await;
    for _ in 0..5 {
        append(&world.store, &scope, &[(GOES, "x")]).await;
        hear(&mut quick, 1).await;
    }
    new_epoch(&world.store).await;
    append(&world.store, &scope, &[(GOES, "y")]).await;
    assert_eq!(hear(&mut quick, 1).await, ["resync"]);
    assert_eq!(hear(&mut slow, 2).await, ["resync", "end"]);
    running.stop().await;
}

async fn what_was_purged_before_it_was_sent_ends_in_a_resync(world: &World) {
    let notifier = Notifier::new(world.store.clone(), by_hints());
    let scope = scope();
    let mut subscription = notifier.subscribe(&job(&scope)).await.expect("a subscription");
    append(&world.store, &scope, &[(GOES, "a"), (GOES, "b"), (GOES, "c")]).await;
    world.force("DELETE FROM channel_events WHERE sequence <= 2").await;
    world.force("UPDATE channels SET floor = 2").await;
    let running = Running::again(notifier);
    assert_eq!(hear(&mut subscription, 2).await, ["resync", "end"]);
    running.stop().await;
}

/// What nobody is told of: rows that no code of ours wrote.
async fn append_secretly(world: &World) {
    world
        .force(
            "BEGIN; \
             INSERT INTO channel_events (channel, sequence, event_id) \
             SELECT channel, sequence + head, event_id FROM channels \
             JOIN channel_events USING (channel) WHERE sequence = 1; \
             UPDATE channels SET head = head + 1; COMMIT",
        )
        .await;
}

async fn a_lost_hint_is_made_up_for_by_a_poll(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_polls()));
    append(&world.store, &scope, &[(GOES, "a")]).await;
    let mut subscription = running.subscribe(&job(&scope)).await;
    for number in 2..=4 {
        append_secretly(world).await;
        assert_eq!(hear(&mut subscription, 1).await, [format!("{number}:a")]);
    }
    running.stop().await;
}

async fn two_notifiers_send_everything_once_each(world: &World) {
    let scope = scope();
    let both = [(); 2].map(|()| Running::start(&world.store, by_polls()));
    let mut first = both[0].subscribe(&job(&scope)).await;
    let mut second = both[1].subscribe(&job(&scope)).await;
    let mut expected = Vec::new();
    for number in 1..=30 {
        append(&world.store, &scope, &[(GOES, "x")]).await;
        expected.push(format!("{number}:x"));
    }
    assert_eq!(hear_until(&mut first, 30).await, expected);
    assert_eq!(hear_until(&mut second, 30).await, expected);
    for running in both {
        running.stop().await;
    }
}

async fn a_loop_that_is_started_again_goes_on_where_it_stood(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscription = running.subscribe(&job(&scope)).await;
    append(&world.store, &scope, &[(GOES, "a"), (WAITS, "gathered")]).await;
    assert_eq!(hear(&mut subscription, 1).await, ["1:a"]);
    let notifier = running.kill().await;
    append(&world.store, &scope, &[(WAITS, "missed"), (GOES, "b")]).await;
    let running = Running::again(notifier);
    assert_eq!(hear(&mut subscription, 2).await, ["2:gathered 3:missed", "4:b"]);
    running.stop().await;
}

/// No pointer is needed: the subscription says what is to be replayed.
async fn a_process_that_starts_again_owes_what_its_subscribers_ask_for(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscription = running.subscribe(&job(&scope)).await;
    append(&world.store, &scope, &[(GOES, "a")]).await;
    assert_eq!(hear(&mut subscription, 1).await, ["1:a"]);
    running.kill().await;
    append(&world.store, &scope, &[(GOES, "nobody is there")]).await;
    let running = Running::start(&world.store, by_hints());
    let mut subscription = running.subscribe(&job(&scope)).await;
    assert_eq!(subscription.from(), 2, "it replays 2 from its cursor, and waits for 3");
    append(&world.store, &scope, &[(GOES, "b")]).await;
    assert_eq!(hear(&mut subscription, 1).await, ["3:b"]);
    running.stop().await;
}

async fn a_notifier_that_stopped_ends_new_subscriptions_too(world: &World) {
    let running = Running::start(&world.store, by_hints());
    let notifier = running.notifier.clone();
    running.stop().await;
    let mut subscription = notifier.subscribe(&job(&scope())).await.expect("an answer");
    assert_eq!(hear(&mut subscription, 1).await, ["end"]);
    assert_eq!(notifier.figures().counts().channels, 0);
    drop(subscription);
    assert_eq!(notifier.figures().counts().subscribers, 0);
}

/// `SQLite` has one writer at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_in_the_order_of_commits_and_from_every_process() {
    World::on_postgres(async |world: &World| {
        let elsewhere = world.connect_again().await;
        let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
        let mut subscription = running.subscribe(&job(&scope)).await;
        let mut first = elsewhere.begin().await.expect("a transaction");
        first.append(event(&scope, GOES, "began first"));
        append(&world.store, &scope, &[(GOES, "committed first")]).await;
        assert_eq!(hear(&mut subscription, 1).await, ["1:committed first"]);
        first.commit().await.expect("a commit");
        assert_eq!(hear(&mut subscription, 1).await, ["2:began first"]);
        running.stop().await;
        elsewhere.close().await;
    })
    .await;
}

/// Nobody listened when it was appended, and no poll is to come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_is_looked_at_as_soon_as_it_is_opened() {
    World::on_sqlite(async |world: &World| {
        let notifier = Notifier::new(world.store.clone(), by_hints());
        let scope = scope();
        let mut subscription = notifier.subscribe(&job(&scope)).await.expect("a subscription");
        append(&world.store, &scope, &[(GOES, "a")]).await;
        let running = Running::again(notifier);
        assert_eq!(hear(&mut subscription, 1).await, ["1:a"]);
        running.stop().await;
    })
    .await;
}
