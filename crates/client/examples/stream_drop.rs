//! What happens when everybody loses the live stream at once, for `tests/bench/stream.sh`.
//!
//! ```text
//! stream_drop URL CHANNEL FOLLOWERS EVENTS
//! ```
//!
//! Followers reach the server through a proxy of this program, which cuts all their connections at
//! one moment; events are posted right then. Prints, as one line of JSON, how long it took from
//! the cut until each had all of them, once and in order. The token is in `BENCH_TOKEN`.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::{error::Error, net::SocketAddr, time::Duration};

use futures::StreamExt as _;
use outport_client::{Client, FollowConfig, Follower, Item, Start};
use outport_contract::stream::Channel;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

type Failure = Box<dyn Error + Send + Sync>;

/// The longest that one may wait for all of its events.
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, channel, followers, events] = &arguments[..] else {
        return Err("URL CHANNEL FOLLOWERS EVENTS".into());
    };
    let (channel, token): (Channel, _) = (channel.parse()?, std::env::var("BENCH_TOKEN")?);
    let (followers, events): (usize, u64) = (followers.parse()?, events.parse()?);
    let direct = Client::new(url, &token)?;
    let (cut, connections) = watch::channel(0_u32);
    let proxy = proxy(url.parse()?, connections).await?;
    let client = Client::new(&format!("http://{proxy}"), &token)?;

    let head = direct.snapshot(&channel).await?.sequence;
    let (reached, mut all_reached) = watch::channel(0_usize);
    let mut following = JoinSet::new();
    for _ in 0..followers {
        let start = Start::After { sequence: head, epoch: None };
        let items =
            Follower::start(client.clone(), [(channel.clone(), start)], FollowConfig::default());
        let (cut, reached) = (cut.subscribe(), reached.clone());
        following.spawn(follow(items, head + 1, head + 1 + events, cut, reached));
    }
    post(&direct, &channel, 1).await?;
    let everybody = all_reached.wait_for(|count| *count == followers);
    timeout(PATIENCE, everybody).await??;

    let dropped = Instant::now();
    cut.send(1)?;
    post(&direct, &channel, events).await?;
    let mut took = Vec::new();
    let mut connections = 0;
    while let Some(one) = following.join_next().await {
        let (at, reconnections) = one??;
        took.push((at - dropped).as_millis());
        connections += reconnections;
    }
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let figures = json!({"dropped": followers, "events": events, "tries": connections,
        "p50Ms": at(0.5) as u64, "p99Ms": at(0.99) as u64, "mostMs": at(1.0) as u64});
    println!("{figures}");
    Ok(())
}

/// When it had the last event, and how often it reconnected.
async fn follow(
    mut items: Follower,
    first: u64,
    last: u64,
    cut: watch::Receiver<u32>,
    reached: watch::Sender<usize>,
) -> Result<(Instant, u32), Failure> {
    let (mut expected, mut reconnections) = (first, 0);
    loop {
        match timeout(PATIENCE, items.next()).await? {
            Some(Item::Event(told)) => {
                if told.event.sequence != Some(expected) {
                    return Err(format!("{:?}, not {expected}", told.event.sequence).into());
                }
                if expected == first {
                    reached.send_modify(|count| *count += 1);
                }
                if expected == last {
                    return Ok((Instant::now(), reconnections));
                }
                expected += 1;
            }
            Some(Item::Reconnecting { .. }) if *cut.borrow() > 0 => reconnections += 1,
            other => return Err(format!("before {expected}: {other:?}").into()),
        }
    }
}

async fn post(client: &Client, channel: &Channel, count: u64) -> Result<(), Failure> {
    let (Channel::Organization(organization) | Channel::Application(organization, _)) = channel
    else {
        return Err("an organization's or an application's channel".into());
    };
    let mut scope = json!({"organization": organization});
    let mut event_type = "plan.changed";
    if let Channel::Application(_, name) = channel {
        scope["application"] = format!("{organization}.{name}").into();
        event_type = "release.candidate";
    }
    for _ in 0..count {
        let event = json!({"scope": scope, "type": event_type, "data": {}});
        client.post::<Value>("/v1/channels/events", &event).await?;
    }
    Ok(())
}

/// Passes on what comes, until the connections of its generation are cut.
async fn proxy(server: Url, cut: watch::Receiver<u32>) -> Result<SocketAddr, Failure> {
    let server = server.socket_addrs(|| None)?.into_iter().next().ok_or("no such server")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut cut = cut.clone();
            cut.mark_unchanged();
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(server).await else { return };
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    _ = cut.changed() => {}
                }
            });
        }
    });
    Ok(address)
}
