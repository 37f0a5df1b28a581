//! Every event once and in order, whatever comes.

use std::time::Duration;

use outport_client::{Item, Start};

use crate::{
    server::Server,
    words::{Watched, after, batch, channel, event, events, named, page, pointer, subscribed},
};

#[tokio::test]
async fn from_now_on_what_was_before_is_not_given() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), Start::Now)]);
    let mut connection = server.connection().await;
    assert_eq!(connection.subscription(&job).await, None);
    connection.say(subscribed(&job, 40)).await;
    connection.say(batch(&job, events([39, 40, 41]))).await;
    assert_eq!(watched.sequences(1).await, [41]);
    connection.say(batch(&job, events([42]))).await;
    assert_eq!(watched.sequences(1).await, [42]);
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn what_comes_twice_or_in_another_order_is_given_once_and_in_order() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    assert_eq!(connection.subscription(&job).await, Some(0));
    connection.say(subscribed(&job, 3)).await;
    connection.say(batch(&job, events([3, 1, 1, 2]))).await;
    connection.say(batch(&job, events([1, 2, 3]))).await;
    connection.say(batch(&job, events([2, 4]))).await;
    assert_eq!(watched.sequences(4).await, [1, 2, 3, 4]);
    connection.say(batch(&job, events([5]))).await;
    assert_eq!(watched.sequences(1).await, [5]);
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn a_gap_is_closed_by_one_replay_at_a_time_while_live_events_wait() {
    let (mut server, job, other) = (Server::start().await, channel(1), channel(2));
    let mut watched = Watched::of(&server, [(job.clone(), after(1)), (other.clone(), after(7))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.subscription(&other).await;
    connection.say(batch(&job, events([5]))).await;
    let asked = server.replay(&job, 1).await;
    // Two pointers and more events during one replay.
    connection.say(pointer(&job, 7, "oversize")).await;
    connection.say(batch(&job, events([6]))).await;
    connection.say(pointer(&job, 9, "stale")).await;
    connection.say(batch(&job, events([10]))).await;
    // What another channel is told last was heard after all of that.
    connection.say(batch(&other, events([8]))).await;
    assert_eq!(watched.sequences(1).await, [8]);
    asked.answer(&page(&job, 5, events([2, 3, 4]))).await;
    assert_eq!(watched.sequences(5).await, [2, 3, 4, 5, 6]);
    let asked = server.replay(&job, 6).await;
    server.nothing_else_was_asked();
    asked.answer(&page(&job, 10, events([7, 8, 9]))).await;
    assert_eq!(watched.sequences(4).await, [7, 8, 9, 10]);
    connection.say(batch(&job, events([11]))).await;
    assert_eq!(watched.sequences(1).await, [11]);
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn more_than_there_is_room_for_comes_by_the_replay() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    // There is room for four.
    connection.say(batch(&job, events(2..=20))).await;
    server.replay(&job, 0).await.answer(&page(&job, 20, events([1]))).await;
    assert_eq!(watched.sequences(5).await, [1, 2, 3, 4, 5]);
    server.replay(&job, 5).await.answer(&page(&job, 20, events(6..=20))).await;
    assert_eq!(watched.sequences(15).await, (6..=20).collect::<Vec<_>>());
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn a_pointer_at_or_below_the_cursor_is_ignored_and_one_above_is_a_gap() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(5))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    for (sequence, reason) in [(5, "stale"), (4, "oversize"), (5, "head"), (1, "of another time")] {
        connection.say(pointer(&job, sequence, reason)).await;
    }
    connection.say(batch(&job, events([6]))).await;
    assert_eq!(watched.sequences(1).await, [6]);
    server.nothing_else_was_asked();
    // A reason that nobody knows is a gap like any other.
    for (sequence, reason) in [(7, "oversize"), (8, "stale"), (9, "head"), (10, "of another time")]
    {
        connection.say(pointer(&job, sequence, reason)).await;
        let asked = server.replay(&job, sequence - 1).await;
        asked.answer(&page(&job, sequence, events([sequence]))).await;
        assert_eq!(watched.sequences(1).await, [sequence]);
    }
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn a_lost_last_event_is_noticed_by_the_heartbeat() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.say(batch(&job, events([1]))).await;
    assert_eq!(watched.sequences(1).await, [1]);
    connection.say(pointer(&job, 2, "head")).await;
    server.replay(&job, 1).await.answer(&page(&job, 2, events([2]))).await;
    assert_eq!(watched.sequences(1).await, [2]);
}

#[tokio::test]
async fn a_head_that_was_never_reached_is_given_up_and_following_goes_on() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(3))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.say(pointer(&job, u64::MAX, "stale")).await;
    for _ in 0..6 {
        server.replay(&job, 3).await.answer(&page(&job, 3, Vec::new())).await;
    }
    connection.say(batch(&job, events([4]))).await;
    assert_eq!(watched.sequences(1).await, [4]);
    connection.say(batch(&job, events([5]))).await;
    assert_eq!(watched.sequences(1).await, [5]);
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn a_replay_that_fails_is_tried_again() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.say(pointer(&job, 2, "stale")).await;
    for (status, headers, body, word) in [
        (503, "retry-after: 1\r\n", "{}".to_owned(), "503"),
        (200, "", "no JSON".to_owned(), "cannot be read"),
        (200, "", page(&channel(2), 2, events([1, 2])).to_string(), "another channel"),
        (429, "", String::new(), "429"),
    ] {
        server.replay(&job, 0).await.refuse(status, headers, &body).await;
        let (delay, why) = watched.retrying().await;
        assert!(why.contains(word), "{why}");
        assert_eq!(delay >= Duration::from_secs(1), !headers.is_empty(), "{delay:?}");
    }
    drop(server.replay(&job, 0).await);
    assert!(watched.retrying().await.1.contains("cannot be reached"));
    server.replay(&job, 0).await.answer(&page(&job, 2, events([1, 2]))).await;
    assert_eq!(watched.sequences(2).await, [1, 2]);
}

#[tokio::test]
async fn types_and_messages_that_nobody_knows_do_no_harm() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    for text in ["", "{", "[]", "{\"event\":\"of another time\",\"data\":7}"] {
        connection.say_text(text).await;
    }
    connection.say(batch(&channel(2), events([1]))).await;
    connection.say(pointer(&channel(2), 9, "stale")).await;
    let mut unknown = event(1);
    unknown["type"] = "moon.phase".into();
    connection.say(batch(&job, vec![unknown, event(2)])).await;
    assert_eq!(watched.sequences(2).await, [1, 2], "the cursor advances over it");
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn one_event_in_two_channels_is_told_from_two_events() {
    let (mut server, job, other) = (Server::start().await, channel(1), channel(2));
    let mut watched = Watched::of(&server, [(job.clone(), after(0)), (other.clone(), after(6))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.subscription(&other).await;
    connection.say(batch(&job, vec![named(1, "evt_a"), named(2, "evt_b")])).await;
    connection.say(batch(&other, vec![named(7, "evt_a"), named(8, "evt_c")])).await;
    let mut given = Vec::new();
    for _ in 0..4 {
        match watched.next().await {
            Some(Item::Event(told)) => {
                given.push((told.event.id, told.event.sequence, told.first_time));
            }
            other => panic!("{other:?}"),
        }
    }
    let expected =
        [("evt_a", 1, true), ("evt_b", 2, true), ("evt_a", 7, false), ("evt_c", 8, true)];
    let expected = expected.map(|(id, sequence, first)| (id.to_owned(), Some(sequence), first));
    assert_eq!(given, expected);
}

#[tokio::test]
async fn a_caller_who_takes_nothing_for_a_while_loses_nothing() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut config = crate::words::config();
    config.queue = 1;
    let mut watched = Watched::with(&server, [(job.clone(), after(0))], config);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    let saying = tokio::spawn(async move {
        for sequence in 1..=500 {
            connection.say(batch(&channel(1), events([sequence]))).await;
        }
        connection
    });
    assert_eq!(watched.sequences(500).await, (1..=500).collect::<Vec<_>>());
    saying.await.expect("all was said");
    server.nothing_else_was_asked();
}
