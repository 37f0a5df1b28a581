//! Exports that cannot be: they end as FAILED with a code and a reason, leave no file, and the
//! requester is told.

use std::process::Command;

use crate::harness::{
    Api, PATIENCE, Process, World,
    process::{Program, free_port},
    servers::S3,
    shop, until,
};

/// The job fails with this code; its event and its mail say so; words of the reason.
async fn fails(world: &World, api: &Api, job: &str, code: &str, words: &str) {
    let job = api.job_is(job, "FAILED").await;
    assert_eq!(job["failureReason"], code, "{job}");
    assert_eq!(job["failure"]["code"], code);
    let message = job["failure"]["message"].as_str().expect("a reason");
    assert!(message.contains(words), "{message}");
    assert!(!message.contains("127.0.0.1"), "no address is told: {message}");
    assert_eq!(job["fileKey"], serde_json::Value::Null);
    world.told().await;
    let text = world.describe().await;
    assert!(text.contains("event: export.failed\nevent: job.failed\n"), "{text}");
    assert_eq!(text.matches("event:").count(), 2, "of one end: {text}");
    assert!(text.contains("delivery: send-export-failed-message, DONE"), "{text}");
    assert_eq!(world.objects(), [""; 0], "no file");
    let mail = world.mail().await;
    assert!(mail.contains(code) && mail.contains(words), "{mail}");
}

#[tokio::test]
async fn a_source_that_is_down_is_tried_three_times() {
    let mut world = World::postgres().await;
    let port = free_port();
    world.set("OUTPORT_CONNECTIONS_SHOP", &format!("postgres://reader@127.0.0.1:{port}/shop"));
    let api = world.api().await;
    let job = api.export("order").await;
    let _worker = world.worker();
    fails(&world, &api, &job, "SOURCE_UNREACHABLE", "could not be reached").await;
    assert_eq!(api.job(&job).await["run"], 3);
}

#[tokio::test]
async fn a_table_that_is_gone_fails_at_once() {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    world.state.postgres().run("DROP TABLE shop.orders").await;
    let _worker = world.worker();
    fails(&world, &api, &job, "SCHEMA_MISMATCH", "shop.orders").await;
    assert_eq!(api.job(&job).await["run"], 1, "another run could not help");
}

#[tokio::test]
async fn a_source_that_dies_in_mid_export_leaves_no_short_file() {
    let world = World::postgres().await;
    shop::add_slow(world.state.postgres(), 400, 10).await;
    let api = world.api().await;
    let _worker = world.worker();
    let job = api.export("slow").await;
    api.rows_have_come(&job).await;
    let killed = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                  WHERE datname = current_database() AND query ILIKE 'COPY %'";
    assert_eq!(world.state.value(killed).await, "1", "the query ran");
    // Another run helps: the file is whole in the end.
    let job = api.job_is(&job, "COMPLETED").await;
    assert_eq!((&job["run"], &job["totalRows"]), (&2.into(), &400.into()));
    let key = job["fileKey"].as_str().expect("a key");
    assert_eq!(String::from_utf8(world.object(key)).expect("UTF-8"), shop::expected_slow(400));
}

/// A worker whose object folder is a file system of 12 MiB, in a mount namespace of its own.
fn worker_on_a_small_disk(world: &World) -> Process {
    let objects = world.path("objects").display().to_string();
    let script = "mount -t tmpfs -o size=12m tmpfs \"$1\" && exec \"$2\"";
    let mut command = Command::new("unshare");
    command
        // A user namespace, so that nobody has to be root.
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([&objects, Program::Worker.path()]);
    world.worker_by(command)
}

#[tokio::test]
async fn a_full_disk_fails_the_job_and_leaves_nothing_on_it() {
    let world = World::postgres().await;
    shop::add_wide(world.state.postgres(), 60_000, 12).await;
    let api = world.api().await;
    let job = api.export("wide").await;
    let mut worker = worker_on_a_small_disk(&world);
    until("the worker is up", PATIENCE, async || {
        let log = worker.log();
        assert!(worker.ended().is_none(), "no small disk could be mounted: {log}");
        log.contains("starting").then_some(())
    })
    .await;
    fails(&world, &api, &job, "STORE_WRITE_FAILED", "full").await;
    world.settled().await;
    // The disk as the worker sees it.
    let disk = format!("/proc/{}/root{}", worker.id(), world.path("objects").display());
    let left = Command::new("find").args([&disk, "-type", "f"]).output();
    assert_eq!(String::from_utf8_lossy(&left.expect("find").stdout), "", "nothing is left on it");
}

#[tokio::test]
async fn a_store_that_refuses_our_credentials_fails_the_job() {
    let s3 = S3::s3s_fs().await;
    let mut world = World::postgres().await;
    world.use_objects(s3.env());
    world.set("OUTPORT_S3_SECRET_ACCESS_KEY", "another-secret");
    let api = world.api().await;
    let job = api.export("order").await;
    let worker = world.worker();
    fails(&world, &api, &job, "STORE_WRITE_FAILED", "refused").await;
    drop(worker);
    // What may be left there is swept as soon as it can be.
    world.use_objects(s3.env());
    let _worker = world.worker();
    world.settled().await;
}
