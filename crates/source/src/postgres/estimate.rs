//! How many rows a statement has, as far as the planner knows.

use outport_domain::selection::Selection;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::failure::{Stage, failure};
use crate::{
    SourceError,
    compile::{self, postgres::Postgres},
};

/// How long planning may take: what is no more than a guess is worth no more.
const PLANNING_MS: u32 = 1_000;

/// The planner's estimate; `None` when there is none. An error ends the transaction, so this is
/// the last thing that is done in one.
pub(super) async fn rows(
    connection: &mut PgConnection,
    dialect: &Postgres,
    selection: &Selection,
) -> Option<u64> {
    match plan(connection, dialect.for_the_planner(), selection).await {
        Ok(plan) => estimate(&plan),
        Err(error) => {
            tracing::debug!(%error, "the planner of a PostgreSQL source gave no estimate");
            None
        }
    }
}

async fn plan(
    connection: &mut PgConnection,
    mut dialect: Postgres,
    selection: &Selection,
) -> Result<String, SourceError> {
    let select = compile::select(&mut dialect, selection)?;
    let sql =
        format!("SET LOCAL statement_timeout = {PLANNING_MS}; EXPLAIN (FORMAT JSON) {select}");
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await;
    let row = row.map_err(|error| failure(error, Stage::Query))?;
    let plan = row.try_get_raw(0).map_err(|error| failure(error, Stage::Query))?;
    Ok(plan.as_str().unwrap_or_default().to_owned())
}

fn estimate(plan: &str) -> Option<u64> {
    let plan: serde_json::Value = serde_json::from_str(plan).ok()?;
    plan.pointer("/0/Plan/Plan Rows")?.as_f64().map(|rows| rows as u64)
}

#[cfg(test)]
mod tests {
    use super::estimate;

    #[test]
    fn the_estimate_is_that_of_the_whole_plan() {
        let plan = r#"[{"Plan": {"Node Type": "Gather", "Plan Rows": 4700,
                        "Plans": [{"Node Type": "Seq Scan", "Plan Rows": 1958}]}}]"#;
        assert_eq!(estimate(plan), Some(4_700));
        assert_eq!(estimate("[]"), None);
        assert_eq!(estimate(""), None);
    }
}
