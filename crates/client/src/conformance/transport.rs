//! Connections: heartbeats, controls, positions that are not kept, server-sent events.

use futures::FutureExt as _;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Case, Checked, Flaw,
    ear::{Ear, Said},
    ensure,
    sse::{Line, Sse},
    stage::{Stage, patiently, status_of},
};
use crate::client::read;

pub(super) const HEARTBEATS: &[Case] =
    &[Case::new("S21 D10", "a quiet channel is told where it is, and no false gap is made", |s| {
        heartbeat(s).boxed()
    })];

pub(super) const CASES: &[Case] = &[
    Case::new("S27 D7", "a position that is not kept is told to resync", |s| resync(s).boxed()),
    Case::new("D17", "a ping is answered, and an unsubscribed channel is silent", |s| {
        controls(s).boxed()
    }),
    Case::new("D17", "a frame that is none closes with 4400", |s| bad_frames(s).boxed()),
    Case::new("D17", "server-sent events are the same messages, resumed by their id", |s| {
        events(s).boxed()
    }),
    Case::new("D17", "a ticket opens one stream, once", |s| tickets(s).boxed()),
];

async fn heartbeat(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 2).await?;
    let mut ear = Ear::on(stage.client(), &place.channel, Some(0)).await?;
    let listening = async {
        let mut heard: Vec<Said> = Vec::new();
        loop {
            let said = ear.hear().await?;
            if !said.is_about(&place.channel) {
                continue;
            }
            let is_beat = said.is_pointer() && said.data["reason"] == "head";
            let told = heard.iter().map(Said::reaches).max().unwrap_or_default();
            let reaches = said.reaches();
            heard.push(said);
            if is_beat {
                ensure(reaches <= told, || format!("a beat at {reaches} after {told} was told"))?;
                if reaches == 2 {
                    return Ok::<_, Flaw>(());
                }
            }
        }
    };
    let late = |_| Flaw::Failed("no heartbeat named the head in time".to_owned());
    tokio::time::timeout(stage.heartbeat * 2, listening).await.map_err(late)?
}

async fn resync(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 2).await?;
    let mut ear = Ear::connect(stage.client()).await?;
    for (after, epoch) in [(9, None), (1, Some("of-another-time"))] {
        let mut subscribe =
            json!({"action": "subscribe", "channel": place.channel, "after": after});
        if let Some(epoch) = epoch {
            subscribe["epoch"] = epoch.into();
        }
        ear.say(subscribe).await?;
        let heard = ear.up_to_pong(&place.channel).await?;
        let notices = heard.iter().flat_map(Said::events);
        let notices: Vec<&Value> =
            notices.filter(|event| event["type"] == "resync.required").collect();
        let told = notices.len() == 1 && notices[0].get("sequence").is_none();
        ensure(told, || format!("after {after} of {epoch:?}: {heard:?}"))?;
        let others = heard.iter().flat_map(Said::sequences).count();
        ensure(others == 0, || format!("events came all the same: {heard:?}"))?;
    }
    Ok(())
}

async fn controls(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 1).await?;
    let mut ear = Ear::connect(stage.client()).await?;
    let taken = ear.subscribe(&place.channel, None).await?;
    let page = stage.page(&place.channel, 0, "").await?;
    ensure(taken.data["epoch"] == page.epoch, || format!("taken with {}", taken.text))?;
    ensure(taken.data["head"].is_u64(), || format!("taken with {}", taken.text))?;
    ear.say(json!({"action": "unsubscribe", "channel": place.channel})).await?;
    ear.until(|said| said.is_control("unsubscribed") && said.is_about(&place.channel)).await?;
    stage.append_some(&place, 3).await?;
    // The second one has all of it behind it.
    let second = stage.fresh();
    ear.subscribe(&second.channel, None).await?;
    stage.append_some(&second, 1).await?;
    let heard = ear.until(|said| said.is_about(&second.channel) && said.reaches() == 1).await?;
    let silent = heard.iter().all(|said| !said.is_about(&place.channel));
    ensure(silent, || format!("told after the end: {heard:?}"))?;
    ear.up_to_pong(&place.channel).await.map(|_| ())
}

async fn bad_frames(stage: &Stage) -> Checked {
    for frame in [json!({"action": "shout"}), json!({}), json!([]), json!("ping")] {
        let mut ear = Ear::connect(stage.client()).await?;
        ear.say(frame.clone()).await?;
        let (code, _) = ear.until_closed().await?;
        ensure(code == Some(4400), || format!("{frame}: closed with {code:?}"))?;
    }
    Ok(())
}

/// The batch that a line carries: its sequences.
fn batch(line: &Line) -> Result<Vec<u64>, Flaw> {
    let data: Value = serde_json::from_str(&line.data)?;
    let events = data["events"].as_array().map_or(&[][..], Vec::as_slice);
    let sequences: Vec<_> = events.iter().filter_map(|event| event["sequence"].as_u64()).collect();
    let epoch = data["epoch"].as_str().unwrap_or_default();
    if let Some(last) = sequences.last() {
        ensure(line.event == "beyond-cdn-events/1", || format!("under {}", line.event))?;
        ensure(line.id == format!("{epoch}:{last}"), || format!("the id is {}", line.id))?;
    }
    Ok(sequences)
}

/// Reads until a sequence; all of them, and the last line's id.
async fn read_to(sse: &mut Sse, last: u64) -> Result<(Vec<u64>, String), Flaw> {
    let mut sequences = Vec::new();
    loop {
        let line = sse.next().await?;
        sequences.extend(batch(&line)?);
        if sequences.last() == Some(&last) {
            return Ok((sequences, line.id));
        }
    }
}

async fn events(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 2).await?;
    let path = format!("/v1/channels/{}/stream", place.channel);
    let request = |more: &str| stage.client().request(Method::GET, &format!("{path}{more}"));
    let mut sse = Sse::open(request("?after=0")).await?;
    stage.append_some(&place, 1).await?;
    let (sequences, id) = read_to(&mut sse, 3).await?;
    ensure(sequences == [1, 2, 3], || format!("told {sequences:?}"))?;
    drop(sse);
    stage.append_some(&place, 1).await?;
    // What the browser remembers is newer than what the address says.
    let mut sse = Sse::open(request("?after=0").header("last-event-id", id)).await?;
    stage.append_some(&place, 1).await?;
    let (sequences, _) = read_to(&mut sse, 5).await?;
    ensure(sequences == [4, 5], || format!("resumed with {sequences:?}"))
}

async fn tickets(stage: &Stage) -> Checked {
    #[derive(Deserialize)]
    struct Ticket {
        ticket: String,
    }
    let place = stage.fresh();
    stage.append_some(&place, 1).await?;
    let client = stage.client();
    let Ticket { ticket } =
        patiently(|| read(client.request(Method::POST, "/v1/stream/tickets"))).await?;
    let path = format!("/v1/channels/{}/stream?after=0&ticket={ticket}", place.channel);
    let mut sse = Sse::open(client.anonymous(Method::GET, &path)).await?;
    let (sequences, _) = read_to(&mut sse, 1).await?;
    ensure(sequences == [1], || format!("told {sequences:?}"))?;
    let (status, body) = status_of(client.anonymous(Method::GET, &path)).await?;
    ensure(status == 401, || format!("a second time: {status} {body}"))
}
