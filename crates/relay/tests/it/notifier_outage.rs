//! The notifier while its database cannot be reached.

use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Level, Metadata, Subscriber, instrument::WithSubscriber as _, span};

use outport_relay::Notifier;

use crate::{
    listening::{GOES, append, by_polls, hear, job, scope},
    wire::{Mode, Wire},
    world::{PATIENCE, World},
};

/// What the notifier logs, by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Logged {
    warnings: usize,
    details: usize,
    notes: usize,
}

struct Log(watch::Sender<Logged>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("outport_relay::notifier")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.send_modify(|logged| match *event.metadata().level() {
            Level::WARN | Level::ERROR => logged.warnings += 1,
            Level::INFO => logged.notes += 1,
            _ => logged.details += 1,
        });
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_delays_and_loses_nothing_and_is_told_once() {
    World::on_postgres(async |world: &World| {
        let wire = Wire::to(world.port()).await;
        let store = world.connect_over(wire.port).await;
        let notifier = Notifier::new(store.clone(), by_polls());
        let (log, mut logged) = watch::channel(Logged::default());
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (notifier, stop) = (notifier.clone(), stop.clone());
            async move { notifier.run(stop).await }.with_subscriber(Log(log))
        });
        let scope = scope();
        let mut subscription = notifier.subscribe(&job(&scope)).await.expect("a subscription");
        append(&world.store, &scope, &[(GOES, "a")]).await;
        assert_eq!(hear(&mut subscription, 1).await, ["1:a"]);
        wire.set(Mode::Down);
        append(&world.store, &scope, &[(GOES, "b")]).await;
        let tried = timeout(PATIENCE, logged.wait_for(|logged| logged.details >= 3)).await;
        assert_eq!(tried.expect("it tries again").expect("the log").warnings, 1);
        append(&world.store, &scope, &[(GOES, "c")]).await;
        wire.set(Mode::Up);
        assert_eq!(hear(&mut subscription, 2).await, ["2:b", "3:c"]);
        append(&world.store, &scope, &[(GOES, "d")]).await;
        assert_eq!(hear(&mut subscription, 1).await, ["4:d"]);
        let logged = *logged.borrow();
        assert_eq!((logged.warnings, logged.notes), (1, 1), "{logged:?}");
        stop.cancel();
        running.await.expect("an end in order");
        store.close().await;
    })
    .await;
}

/// What one channel has must not hold up the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_cannot_be_read_holds_up_no_other() {
    World::on_sqlite(async |world: &World| {
        let notifier = Notifier::new(world.store.clone(), by_polls());
        let (log, logged) = watch::channel(Logged::default());
        let (broken, sound) = (scope(), scope());
        let mut of_broken = notifier.subscribe(&job(&broken)).await.expect("a subscription");
        let mut of_sound = notifier.subscribe(&job(&sound)).await.expect("a subscription");
        append(&world.store, &broken, &[(GOES, "a")]).await;
        world.force("UPDATE stream_events SET data = 'no JSON'").await;
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (notifier, stop) = (notifier.clone(), stop.clone());
            async move { notifier.run(stop).await }.with_subscriber(Log(log))
        });
        for number in 1..=20 {
            append(&world.store, &sound, &[(GOES, "x")]).await;
            assert_eq!(hear(&mut of_sound, 1).await, [format!("{number}:x")]);
        }
        assert_eq!(logged.borrow().warnings, 1);
        world.force("UPDATE stream_events SET data = '{\"note\":\"mended\"}'").await;
        assert_eq!(hear(&mut of_broken, 1).await, ["1:mended"]);
        stop.cancel();
        running.await.expect("an end in order");
    })
    .await;
}
