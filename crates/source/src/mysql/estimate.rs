//! How many rows a statement has, as far as the optimizer knows.

use outport_domain::failure::Disposition;
use sqlx::{Column, MySqlConnection, Row, mysql::MySqlRow};

use super::session::{explain, rows as answer, text};
use crate::SourceError;

/// The optimizer's estimate of a statement whose parameters are set; `None` when there is none.
/// What may go well another time is an error: the transaction may have ended by it, and with it
/// its locks.
pub(super) async fn rows(
    connection: &mut MySqlConnection,
    sql: &str,
) -> Result<Option<u64>, SourceError> {
    match answer(connection, explain(sql)).await.and_then(|plan| estimate(&plan)) {
        Ok(rows) => Ok(rows),
        Err(error) if error.disposition == Disposition::Retry => Err(error),
        Err(error) => {
            tracing::debug!(%error, "the optimizer of a MySQL source gave no estimate");
            Ok(None)
        }
    }
}

/// Rows of a join are those of its tables multiplied, each by the part that its conditions leave.
fn estimate(plan: &[MySqlRow]) -> Result<Option<u64>, SourceError> {
    let mut product = None;
    for row in plan {
        let cell = |name: &str| {
            let columns = row.columns().iter();
            let mut named = columns.filter(|column| column.name().eq_ignore_ascii_case(name));
            named.next().map_or(Ok(None), |column| text(row, column.ordinal()))
        };
        // What stands in other parts of the statement is in the estimate of this one.
        if !matches!(cell("select_type")?.as_deref(), Some("SIMPLE" | "PRIMARY")) {
            continue;
        }
        let number = |text: Option<String>| text.and_then(|text| text.parse::<f64>().ok());
        let (Some(rows), filtered) = (number(cell("rows")?), number(cell("filtered")?)) else {
            return Ok(None);
        };
        let left = rows * filtered.unwrap_or(100.0) / 100.0;
        product = Some(product.unwrap_or(1.0) * left);
    }
    Ok(product.map(|rows| rows.ceil() as u64))
}
