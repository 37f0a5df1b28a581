//! Object keys: a type of their own, formatted in one place.

use std::fmt;

use crate::id::{JobId, OrganizationId};

/// The key of an object in the store: ASCII letters, digits, `-`, `_`, `.` and `/`, no empty or
/// dotted segment, so it is safe as a path and in a URL as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(String);

/// Why a text is not an object key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an object key: segments of A-Z a-z 0-9 - _ . joined by '/', none empty or starting with a dot"
)]
pub struct InvalidObjectKey;

impl ObjectKey {
    /// The key of a job's file: `data-transfer/exports/<job>/<stem>.<extension>` for the first
    /// run, `<stem>.<run>.<extension>` for a later one, so that a late twin can never replace
    /// committed bytes.
    pub fn of_export(
        job: JobId,
        run: u32,
        stem: &str,
        extension: &str,
    ) -> Result<Self, InvalidObjectKey> {
        let number = if run <= 1 { String::new() } else { format!(".{run}") };
        Self::parse(&format!("data-transfer/exports/{job}/{stem}{number}.{extension}"))
    }

    /// The key of a result asked for as of a Fetcher: `external-data/<job>.json`, with the run as
    /// ever, behind the tenant where tenants share a store.
    pub fn of_fetcher(
        job: JobId,
        run: u32,
        tenant: Option<OrganizationId>,
    ) -> Result<Self, InvalidObjectKey> {
        let tenant = tenant.map(|tenant| format!("{tenant}/")).unwrap_or_default();
        let number = if run <= 1 { String::new() } else { format!(".{run}") };
        Self::parse(&format!("{tenant}external-data/{job}{number}.json"))
    }

    /// The key of a file of a split export: `<stem>-0001.<extension>`, with the run as ever.
    pub fn of_part(
        job: JobId,
        run: u32,
        stem: &str,
        number: u32,
        extension: &str,
    ) -> Result<Self, InvalidObjectKey> {
        Self::of_export(job, run, &format!("{stem}-{number:04}"), extension)
    }

    /// The key of the manifest of a split export: `<stem>.manifest.json`, with the run as ever.
    pub fn of_manifest(job: JobId, run: u32, stem: &str) -> Result<Self, InvalidObjectKey> {
        Self::of_export(job, run, stem, "manifest.json")
    }

    /// Checks a text from the database or a test.
    pub fn parse(text: &str) -> Result<Self, InvalidObjectKey> {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let valid = text.len() <= 512
            && text.split('/').all(|segment| {
                !segment.is_empty() && !segment.starts_with('.') && segment.chars().all(safe)
            });
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidObjectKey) }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_never_shares_a_key() {
        let job = "0197f604-49fe-7b73-bb81-df2e93a7e47d".parse().expect("an id");
        let first = ObjectKey::of_export(job, 1, "orders", "csv").expect("a key");
        let second = ObjectKey::of_export(job, 2, "orders", "csv").expect("a key");
        assert_eq!(
            first.as_str(),
            "data-transfer/exports/0197f604-49fe-7b73-bb81-df2e93a7e47d/orders.csv"
        );
        assert_eq!(
            second.as_str(),
            "data-transfer/exports/0197f604-49fe-7b73-bb81-df2e93a7e47d/orders.2.csv"
        );
    }

    #[test]
    fn a_fetchers_result_is_where_a_fetcher_puts_it() {
        let job = "6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88".parse().expect("an id");
        let tenant = "0197a801-1690-7590-b3cf-19599b9be3e4".parse().expect("an id");
        let of = |run, tenant| ObjectKey::of_fetcher(job, run, tenant).expect("a key").to_string();
        assert_eq!(of(1, None), format!("external-data/{job}.json"));
        assert_eq!(of(2, None), format!("external-data/{job}.2.json"));
        assert_eq!(of(1, Some(tenant)), format!("{tenant}/external-data/{job}.json"));
    }

    #[test]
    fn files_of_a_split_export_are_numbered_beside_their_manifest() {
        let job = "0197f604-49fe-7b73-bb81-df2e93a7e47d".parse().expect("an id");
        let keys = [
            ObjectKey::of_part(job, 1, "orders", 1, "csv.gz"),
            ObjectKey::of_part(job, 2, "orders", 10_000, "csv"),
            ObjectKey::of_manifest(job, 1, "orders"),
            ObjectKey::of_manifest(job, 2, "orders"),
        ]
        .map(|key| key.expect("a key").as_str().rsplit('/').next().map(str::to_owned));
        assert_eq!(
            keys.map(Option::unwrap_or_default),
            [
                "orders-0001.csv.gz",
                "orders-10000.2.csv",
                "orders.manifest.json",
                "orders.2.manifest.json"
            ]
        );
    }

    #[test]
    fn nothing_that_climbs_or_hides_is_a_key() {
        for text in ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a b", "a\\b", "á", "a\nb"] {
            assert_eq!(ObjectKey::parse(text), Err(InvalidObjectKey), "{text:?}");
        }
    }
}
