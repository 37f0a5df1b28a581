//! The notifier: what leaves it, in which order and in which company.

use std::{sync::Arc, time::Duration};

use outport_relay::{Event, Notifier, NotifierConfig};
use outport_store::channels;

use crate::{
    listening::{GOES, Running, WAITS, append, by_hints, event, hear, hear_until, job, scope},
    world::{PATIENCE, World, on_both_stores},
};

on_both_stores!(
    what_is_appended_after_a_subscription_comes_to_it,
    a_rollback_leaves_no_hole,
    events_that_may_wait_travel_together_and_leave_before_one_that_may_not,
    events_that_wait_leave_with_the_interval,
    a_long_transaction_keeps_its_order,
    an_immediate_event_waits_for_no_flood_elsewhere,
    a_batch_fills_its_limit_to_the_byte,
    what_fits_into_no_message_is_pointed_at_in_its_place,
    all_subscribers_of_a_channel_get_the_same_message,
    a_channel_that_nobody_subscribes_to_is_forgotten,
    no_event_falls_between_a_subscription_and_its_beginning,
);

async fn what_is_appended_after_a_subscription_comes_to_it(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    append(&world.store, &scope, &[(GOES, "before")]).await;
    let mut subscription = running.subscribe(&job(&scope)).await;
    assert_eq!(subscription.from(), 1, "what is before is replayed");
    let epoch = channels::epoch(&world.store).await.expect("an epoch");
    assert_eq!((subscription.channel(), subscription.epoch()), (&job(&scope), &*epoch));
    append(&world.store, &scope, &[(GOES, "é")]).await;
    append(&world.store, &crate::listening::scope(), &[(GOES, "of another job")]).await;
    append(&world.store, &scope, &[(GOES, "b")]).await;
    assert_eq!(hear_until(&mut subscription, 3).await, ["2:é", "3:b"]);
    running.stop().await;
    assert_eq!(hear(&mut subscription, 2).await, ["end", "end"]);
}

async fn a_rollback_leaves_no_hole(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscription = running.subscribe(&job(&scope)).await;
    append(&world.store, &scope, &[(GOES, "a")]).await;
    let mut tx = world.store.begin().await.expect("a transaction");
    tx.append(event(&scope, GOES, "never"));
    drop(tx);
    append(&world.store, &scope, &[(GOES, "b")]).await;
    assert_eq!(hear_until(&mut subscription, 2).await, ["1:a", "2:b"]);
    running.stop().await;
}

async fn events_that_may_wait_travel_together_and_leave_before_one_that_may_not(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscription = running.subscribe(&job(&scope)).await;
    // More than are read at once.
    for _ in 0..80 {
        append(&world.store, &scope, &[(WAITS, "x")]).await;
    }
    append(&world.store, &scope, &[(GOES, "now"), (WAITS, "later"), (GOES, "last")]).await;
    let together = (1..=80).map(|number| format!("{number}:x")).collect::<Vec<_>>().join(" ");
    let heard = hear_until(&mut subscription, 83).await;
    assert_eq!(heard, [together.as_str(), "81:now", "82:later", "83:last"]);
    // What has gathered when it stops is not kept back.
    append(&world.store, &scope, &[(GOES, "mark"), (WAITS, "a"), (WAITS, "b")]).await;
    assert_eq!(hear(&mut subscription, 1).await, ["84:mark"]);
    running.stop().await;
    assert_eq!(hear(&mut subscription, 2).await, ["85:a 86:b", "end"]);
}

async fn events_that_wait_leave_with_the_interval(world: &World) {
    let config = NotifierConfig { interval: Duration::from_millis(50), ..by_hints() };
    let (scope, running) = (scope(), Running::start(&world.store, config));
    let mut subscription = running.subscribe(&job(&scope)).await;
    for round in 0..3 {
        append(&world.store, &scope, &[(WAITS, "a"), (WAITS, "b")]).await;
        let (first, second) = (2 * round + 1, 2 * round + 2);
        assert_eq!(hear(&mut subscription, 1).await, [format!("{first}:a {second}:b")]);
    }
    running.stop().await;
}

async fn a_long_transaction_keeps_its_order(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscription = running.subscribe(&job(&scope)).await;
    let mut events = vec![(WAITS, "x"); 299];
    events.push((GOES, "x"));
    append(&world.store, &scope, &events).await;
    let heard = hear_until(&mut subscription, 300).await;
    let numbers: Vec<_> = heard.iter().flat_map(|text| text.split(' ')).collect();
    let expected: Vec<_> = (1..=300).map(|number| format!("{number}:x")).collect();
    assert_eq!(numbers, expected);
    running.stop().await;
}

/// More flooded channels than are read at once, all with a backlog when it begins.
async fn an_immediate_event_waits_for_no_flood_elsewhere(world: &World) {
    const FLOODED: usize = 8;
    const EACH: usize = 600;
    let notifier = Notifier::new(world.store.clone(), by_hints());
    let scopes: Vec<_> = (0..FLOODED).map(|_| scope()).collect();
    let mut flooded = Vec::new();
    for scope in &scopes {
        flooded.push(notifier.subscribe(&job(scope)).await.expect("a subscription"));
        append(&world.store, scope, &vec![(GOES, "flood"); EACH]).await;
    }
    let scope = scope();
    let mut subscription = notifier.subscribe(&job(&scope)).await.expect("a subscription");
    append(&world.store, &scope, &[(GOES, "urgent")]).await;
    let running = Running::again(notifier);
    assert_eq!(hear(&mut subscription, 1).await, ["1:urgent"]);
    let sent = running.notifier.figures().counts().events;
    assert!(sent < (FLOODED * EACH / 2) as u64, "{sent} of the flood went first");
    // The flood is not lost for that: who keeps up with it hears all of it or a pointer.
    let mut last = flooded.pop().expect("one");
    let heard = hear_until(&mut last, EACH as u64).await;
    assert!(heard.last().is_some_and(|text| text.contains("600")), "{heard:?}");
    running.stop().await;
}

async fn a_batch_fills_its_limit_to_the_byte(world: &World) {
    // Two bytes a letter: the limit counts bytes.
    let round = [(WAITS, "ééé"), (WAITS, "é"), (WAITS, "éé"), (GOES, "now")];
    let scope = scope();
    let measuring = Running::start(&world.store, by_hints());
    let mut measured = measuring.subscribe(&job(&scope)).await;
    append(&world.store, &scope, &round).await;
    let size = match measured.next().await {
        Some(Event::Sent(sent)) => sent.text().len(),
        other => panic!("{other:?}"),
    };
    let limited = |most_bytes| NotifierConfig { most_bytes, ..by_hints() };
    let fits = Running::start(&world.store, limited(size));
    let splits = Running::start(&world.store, limited(size - 1));
    let mut fitting = fits.subscribe(&job(&scope)).await;
    let mut split = splits.subscribe(&job(&scope)).await;
    append(&world.store, &scope, &round).await;
    assert_eq!(hear_until(&mut fitting, 8).await, ["5:ééé 6:é 7:éé", "8:now"]);
    assert_eq!(hear_until(&mut split, 8).await, ["5:ééé 6:é", "7:éé", "8:now"]);
    for running in [measuring, fits, splits] {
        running.stop().await;
    }
}

async fn what_fits_into_no_message_is_pointed_at_in_its_place(world: &World) {
    let config = NotifierConfig { most_bytes: 1_000, ..by_hints() };
    let (scope, running) = (scope(), Running::start(&world.store, config));
    let mut subscription = running.subscribe(&job(&scope)).await;
    let large = "x".repeat(1_000);
    let round = [
        (WAITS, "a"),
        (WAITS, &*large),
        (WAITS, &*large),
        (WAITS, "b"),
        (GOES, "c"),
        (GOES, &*large),
        (GOES, "d"),
    ];
    append(&world.store, &scope, &round).await;
    let heard = hear_until(&mut subscription, 7).await;
    assert_eq!(heard, ["1:a", "oversize 3", "4:b", "5:c", "oversize 6", "7:d"]);
    let counts = running.notifier.figures().counts();
    assert_eq!((counts.batches, counts.events, counts.oversize), (4, 4, 2));
    running.stop().await;
}

async fn all_subscribers_of_a_channel_get_the_same_message(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let mut subscriptions = Vec::new();
    for _ in 0..50 {
        subscriptions.push(running.subscribe(&job(&scope)).await);
    }
    append(&world.store, &scope, &[(GOES, "a")]).await;
    let mut messages = Vec::new();
    for subscription in &mut subscriptions {
        match tokio::time::timeout(PATIENCE, subscription.next()).await.expect("in time") {
            Some(Event::Sent(sent)) => messages.push(sent),
            other => panic!("{other:?}"),
        }
    }
    assert!(messages.iter().all(|sent| Arc::ptr_eq(sent, &messages[0])), "made once");
    assert_eq!(running.notifier.figures().counts().events, 1);
    running.stop().await;
}

async fn a_channel_that_nobody_subscribes_to_is_forgotten(world: &World) {
    let (scope, running) = (scope(), Running::start(&world.store, by_hints()));
    let figures = running.notifier.figures();
    let served = || (figures.counts().channels, figures.counts().subscribers);
    let first = running.subscribe(&job(&scope)).await;
    let second = running.subscribe(&job(&scope)).await;
    let other = running.subscribe(&job(&crate::listening::scope())).await;
    assert_eq!(served(), (2, 3));
    drop(first);
    assert_eq!(served(), (2, 2));
    drop((second, other));
    assert_eq!(served(), (0, 0));
    append(&world.store, &scope, &[(GOES, "to nobody")]).await;
    let mut again = running.subscribe(&job(&scope)).await;
    assert_eq!(again.from(), 1);
    append(&world.store, &scope, &[(GOES, "to somebody")]).await;
    assert_eq!(hear(&mut again, 1).await, ["2:to somebody"]);
    assert_eq!(figures.counts().events, 1, "nothing was made for nobody");
    running.stop().await;
}

/// Many times, for it is a race: hints alone wake the notifier, and no event waits for the next.
async fn no_event_falls_between_a_subscription_and_its_beginning(world: &World) {
    let running = Running::start(&world.store, by_hints());
    for _ in 0..150 {
        let scope = scope();
        let appending = tokio::spawn({
            let (store, scope) = (world.store.clone(), scope.clone());
            async move {
                for note in ["a", "b", "c"] {
                    append(&store, &scope, &[(GOES, note)]).await;
                }
            }
        });
        let mut subscription = running.subscribe(&job(&scope)).await;
        let from = subscription.from() as usize;
        let heard = hear_until(&mut subscription, 3).await;
        assert_eq!(heard, ["1:a", "2:b", "3:c"][from..]);
        appending.await.expect("the writer");
    }
    running.stop().await;
}
