//! When a position can no longer be trusted, that is said, and following goes on from a snapshot.

use outport_client::{Item, Reason, Start};
use uuid::Uuid;

use crate::{
    server::{Connection, Server},
    words::{
        Watched, after, batch, batch_of, channel, event, events, named, page, pointer, snapshot,
        subscribed, told,
    },
};

const GONE: &str = r#"{"code":"resync.required","status":410}"#;

/// A follower of `channel(1)` at sequence 2, subscribed.
async fn at_two() -> (Server, Watched, Connection) {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.say(batch(&job, events([1, 2]))).await;
    assert_eq!(watched.sequences(2).await, [1, 2]);
    (server, watched, connection)
}

/// The follower loads a snapshot at 70, says so, subscribes anew from there and goes on.
async fn it_resyncs(
    server: &mut Server,
    watched: &mut Watched,
    connection: &mut Connection,
    reason: Reason,
) {
    let job = channel(1);
    let asked = server.request().await;
    assert_eq!(asked.path, format!("/v1/channels/{job}/snapshot"));
    asked.answer(&snapshot(&job, "e2", 70)).await;
    assert_eq!(watched.snapshot().await, (70, Some(reason)));
    let said = connection.hear().await;
    assert_eq!(said["action"], "unsubscribe");
    let said = connection.hear().await;
    assert_eq!((&said["after"], &said["epoch"]), (&70.into(), &"e2".into()));
    connection.say(batch_of("e2", &job, events([71]))).await;
    assert_eq!(watched.sequences(1).await, [71]);
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn when_the_server_says_so() {
    let (mut server, mut watched, mut connection) = at_two().await;
    connection.say(batch(&channel(1), vec![told("resync.required")])).await;
    it_resyncs(&mut server, &mut watched, &mut connection, Reason::Told).await;
}

#[tokio::test]
async fn when_a_page_in_the_middle_is_gone() {
    let (mut server, mut watched, mut connection) = at_two().await;
    let job = channel(1);
    connection.say(pointer(&job, 60, "stale")).await;
    server.replay(&job, 2).await.answer(&page(&job, 60, events(3..=30))).await;
    assert_eq!(watched.sequences(28).await, (3..=30).collect::<Vec<_>>());
    server.replay(&job, 30).await.refuse(410, "", GONE).await;
    it_resyncs(&mut server, &mut watched, &mut connection, Reason::Gone).await;
}

#[tokio::test]
async fn when_another_epoch_begins() {
    let job = channel(1);
    for message in [
        batch_of("e2", &job, events([3])),
        {
            let mut pointer = pointer(&job, 2, "head");
            pointer["data"]["epoch"] = "e2".into();
            pointer
        },
        {
            let mut subscribed = subscribed(&job, 9);
            subscribed["data"]["epoch"] = "e2".into();
            subscribed
        },
    ] {
        let (mut server, mut watched, mut connection) = at_two().await;
        connection.say(message).await;
        it_resyncs(&mut server, &mut watched, &mut connection, Reason::Epoch).await;
    }
}

#[tokio::test]
async fn when_one_sequence_belongs_to_two_events() {
    // Given already, in a message, or held.
    for (first, second) in [(None, 2), (Some(5), 5)] {
        let (mut server, mut watched, mut connection) = at_two().await;
        let job = channel(1);
        if let Some(held) = first {
            connection.say(batch(&job, events([held]))).await;
            let asked = server.replay(&job, 2).await;
            connection.say(batch(&job, vec![named(second, "evt_other")])).await;
            it_resyncs(&mut server, &mut watched, &mut connection, Reason::Identity).await;
            // The answer that is of no use any more.
            asked.answer(&page(&job, 5, events([3, 4]))).await;
        } else {
            connection.say(batch(&job, vec![named(second, "evt_other")])).await;
            it_resyncs(&mut server, &mut watched, &mut connection, Reason::Identity).await;
        }
    }
}

#[tokio::test]
async fn when_a_replay_has_a_hole() {
    let job = channel(1);
    for answer in [vec![event(4)], vec![event(3), event(5)], vec![event(3), told("turn.ended")]] {
        let (mut server, mut watched, mut connection) = at_two().await;
        connection.say(pointer(&job, 5, "stale")).await;
        let given = answer.iter().filter(|event| event["sequence"] == 3).count();
        server.replay(&job, 2).await.answer(&page(&job, 5, answer)).await;
        watched.sequences(given).await;
        it_resyncs(&mut server, &mut watched, &mut connection, Reason::Partial).await;
    }
}

#[tokio::test]
async fn when_what_was_announced_cannot_be_had() {
    let (mut server, mut watched, mut connection) = at_two().await;
    let job = channel(1);
    connection.say(batch(&job, events([9]))).await;
    for _ in 0..6 {
        server.replay(&job, 2).await.answer(&page(&job, 2, Vec::new())).await;
    }
    it_resyncs(&mut server, &mut watched, &mut connection, Reason::Unreachable).await;
}

#[tokio::test]
async fn when_a_subscription_is_refused_for_its_position() {
    let (mut server, mut watched, mut connection) = at_two().await;
    let mut refused = subscribed(&channel(1), 0);
    refused["data"] = serde_json::json!({"kind": "error", "channel": channel(1),
        "code": "resync.required"});
    connection.say(refused).await;
    it_resyncs(&mut server, &mut watched, &mut connection, Reason::Gone).await;
}

#[tokio::test]
async fn following_may_begin_with_what_is_so() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), Start::Snapshot)]);
    let mut connection = server.connection().await;
    let asked = server.request().await;
    assert_eq!(asked.path, format!("/v1/channels/{job}/snapshot"));
    asked.refuse(500, "", "").await;
    assert_eq!(watched.retrying().await.1, "500");
    server.request().await.answer(&snapshot(&job, "e1", 4)).await;
    match watched.next().await {
        Some(Item::Snapshot(taken)) => {
            assert_eq!((taken.snapshot.sequence, taken.reason), (4, None));
            assert_eq!(taken.snapshot.jobs[0].get(), r#"{"status":"PROCESSING"}"#);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(connection.subscription(&job).await, Some(4));
    connection.say(batch(&job, events([4, 5]))).await;
    assert_eq!(watched.sequences(1).await, [5]);
}

#[tokio::test]
async fn an_answer_that_is_no_snapshot_of_the_channel_is_said_and_asked_again() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), Start::Snapshot)]);
    let mut of_another_job = snapshot(&job, "e1", 4);
    of_another_job["jobs"][0]["exportJobId"] = Uuid::from_u128(2).to_string().into();
    for (status, headers, body, word) in [
        (500, "", "{}".to_owned(), "500"),
        (200, "", "<!doctype html>".to_owned(), "cannot be read"),
        (302, "location: /login\r\n", String::new(), "302: it leads elsewhere"),
        (410, "", String::new(), "410"),
        (200, "", snapshot(&channel(2), "e1", 4).to_string(), "another channel"),
        (200, "", of_another_job.to_string(), "another channel or export"),
    ] {
        server.request().await.refuse(status, headers, &body).await;
        let (_, why) = watched.retrying().await;
        assert!(why.contains(word), "{why}");
    }
    server.request().await.answer(&snapshot(&job, "e1", 4)).await;
    assert_eq!(watched.snapshot().await, (4, None));
}
