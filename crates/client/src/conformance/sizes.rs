//! What fits into a message, and the pointer in place of what does not.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use serde_json::json;

use super::{
    Case, Checked, Flaw,
    ear::{Ear, Said, ensure_told},
    ensure,
    stage::{Place, Stage},
};

pub(super) const CASES: &[Case] = &[
    Case::new("S12", "batches are split rather than too long", |s| split(s).boxed()),
    Case::new("D11", "a message of exactly the limit travels, one byte more does not", |s| {
        limit(s, "x").boxed()
    }),
    Case::new("D11", "the limit counts bytes of UTF-8, not letters", |s| limit(s, "é").boxed()),
    Case::new("S16 S17 S18", "what fits no message becomes a pointer to it", |s| {
        pointer(s).boxed()
    }),
    Case::new("S19", "a pointer is not stored and not replayed", |s| not_stored(s).boxed()),
    Case::new("S20", "a replay from the cursor brings what did not travel", |s| whole(s).boxed()),
    Case::new("D12", "small ones around those that do not fit still travel", |s| around(s).boxed()),
];

/// Appends an event with a text of so many bytes; what was told of it.
async fn append_text(
    stage: &Stage,
    ear: &mut Ear,
    place: &Place,
    text: String,
) -> Result<Said, Flaw> {
    let appended = stage.append(place, "release.candidate", json!({"text": text})).await;
    let Ok(appended) = appended else {
        return super::not_here("the server takes no event that fits no message");
    };
    let heard = ear.up_to(&place.channel, appended.sequence(&place.channel)?).await?;
    heard.into_iter().next_back().ok_or_else(|| Flaw::Failed("nothing was told".to_owned()))
}

/// Bytes of a message around the text of one event whose sequence has one digit.
async fn around_text(stage: &Stage, ear: &mut Ear, place: &Place) -> Result<usize, Flaw> {
    let said = append_text(stage, ear, place, "x".repeat(1000)).await?;
    ensure(said.is_batch() && said.events().len() == 1, || said.text.clone())?;
    Ok(said.text.len() - 1000)
}

/// A text of exactly so many bytes.
fn text(bytes: usize, letter: &str) -> String {
    let mut text = letter.repeat(bytes / letter.len());
    text.push_str(&"x".repeat(bytes % letter.len()));
    text
}

async fn split(stage: &Stage) -> Checked {
    let shared = stage.shared();
    let mut ear = Ear::on(stage.client(), &shared.channel, None).await?;
    let text = "x".repeat(stage.message_bytes / 3);
    let data = (0..6).map(|_| json!({"text": text}));
    let expected = stage.append_at_once(&shared, "credit.reserved", data).await?;
    let last = expected.last().map_or(0, |(_, sequence)| *sequence);
    let heard = ear.up_to(&shared.channel, last).await?;
    let longest = heard.iter().map(|said| said.text.len()).max().unwrap_or_default();
    let limit = stage.message_bytes;
    ensure(longest <= limit, || format!("a message of {longest} bytes, limit {limit}"))?;
    ensure_told(&heard, &expected)
}

async fn limit(stage: &Stage, letter: &str) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    let room = stage.message_bytes - around_text(stage, &mut ear, &place).await?;
    let said = append_text(stage, &mut ear, &place, text(room, letter)).await?;
    let exactly = said.is_batch() && said.text.len() == stage.message_bytes;
    ensure(exactly, || format!("a {} of {} bytes", said.event, said.text.len()))?;
    let said = append_text(stage, &mut ear, &place, text(room + 1, letter)).await?;
    ensure(said.is_pointer(), || format!("a {} of {} bytes", said.event, said.text.len()))?;
    let said = append_text(stage, &mut ear, &place, text(room - 1, letter)).await?;
    ensure(said.is_batch(), || format!("a {} of {} bytes", said.event, said.text.len()))
}

/// An event that fits no message, at a place, and what was told of it.
async fn oversize(stage: &Stage, ear: &mut Ear, place: &Place) -> Result<Said, Flaw> {
    append_text(stage, ear, place, "x".repeat(stage.message_bytes - 100)).await
}

async fn pointer(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    let said = oversize(stage, &mut ear, &place).await?;
    ensure(said.event == "beyond-cdn-pointer/1", || format!("told as {}", said.event))?;
    let names = said.data.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let names: BTreeSet<_> = names.filter(|name| *name != "epoch").collect();
    let expected = BTreeSet::from(["channel", "protocol", "reason", "sequence"]);
    ensure(names == expected, || format!("it has {names:?}"))?;
    let right = said.data["protocol"] == "beyond-cdn-events/1"
        && said.data["sequence"] == 1
        && said.data["reason"] == "oversize";
    ensure(right, || said.text.clone())
}

async fn not_stored(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    oversize(stage, &mut ear, &place).await?;
    stage.append_some(&place, 1).await?;
    let page = stage.replay(&place.channel, 0).await?;
    ensure(page.sequences() == [1, 2], || format!("replayed {:?}", page.sequences()))?;
    let pointers = page.events.iter().filter(|event| event.get("reason").is_some()).count();
    ensure(pointers == 0, || format!("{pointers} pointers were replayed"))
}

async fn whole(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    let said = oversize(stage, &mut ear, &place).await?;
    let page = stage.replay(&place.channel, said.reaches() - 1).await?;
    let text = page.events.first().and_then(|event| event["data"]["text"].as_str());
    let bytes = text.map_or(0, str::len);
    ensure(bytes == stage.message_bytes - 100, || format!("a text of {bytes} bytes"))
}

async fn around(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    oversize(stage, &mut ear, &place).await?;
    let large = "x".repeat(stage.message_bytes - 100);
    let small = json!({"text": "x"});
    for data in [small.clone(), json!({"text": large}), json!({"text": large}), small] {
        stage.append(&place, "release.candidate", data).await?;
    }
    let heard = ear.up_to(&place.channel, 5).await?;
    let travelled: Vec<_> = heard.iter().flat_map(Said::sequences).collect();
    ensure(travelled == [2, 5], || format!("{travelled:?} travelled"))?;
    let pointed = heard.iter().filter(|said| said.is_pointer()).map(Said::reaches).max();
    ensure(pointed == Some(4), || format!("the pointer is to {pointed:?}"))
}
