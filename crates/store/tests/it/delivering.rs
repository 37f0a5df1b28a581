//! Deliveries: claimed, leased, fenced, ended; and receipts.

use std::time::Duration;

use outport_domain::id::OrganizationId;
use outport_store::deliveries::{
    self, DeliveryClaim, DeliveryEnd, DeliveryFence, DeliveryFilter, DeliveryStatus, DeliveryView,
};
use uuid::Uuid;

use crate::bench::{Bench, HANDLER, first_page};

on_both_engines!(
    a_delivery_is_claimed_once_and_done,
    relays_at_once_never_take_a_delivery_twice,
    a_lost_relay_costs_a_failure,
    a_late_relay_writes_nothing,
    a_retry_waits_its_pause,
    a_dead_delivery_can_be_revived_by_hand,
    a_hand_back_is_no_failure,
    the_first_receipt_stays,
    lists_are_filtered_and_scoped,
    the_next_due_delivery_is_known,
);

const LEASE: Duration = Duration::from_secs(30);

async fn claim(bench: &Bench, most: u32) -> Vec<DeliveryClaim> {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let claims = deliveries::claim(&mut tx, HANDLER, LEASE, most).await.expect("claims");
    tx.commit().await.expect("a commit");
    claims
}

async fn one(bench: &Bench) -> DeliveryClaim {
    let mut claims = claim(bench, 1).await;
    claims.pop().expect("a due delivery")
}

async fn finish(bench: &Bench, fence: &DeliveryFence, end: &DeliveryEnd) -> bool {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let ended = deliveries::finish(&mut tx, fence, end).await.expect("an answer");
    tx.commit().await.expect("a commit");
    ended
}

async fn view(bench: &Bench, claim: &DeliveryClaim) -> DeliveryView {
    deliveries::find(&bench.store, claim.event.organization, claim.fence.delivery)
        .await
        .expect("a look")
        .expect("the delivery is there")
}

async fn completed(bench: &Bench, jobs: usize) -> OrganizationId {
    let organization = OrganizationId::new();
    bench.register(HANDLER, &["export.completed"]).await;
    for _ in 0..jobs {
        bench.completed(organization).await;
    }
    organization
}

async fn a_delivery_is_claimed_once_and_done(bench: Bench) {
    completed(&bench, 3).await;
    let claims = claim(&bench, 2).await;
    assert_eq!(claims.len(), 2);
    assert!(claims[0].event.created_at <= claims[1].event.created_at, "oldest first");
    for claim in &claims {
        assert_eq!((claim.fence.run, claim.failures), (1, 0));
        assert_eq!((claim.handler.as_str(), claim.target.as_str()), (HANDLER, ""));
        assert!(claim.event.body.starts_with(r#"{"type":"export.completed","data":{"#));
    }
    assert_eq!(claim(&bench, 2).await.len(), 1, "the third one");
    assert_eq!(view(&bench, &claims[0]).await.status, DeliveryStatus::Running);
    assert!(finish(&bench, &claims[0].fence, &DeliveryEnd::Done).await);
    assert!(!finish(&bench, &claims[0].fence, &DeliveryEnd::Done).await, "only once");
    let done = view(&bench, &claims[0]).await;
    assert_eq!((done.status, done.attempts, done.failures), (DeliveryStatus::Done, 1, 0));
    assert!(done.finished_at.is_some());
    bench.make_all_due().await;
    assert_eq!(claim(&bench, 10).await.len(), 2, "what is done stays done");
}

async fn relays_at_once_never_take_a_delivery_twice(bench: Bench) {
    completed(&bench, 20).await;
    let relays = (0..6).map(|_| {
        let bench = bench.clone();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..10 {
                let claims = claim(&bench, 3).await;
                taken.extend(claims.into_iter().map(|claim| claim.fence.delivery.uuid()));
            }
            taken
        })
    });
    let mut all = Vec::new();
    for relay in relays.collect::<Vec<_>>() {
        all.extend(relay.await.expect("no panic"));
    }
    all.sort();
    let taken = all.len();
    all.dedup();
    assert_eq!((taken, all.len()), (20, 20));
}

async fn a_lost_relay_costs_a_failure(bench: Bench) {
    completed(&bench, 1).await;
    let lost = one(&bench).await;
    assert!(claim(&bench, 1).await.is_empty(), "its lease is good");
    bench.make_all_due().await;
    let again = one(&bench).await;
    assert_eq!(again.fence.delivery, lost.fence.delivery);
    assert_eq!((again.fence.run, again.failures), (2, 1));
    assert_ne!(again.fence.lease_token, lost.fence.lease_token);
}

async fn a_late_relay_writes_nothing(bench: Bench) {
    completed(&bench, 1).await;
    let late = one(&bench).await;
    bench.make_all_due().await;
    let current = one(&bench).await;
    let before = view(&bench, &current).await;
    let forged = DeliveryFence { lease_token: Uuid::new_v4(), ..current.fence };
    for fence in [late.fence, forged] {
        assert!(!deliveries::renew(&bench.store, &fence, LEASE).await.expect("an answer"));
        let error = "late".to_owned();
        for end in [
            DeliveryEnd::Done,
            DeliveryEnd::Retry { error: error.clone(), pause: LEASE },
            DeliveryEnd::Dead { error },
            DeliveryEnd::HandedBack,
        ] {
            assert!(!finish(&bench, &fence, &end).await, "{end:?}");
        }
    }
    assert_eq!(view(&bench, &current).await, before);
    bench.make_all_due().await;
    assert!(deliveries::renew(&bench.store, &current.fence, LEASE).await.expect("an answer"));
    assert!(claim(&bench, 1).await.is_empty(), "renewed by run and token, not by expiry");
}

async fn a_retry_waits_its_pause(bench: Bench) {
    completed(&bench, 1).await;
    let first = one(&bench).await;
    let pause = Duration::from_hours(1);
    let end = DeliveryEnd::Retry { error: "451 later".to_owned(), pause };
    assert!(finish(&bench, &first.fence, &end).await);
    let waiting = view(&bench, &first).await;
    assert_eq!((waiting.status, waiting.failures), (DeliveryStatus::Pending, 1));
    assert_eq!(waiting.last_error.as_deref(), Some("451 later"));
    assert!(claim(&bench, 1).await.is_empty());
    bench.make_all_due().await;
    let second = one(&bench).await;
    assert_eq!((second.fence.run, second.failures), (2, 1));
}

async fn a_dead_delivery_can_be_revived_by_hand(bench: Bench) {
    let organization = completed(&bench, 1).await;
    let first = one(&bench).await;
    let end = DeliveryEnd::Dead { error: "550 no such user".to_owned() };
    assert!(finish(&bench, &first.fence, &end).await);
    bench.make_all_due().await;
    assert!(claim(&bench, 1).await.is_empty(), "dead is dead");
    let retry = async |organization, delivery| {
        let mut tx = bench.store.begin().await.expect("a transaction");
        let revived = deliveries::retry(&mut tx, organization, delivery).await.expect("an answer");
        tx.commit().await.expect("a commit");
        revived
    };
    let delivery = first.fence.delivery;
    assert_eq!(retry(OrganizationId::new(), delivery).await, None, "another organization's");
    let revived = retry(organization, delivery).await.expect("the delivery");
    assert_eq!((revived.status, revived.failures), (DeliveryStatus::Pending, 0));
    assert_eq!(revived.finished_at, None);
    let second = one(&bench).await;
    let running = retry(organization, delivery).await.expect("the delivery");
    assert_eq!(running.status, DeliveryStatus::Running, "others stay as they are");
    assert!(finish(&bench, &second.fence, &DeliveryEnd::Done).await);
}

async fn a_hand_back_is_no_failure(bench: Bench) {
    completed(&bench, 1).await;
    let first = one(&bench).await;
    assert!(finish(&bench, &first.fence, &DeliveryEnd::HandedBack).await);
    let second = one(&bench).await;
    assert_eq!((second.fence.run, second.failures), (2, 0));
}

async fn the_first_receipt_stays(bench: Bench) {
    completed(&bench, 1).await;
    let event = one(&bench).await.event.id;
    let receipt = async |target| {
        deliveries::receipt(&bench.store, event, HANDLER, target).await.expect("a look")
    };
    assert_eq!(receipt("").await, None);
    for text in ["first", "second"] {
        let mut tx = bench.store.begin().await.expect("a transaction");
        deliveries::record_receipt(&mut tx, event, HANDLER, "", text).await.expect("recorded");
        tx.commit().await.expect("a commit");
    }
    assert_eq!(receipt("").await.as_deref(), Some("first"));
    assert_eq!(receipt("elsewhere").await, None);
}

async fn lists_are_filtered_and_scoped(bench: Bench) {
    let organization = completed(&bench, 3).await;
    completed(&bench, 2).await;
    let claims = claim(&bench, 1).await;
    let end = DeliveryEnd::Dead { error: "550".to_owned() };
    finish(&bench, &claims[0].fence, &end).await;
    let list = async |filter: DeliveryFilter| {
        deliveries::list(&bench.store, organization, &filter, first_page(10))
            .await
            .expect("a list")
            .items
    };
    assert_eq!(list(DeliveryFilter::default()).await.len(), 3);
    let dead = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..Default::default() };
    assert_eq!(list(dead).await, [view(&bench, &claims[0]).await]);
    let job = Some(claims[0].event.job);
    let of_job = DeliveryFilter { job, ..Default::default() };
    assert_eq!(list(of_job).await.len(), 1);
    let other = DeliveryFilter { handler: Some("other".to_owned()), ..Default::default() };
    assert!(list(other).await.is_empty());
    let page = PageOf(&bench, organization);
    assert_eq!(page.walk(2).await, page.walk(10).await, "pages add up to the whole");
    let stranger =
        deliveries::find(&bench.store, OrganizationId::new(), claims[0].fence.delivery).await;
    assert_eq!(stranger.expect("a look"), None);
}

struct PageOf<'a>(&'a Bench, OrganizationId);

impl PageOf<'_> {
    async fn walk(&self, limit: u32) -> Vec<Uuid> {
        let mut page = first_page(limit);
        let mut ids = Vec::new();
        loop {
            let filter = DeliveryFilter::default();
            let found = deliveries::list(&self.0.store, self.1, &filter, page).await;
            let found = found.expect("a page");
            ids.extend(found.items.iter().map(|view| view.id.uuid()));
            match found.next {
                Some(next) => page.after = Some(next),
                None => return ids,
            }
        }
    }
}

async fn the_next_due_delivery_is_known(bench: Bench) {
    let next = async |handlers: &[&str]| {
        deliveries::next_due(&bench.store, handlers).await.expect("an answer")
    };
    assert_eq!(next(&[HANDLER]).await, None);
    completed(&bench, 1).await;
    assert_eq!(next(&["other"]).await, None);
    let claim = one(&bench).await;
    let due = view(&bench, &claim).await.due_at;
    assert_eq!(next(&["other", HANDLER]).await, Some(due), "when its lease ends");
    finish(&bench, &claim.fence, &DeliveryEnd::Done).await;
    assert_eq!(next(&[HANDLER]).await, None);
}
