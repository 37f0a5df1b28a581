//! The memory of a running export does not depend on how many rows it has.

use serde_json::json;

use crate::harness::{PATIENCE, World, servers::S3, shop};

/// What a running export may take on top of the idle process, in kibibytes.
const ALLOWED: u64 = 64 * 1024;

/// Rows of about 180 bytes: 53 MB, more than everything that may be in flight at once. The long
/// form has five million.
fn rows() -> u32 {
    if std::env::var_os("OUTPORT_TEST_SOAK").is_some() { 5_000_000 } else { 300_000 }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the measured number is worth a look")]
async fn a_large_export_takes_no_more_memory_than_promised() {
    let s3 = S3::s3s_fs().await;
    let mut world = World::postgres().await;
    world.use_objects(s3.env());
    world.set("OUTPORT_LIMITS_LEASE_SECONDS", "30");
    world.set("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "60");
    shop::add_wide(world.state.postgres(), rows(), 5).await;
    let api = world.api().await;
    let worker = world.worker();
    // A small one first: what every export needs is loaded then.
    let small = api.export("order").await;
    api.job_is(&small, "COMPLETED").await;
    let idle = worker.kibibytes("VmRSS");

    let large = api.export("wide").await;
    let patience = PATIENCE * rows().div_ceil(100_000);
    let large = api.job_is_within(&large, "COMPLETED", patience).await;
    assert_eq!(large["totalRows"], rows());
    assert!(large["sizeBytes"].as_u64().expect("a size") > 4 * 11 * 1024 * 1024);
    let taken = worker.kibibytes("VmHWM") - idle;
    println!("{} rows took {taken} KiB on top of {idle} KiB", rows());
    assert!(taken <= ALLOWED, "{taken} KiB on top of {idle} KiB");
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the measured number is worth a look")]
async fn no_format_takes_more_memory_than_promised() {
    let s3 = S3::s3s_fs().await;
    let mut world = World::postgres().await;
    world.use_objects(s3.env());
    world.set("OUTPORT_LIMITS_LEASE_SECONDS", "30");
    world.set("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "60");
    // A workbook holds little more than a million.
    let rows = rows().min(1_000_000);
    shop::add_wide(world.state.postgres(), rows, 5).await;
    // Digests of their own, so that even a compressed file is larger than what may be in flight.
    let notes = (1..=5).map(|digest| format!("md5('{digest}' || code)")).collect::<Vec<_>>();
    let update = format!("UPDATE shop.wide SET note = {}", notes.join(" || "));
    world.state.postgres().run(&update).await;
    let api = world.api().await;
    for (format, compression) in
        [("NDJSON", "zstd"), ("JSON", "gzip"), ("XLSX", "none"), ("PARQUET", "none")]
    {
        // A process of its own: what one format took is not given back to the system.
        let worker = world.worker();
        let body = |resource: &str| json!({"resource": resource, "format": format, "compression": compression});
        let small = api.export_as(&body("order")).await;
        api.job_is(&small, "COMPLETED").await;
        let idle = worker.kibibytes("VmRSS");
        let large = api.export_as(&body("wide")).await;
        let patience = PATIENCE * rows.div_ceil(50_000);
        let large = api.job_is_within(&large, "COMPLETED", patience).await;
        assert_eq!(large["totalRows"], rows);
        let taken = worker.kibibytes("VmHWM") - idle;
        println!("{format}: {rows} rows took {taken} KiB on top of {idle} KiB");
        assert!(taken <= ALLOWED, "{format}: {taken} KiB on top of {idle} KiB");
    }
}
