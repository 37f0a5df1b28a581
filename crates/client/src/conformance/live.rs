//! What is broadcast, and when.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future};
use serde_json::json;

use super::{
    Case, Checked,
    ear::{Ear, Said, ensure_told, told},
    ensure,
    stage::Stage,
};

/// How soon an immediate event must be there; polling alone would find it within a second.
const SOON: Duration = Duration::from_secs(2);

pub(super) const CASES: &[Case] = &[
    Case::new("S9 D8 D17", "a batch is its envelope, its channel and its events", |s| {
        envelope(s).boxed()
    }),
    Case::new("S10", "events keep their order", |s| order(s).boxed()),
    Case::new("S11 S24", "fifty batched events within an interval share messages", |s| {
        gathered(s).boxed()
    }),
    Case::new("S13", "an immediate event does not wait", |s| immediate(s).boxed()),
    Case::new("D3", "what is pending goes first, then the immediate event alone", |s| {
        alone(s).boxed()
    }),
    Case::new("S23", "a flood on another channel delays no immediate event", |s| flood(s).boxed()),
    Case::new("S15", "what is told live is what is replayed", |s| same(s).boxed()),
];

async fn envelope(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    stage.append_some(&place, 1).await?;
    let heard = ear.up_to(&place.channel, 1).await?;
    let said = heard.last().filter(|said| said.is_batch());
    let said = said.ok_or_else(|| super::Flaw::Failed("no batch came".to_owned()))?;
    let names = said.data.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let names: BTreeSet<_> = names.filter(|name| *name != "epoch").collect();
    let expected = BTreeSet::from(["channel", "events", "protocol"]);
    ensure(names == expected, || format!("it has {names:?}"))?;
    ensure(said.data["protocol"] == "beyond-cdn-events/1", || said.text.clone())?;
    let replayed = stage.page(&place.channel, 0, "").await?;
    ensure(said.data["epoch"] == replayed.epoch, || {
        format!("epoch {} live, {} replayed", said.data["epoch"], replayed.epoch)
    })
}

async fn order(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, Some(0)).await?;
    stage.append_some(&place, 30).await?;
    let heard = ear.up_to(&place.channel, 30).await?;
    let sequences: Vec<_> = told(&heard).into_iter().map(|(_, sequence)| sequence).collect();
    ensure(sequences.iter().copied().eq(1..=30), || format!("told {sequences:?}"))
}

async fn gathered(stage: &Stage) -> Checked {
    let shared = stage.shared();
    let mut ear = Ear::on(stage.client(), &shared.channel, None).await?;
    let data = (0..50).map(|number| json!({"number": number}));
    let expected = stage.append_at_once(&shared, "credit.reserved", data).await?;
    let last = expected.last().map_or(0, |(_, sequence)| *sequence);
    let heard = ear.up_to(&shared.channel, last).await?;
    ensure_told(&heard, &expected)?;
    let messages = heard.iter().filter(|said| said.is_batch()).count();
    ensure(messages < 25, || format!("fifty events in {messages} messages"))
}

async fn immediate(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    for sequence in 1..=5 {
        let began = Instant::now();
        stage.append_some(&place, 1).await?;
        let heard = ear.up_to(&place.channel, sequence).await?;
        let took = heard.last().map_or(SOON, |said| said.at.saturating_duration_since(began));
        ensure(took < SOON, || format!("it took {} ms", took.as_millis()))?;
    }
    Ok(())
}

async fn alone(stage: &Stage) -> Checked {
    let shared = stage.shared();
    let mut ear = Ear::on(stage.client(), &shared.channel, None).await?;
    let pending = stage.append(&shared, "credit.reserved", json!({})).await?;
    let urgent = stage.append(&shared, "plan.changed", json!({})).await?;
    let (first, last) = (pending.sequence(&shared.channel)?, urgent.sequence(&shared.channel)?);
    let heard = ear.up_to(&shared.channel, last).await?;
    ensure_told(&heard, &[(pending.id, first), (urgent.id, last)])?;
    let message = heard.iter().find(|said| said.sequences().contains(&last));
    let with = message.map(Said::sequences).unwrap_or_default();
    ensure(with == [last], || format!("{last} came in one message with {with:?}"))
}

async fn flood(stage: &Stage) -> Checked {
    let (place, shared) = (stage.fresh(), stage.shared());
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    let flooding = async {
        for number in 0..200 {
            stage.append(&shared, "credit.settled", json!({"number": number})).await?;
        }
        Ok::<_, super::Flaw>(())
    };
    let urgent = async {
        for sequence in 1..=10 {
            let began = Instant::now();
            stage.append_some(&place, 1).await?;
            let heard = ear.up_to(&place.channel, sequence).await?;
            let said = heard.last().filter(|said| said.is_batch());
            let took = said.map(|said| said.at.saturating_duration_since(began));
            ensure(took.is_some_and(|took| took < SOON), || format!("{sequence} took {took:?}"))?;
        }
        Ok::<_, super::Flaw>(())
    };
    future::try_join(flooding, urgent).await.map(|_| ())
}

async fn same(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    stage.append_some(&place, 12).await?;
    let heard = ear.up_to(&place.channel, 12).await?;
    let live: Vec<_> = heard.iter().flat_map(Said::events).cloned().collect();
    let replayed = stage.replay(&place.channel, 0).await?.events;
    ensure(live == replayed, || format!("live {live:?}, replayed {replayed:?}"))
}
