//! Instants as the tables hold them: milliseconds since 1970 in UTC, the precision that the
//! contracts print.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::StoreError;

/// What a column holds for this instant; fractions of a millisecond are cut.
pub fn millis(at: DateTime<Utc>) -> i64 {
    at.timestamp_millis()
}

/// The instant that a column holds.
pub fn at(millis: i64) -> Result<DateTime<Utc>, StoreError> {
    DateTime::from_timestamp_millis(millis)
        .ok_or_else(|| StoreError::Corrupt("an instant is out of range".to_owned()))
}

/// The same for a column that may be null.
pub fn maybe_at(millis: Option<i64>) -> Result<Option<DateTime<Utc>>, StoreError> {
    millis.map(at).transpose()
}

/// A span in milliseconds, cut at what can be added to any instant.
pub fn span(duration: Duration) -> i64 {
    const MOST: i64 = i64::MAX / 1_000_000;
    i64::try_from(duration.as_millis()).unwrap_or(MOST).min(MOST)
}
