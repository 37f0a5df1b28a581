//! The bounds as configured.

use outport_domain::limits::Limits;

use super::Settings;

/// Reads every bound; rules between them are judged when each is right by itself.
pub(super) fn read(s: &mut Settings) -> Limits {
    let limits = Limits {
        request_body_bytes: s.number("limits.requestBodyBytes") as usize,
        rows_per_export: s.number("limits.rowsPerExport"),
        bytes_per_export: s.number("limits.bytesPerExport"),
        files_per_export: s.number("limits.filesPerExport") as u32,
        spool_bytes_per_export: s.number("limits.spoolBytesPerExport"),
        snapshot_age: s.seconds("limits.snapshotAgeSeconds"),
        no_progress: s.seconds("limits.noProgressSeconds"),
        source_connect: s.seconds("limits.sourceConnectSeconds"),
        finishing_step: s.seconds("limits.finishingStepSeconds"),
        lease: s.seconds("limits.leaseSeconds"),
        heartbeat: s.milliseconds("limits.heartbeatMilliseconds"),
        job_failures: s.number("limits.jobFailures") as u32,
        job_backoff: s.milliseconds("limits.jobBackoffMilliseconds"),
        job_backoff_most: s.seconds("limits.jobBackoffMostSeconds"),
        delivery_attempts: s.number("limits.deliveryAttempts") as u32,
        delivery_backoff: s.milliseconds("limits.deliveryBackoffMilliseconds"),
        delivery_backoff_most: s.seconds("limits.deliveryBackoffMostSeconds"),
        handler_time: s.seconds("limits.handlerSeconds"),
        handlers_at_once: s.number("limits.handlersAtOnce") as usize,
        reconcile_every: s.seconds("limits.reconcileEverySeconds"),
        sweep_every: s.seconds("limits.sweepEverySeconds"),
        running_per_worker: s.number("limits.runningPerWorker") as usize,
        running_per_organization: s.number("limits.runningPerOrganization") as u32,
        queued_per_organization: s.number("limits.queuedPerOrganization") as u32,
        file_retention: s.seconds("limits.fileRetentionSeconds"),
        job_retention: s.seconds("limits.jobRetentionSeconds"),
        stream_event_retention: s.seconds("limits.streamEventRetentionSeconds"),
        presigned_url: s.seconds("limits.presignedUrlSeconds"),
        idempotency_key: s.seconds("limits.idempotencyKeySeconds"),
        requests_per_minute: s.number("limits.requestsPerMinute") as u32,
        drain: s.seconds("limits.drainSeconds"),
    };
    if s.are_all_right() {
        for conflict in limits.conflicts() {
            s.conflict(conflict);
        }
    }
    limits
}
