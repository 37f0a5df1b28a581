//! A connection that is lost is made again, unless that is of no use.

use std::time::Duration;

use crate::{
    server::Server,
    words::{Watched, after, batch, channel, config, events, page, pointer, subscribed},
};

#[tokio::test]
async fn a_cut_connection_goes_on_where_the_last_one_ended() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.say(batch(&job, events([1, 2, 3]))).await;
    assert_eq!(watched.sequences(3).await, [1, 2, 3]);
    connection.cut();
    watched.reconnecting().await;
    let mut connection = server.connection().await;
    let said = connection.hear().await;
    assert_eq!((&said["after"], &said["epoch"]), (&3.into(), &"e1".into()));
    connection.say(subscribed(&job, 5)).await;
    connection.say(batch(&job, events([3, 4, 5]))).await;
    assert_eq!(watched.sequences(2).await, [4, 5]);
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn a_connection_that_is_replaced_during_a_replay_never_moves_the_cursor_back() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(1))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.say(pointer(&job, 6, "stale")).await;
    let asked = server.replay(&job, 1).await;
    connection.cut();
    watched.reconnecting().await;
    let mut connection = server.connection().await;
    assert_eq!(connection.subscription(&job).await, Some(1));
    connection.say(batch(&job, events(2..=6))).await;
    assert_eq!(watched.sequences(5).await, [2, 3, 4, 5, 6]);
    // The old answer comes late: it is behind by now.
    asked.answer(&page(&job, 4, events([2, 3, 4]))).await;
    connection.say(batch(&job, events([7]))).await;
    assert_eq!(watched.sequences(1).await, [7]);
    connection.cut();
    watched.reconnecting().await;
    assert_eq!(server.connection().await.subscription(&job).await, Some(7));
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn closes_that_pass_are_followed_by_another_try() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    for code in [1013, 4408, 4409, 1001, 1011, 4999] {
        let mut connection = server.connection().await;
        connection.subscription(&job).await;
        connection.close(code).await;
        let (_, why) = watched.reconnecting().await;
        assert!(why.contains(&code.to_string()), "{why}");
    }
    server.connection().await;
}

#[tokio::test]
async fn a_server_that_cannot_replay_while_so_much_happens_is_asked_by_requests() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(2))]);
    let mut connection = server.connection().await;
    assert_eq!(connection.subscription(&job).await, Some(2));
    connection.close(4409).await;
    watched.reconnecting().await;
    let mut connection = server.connection().await;
    assert_eq!(connection.subscription(&job).await, None);
    connection.say(subscribed(&job, 5)).await;
    connection.say(batch(&job, events([6]))).await;
    server.replay(&job, 2).await.answer(&page(&job, 5, events([3, 4, 5]))).await;
    assert_eq!(watched.sequences(4).await, [3, 4, 5, 6]);
    connection.cut();
    watched.reconnecting().await;
    assert_eq!(server.connection().await.subscription(&job).await, Some(6));
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn a_server_at_capacity_is_left_alone_for_as_long_as_it_asks() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    server.refuse(503, "retry-after: 1\r\n").await;
    let (delay, why) = watched.reconnecting().await;
    assert!(delay >= Duration::from_secs(1), "{delay:?}");
    assert!(why.contains("503"), "{why}");
    assert_eq!(server.connection().await.subscription(&job).await, Some(0));
}

#[tokio::test]
async fn an_answer_that_is_no_connection_is_told_in_words() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
    for (status, headers, told) in [
        (200, "", "200: the answer cannot be read: it is no connection"),
        (302, "location: /login\r\n", "302: it leads elsewhere"),
        (502, "", "502"),
    ] {
        server.refuse(status, headers).await;
        assert_eq!(watched.reconnecting().await.1, told);
    }
    assert_eq!(server.connection().await.subscription(&job).await, Some(0));
}

#[tokio::test]
async fn a_server_that_has_fallen_silent_is_left() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut config = config();
    config.heartbeat = Duration::from_millis(50);
    let mut watched = Watched::with(&server, [(job.clone(), after(0))], config);
    let mut silent = server.connection().await;
    silent.subscription(&job).await;
    let (_, why) = watched.reconnecting().await;
    assert!(why.contains("silent"), "{why}");
    let mut connection = server.connection().await;
    assert_eq!(connection.subscription(&job).await, Some(0));
    connection.say(batch(&job, events([1]))).await;
    assert_eq!(watched.sequences(1).await, [1]);
}

#[tokio::test]
async fn those_who_lose_a_server_together_come_back_apart() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut delays = Vec::new();
    for seed in 0..40 {
        let mut config = config();
        config.seed = Some(seed);
        (config.backoff, config.most_backoff) = (Duration::from_secs(8), Duration::from_secs(30));
        let mut watched = Watched::with(&server, [(job.clone(), after(0))], config);
        server.connection().await.close(1013).await;
        delays.push(watched.reconnecting().await.0);
    }
    let within = |from: u64, to: u64| {
        let range = Duration::from_secs(from)..Duration::from_secs(to);
        delays.iter().filter(|delay| range.contains(delay)).count()
    };
    let quarters = [within(0, 2), within(2, 4), within(4, 6), within(6, 9)];
    assert_eq!(quarters.iter().sum::<usize>(), 40);
    assert!(quarters.iter().all(|count| *count >= 3), "{quarters:?}");
}
