//! Every bound, in one place, with its unit in its name and the relations checked at compile time.

use std::time::Duration;

use outport_contract::sealed;

/// Fixed by the database schema and the code, not by configuration.
pub mod fixed {
    /// Columns of one export.
    pub const COLUMNS_PER_EXPORT: usize = 200;
    /// Conditions in one request's filters, nested ones included.
    pub const CONDITIONS_PER_EXPORT: usize = 50;
    /// Values in one list of `IN` or `NOT_IN`.
    pub const VALUES_PER_LIST: usize = 1_000;
    /// Characters of a requested label.
    pub const LABEL_CHARS: usize = 200;
    /// Bytes of a requested file name, its extension included.
    pub const FILE_NAME_BYTES: usize = 200;
    /// Characters of an `Idempotency-Key`.
    pub const IDEMPOTENCY_KEY_CHARS: usize = 255;
    /// Bytes of a request's `metadata`.
    pub const METADATA_BYTES: usize = 16 * 1024;
    /// Bytes of one multipart part. 10,000 of them hold the largest export.
    pub const PART_BYTES: usize = 11 * 1024 * 1024;
    /// Parts of one job in memory at once: being filled, or in flight.
    pub const PARTS_IN_FLIGHT: usize = 3;
    /// Parts that an S3 upload may have.
    pub const PARTS_PER_UPLOAD: u64 = 10_000;
    /// Bytes of a row batch after which the reader hands it on.
    pub const BATCH_BYTES: usize = 256 * 1024;
    /// Bytes that a request may bound the files of a split export to, at least.
    pub const SPLIT_BYTES_LEAST: u64 = 1024 * 1024;
    /// Rows of a sheet of an XLSX workbook below its header.
    pub const SHEET_ROWS: u64 = 1_048_575;
    /// Files of one split export: their numbers have four digits.
    pub const FILES_PER_EXPORT: u32 = 9_999;
    /// Rows of a page of a list, when the request does not say.
    pub const PAGE_DEFAULT: u32 = 50;
    /// Rows of a page of a list, at most.
    pub const PAGE_MOST: u32 = 200;
}

/// The bounds that a deployment may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body.
    pub request_body_bytes: usize,
    /// Data rows of one export.
    pub rows_per_export: u64,
    /// File bytes of one export.
    pub bytes_per_export: u64,
    /// Bytes of one run that may wait on disk for a slow object store; 0 is none, else at least
    /// one part.
    pub spool_bytes_per_export: u64,
    /// Files of one split export.
    pub files_per_export: u32,
    /// How long one source snapshot may be held.
    pub snapshot_age: Duration,
    /// How long a running job may show no progress before its lease is no longer renewed.
    pub no_progress: Duration,
    /// Time limit of connecting to a source.
    pub source_connect: Duration,
    /// Time limit of each finishing step of a run (verify, commit).
    pub finishing_step: Duration,
    /// Life of a lease, of jobs and deliveries alike.
    pub lease: Duration,
    /// Time between renewals of a lease.
    pub heartbeat: Duration,
    /// Failures of a job before it is FAILED.
    pub job_failures: u32,
    /// First pause between runs of a job; four times as long with every failure, full jitter.
    pub job_backoff: Duration,
    /// Longest pause between runs of a job.
    pub job_backoff_most: Duration,
    /// Attempts of a delivery before it is dead.
    pub delivery_attempts: u32,
    /// First pause between attempts of a delivery; four times as long each time, full jitter.
    pub delivery_backoff: Duration,
    /// Longest pause between attempts of a delivery.
    pub delivery_backoff_most: Duration,
    /// Time limit of one run of a handler.
    pub handler_time: Duration,
    /// Handlers that one process runs at once.
    pub handlers_at_once: usize,
    /// Period of the reconciler.
    pub reconcile_every: Duration,
    /// Period of the sweeper.
    pub sweep_every: Duration,
    /// Jobs that one worker runs at once.
    pub running_per_worker: usize,
    /// Jobs of one organization that run at once, over all workers.
    pub running_per_organization: u32,
    /// Queued jobs of one organization; one more is refused with 429.
    pub queued_per_organization: u32,
    /// From `finishedAt` to `expiresAt`.
    pub file_retention: Duration,
    /// How long ended jobs are kept.
    pub job_retention: Duration,
    /// How long the live stream's events are kept.
    pub stream_event_retention: Duration,
    /// Life of a pre-signed URL.
    pub presigned_url: Duration,
    /// Life of an `Idempotency-Key`.
    pub idempotency_key: Duration,
    /// Requests a minute for one credential; 0 is no limit.
    pub requests_per_minute: u32,
    /// Time that running jobs get to end when the process stops.
    pub drain: Duration,
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const BYTES_PER_EXPORT: u64 = 100 * 1024 * 1024 * 1024;

// The largest export fits into the parts that S3 allows.
const _: () = assert!(fixed::PART_BYTES as u64 * fixed::PARTS_PER_UPLOAD >= BYTES_PER_EXPORT);
// S3 refuses smaller parts (but for the last).
const _: () = assert!(fixed::PART_BYTES >= 5 * 1024 * 1024);
// What is in flight stays well within the memory of one running export.
const _: () = assert!(fixed::PART_BYTES * fixed::PARTS_IN_FLIGHT <= 40 * 1024 * 1024);
const _: () = assert!(fixed::PAGE_DEFAULT <= fixed::PAGE_MOST);

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_body_bytes: 256 * 1024,
            rows_per_export: 50_000_000,
            bytes_per_export: BYTES_PER_EXPORT,
            spool_bytes_per_export: 1024 * 1024 * 1024,
            files_per_export: 1_000,
            snapshot_age: Duration::from_secs(HOUR),
            no_progress: Duration::from_secs(2 * MINUTE),
            source_connect: Duration::from_secs(10),
            finishing_step: Duration::from_secs(MINUTE),
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            job_failures: 3,
            job_backoff: Duration::from_secs(5),
            job_backoff_most: Duration::from_secs(5 * MINUTE),
            delivery_attempts: 16,
            delivery_backoff: Duration::from_secs(1),
            delivery_backoff_most: Duration::from_secs(HOUR),
            handler_time: Duration::from_secs(MINUTE),
            handlers_at_once: 16,
            reconcile_every: Duration::from_secs(30),
            sweep_every: Duration::from_secs(MINUTE),
            running_per_worker: 4,
            running_per_organization: 2,
            queued_per_organization: 1_000,
            file_retention: Duration::from_secs(7 * DAY),
            job_retention: Duration::from_secs(90 * DAY),
            stream_event_retention: Duration::from_secs(7 * DAY),
            presigned_url: Duration::from_secs(15 * MINUTE),
            idempotency_key: Duration::from_secs(DAY),
            requests_per_minute: 600,
            drain: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The rules between limits that a configuration can break, each as a sentence.
    pub fn conflicts(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        if self.heartbeat * 3 > self.lease {
            found.push("limits.heartbeatMilliseconds must be at most a third of limits.leaseSeconds, so that one lost renewal loses no job");
        }
        if self.no_progress < self.lease {
            found.push("limits.noProgressSeconds must be at least limits.leaseSeconds");
        }
        let most_stored = fixed::PART_BYTES as u64 * fixed::PARTS_PER_UPLOAD;
        if sealed::stored_bytes(self.bytes_per_export) > most_stored {
            found.push("limits.bytesPerExport must be at most 115,341,599,968: what 10,000 parts of 11 MiB hold of a sealed file");
        }
        if (1..fixed::PART_BYTES as u64).contains(&self.spool_bytes_per_export) {
            found.push(
                "limits.spoolBytesPerExport must be 0 or at least 11,534,336: one part of 11 MiB",
            );
        }
        if self.files_per_export > fixed::FILES_PER_EXPORT {
            found.push("limits.filesPerExport must be at most 9,999");
        }
        if self.presigned_url > Duration::from_mins(15) {
            found.push("limits.presignedUrlSeconds must be at most 900");
        }
        found
    }
}

/// The ceiling of the `failures`-th pause (1 is the first): `first × 4ⁿ`, at most `most`. The
/// actual pause is drawn evenly between zero and the ceiling (full jitter).
pub fn backoff_ceiling(first: Duration, most: Duration, failures: u32) -> Duration {
    let factor = 4_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.checked_mul(factor).unwrap_or(most).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_do_not_contradict_each_other() {
        assert_eq!(Limits::default().conflicts(), Vec::<&str>::new());
    }

    #[test]
    fn the_largest_export_fits_into_the_parts_when_it_is_sealed() {
        let conflicts =
            |bytes| Limits { bytes_per_export: bytes, ..Limits::default() }.conflicts().len();
        assert_eq!([115_341_599_968, 115_341_599_969, u64::MAX].map(conflicts), [0, 1, 1]);
    }

    #[test]
    fn a_spool_holds_a_part_or_nothing() {
        let conflicts =
            |bytes| Limits { spool_bytes_per_export: bytes, ..Limits::default() }.conflicts().len();
        let part = fixed::PART_BYTES as u64;
        assert_eq!([0, 1, part - 1, part].map(conflicts), [0, 1, 1, 0]);
    }

    #[test]
    fn pauses_grow_fourfold_up_to_the_most() {
        let pause = |failures| {
            backoff_ceiling(Duration::from_secs(5), Duration::from_mins(5), failures).as_secs()
        };
        assert_eq!([1, 2, 3, 4, 5, 40].map(pause), [5, 20, 80, 300, 300, 300]);
    }
}
