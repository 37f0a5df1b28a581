//! What those who wait for their turn are told.

use outport_domain::{id::OrganizationId, job::ExportJob};
use serde_json::json;

use crate::{
    bench::{Bench, failed, new_job},
    stream::{channel_of, data_of, heard, types},
};

on_both_engines!(
    a_job_that_meets_a_full_organization_is_told_once_that_it_waits,
    a_claim_tells_the_first_ten_where_they_stand,
    a_place_is_told_at_most_every_ten_seconds,
    a_cancel_moves_the_others_up,
    a_job_that_waits_again_is_told_again,
);

async fn submitted(bench: &Bench, organization: OrganizationId, jobs: usize) -> Vec<ExportJob> {
    let mut all = Vec::new();
    for _ in 0..jobs {
        all.push(bench.submit(&new_job(organization)).await);
    }
    all
}

async fn told(bench: &Bench, job: &ExportJob) -> Vec<String> {
    let events = heard(&bench.store, &channel_of(job)).await;
    types(&events).into_iter().map(str::to_owned).collect()
}

/// Ten seconds pass.
async fn wait(bench: &Bench) {
    bench.force("UPDATE jobs SET position_told_at = position_told_at - 10000").await;
}

async fn a_job_that_meets_a_full_organization_is_told_once_that_it_waits(bench: Bench) {
    let organization = OrganizationId::new();
    let jobs = submitted(&bench, organization, 3).await;
    bench.claim().await.expect("a turn");
    assert_eq!(told(&bench, &jobs[2]).await, ["job.queued", "queue.position"]);
    let second = bench.claim().await.expect("the last turn");
    assert_eq!(told(&bench, &jobs[2]).await, ["job.queued", "queue.position", "job.waiting_turn"]);
    let late = bench.submit(&new_job(organization)).await;
    assert_eq!(told(&bench, &late).await, ["job.queued", "job.waiting_turn"], "at once");
    let other = bench.submit(&new_job(OrganizationId::new())).await;
    assert_eq!(told(&bench, &other).await, ["job.queued"], "another has its own turns");
    bench.finish(&second.fence, &crate::bench::abandoned()).await;
    let free = bench.submit(&new_job(organization)).await;
    assert_eq!(told(&bench, &free).await, ["job.queued"], "a place is free");
    // The other organization is served first.
    bench.claim().await.expect("its turn");
    let third = bench.claim().await.expect("the turn that is free");
    assert_eq!(third.job.id, jobs[2].id);
    assert_eq!(told(&bench, &late).await, ["job.queued", "job.waiting_turn", "queue.position"]);
    assert_eq!(told(&bench, &free).await, ["job.queued", "job.waiting_turn", "queue.position"]);
}

async fn a_claim_tells_the_first_ten_where_they_stand(bench: Bench) {
    let jobs = submitted(&bench, OrganizationId::new(), 13).await;
    bench.claim().await.expect("a turn");
    for (ahead, job) in jobs[1..11].iter().enumerate() {
        let events = heard(&bench.store, &channel_of(job)).await;
        let data = json!({"position": ahead + 1, "ahead": ahead});
        assert_eq!(data_of(&events, "queue.position"), data);
    }
    for job in &jobs[11..] {
        assert_eq!(told(&bench, job).await, ["job.queued"], "it is not among the first ten");
    }
}

async fn a_place_is_told_at_most_every_ten_seconds(bench: Bench) {
    let jobs = submitted(&bench, OrganizationId::new(), 4).await;
    let first = bench.claim().await.expect("a turn");
    bench.claim().await.expect("a turn");
    let waits = ["job.queued", "queue.position", "job.waiting_turn"];
    assert_eq!(told(&bench, &jobs[3]).await, waits, "told at the first claim alone");
    bench.finish(&first.fence, &crate::bench::abandoned()).await;
    wait(&bench).await;
    bench.claim().await.expect("a turn");
    let events = heard(&bench.store, &channel_of(&jobs[3])).await;
    assert_eq!(types(&events), [&waits[..], &["queue.position"]].concat());
    assert_eq!(events[1].data.get(), json!({"position": 3, "ahead": 2}).to_string());
    assert_eq!(events[3].data.get(), json!({"position": 1, "ahead": 0}).to_string());
}

async fn a_cancel_moves_the_others_up(bench: Bench) {
    let jobs = submitted(&bench, OrganizationId::new(), 2).await;
    bench.cancel(&jobs[0]).await;
    assert_eq!(told(&bench, &jobs[0]).await, ["job.queued", "job.cancelled"]);
    let events = heard(&bench.store, &channel_of(&jobs[1])).await;
    assert_eq!(data_of(&events, "queue.position"), json!({"position": 1, "ahead": 0}));
}

async fn a_job_that_waits_again_is_told_again(bench: Bench) {
    let organization = OrganizationId::new();
    let claims = [bench.running(organization).await, bench.running(organization).await];
    let job = bench.submit(&new_job(organization)).await;
    bench.finish(&claims[0].fence, &crate::bench::abandoned()).await;
    let claim = bench.claim().await.expect("its turn");
    assert_eq!(claim.job.id, job.id);
    submitted(&bench, organization, 1).await;
    bench.finish(&claim.fence, &failed()).await;
    bench.force("UPDATE jobs SET due_at = due_at - 1000 WHERE run = 0").await;
    bench.claim().await.expect("the turn of the other");
    let told = told(&bench, &job).await;
    let again = ["retry.scheduled", "turn.ended", "job.waiting_turn", "queue.position"];
    assert!(told.ends_with(&again.map(str::to_owned)), "{told:?}");
}
