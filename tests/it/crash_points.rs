//! The process dies at every named place, another takes over, and in the end the world looks as
//! if nothing had happened (what a broker gets is in `broker.rs`): one job, one file, one end told, one mail (or two that say they are one).

use outport_domain::crash::CrashPoint;
use serde_json::json;

use crate::harness::{
    Api, PATIENCE, Process, World, channels, for_each,
    servers::Smtp,
    shop::expected,
    until,
    world::{ORDERS, dying_at, message_id, sweeping_once},
};

/// What is there right after the death at a point.
fn at_death(point: CrashPoint) -> &'static str {
    use CrashPoint as P;
    match point {
        P::BeforeClaimCommit => {
            "job: PENDING, run 0, failures 0, rows -, ok\n\
             turn: queued 1, running 0"
        }
        P::AfterClaim | P::MidRows => {
            "job: PROCESSING, run 1, failures 0, rows -, ok\n\
             run: run 1, running, wrote nothing\n\
             turn: queued 0, running 1"
        }
        P::MidUpload => {
            "job: PROCESSING, run 1, failures 0, rows -, ok\n\
             run: run 1, running, wrote\n\
             turn: queued 0, running 1"
        }
        P::AfterUpload | P::AfterVerify | P::BeforeCommit | P::DuringSweep => {
            "job: PROCESSING, run 1, failures 0, rows -, ok\n\
             run: run 1, running, wrote\n\
             turn: queued 0, running 1\n\
             object: orders.csv"
        }
        P::AfterCommit | P::BeforeDeliveryClaim | P::AfterDeliveryClaim => {
            "job: COMPLETED, run 1, failures 0, rows 40, ok\n\
             run: run 1, COMPLETED, wrote\n\
             event: export.completed\n\
             event: job.completed\n\
             delivery: send-export-completed-message, open\n\
             turn: queued 0, running 0\n\
             object: orders.csv"
        }
        P::AfterSend | P::BeforeReceipt | P::AfterConfirm => {
            "job: COMPLETED, run 1, failures 0, rows 40, ok\n\
             run: run 1, COMPLETED, wrote\n\
             event: export.completed\n\
             event: job.completed\n\
             delivery: send-export-completed-message, open\n\
             turn: queued 0, running 0\n\
             object: orders.csv\n\
             mail"
        }
    }
}

/// What is there in the end.
fn in_the_end(point: CrashPoint) -> String {
    use CrashPoint as P;
    let job = match point {
        P::BeforeClaimCommit
        | P::AfterCommit
        | P::BeforeDeliveryClaim
        | P::AfterDeliveryClaim
        | P::AfterSend
        | P::BeforeReceipt
        | P::AfterConfirm => {
            "job: COMPLETED, run 1, failures 0, rows 40, ok\n\
             run: run 1, COMPLETED, wrote\n"
        }
        P::AfterClaim | P::MidRows => {
            "job: COMPLETED, run 2, failures 1, rows 40, ok\n\
             run: run 1, PENDING, wrote nothing\n\
             run: run 2, COMPLETED, wrote\n"
        }
        P::MidUpload | P::AfterUpload | P::AfterVerify | P::BeforeCommit | P::DuringSweep => {
            "job: COMPLETED, run 2, failures 1, rows 40, ok\n\
             run: run 1, PENDING, swept\n\
             run: run 2, COMPLETED, wrote\n"
        }
    };
    let object = if job.contains("run 2") { "orders.2.csv" } else { "orders.csv" };
    format!(
        "{job}\
         event: export.completed\n\
         event: job.completed\n\
         delivery: send-export-completed-message, DONE\n\
         receipt: send-export-completed-message\n\
         turn: queued 0, running 0\n\
         object: {object}\n\
         mail"
    )
}

/// Every point but that of the broker, which may be reached before the mail or after it.
fn points() -> impl Iterator<Item = CrashPoint> {
    CrashPoint::ALL.into_iter().filter(|point| *point != CrashPoint::AfterConfirm)
}

/// The point of the first death: nothing can be swept unless a run has left something.
fn first(point: CrashPoint) -> CrashPoint {
    if point == CrashPoint::DuringSweep { CrashPoint::AfterUpload } else { point }
}

async fn is_whole(world: &World, api: &Api, point: CrashPoint) {
    world.settled().await;
    assert_eq!(world.describe().await, in_the_end(point), "after the death at {point}");
    channels::assert_whole(world).await;
    let job = api.job(&world.only_job().await).await;
    let key = job["fileKey"].as_str().expect("a key");
    assert_eq!(world.objects(), [key], "the object is the one that the job names");
    let file = String::from_utf8(world.object(key)).expect("UTF-8");
    assert_eq!(file, expected(ORDERS), "after the death at {point}");
}

/// Another run has completed the job; what the first one left is still there.
async fn completed_beside_a_leftover(world: &World) {
    until("the job is taken over", PATIENCE, async || {
        let text = world.describe().await;
        (text.contains("COMPLETED") && text.contains("DONE")).then_some(())
    })
    .await;
    assert_eq!(world.objects().len(), 2, "the file and the leftover");
}

/// The leftover is gone and its row does not say so yet.
async fn died_in_its_sweep(world: &World) {
    assert_eq!(world.objects().len(), 1, "the leftover is gone");
    let text = world.describe().await;
    assert!(text.contains("run: run 1, PENDING, wrote\n"), "{text}");
}

async fn dies_and_is_taken_over(point: CrashPoint) {
    let world = World::postgres().await;
    let api = world.api().await;
    api.export("order").await;
    let mut worker = world.worker_dying_at(first(point));
    worker.death(PATIENCE).await;
    assert_eq!(world.describe().await, at_death(point), "right after the death at {point}");
    if point == CrashPoint::DuringSweep {
        let other = world.worker_with(sweeping_once());
        completed_beside_a_leftover(&world).await;
        drop(other);
        world.worker_dying_at(point).death(PATIENCE).await;
        died_in_its_sweep(&world).await;
    }
    let _worker = world.worker();
    is_whole(&world, &api, point).await;
}

#[tokio::test]
async fn a_worker_dies_at_every_point_and_another_makes_it_whole() {
    for_each(points(), dies_and_is_taken_over).await;
}

/// The request may lose its answer, because the process that died had it: it is repeated.
async fn the_embedded_profile_dies_and_starts_again(point: CrashPoint) {
    const KEY: &str = "one-request";
    let world = World::sqlite();
    let mut api = world.all_in_one_with(dying_at(first(point))).await;
    let answered = api.try_export("order", KEY).await;
    api.process.death(PATIENCE).await;
    assert_eq!(world.describe().await, at_death(point), "right after the death at {point}");
    if point == CrashPoint::DuringSweep {
        let other = world.all_in_one_with(sweeping_once()).await;
        completed_beside_a_leftover(&world).await;
        drop(other);
        // It sweeps at its start, perhaps before it can say that it is up.
        world.up_with(dying_at(point)).death(PATIENCE).await;
        died_in_its_sweep(&world).await;
    }
    let api = world.all_in_one().await;
    let repeated = api.try_export("order", KEY).await.expect("an answer");
    assert!(answered.is_none_or(|id| id == repeated), "the same key is the same job");
    is_whole(&world, &api, point).await;
}

#[tokio::test]
async fn the_embedded_profile_dies_at_every_point_and_is_whole_after_a_restart() {
    for_each(points(), the_embedded_profile_dies_and_starts_again).await;
}

/// What is there of a split export in three files, right after the death at a point.
fn split_at_death(point: CrashPoint) -> &'static str {
    match point {
        CrashPoint::MidUpload => {
            "job: PROCESSING, run 1, failures 0, rows -, ok\n\
             run: run 1, running, wrote\n\
             part: run 1, 1, open\n\
             turn: queued 0, running 1"
        }
        // The last file is open, and not a byte of it is written.
        CrashPoint::MidRows => {
            "job: PROCESSING, run 1, failures 0, rows -, ok\n\
             run: run 1, running, wrote\n\
             part: run 1, 1, whole\n\
             part: run 1, 2, whole\n\
             turn: queued 0, running 1\n\
             object: orders-0001.csv\n\
             object: orders-0002.csv"
        }
        _ => {
            "job: PROCESSING, run 1, failures 0, rows -, ok\n\
             run: run 1, running, wrote\n\
             part: run 1, 1, whole\n\
             part: run 1, 2, whole\n\
             part: run 1, 3, whole\n\
             turn: queued 0, running 1\n\
             object: orders-0001.csv\n\
             object: orders-0002.csv\n\
             object: orders-0003.csv\n\
             object: orders.manifest.json"
        }
    }
}

/// What is there of it in the end: the dead run has left lines, and no object.
fn split_in_the_end(point: CrashPoint) -> String {
    let left: Vec<&str> =
        split_at_death(point).lines().filter(|line| line.starts_with("part: ")).collect();
    format!(
        "job: COMPLETED, run 2, failures 1, rows 40, ok\n\
         run: run 1, PENDING, swept\n\
         run: run 2, COMPLETED, wrote\n\
         {}\n\
         part: run 2, 1, whole\n\
         part: run 2, 2, whole\n\
         part: run 2, 3, whole\n\
         event: export.completed\n\
         event: job.completed\n\
         delivery: send-export-completed-message, DONE\n\
         receipt: send-export-completed-message\n\
         turn: queued 0, running 0\n\
         object: orders-0001.2.csv\n\
         object: orders-0002.2.csv\n\
         object: orders-0003.2.csv\n\
         object: orders.2.manifest.json\n\
         mail",
        left.join("\n")
    )
}

async fn a_split_export_dies_and_is_taken_over(point: CrashPoint) {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export_as(&json!({"resource": "order", "maxRowsPerFile": 15})).await;
    world.worker_dying_at(point).death(PATIENCE).await;
    assert_eq!(world.describe().await, split_at_death(point), "right after the death at {point}");
    let _worker = world.worker();
    world.settled().await;
    assert_eq!(world.describe().await, split_in_the_end(point), "after the death at {point}");
    channels::assert_whole(&world).await;
    let job = api.job(&job).await;
    let mut rows = String::new();
    for file in job["files"].as_array().expect("files") {
        let text = String::from_utf8(world.object(file["key"].as_str().expect("a key")));
        let text = text.expect("UTF-8");
        let (header, file_rows) = text.split_once('\n').expect("a header");
        if rows.is_empty() {
            rows = format!("{header}\n");
        }
        assert!(rows.starts_with(&format!("{header}\n")), "a header in each: {text}");
        rows.push_str(file_rows);
    }
    assert_eq!(rows, expected(ORDERS), "after the death at {point}");
}

#[tokio::test]
async fn a_split_export_dies_at_every_point_of_its_run_and_is_whole_in_the_end() {
    let points = [
        CrashPoint::MidRows,
        CrashPoint::MidUpload,
        CrashPoint::AfterUpload,
        CrashPoint::AfterVerify,
        CrashPoint::BeforeCommit,
    ];
    for_each(points, a_split_export_dies_and_is_taken_over).await;
}

#[tokio::test]
async fn a_mail_that_was_sent_before_its_receipt_comes_again_as_the_same() {
    let smtp = Smtp::start();
    for (point, copies) in [
        (CrashPoint::AfterDeliveryClaim, 1),
        (CrashPoint::AfterSend, 2),
        (CrashPoint::BeforeReceipt, 2),
    ] {
        let mut world = World::postgres().await;
        world.use_smtp(smtp.port);
        let api = world.api().await;
        api.export("order").await;
        let mut worker: Process = world.worker_dying_at(point);
        worker.death(PATIENCE).await;
        let _worker = world.worker();
        world.settled().await;
        let mails = smtp.taken(&world.email);
        assert_eq!(mails.len(), copies, "copies after the death at {point}");
        let mut ids: Vec<String> = mails.iter().map(|mail| message_id(mail)).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1, "one identity after the death at {point}: {ids:?}");
    }
}

#[tokio::test]
async fn a_worker_killed_again_and_again_spends_its_budget_and_says_so() {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    for _ in 0..3 {
        let mut worker = world.worker_dying_at(CrashPoint::MidRows);
        worker.death(PATIENCE).await;
    }
    let _worker = world.worker();
    let failed = api.job_is(&job, "FAILED").await;
    assert_eq!(failed["failureReason"], "WORKER_LOST");
    world.settled().await;
    let mail = world.mail().await;
    assert!(mail.contains("WORKER_LOST"), "{mail}");
    until("its row is counted off", PATIENCE, async || {
        let turn = world.state.value("SELECT queued + running FROM turns").await;
        (turn == "0").then_some(())
    })
    .await;
    channels::assert_whole(&world).await;
}
