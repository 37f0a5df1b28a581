//! Numbers, replays and snapshots.

use futures::{FutureExt as _, future};
use serde_json::json;

use super::{
    Case, Checked, Flaw, ensure,
    stage::{Place, RawPage, Stage},
};

pub(super) const CASES: &[Case] = &[
    Case::new("S4", "numbers are from 1 and without gaps", |s| numbers(s).boxed()),
    Case::new("S4 D6", "eight writers, read all the while: what is there has no holes", |s| {
        writers(s).boxed()
    }),
    Case::new("S14 S22", "what nobody listened to was stored, whatever its class", |s| {
        stored(s).boxed()
    }),
    Case::new("S15 D7", "pages of any size are the same events", |s| pages(s).boxed()),
    Case::new("D7", "at the head nothing, above it and in another epoch 410", |s| edges(s).boxed()),
    Case::new("D7", "a malformed cursor is 400", |s| malformed(s).boxed()),
    Case::new("D9", "a snapshot's sequence is one to go on from", |s| snapshot(s).boxed()),
    Case::new("D24", "a repeated client id appends once, another body is refused", |s| {
        client_ids(s).boxed()
    }),
    Case::new("D24 D2", "what is told to one subscriber alone cannot be posted", |s| {
        controls(s).boxed()
    }),
];

/// 1, 2, 3 up to the head.
fn ensure_whole(page: &RawPage) -> Checked {
    let sequences = page.sequences();
    let whole = sequences.iter().copied().eq(1..=page.head);
    ensure(whole, || format!("head {}, and {sequences:?}", page.head))
}

async fn numbers(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let before = stage.page(&place.channel, 0, "").await?;
    ensure(before.head == 0 && before.floor == 0, || "nothing was there yet".to_owned())?;
    let appended = stage.append_some(&place, 20).await?;
    for (number, one) in (1..).zip(&appended) {
        let given = one.sequence(&place.channel)?;
        ensure(given == number, || format!("the {number}th append was given {given}"))?;
    }
    let page = stage.replay(&place.channel, 0).await?;
    ensure(page.protocol == "beyond-cdn-events/1", || page.protocol.clone())?;
    ensure(page.channel == place.channel, || page.channel.to_string())?;
    ensure(page.head == 20, || format!("the head is {}", page.head))?;
    ensure_whole(&page)
}

async fn writers(stage: &Stage) -> Checked {
    const WRITERS: u64 = 8;
    const EACH: usize = 8;
    let place = stage.fresh();
    let writing = future::try_join_all((0..WRITERS).map(|_| stage.append_some(&place, EACH)));
    let reading = async {
        loop {
            let page = stage.page(&place.channel, 0, "&limit=1000").await?;
            ensure_whole(&page)?;
            if page.head == WRITERS * EACH as u64 {
                return Ok::<_, Flaw>(());
            }
        }
    };
    let (written, ()) = future::try_join(writing, reading).await?;
    let mut given = Vec::new();
    for one in written.iter().flatten() {
        given.push((one.sequence(&place.channel)?, one.id.clone()));
    }
    given.sort();
    let page = stage.replay(&place.channel, 0).await?;
    let there = page.events.iter().map(|event| event["id"].as_str().unwrap_or_default());
    let same = there.eq(given.iter().map(|(_, id)| id.as_str()));
    ensure(same, || "the numbers that were answered are others than those replayed".to_owned())
}

async fn stored(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 5).await?;
    ensure_whole(&stage.replay(&place.channel, 0).await?)?;
    let shared = stage.shared();
    let mut expected = Vec::new();
    for name in ["credit.reserved", "plan.changed", "credit.settled"] {
        expected.push(stage.append(&shared, name, json!({})).await?);
    }
    for one in expected {
        let event = stage.event(&shared.channel, one.sequence(&shared.channel)?).await?;
        ensure(event["id"] == one.id, || format!("{} is not there", one.id))?;
    }
    Ok(())
}

async fn pages(stage: &Stage) -> Checked {
    let Place { scope, channel } = stage.fresh();
    stage.append_some(&Place { scope, channel: channel.clone() }, 15).await?;
    let whole = stage.replay(&channel, 0).await?;
    ensure_whole(&whole)?;
    for limit in [1, 4, 15, 16] {
        let mut events = Vec::new();
        let mut after = 0;
        while after < whole.head {
            let page = stage.page(&channel, after, &format!("&limit={limit}")).await?;
            let sequences = page.sequences();
            let expected = after + 1..=(after + limit).min(whole.head);
            let right = sequences.iter().copied().eq(expected) && page.head == whole.head;
            ensure(right, || format!("after {after}, limit {limit}: {sequences:?}"))?;
            after = sequences.last().copied().unwrap_or(u64::MAX);
            events.extend(page.events);
        }
        ensure(events == whole.events, || format!("pages of {limit} are other events"))?;
    }
    Ok(())
}

async fn edges(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 3).await?;
    let page = stage.page(&place.channel, 3, "").await?;
    ensure(page.events.is_empty() && page.head == 3, || "something at the head".to_owned())?;
    let page = stage.page(&place.channel, 2, &format!("&epoch={}", page.epoch)).await?;
    ensure(page.sequences() == [3], || format!("after 2: {:?}", page.sequences()))?;
    let path = |more: &str| format!("/v1/channels/{}/events?{more}", place.channel);
    for more in ["after=4", "after=9000000000000000000", "after=2&epoch=of-another-time"] {
        let (status, body) = stage.get(stage.client(), &path(more)).await?;
        let refused = status == 410 && body["code"] == "resync.required";
        ensure(refused && body.get("events").is_none(), || format!("{more}: {status} {body}"))?;
    }
    Ok(())
}

async fn malformed(stage: &Stage) -> Checked {
    let place = stage.fresh();
    for more in ["after=x", "after=-1", "after=1.5", "after=", "limit=0", "limit=x"] {
        let path = format!("/v1/channels/{}/events?{more}", place.channel);
        let (status, body) = stage.get(stage.client(), &path).await?;
        ensure(status == 400, || format!("{more}: {status} {body}"))?;
    }
    Ok(())
}

async fn snapshot(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 3).await?;
    let path = format!("/v1/channels/{}/snapshot", place.channel);
    let (status, body) = stage.get(stage.client(), &path).await?;
    ensure(status == 200, || format!("{status} {body}"))?;
    ensure(body["sequence"] == 3, || format!("the sequence is {}", body["sequence"]))?;
    let epoch = body["epoch"].as_str().unwrap_or_default();
    stage.append_some(&place, 2).await?;
    let page = stage.page(&place.channel, 3, &format!("&epoch={epoch}")).await?;
    ensure(page.sequences() == [4, 5], || format!("from there: {:?}", page.sequences()))
}

async fn client_ids(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let event = |number: u64| {
        json!({"scope": place.scope, "type": "release.candidate", "data": {"number": number},
            "clientId": place.channel})
    };
    let first = stage.post(&event(1)).await?;
    let again = stage.post(&event(1)).await?;
    ensure(first.id == again.id, || format!("{} is not {}", again.id, first.id))?;
    stage.refused(&event(2)).await?;
    let head = stage.head(&place.channel).await?;
    ensure(head == 1, || format!("the head is {head}"))
}

async fn controls(stage: &Stage) -> Checked {
    let place = stage.fresh();
    for name in ["access.revoked", "resync.required"] {
        stage.refused(&json!({"scope": place.scope, "type": name, "data": {}})).await?;
    }
    let head = stage.head(&place.channel).await?;
    ensure(head == 0, || format!("the head is {head}"))
}
