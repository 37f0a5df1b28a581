//! The numbers of the turn rows stay exact whatever happens, in any order.

use std::time::Duration;

use outport_domain::id::OrganizationId;
use outport_store::jobs::{self, Claim, ClaimPolicy, RunEnd};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use crate::bench::{Bench, abandoned, claim_policy, failed, file_of, key, new_job};

on_both_engines!(random_histories_keep_the_numbers_exact, histories_at_once_keep_the_numbers_exact);

const STEPS: usize = 120;

async fn random_histories_keep_the_numbers_exact(bench: Bench) {
    let seed = rand::random();
    println_seed(seed);
    let organizations = [OrganizationId::new(), OrganizationId::new(), OrganizationId::new()];
    history(&bench, &organizations, seed, true).await;
}

async fn histories_at_once_keep_the_numbers_exact(bench: Bench) {
    let organizations = [OrganizationId::new(), OrganizationId::new()];
    let seed: u64 = rand::random();
    println_seed(seed);
    let histories = (0..4).map(|i| {
        let bench = bench.clone();
        tokio::spawn(async move { history(&bench, &organizations, seed ^ i, false).await })
    });
    for history in histories.collect::<Vec<_>>() {
        history.await.expect("no panic");
    }
    bench.assert_counters().await;
}

/// So that a failure can be repeated.
#[expect(clippy::print_stdout, reason = "the test harness shows it for failures alone")]
fn println_seed(seed: u64) {
    println!("seed {seed}");
}

async fn history(bench: &Bench, organizations: &[OrganizationId], seed: u64, check: bool) {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut claims: Vec<Claim> = Vec::new();
    let mut known = Vec::new();
    let policy = ClaimPolicy { running_per_organization: 3, ..claim_policy() };
    for step in 0..STEPS {
        match dice.random_range(0..10) {
            0..3 => {
                let organization = *organizations.choose(&mut dice).expect("one");
                let key = key(&dice.random_range(0..4).to_string(), 1);
                let job = new_job(organization);
                bench.try_submit(&job, Some(&key)).await.expect("a submission");
                known.push(job);
            }
            3..6 => claims.extend(bench.claim_with(&policy).await),
            6..8 if !claims.is_empty() => {
                let claim = claims.swap_remove(dice.random_range(0..claims.len()));
                let end = match dice.random_range(0..5) {
                    0 => RunEnd::Completed(file_of(&claim)),
                    1 => failed(),
                    2 => abandoned(),
                    3 => RunEnd::HandedBack,
                    _ => RunEnd::Canceled,
                };
                bench.finish(&claim.fence, &end).await;
            }
            8 if !known.is_empty() => {
                let job = known.choose(&mut dice).expect("one");
                let mut tx = bench.store.begin().await.expect("a transaction");
                jobs::request_cancel(&mut tx, job.scope.organization, job.id)
                    .await
                    .expect("an answer");
                tx.commit().await.expect("a commit");
            }
            _ => {
                bench.expire_leases().await;
                for fence in jobs::expired_leases(&bench.store).await.expect("a look") {
                    bench.rescue(&fence).await;
                }
                let mut tx = bench.store.begin().await.expect("a transaction");
                jobs::expire_due(&mut tx, 10).await.expect("expired");
                jobs::purge(&mut tx, Duration::ZERO, 2).await.expect("purged");
                tx.commit().await.expect("a commit");
            }
        }
        if check {
            bench.assert_counters().await;
            assert_eq!(
                bench.count("SELECT COUNT(*) FROM turns WHERE queued < 0 OR running < 0").await,
                0,
                "step {step}"
            );
        }
    }
}
