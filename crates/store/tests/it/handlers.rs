//! Handlers as data: registered, retired, reconciled, backfilled.

use chrono::{DateTime, Utc};
use outport_domain::id::OrganizationId;
use outport_store::deliveries;

use crate::bench::{Bench, HANDLER, handler};

on_both_engines!(
    registering_twice_adds_nothing,
    an_event_is_delivered_to_those_who_want_it,
    a_late_handler_starts_with_later_events,
    what_is_missing_is_inserted_once,
    a_first_look_goes_back_to_the_registration,
    older_events_are_backfilled_on_request,
    a_retired_handler_gets_nothing_new,
    a_restored_handler_gets_events_from_then_on,
    registrations_and_events_at_once_miss_nothing,
);

const COMPLETED: &str = "export.completed";

async fn reconcile(bench: &Bench) -> u64 {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let inserted = deliveries::reconcile(&mut tx).await.expect("reconciled");
    tx.commit().await.expect("a commit");
    inserted
}

async fn backfill(bench: &Bench, organization: OrganizationId, name: &str) -> Option<u64> {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let since = DateTime::<Utc>::UNIX_EPOCH;
    let inserted =
        deliveries::backfill(&mut tx, organization, name, since).await.expect("backfilled");
    tx.commit().await.expect("a commit");
    inserted
}

async fn retire(bench: &Bench, name: &str) -> bool {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let retired = deliveries::retire(&mut tx, name).await.expect("retired");
    tx.commit().await.expect("a commit");
    retired
}

async fn deliveries_of(bench: &Bench, name: &str) -> i64 {
    bench.count(&format!("SELECT COUNT(*) FROM deliveries WHERE handler = '{name}'")).await
}

async fn registering_twice_adds_nothing(bench: Bench) {
    bench.register(HANDLER, &[COMPLETED]).await;
    let at = bench.count("SELECT CAST(SUM(registered_at) AS BIGINT) FROM handlers").await;
    bench.register(HANDLER, &[COMPLETED]).await;
    bench.register(HANDLER, &[]).await;
    assert_eq!(bench.count("SELECT CAST(SUM(registered_at) AS BIGINT) FROM handlers").await, at);
    assert_eq!(bench.count("SELECT COUNT(*) FROM handler_events").await, 1, "never removes");
    bench.register(HANDLER, &[COMPLETED, "export.failed"]).await;
    assert_eq!(bench.count("SELECT COUNT(*) FROM handler_events").await, 2);
}

async fn an_event_is_delivered_to_those_who_want_it(bench: Bench) {
    bench.register("one", &[COMPLETED]).await;
    bench.register("two", &["export.failed", COMPLETED]).await;
    bench.register("three", &["export.failed"]).await;
    bench.completed(OrganizationId::new()).await;
    assert_eq!(deliveries_of(&bench, "one").await, 1);
    assert_eq!(deliveries_of(&bench, "two").await, 1);
    assert_eq!(deliveries_of(&bench, "three").await, 0);
    assert_eq!(reconcile(&bench).await, 0, "nothing is missing");
}

async fn a_late_handler_starts_with_later_events(bench: Bench) {
    bench.completed(OrganizationId::new()).await;
    bench.force("UPDATE events SET created_at = created_at - 5").await;
    bench.register("late", &[COMPLETED]).await;
    assert_eq!(reconcile(&bench).await, 0);
    bench.completed(OrganizationId::new()).await;
    assert_eq!(deliveries_of(&bench, "late").await, 1);
    assert_eq!(reconcile(&bench).await, 0);
}

async fn what_is_missing_is_inserted_once(bench: Bench) {
    bench.register(HANDLER, &[COMPLETED]).await;
    for _ in 0..3 {
        bench.completed(OrganizationId::new()).await;
    }
    bench.force("DELETE FROM deliveries").await;
    let reconcilers = (0..4).map(|_| {
        let bench = bench.clone();
        tokio::spawn(async move { reconcile(&bench).await })
    });
    let mut inserted = 0;
    for reconciler in reconcilers.collect::<Vec<_>>() {
        inserted += reconciler.await.expect("no panic");
    }
    assert_eq!(inserted, 3);
    assert_eq!(deliveries_of(&bench, HANDLER).await, 3);
    assert_eq!(reconcile(&bench).await, 0);
}

async fn a_first_look_goes_back_to_the_registration(bench: Bench) {
    bench.register(HANDLER, &[COMPLETED]).await;
    bench.force("UPDATE handler_events SET registered_at = registered_at - 300000000").await;
    // Before the registration, at it and since, days and hours ago.
    for age in ["300000001", "300000000", "100000000", "3600000"] {
        bench.completed(OrganizationId::new()).await;
        let registered = "(SELECT reconciled_to FROM handler_events)";
        bench
            .force(&format!(
                "UPDATE events SET created_at = {registered} - {age} \
                 WHERE created_at >= {registered}"
            ))
            .await;
    }
    bench.force("DELETE FROM deliveries").await;
    assert_eq!(reconcile(&bench).await, 0, "a later look sees the last minutes");
    assert_eq!(deliveries::reconcile_all(&bench.store).await.expect("a look"), 3);
    assert_eq!(deliveries_of(&bench, HANDLER).await, 3);
    assert_eq!(deliveries::reconcile_all(&bench.store).await.expect("a look"), 0);
}

async fn older_events_are_backfilled_on_request(bench: Bench) {
    let organization = OrganizationId::new();
    bench.completed(organization).await;
    bench.completed(organization).await;
    bench.completed(OrganizationId::new()).await;
    bench.force("UPDATE events SET created_at = created_at - 5").await;
    assert_eq!(backfill(&bench, organization, "late").await, None, "not registered");
    bench.register("late", &[COMPLETED]).await;
    assert_eq!(backfill(&bench, organization, "late").await, Some(2));
    assert_eq!(backfill(&bench, organization, "late").await, Some(0));
    assert_eq!(deliveries_of(&bench, "late").await, 2, "its own organization's alone");
}

async fn a_retired_handler_gets_nothing_new(bench: Bench) {
    bench.register(HANDLER, &[COMPLETED]).await;
    bench.completed(OrganizationId::new()).await;
    assert!(retire(&bench, HANDLER).await);
    assert!(retire(&bench, HANDLER).await, "idempotent");
    assert!(!retire(&bench, "unknown").await);
    bench.completed(OrganizationId::new()).await;
    bench.register(HANDLER, &[COMPLETED]).await;
    assert_eq!(reconcile(&bench).await, 0);
    assert_eq!(deliveries_of(&bench, HANDLER).await, 1, "what it had is left");
    assert_eq!(backfill(&bench, OrganizationId::new(), HANDLER).await, None);
}

async fn a_restored_handler_gets_events_from_then_on(bench: Bench) {
    bench.register(HANDLER, &[COMPLETED]).await;
    assert!(!restore(&bench).await, "it is not retired");
    assert!(retire(&bench, HANDLER).await);
    bench.completed(OrganizationId::new()).await;
    let view = deliveries::handlers(&bench.store).await.expect("read");
    assert!(view[0].retired_at.is_some());
    assert!(restore(&bench).await);
    assert_eq!(
        reconcile(&bench).await,
        0,
        "what was committed while it was retired is not its own"
    );
    bench.completed(OrganizationId::new()).await;
    assert_eq!(deliveries_of(&bench, HANDLER).await, 1);
    assert_eq!(deliveries::handlers(&bench.store).await.expect("read")[0].retired_at, None);
}

async fn restore(bench: &Bench) -> bool {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let restored = deliveries::restore(&mut tx, HANDLER).await.expect("restored");
    tx.commit().await.expect("a commit");
    restored
}

async fn registrations_and_events_at_once_miss_nothing(bench: Bench) {
    let registrar = {
        let bench = bench.clone();
        tokio::spawn(async move {
            for i in 0..10 {
                let rows = [handler(&format!("h{i}"), &[COMPLETED])];
                let mut tx = bench.store.begin().await.expect("a transaction");
                deliveries::register(&mut tx, &rows).await.expect("registered");
                tx.commit().await.expect("a commit");
            }
        })
    };
    for _ in 0..10 {
        bench.completed(OrganizationId::new()).await;
    }
    registrar.await.expect("no panic");
    let missing = bench
        .count(
            "SELECT COUNT(*) FROM events e, handlers h WHERE e.created_at > h.registered_at \
             AND e.event_type = 'export.completed' AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id \
                             AND d.handler = h.name)",
        )
        .await;
    assert_eq!(missing, 0, "even before the reconciler");
}
