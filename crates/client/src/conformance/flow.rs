//! Subscribing in the midst of things, and not keeping up.

use std::time::Duration;

use futures::{FutureExt as _, future};
use outport_contract::stream::Channel;
use serde_json::json;

use super::{
    Case, Checked, Flaw,
    ear::{Ear, Said},
    ensure,
    stage::Stage,
};

pub(super) const CASES: &[Case] = &[
    Case::new("D18", "replayed first, then live, while writers append", |s| {
        while_writing(s).boxed()
    }),
    Case::new("D18", "what happens between a replay and a subscription is not lost", |s| {
        race(s).boxed()
    }),
    Case::new("D19", "one who does not read costs the others nothing and loses nothing", |s| {
        stalled(s).boxed()
    }),
    Case::new("D1", "many channels on one connection are each in order", |s| many(s).boxed()),
];

/// Each number once and in order, or below a pointer that says so.
fn ensure_covered(heard: &[Said], from: u64, to: u64) -> Checked {
    let mut reached = from;
    for said in heard {
        if said.is_gap() {
            reached = reached.max(said.reaches());
        }
        for sequence in said.sequences() {
            ensure(sequence == reached + 1, || format!("{sequence} came after {reached}"))?;
            reached = sequence;
        }
    }
    ensure(reached >= to, || format!("the last was {reached} of {to}"))
}

async fn while_writing(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append_some(&place, 20).await?;
    let writing = stage.append_some(&place, 30);
    let listening = future::try_join_all((0..4).map(|number| {
        let channel = &place.channel;
        async move {
            let mut ear = Ear::on(stage.client(), channel, Some(number * 5)).await?;
            let heard = ear.up_to(channel, 50).await?;
            ensure_covered(&heard, number * 5, 50)
        }
    }));
    future::try_join(writing, listening).await.map(|_| ())
}

async fn race(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let writing = stage.append_some(&place, 40);
    let joining = async {
        loop {
            let page = stage.replay(&place.channel, 0).await?;
            let mut ear = Ear::on(stage.client(), &place.channel, Some(page.head)).await?;
            if page.head == 40 {
                return Ok::<_, Flaw>(());
            }
            let reached = if page.head < 20 { page.head + 1 } else { 40 };
            let heard = ear.up_to(&place.channel, reached).await?;
            ensure_covered(&heard, page.head, reached)?;
        }
    };
    future::try_join(writing, joining).await.map(|_| ())
}

/// More bytes than the queue of a connection and its sockets take in, as a rule.
const MOST_QUEUED: usize = 8 * 1024 * 1024;
const DATA_BYTES: usize = 48 * 1024;

async fn stalled(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut slow = Ear::on(stage.client(), &place.channel, None).await?;
    let mut quick = Ear::on(stage.client(), &place.channel, None).await?;
    let count = (MOST_QUEUED / DATA_BYTES) as u64;
    let text = "x".repeat(DATA_BYTES);
    let writing = async {
        for _ in 0..count {
            stage.append(&place, "release.candidate", json!({"text": text})).await?;
        }
        Ok::<_, Flaw>(())
    };
    let listening = async {
        let mut reached = 0;
        while reached < count {
            let heard = quick.up_to(&place.channel, reached + 1).await?;
            ensure_covered(&heard, reached, reached + 1)?;
            reached = heard.iter().map(Said::reaches).max().unwrap_or(reached);
        }
        Ok::<_, Flaw>(())
    };
    future::try_join(writing, listening).await?;
    caught_up(&mut slow, &place.channel, count).await
}

/// Either all is there or below a pointer, or the server ended the connection, with 4408 where that
/// could still be sent.
async fn caught_up(slow: &mut Ear, channel: &Channel, last: u64) -> Checked {
    let mut heard = Vec::new();
    let hearing = async {
        loop {
            match slow.socket.hear_text().await {
                Ok(None) => {}
                Ok(Some(text)) => {
                    let said = Said::parse(&text)?;
                    if said.is_about(channel) && (said.is_batch() || said.is_pointer()) {
                        let is_last = said.reaches() >= last;
                        heard.push(said);
                        if is_last {
                            return ensure_covered(&heard, 0, last);
                        }
                    }
                }
                // What came until then must be whole: one goes on from there.
                Err(loss) => {
                    ensure_covered(&heard, 0, 0)?;
                    let is_told = matches!(loss.code, None | Some(4408));
                    return ensure(is_told, || format!("ended with {}", loss.why));
                }
            }
        }
    };
    let late = |_| Flaw::Failed("it was told neither the rest nor that it is too slow".to_owned());
    tokio::time::timeout(Duration::from_mins(1), hearing).await.map_err(late)?
}

async fn many(stage: &Stage) -> Checked {
    let places: Vec<_> = (0..5).map(|_| stage.fresh()).collect();
    let mut ear = Ear::connect(stage.client()).await?;
    for place in &places {
        ear.subscribe(&place.channel, Some(0)).await?;
    }
    let writing = places.iter().map(|place| stage.append_some(place, 6));
    future::try_join_all(writing).await?;
    let mut heard = Vec::new();
    let done = |heard: &[Said]| {
        places.iter().all(|place| {
            heard.iter().any(|said| said.is_about(&place.channel) && said.reaches() >= 6)
        })
    };
    while !done(&heard) {
        heard.extend(ear.until(|said| said.is_batch() || said.is_pointer()).await?);
    }
    for place in &places {
        let own = heard.iter().filter(|said| said.is_about(&place.channel));
        let own: Vec<_> =
            own.filter(|said| said.is_batch() || said.is_pointer()).cloned().collect();
        ensure_covered(&own, 0, 6)?;
    }
    Ok(())
}
