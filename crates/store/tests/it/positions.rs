//! Where many channels are, asked for at once.

use outport_contract::stream::{self, Channel, ChannelKind, Scope};
use outport_store::channels::{self, NewEvent, Position, Positions};
use uuid::Uuid;

use crate::bench::Bench;

on_both_engines!(every_channel_has_its_position_in_the_order_of_the_question);

async fn every_channel_has_its_position_in_the_order_of_the_question(bench: Bench) {
    let scope = Scope::of_job(Uuid::now_v7(), "shop", Uuid::now_v7());
    let mut tx = bench.store.begin().await.expect("a transaction");
    for name in ["job.queued", "turn.started", "turn.ended"] {
        let event_type = stream::find(name).expect("a type of the catalogue");
        tx.append(NewEvent::new(event_type, scope.clone(), "{}".to_owned()));
    }
    tx.commit().await.expect("a commit");
    bench.force("UPDATE channels SET floor = 2 WHERE head = 3").await;
    let name = |kind| scope.channel(kind).expect("it has one").to_string();
    let (job, application) = (name(ChannelKind::Job), name(ChannelKind::Application));
    let unknown = Channel::Job(Uuid::now_v7()).to_string();
    // More than a statement takes values.
    let mut asked = vec![unknown.as_str(); 70_000];
    asked.extend([&*job, &*unknown, &*application, "no channel\"", &*job]);
    let epoch = channels::epoch(&bench.store).await.expect("an epoch");
    let at = |floor, head| Position { floor, head };
    let mut expected = vec![at(0, 0); 70_000];
    expected.extend([at(2, 3), at(0, 0), at(0, 1), at(0, 0), at(2, 3)]);
    let found = channels::positions(&bench.store, &asked).await.expect("an answer");
    assert_eq!((&found.epoch, found.channels == expected), (&epoch, true));
    let none = channels::positions(&bench.store, &[]).await.expect("an answer");
    assert_eq!(none, Positions { epoch, channels: Vec::new() });
}
