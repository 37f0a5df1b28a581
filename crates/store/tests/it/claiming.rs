//! Claims: fair, capped, never twice; leases and fences.

use std::{collections::HashSet, time::Duration};

use outport_domain::{
    id::{Fence, Id, OrganizationId},
    job::{JobStatus, Progress, Stage},
};
use outport_store::{
    jobs::{self, ClaimPolicy, Hold, RunEnd},
    telling::{Account, StageStep},
};
use uuid::Uuid;

use crate::bench::{Bench, claim_policy, failed, file_of, key_of, new_job};

on_both_engines!(
    a_claim_starts_a_run,
    nothing_due_is_no_claim,
    a_backlog_delays_another_organization_by_one_turn,
    organizations_take_turns,
    an_organization_runs_no_more_than_its_cap,
    jobs_in_back_off_block_nobody,
    eight_claimers_never_take_a_job_twice,
    a_late_owner_writes_nothing,
    an_owner_learns_that_it_was_asked_to_stop,
    a_renewal_outlives_an_expired_lease,
    progress_is_recorded,
    a_claim_that_leaves_work_wakes_the_next,
    the_next_due_job_is_known,
    the_place_in_the_queue_is_known,
);

async fn a_claim_starts_a_run(bench: Bench) {
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    let claim = bench.claim().await.expect("a due job");
    assert_eq!(claim.job, bench.find(&job).await);
    assert_eq!((claim.job.id, claim.job.status), (job.id, JobStatus::Processing));
    assert_eq!((claim.fence.job, claim.fence.run, claim.job.run), (job.id, 1, 1));
    assert_eq!(claim.job.started_at, Some(claim.job.updated_at));
    let held = bench.count("SELECT lease_expires_at - updated_at FROM jobs").await;
    assert_eq!(held, 30_000);
    assert_eq!(bench.count("SELECT COUNT(*) FROM runs WHERE worker = 'worker-1'").await, 1);
    bench.assert_counters().await;
}

async fn nothing_due_is_no_claim(bench: Bench) {
    assert!(bench.claim().await.is_none(), "an empty store");
    bench.submit(&new_job(OrganizationId::new())).await;
    bench.force("UPDATE jobs SET due_at = due_at + 3600000").await;
    assert!(bench.claim().await.is_none(), "due in an hour");
    bench.make_all_due().await;
    assert!(bench.claim().await.is_some(), "due now");
}

async fn a_backlog_delays_another_organization_by_one_turn(bench: Bench) {
    let (large, small) = (OrganizationId::new(), OrganizationId::new());
    for _ in 0..200 {
        bench.submit(&new_job(large)).await;
    }
    let policy = ClaimPolicy { running_per_organization: 1_000, ..claim_policy() };
    for _ in 0..3 {
        bench.claim_with(&policy).await.expect("one of the backlog");
    }
    let late = bench.submit(&new_job(small)).await;
    let next = [
        bench.claim_with(&policy).await.expect("a job").job.id,
        bench.claim_with(&policy).await.expect("a job").job.id,
    ];
    assert!(next.contains(&late.id), "the newcomer waits for more than one turn");
}

async fn organizations_take_turns(bench: Bench) {
    let organizations = [OrganizationId::new(), OrganizationId::new(), OrganizationId::new()];
    for organization in organizations {
        for _ in 0..4 {
            bench.submit(&new_job(organization)).await;
        }
    }
    let policy = ClaimPolicy { running_per_organization: 100, ..claim_policy() };
    let mut turns = Vec::new();
    while let Some(claim) = bench.claim_with(&policy).await {
        turns.push(claim.job.scope.organization.uuid());
    }
    assert_eq!(turns.len(), 12);
    for round in turns.chunks(3) {
        assert_eq!(round.iter().collect::<HashSet<_>>().len(), 3, "{turns:?}");
    }
}

async fn an_organization_runs_no_more_than_its_cap(bench: Bench) {
    let organization = OrganizationId::new();
    let mut submitted = Vec::new();
    for _ in 0..4 {
        submitted.push(bench.submit(&new_job(organization)).await.id);
    }
    let first = bench.claim().await.expect("the first");
    let second = bench.claim().await.expect("the second");
    assert_eq!([first.job.id, second.job.id], submitted[..2], "oldest first");
    assert!(bench.claim().await.is_none(), "the cap is two");
    bench.finish(&first.fence, &RunEnd::Completed(file_of(&first))).await;
    let third = bench.claim().await.expect("a place is free");
    assert_eq!(third.job.id, submitted[2]);
    bench.assert_counters().await;
}

async fn jobs_in_back_off_block_nobody(bench: Bench) {
    let (waiting, ready) = (OrganizationId::new(), OrganizationId::new());
    bench.submit(&new_job(waiting)).await;
    bench.force("UPDATE jobs SET due_at = due_at + 3600000").await;
    let job = bench.submit(&new_job(ready)).await;
    bench
        .force(
            "UPDATE turns SET last_turn_at = 9 WHERE organization_id <> \
                (SELECT organization_id FROM jobs ORDER BY due_at DESC LIMIT 1)",
        )
        .await;
    assert_eq!(bench.claim().await.expect("the other's job").job.id, job.id);
    assert!(bench.claim().await.is_none());
}

async fn eight_claimers_never_take_a_job_twice(bench: Bench) {
    for _ in 0..3 {
        let organization = OrganizationId::new();
        for _ in 0..20 {
            bench.submit(&new_job(organization)).await;
        }
    }
    let policy = ClaimPolicy { running_per_organization: 1_000, ..claim_policy() };
    let claimers = (0..8).map(|_| {
        let (bench, policy) = (bench.clone(), policy.clone());
        tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Some(claim) = bench.claim_with(&policy).await {
                assert_eq!(claim.fence.run, 1);
                taken.push(claim.job.id.uuid());
            }
            taken
        })
    });
    let mut all = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        all.extend(claimer.await.expect("no panic"));
    }
    assert_eq!(all.len(), 60, "each claimer went on while there was work");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 60);
    bench.assert_counters().await;
}

async fn a_late_owner_writes_nothing(bench: Bench) {
    let late = bench.running(OrganizationId::new()).await;
    bench.expire_leases().await;
    bench.rescue(&late.fence).await;
    let current = bench.claim().await.expect("its second run");
    assert_eq!((current.job.id, current.fence.run), (late.job.id, 2));
    let before = bench.find(&late.job).await;
    let told_before = bench.count("SELECT COUNT(*) FROM stream_events").await;
    let forged = Fence { lease_token: Uuid::new_v4(), ..current.fence };
    let unknown = Fence { job: Id::new(), ..current.fence };
    for fence in [late.fence, forged, unknown] {
        let (store, key) = (&bench.store, key_of(&late));
        let lease = Duration::from_secs(30);
        assert_eq!(jobs::renew(store, &fence, lease).await.expect("an answer"), Hold::Lost);
        assert_eq!(jobs::look(store, &[fence]).await.expect("an answer"), [Hold::Lost]);
        let recorded = jobs::record_object(store, &fence, &key, Some("u")).await;
        assert_eq!(recorded.expect("an answer"), Hold::Lost);
        let progress = Progress { done: 7, stage: Some(Stage::Generate), ..Progress::default() };
        let mut account = Account::default();
        account.stage(StageStep::Progress, &progress);
        let recorded = jobs::record_progress(store, &fence, &progress, &account.outgoing()).await;
        assert_eq!(recorded.expect("an answer"), Hold::Lost);
        let ends =
            [RunEnd::Completed(file_of(&late)), failed(), RunEnd::HandedBack, RunEnd::Canceled];
        for end in ends {
            assert_eq!(bench.finish(&fence, &end).await, jobs::Finished::Lost, "{end:?}");
        }
        assert_eq!(bench.rescue(&fence).await, jobs::Finished::Lost);
    }
    assert_eq!(bench.find(&late.job).await, before);
    assert_eq!(bench.count("SELECT COUNT(*) FROM stream_events").await, told_before);
    assert_eq!(bench.count("SELECT COUNT(*) FROM events").await, 0);
    assert_eq!(bench.count("SELECT COUNT(*) FROM runs WHERE object_key IS NOT NULL").await, 0);
    bench.assert_counters().await;
}

async fn an_owner_learns_that_it_was_asked_to_stop(bench: Bench) {
    let asked = bench.running(OrganizationId::new()).await;
    let other = bench.running(OrganizationId::new()).await;
    bench.cancel(&asked.job).await;
    let holds = jobs::look(&bench.store, &[other.fence, asked.fence]).await.expect("a look");
    assert_eq!(holds, [Hold::Held, Hold::CancelRequested]);
    let renewed = jobs::renew(&bench.store, &asked.fence, Duration::from_secs(30)).await;
    assert_eq!(renewed.expect("an answer"), Hold::CancelRequested);
    let recorded = jobs::record_object(&bench.store, &asked.fence, &key_of(&asked), None).await;
    assert_eq!(recorded.expect("an answer"), Hold::CancelRequested);
}

async fn a_renewal_outlives_an_expired_lease(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    bench.expire_leases().await;
    assert_eq!(jobs::expired_leases(&bench.store).await.expect("a look"), [claim.fence]);
    let renewed = jobs::renew(&bench.store, &claim.fence, Duration::from_secs(30)).await;
    assert_eq!(renewed.expect("an answer"), Hold::Held);
    assert_eq!(jobs::expired_leases(&bench.store).await.expect("a look"), []);
    assert_eq!(bench.rescue(&claim.fence).await, jobs::Finished::Lost, "it is alive again");
}

async fn progress_is_recorded(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let progress = Progress {
        stage: Some(Stage::Generate),
        done: 40,
        total: Some(100),
        total_is_estimate: true,
    };
    let account = Account::default();
    let hold = jobs::record_progress(&bench.store, &claim.fence, &progress, &account).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    assert_eq!(bench.find(&claim.job).await.progress, progress);
    bench.finish(&claim.fence, &RunEnd::HandedBack).await;
    assert_eq!(bench.find(&claim.job).await.progress, Progress::default());
}

async fn the_next_due_job_is_known(bench: Bench) {
    assert_eq!(jobs::next_due(&bench.store).await.expect("an answer"), None);
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    assert_eq!(jobs::next_due(&bench.store).await.expect("an answer"), None, "due already");
    bench.force("UPDATE jobs SET due_at = due_at + 3600000").await;
    let next = jobs::next_due(&bench.store).await.expect("an answer");
    assert_eq!(next, Some(job.due_at + chrono::Duration::hours(1)));
}

async fn the_place_in_the_queue_is_known(bench: Bench) {
    let organization = OrganizationId::new();
    bench.submit(&new_job(OrganizationId::new())).await;
    let first = bench.submit(&new_job(organization)).await;
    let second = bench.submit(&new_job(organization)).await;
    let place = async |job| jobs::queue_position(&bench.store, job).await.expect("an answer");
    assert_eq!(place(&first).await, Some(0));
    assert_eq!(place(&second).await, Some(1));
    for _ in 0..100 {
        bench.submit(&new_job(organization)).await;
    }
    let last = bench.submit(&new_job(organization)).await;
    assert_eq!(place(&last).await, None, "beyond the first hundred");
    let running = bench.claim().await.expect("a job");
    assert_eq!(place(&running.job).await, None, "it does not wait");
}

async fn a_claim_that_leaves_work_wakes_the_next(bench: Bench) {
    let organization = OrganizationId::new();
    for _ in 0..3 {
        bench.submit(&new_job(organization)).await;
    }
    let mut hints = bench.store.subscribe(outport_store::hints::Topic::Jobs);
    bench.claim().await.expect("the first");
    let soon = Duration::from_secs(10);
    tokio::time::timeout(soon, hints.changed()).await.expect("in time").expect("a hint");
}
