//! The product's own kit, against the product.

use std::time::Duration;

use outport_client::{
    Client,
    conformance::{self, FROM_WITHIN, KitConfig, Verdict},
};

use crate::{
    api_world::{Options, World},
    stream_world::quick,
};

/// A kit that appends does not answer pings meanwhile: heartbeats leave it the time.
const HEARTBEAT: Duration = Duration::from_secs(5);

fn options() -> Options {
    let mut options = quick();
    options.stream.heartbeat = HEARTBEAT;
    // As it is configured by default: fifty events share the messages of a few intervals.
    options.stream.notifier.interval = Duration::from_millis(250);
    options
}

async fn it_conforms(world: &World) {
    let job = world.create().await;
    let client = Client::new(&world.url(""), &world.token).expect("a client");
    let config =
        KitConfig { job: Some(job.uuid()), heartbeat: HEARTBEAT, ..KitConfig::new(vec![client]) };
    let outcomes = conformance::run(config, |_| {}).await;
    let others = outcomes.iter().filter(|outcome| outcome.verdict != Verdict::Pass);
    let others: Vec<_> = others.collect();
    let names: Vec<_> = others.iter().map(|outcome| outcome.case).collect();
    let expected: Vec<_> = FROM_WITHIN.iter().map(|(_, name, _)| *name).collect();
    assert_eq!(names, expected, "all that can be driven from outside passes: {others:#?}");
}

#[tokio::test]
async fn the_server_passes_the_kit_on_sqlite() {
    World::on_sqlite(options(), async |world| it_conforms(world).await).await;
}

#[tokio::test]
async fn the_server_passes_the_kit_on_postgres() {
    World::on_postgres(options(), async |world| it_conforms(world).await).await;
}

#[tokio::test]
async fn a_server_that_breaks_a_rule_is_found_out() {
    let mut broken = options();
    // Messages of twice the size that the kit was told.
    broken.stream.notifier.most_bytes *= 2;
    World::on_sqlite(broken, async |world| {
        let client = Client::new(&world.url(""), &world.token).expect("a client");
        let config = KitConfig { only: Some("D11".to_owned()), ..KitConfig::new(vec![client]) };
        let outcomes = conformance::run(config, |_| {}).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome.verdict, Verdict::Fail(_))));
        assert_eq!(outcomes.len(), 2);
    })
    .await;
}
