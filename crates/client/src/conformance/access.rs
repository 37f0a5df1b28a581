//! Who may listen, and until when.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use super::{
    Case, Checked, Flaw,
    ear::{Ear, PATIENCE, Said},
    ensure,
    stage::{Stage, mint, revoke, status_of},
};
use crate::{Client, follow::socket::Socket};

pub(super) const CASES: &[Case] = &[
    Case::new("D16", "a bad credential is refused, and none is no silent stream", |s| {
        credentials(s).boxed()
    }),
    Case::new("D5", "what is not the caller's is not there", |s| foreign(s).boxed()),
    Case::new("S26 D2 D15", "access that ends is told to its owner alone, and closes", |s| {
        revoked(s).boxed()
    }),
    Case::new("D15", "a revocation ends a paged replay in the middle", |s| pages(s).boxed()),
];

async fn credentials(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 1).await?;
    let stranger = stage.client_as("opt_conformance-nobody")?;
    let own = format!("/v1/channels/{}", place.channel);
    for path in ["/events?after=0", "/snapshot", "/stream"].map(|end| format!("{own}{end}")) {
        for request in
            [stranger.request(Method::GET, &path), stranger.anonymous(Method::GET, &path)]
        {
            let (status, body) = status_of(request).await?;
            ensure(status == 401, || format!("{path}: {status} {body}"))?;
        }
    }
    let event = json!({"scope": place.scope, "type": "release.candidate", "data": {}});
    let append = stranger.request(Method::POST, "/v1/channels/events").json(&event);
    let (status, body) = status_of(append).await?;
    ensure(status == 401, || format!("append: {status} {body}"))?;
    match Socket::connect(&stranger).await {
        Ok(_) => return Err(Flaw::Failed("a socket with a bad header was made".to_owned())),
        Err(loss) => ensure(loss.code == Some(401), || loss.why)?,
    }
    let subscribe = json!({"action": "subscribe", "channel": place.channel, "after": 0});
    let auth = json!({"action": "auth", "token": "opt_conformance-nobody"});
    for first in [auth, subscribe] {
        let mut ear = Ear::connect_as(stage.client(), None).await?;
        ear.say(first.clone()).await?;
        let (code, heard) = ear.until_closed().await?;
        let silent = heard.iter().all(|said| !said.is_batch() && !said.is_pointer());
        ensure(code == Some(4401) && silent, || format!("{first}: {code:?} after {heard:?}"))?;
    }
    Ok(())
}

async fn foreign(stage: &Stage) -> Checked {
    let stranger = Uuid::now_v7();
    let mut ear = Ear::connect(stage.client()).await?;
    for channel in [
        format!("organization:{stranger}"),
        format!("application:{stranger}.shop"),
        format!("job:{stranger}"),
    ] {
        for end in ["events?after=0", "snapshot", "stream"] {
            let path = format!("/v1/channels/{channel}/{end}");
            let (status, body) = stage.get(stage.client(), &path).await?;
            ensure(status == 404, || format!("{path}: {status} {body}"))?;
        }
        ear.say(json!({"action": "subscribe", "channel": channel})).await?;
        let heard = ear.until(|said| said.data["channel"] == channel).await?;
        let refused = heard.last().is_some_and(|said| said.is_control("error"));
        ensure(refused, || format!("{channel}: {heard:?}"))?;
    }
    for scope in [
        json!({"organization": stranger}),
        json!({"organization": stranger, "application": format!("{stranger}.shop")}),
        json!({"organization": stage.organization, "application": format!("{stranger}.shop")}),
        json!({"organization": stage.organization, "job": stranger}),
    ] {
        let event = json!({"scope": scope, "type": "plan.changed", "data": {}});
        let status = stage.refused(&event).await?;
        ensure(status == 404, || format!("{scope}: {status}"))?;
    }
    Ok(())
}

async fn revoked(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let (id, token) = mint(stage, &["events:read"]).await?;
    let guest = stage.client_as(&token)?;
    let mut other = Ear::on(stage.client(), &place.channel, None).await?;
    let mut ear = Ear::on(&guest, &place.channel, None).await?;
    stage.append_some(&place, 1).await?;
    ear.up_to(&place.channel, 1).await?;
    revoke(stage, &id).await?;
    let (code, heard) = ear.until_closed().await?;
    ensure(matches!(code, Some(4401 | 4403)), || format!("closed with {code:?}"))?;
    let notices: Vec<_> = heard
        .iter()
        .flat_map(Said::events)
        .filter(|event| event["type"] == "access.revoked")
        .collect();
    ensure(notices.len() == 1, || format!("told before the close: {heard:?}"))?;
    let unnumbered = notices[0].get("sequence").is_none();
    ensure(unnumbered, || format!("the notice is numbered: {}", notices[0]))?;
    refused_soon(stage, &guest, &format!("/v1/channels/{}/events?after=0", place.channel)).await?;
    refused_soon(stage, &guest, &format!("/v1/channels/{}/snapshot", place.channel)).await?;
    stage.append_some(&place, 1).await?;
    let heard = other.up_to(&place.channel, 2).await?;
    let sequences: Vec<_> = heard.iter().flat_map(Said::sequences).collect();
    ensure(sequences == [1, 2], || format!("another subscriber was told {heard:?}"))?;
    let page = stage.replay(&place.channel, 0).await?;
    ensure(page.sequences() == [1, 2], || format!("replayed {:?}", page.sequences()))
}

/// Every process knows it within seconds.
async fn refused_soon(stage: &Stage, guest: &Client, path: &str) -> Checked {
    let began = Instant::now();
    loop {
        let (status, _) = stage.get(guest, path).await?;
        if matches!(status, 401 | 403) {
            return Ok(());
        }
        ensure(began.elapsed() < PATIENCE, || format!("{path} is still answered with {status}"))?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn pages(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 6).await?;
    let (id, token) = mint(stage, &["events:read"]).await?;
    let guest = stage.client_as(&token)?;
    let path = |after| format!("/v1/channels/{}/events?after={after}&limit=2", place.channel);
    let (status, body) = stage.get(&guest, &path(0)).await?;
    ensure(status == 200, || format!("{status} {body}"))?;
    revoke(stage, &id).await?;
    refused_soon(stage, &guest, &path(2)).await
}
