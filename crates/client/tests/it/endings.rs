//! What cannot come back is told as the end, and nothing is tried again.

use outport_client::{End, Item, Start};
use outport_contract::stream::Channel;

use crate::{
    server::Server,
    words::{Watched, after, batch, channel, events, pointer, subscribed, told},
};

async fn ended(watched: &mut Watched) -> (Channel, End) {
    match watched.next().await {
        Some(Item::Ended { channel, end }) => (channel, end),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn access_that_was_taken_from_one_channel_leaves_the_others() {
    let (mut server, job, other) = (Server::start().await, channel(1), channel(2));
    let mut watched = Watched::of(&server, [(job.clone(), after(0)), (other.clone(), after(0))]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    connection.subscription(&other).await;
    connection.say(batch(&job, vec![told("access.revoked")])).await;
    assert_eq!(ended(&mut watched).await, (job.clone(), End::AccessRevoked));
    connection.say(batch(&job, events([1]))).await;
    connection.say(batch(&other, events([1]))).await;
    match watched.next().await {
        Some(Item::Event(told)) => assert_eq!(told.channel, other),
        other => panic!("{other:?}"),
    }
    connection.say(batch(&other, vec![told("access.revoked")])).await;
    assert_eq!(ended(&mut watched).await, (other, End::AccessRevoked));
    assert!(watched.next().await.is_none(), "nothing is followed any more");
    server.nothing_else_was_asked();
}

#[tokio::test]
async fn closes_that_do_not_pass_are_the_end_of_every_channel() {
    for (code, end) in [
        (4401, End::Unauthenticated),
        (4403, End::AccessRevoked),
        (4400, End::Refused("4400 said".to_owned())),
        (4429, End::Refused("4429 said".to_owned())),
    ] {
        let mut server = Server::start().await;
        let starts = [channel(1), channel(2)].map(|channel| (channel, Start::Now));
        let mut watched = Watched::of(&server, starts);
        server.connection().await.close(code).await;
        assert_eq!(ended(&mut watched).await, (channel(1), end.clone()));
        assert_eq!(ended(&mut watched).await, (channel(2), end));
        assert!(watched.next().await.is_none());
    }
}

#[tokio::test]
async fn a_refused_connection_is_the_end() {
    for (status, end) in [
        (401, End::Unauthenticated),
        (403, End::Refused("403".to_owned())),
        (404, End::Refused("404".to_owned())),
    ] {
        let mut server = Server::start().await;
        let mut watched = Watched::of(&server, [(channel(1), Start::Now)]);
        server.refuse(status, "").await;
        assert_eq!(ended(&mut watched).await, (channel(1), end));
        assert!(watched.next().await.is_none());
    }
}

#[tokio::test]
async fn a_refused_channel_or_replay_is_the_end_of_the_channel() {
    let (mut server, job) = (Server::start().await, channel(1));
    let mut watched = Watched::of(&server, [(job.clone(), Start::Now)]);
    let mut connection = server.connection().await;
    connection.subscription(&job).await;
    let mut refused = subscribed(&job, 0);
    refused["data"]["kind"] = "error".into();
    refused["data"]["code"] = "NOT_FOUND".into();
    connection.say(refused).await;
    assert_eq!(ended(&mut watched).await, (job.clone(), End::NotFound));
    assert!(watched.next().await.is_none());

    for (status, end) in
        [(401, End::Unauthenticated), (403, End::AccessRevoked), (404, End::NotFound)]
    {
        let mut server = Server::start().await;
        let mut watched = Watched::of(&server, [(job.clone(), after(0))]);
        let mut connection = server.connection().await;
        connection.subscription(&job).await;
        connection.say(pointer(&job, 2, "stale")).await;
        server.replay(&job, 0).await.refuse(status, "", "").await;
        assert_eq!(ended(&mut watched).await, (job.clone(), end));
        assert!(watched.next().await.is_none());
    }
}
