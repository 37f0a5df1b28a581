//! Every type has its channels.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use outport_contract::stream::{CATALOGUE, ChannelKind, Family};

use super::{
    Case, Checked, ensure,
    stage::{Place, Stage, data_of},
};

pub(super) const CASES: &[Case] =
    &[Case::new("S5 S25", "every type of the catalogue is numbered in its channels", |s| {
        channels(s).boxed()
    })];

async fn channels(stage: &Stage) -> Checked {
    let place = match stage.of_job() {
        Ok(job) => job,
        // Without a job its types have nowhere to be.
        Err(_) => stage.fresh(),
    };
    let Place { scope, .. } = &place;
    for event_type in CATALOGUE.iter().filter(|known| known.family != Family::Control) {
        let of = |kind: &ChannelKind| scope.channel(*kind);
        let expected: BTreeSet<_> = event_type.channels.iter().filter_map(of).collect();
        if expected.is_empty() {
            continue;
        }
        let appended = stage.append(&place, event_type.name, data_of(event_type)).await?;
        let given = BTreeSet::from_iter(appended.channels());
        ensure(given == expected, || {
            format!("{} is in {given:?}, not {expected:?}", event_type.name)
        })?;
        for channel in &given {
            let event = stage.event(channel, appended.sequence(channel)?).await?;
            let right = event["id"] == appended.id && event["type"] == event_type.name;
            ensure(right, || format!("{channel} has {event}"))?;
        }
    }
    Ok(())
}
