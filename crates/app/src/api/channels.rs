//! The live stream's channels over plain requests: replayed from a cursor, seen as they are now,
//! appended to. What follows them live is in [`super::stream`].

pub mod access;
pub mod append;
pub mod replay;
pub mod snapshot;

use outport_store::channels::Page;

use super::{extract::Params, problem::Position};

/// Where a channel is.
pub fn position(page: Page) -> Position {
    Position { floor: page.floor, head: page.head, epoch: page.epoch }
}

/// A sequence: digits and nothing else, so that one cursor has one text.
pub fn sequence(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// `after` and `epoch`.
pub fn cursor(params: &mut Params) -> (Option<u64>, Option<String>) {
    let after = params.get("after", "a sequence: 0 or a whole number without a sign", sequence);
    let epoch = params.get("epoch", "the text of an epoch", |text| {
        (1..=100).contains(&text.len()).then(|| text.to_owned())
    });
    (after, epoch)
}
