//! Ends of runs: complete, fail, hand back, rescue.

use chrono::Duration as Span;
use outport_contract::export_event::ExportEvent;
use outport_domain::{
    failure::FailureCode,
    id::OrganizationId,
    job::{JobStatus, Progress},
};
use outport_store::{
    events,
    jobs::{self, ExpiredLeases, FinishPolicy, Finished, RunEnd},
    telling::Account,
};

use crate::bench::{Bench, HANDLER, abandoned, failed, file_of, finish_policy, new_job};

on_both_engines!(
    a_completed_job_names_its_file,
    the_event_is_the_row_frozen,
    a_failure_is_tried_again_until_the_budget_is_spent,
    back_off_is_drawn_below_its_ceiling,
    a_hopeless_failure_ends_at_once,
    a_hand_back_is_no_failure,
    a_run_cannot_confirm_a_cancel_nobody_asked_for,
    a_lease_is_acted_on_when_seen_expired_twice,
    a_lost_worker_costs_a_failure,
    a_lost_worker_of_a_canceled_job_cancels_it,
    a_rolled_back_end_leaves_neither_event_nor_delivery,
    two_ends_of_one_run_are_told_once,
);

async fn a_completed_job_names_its_file(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let file = file_of(&claim);
    let finished = bench.finish(&claim.fence, &RunEnd::Completed(file.clone())).await;
    let Finished::Completed(job) = finished else { panic!("{finished:?}") };
    assert_eq!(job, bench.find(&job).await);
    assert_eq!(job.file, Some(file));
    assert_eq!(job.finished_at, Some(job.updated_at));
    assert_eq!(job.expires_at, job.finished_at.map(|at| at + Span::days(7)));
    let progress = Progress { done: 12, total: Some(12), ..Progress::default() };
    assert_eq!(job.progress, progress);
    bench.assert_counters().await;
}

async fn the_event_is_the_row_frozen(bench: Bench) {
    let organization = OrganizationId::new();
    let job = bench.completed(organization).await;
    let stored = events::of_job(&bench.store, organization, job.id).await.expect("events");
    let [event, _] = stored.as_slice() else { panic!("two events: {stored:?}") };
    assert_eq!(event.event_type, "export.completed");
    assert_eq!(Some(event.created_at), job.finished_at);
    let parsed: ExportEvent = serde_json::from_str(&event.body).expect("an event");
    assert_eq!(serde_json::to_string(&parsed).expect("JSON"), event.body);
    let again = bench.find(&job).await.event(parsed.event_type);
    assert_eq!(serde_json::to_string(&again).expect("JSON"), event.body, "digit for digit");
    assert!(event.body.contains(r#""value":10.10"#), "{}", event.body);
    let other = events::of_job(&bench.store, OrganizationId::new(), job.id).await;
    assert_eq!(other.expect("a look"), [], "another organization's");
}

async fn a_failure_is_tried_again_until_the_budget_is_spent(bench: Bench) {
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    for failures in 1..=2 {
        let claim = bench.claim().await.expect("due at once, without back-off");
        assert_eq!(claim.fence.run, failures);
        let finished = bench.finish(&claim.fence, &failed()).await;
        let Finished::Requeued(job) = finished else { panic!("{finished:?}") };
        assert_eq!((job.status, job.failures), (JobStatus::Pending, failures));
        assert_eq!(job.failure, None, "it has not failed yet");
        bench.assert_counters().await;
    }
    let claim = bench.claim().await.expect("the last run");
    let finished = bench.finish(&claim.fence, &failed()).await;
    let Finished::Failed(ended) = finished else { panic!("{finished:?}") };
    assert_eq!(ended, bench.find(&job).await);
    let reason = (FailureCode::SourceUnreachable, "The source is away.".to_owned());
    assert_eq!((ended.failures, ended.run, ended.failure), (3, 3, Some(reason)));
    assert!(bench.claim().await.is_none());
    assert_eq!(bench.told(&job).await, ["export.failed", "job.failed"]);
    bench.assert_counters().await;
}

async fn back_off_is_drawn_below_its_ceiling(bench: Bench) {
    let policy = FinishPolicy {
        backoff: std::time::Duration::from_hours(1),
        backoff_most: std::time::Duration::from_hours(2),
        job_failures: 100,
        ..finish_policy()
    };
    let claim = bench.running(OrganizationId::new()).await;
    let finished = bench.finish_with(&claim.fence, &failed(), &policy).await;
    let Finished::Requeued(job) = finished else { panic!("{finished:?}") };
    let pause = job.due_at - job.updated_at;
    assert!(pause >= Span::zero() && pause <= Span::hours(1), "{pause}");
    bench.make_all_due().await;
    let claim = bench.claim().await.expect("due by force");
    let finished = bench.finish_with(&claim.fence, &failed(), &policy).await;
    let Finished::Requeued(job) = finished else { panic!("{finished:?}") };
    assert!(job.due_at - job.updated_at <= Span::hours(2), "the most is two hours");
}

async fn a_hopeless_failure_ends_at_once(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let finished = bench.finish(&claim.fence, &abandoned()).await;
    let Finished::Failed(job) = finished else { panic!("{finished:?}") };
    assert_eq!((job.run, job.expires_at, job.file), (1, None, None));
    assert_eq!(job.failure.map(|(code, _)| code), Some(FailureCode::SchemaMismatch));
}

async fn a_hand_back_is_no_failure(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let finished = bench.finish(&claim.fence, &RunEnd::HandedBack).await;
    let Finished::Requeued(job) = finished else { panic!("{finished:?}") };
    assert_eq!((job.failures, job.due_at), (0, job.updated_at));
    let again = bench.claim().await.expect("due at once");
    assert_eq!((again.job.id, again.fence.run), (job.id, 2), "run only grows");
    assert_eq!(again.job.started_at, claim.job.started_at, "when its first run began");
}

async fn a_run_cannot_confirm_a_cancel_nobody_asked_for(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    assert_eq!(bench.finish(&claim.fence, &RunEnd::Canceled).await, Finished::Lost);
    assert_eq!(bench.find(&claim.job).await.status, JobStatus::Processing);
}

async fn a_lease_is_acted_on_when_seen_expired_twice(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let look = async || jobs::expired_leases(&bench.store).await.expect("a look");
    let mut seen = ExpiredLeases::default();
    assert_eq!(seen.seen_again(look().await), [], "not expired");
    bench.expire_leases().await;
    assert_eq!(seen.seen_again(look().await), [], "seen once");
    assert_eq!(seen.seen_again(look().await), [claim.fence], "seen twice");
    assert_eq!(ExpiredLeases::default().seen_again(look().await), [], "a fresh rescuer");
}

async fn a_lost_worker_costs_a_failure(bench: Bench) {
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    for failures in 1..=3 {
        let claim = bench.claim().await.expect("due");
        assert_eq!(bench.rescue(&claim.fence).await, Finished::Lost, "its lease is good");
        bench.expire_leases().await;
        let rescued = bench.rescue(&claim.fence).await;
        assert_eq!(bench.rescue(&claim.fence).await, Finished::Lost, "rescued twice");
        bench.assert_counters().await;
        match rescued {
            Finished::Requeued(job) => assert!(failures < 3 && job.failures == failures),
            Finished::Failed(job) => {
                assert_eq!((failures, job.failures), (3, 3));
                let code = job.failure.map(|(code, _)| code);
                assert_eq!(code, Some(FailureCode::WorkerLost));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bench.find(&job).await.status, JobStatus::Failed);
    assert_eq!(bench.told(&job).await, ["export.failed", "job.failed"]);
}

async fn a_lost_worker_of_a_canceled_job_cancels_it(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    bench.cancel(&claim.job).await;
    bench.expire_leases().await;
    let rescued = bench.rescue(&claim.fence).await;
    let Finished::Canceled(job) = rescued else { panic!("{rescued:?}") };
    assert_eq!(job.failure.map(|(code, _)| code), Some(FailureCode::Canceled));
    bench.assert_counters().await;
}

async fn a_rolled_back_end_leaves_neither_event_nor_delivery(bench: Bench) {
    bench.register(HANDLER, &["export.completed", "job.completed"]).await;
    let claim = bench.running(OrganizationId::new()).await;
    let end = RunEnd::Completed(file_of(&claim));
    let mut tx = bench.store.begin().await.expect("a transaction");
    let account = Account::default();
    let ended = jobs::finish(&mut tx, &claim.fence, &end, &finish_policy(), &account).await;
    ended.expect("an end");
    drop(tx);
    assert_eq!(bench.find(&claim.job).await, claim.job);
    for table in ["events", "deliveries"] {
        assert_eq!(bench.count(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
    bench.finish(&claim.fence, &end).await;
    for table in ["events", "deliveries"] {
        assert_eq!(bench.count(&format!("SELECT COUNT(*) FROM {table}")).await, 2, "{table}");
    }
}

async fn two_ends_of_one_run_are_told_once(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let ends = (0..4).map(|i| {
        let (bench, claim) = (bench.clone(), claim.clone());
        let end = if i % 2 == 0 { RunEnd::Completed(file_of(&claim)) } else { abandoned() };
        tokio::spawn(async move { bench.finish(&claim.fence, &end).await })
    });
    let mut lost = 0;
    for end in ends.collect::<Vec<_>>() {
        lost += usize::from(end.await.expect("no panic") == Finished::Lost);
    }
    assert_eq!(lost, 3);
    assert_eq!(bench.count("SELECT COUNT(*) FROM events").await, 2, "of one end");
    bench.assert_counters().await;
}
