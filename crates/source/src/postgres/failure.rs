//! What an error of the server or the wire means for the job.

use outport_domain::failure::FailureCode;

use crate::{
    SourceError,
    server::{not_of_the_server, plain},
};

pub(super) use crate::server::{Stage, lost};

pub(super) fn failure(error: sqlx::Error, stage: Stage) -> SourceError {
    let made = match &error {
        sqlx::Error::Database(database) => {
            by_state(&database.code().unwrap_or_default(), database.message(), stage)
        }
        error => not_of_the_server(error, stage),
    };
    match error.as_database_error().and_then(sqlx::error::DatabaseError::code) {
        Some(sqlstate) if holds_values(&sqlstate) => made,
        _ => made.with_cause(error),
    }
}

/// By the server's SQLSTATE.
fn by_state(sqlstate: &str, message: &str, stage: Stage) -> SourceError {
    let unreachable = |message: &str| SourceError::new(FailureCode::SourceUnreachable, message);
    let failed = || {
        SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the source database answered: {}", shown(sqlstate, message)),
        )
    };
    match (sqlstate.get(..2).unwrap_or_default(), sqlstate) {
        ("28", _) => unreachable("the source database refused the credentials").abandoned(),
        (_, "3D000") => unreachable("the source server has no such database").abandoned(),
        // Before a general look at its class: the server shuts down, restarts or was told to
        // end this connection.
        ("08", _) | (_, "57P01" | "57P02" | "57P03" | "57P05") => lost(stage),
        (_, "53300") => unreachable("the source server has no connection to spare"),
        (_, "42P01" | "42703" | "3F000") => SourceError::new(
            FailureCode::SchemaMismatch,
            format!("the source has changed: {}", shown(sqlstate, message)),
        ),
        // Serialization failures (conflicts with a standby's recovery too), deadlocks, locks
        // that were not to be had, and want of memory or disk: another time it may go well.
        ("40" | "53" | "58", _) | (_, "55P03") => failed().retried(),
        _ if message.contains("conflict with recovery") => failed().retried(),
        _ => failed(),
    }
}

/// The server's own words, short, and without the values that it quotes in errors about data.
fn shown(sqlstate: &str, message: &str) -> String {
    if holds_values(sqlstate) {
        return format!("a value could not be read or computed (SQLSTATE {sqlstate})");
    }
    plain(message)
}

/// Whether messages of this state quote values of rows: data exceptions and broken constraints.
/// Their words depend on the server's language, so none of them is passed on or logged.
fn holds_values(sqlstate: &str) -> bool {
    sqlstate.starts_with("22") || sqlstate.starts_with("23")
}

#[cfg(test)]
mod tests {
    use outport_domain::failure::{Disposition, FailureCode};

    use super::{Stage, by_state, shown};

    #[test]
    fn a_state_decides_code_and_disposition() {
        use Disposition::{Abandon, Retry};
        use FailureCode::{SchemaMismatch, SourceQueryFailed, SourceTruncated, SourceUnreachable};
        let cases = [
            ("28P01", Stage::Connect, SourceUnreachable, Abandon),
            ("28000", Stage::Connect, SourceUnreachable, Abandon),
            ("3D000", Stage::Connect, SourceUnreachable, Abandon),
            ("53300", Stage::Connect, SourceUnreachable, Retry),
            ("57P03", Stage::Connect, SourceUnreachable, Retry),
            ("57P01", Stage::Query, SourceUnreachable, Retry),
            ("57P01", Stage::Rows, SourceTruncated, Retry),
            ("08006", Stage::Rows, SourceTruncated, Retry),
            ("42P01", Stage::Query, SchemaMismatch, Abandon),
            ("42703", Stage::Query, SchemaMismatch, Abandon),
            ("40001", Stage::Rows, SourceQueryFailed, Retry),
            ("40P01", Stage::Query, SourceQueryFailed, Retry),
            ("57014", Stage::Rows, SourceQueryFailed, Abandon),
            ("22012", Stage::Rows, SourceQueryFailed, Abandon),
            ("42501", Stage::Query, SourceQueryFailed, Abandon),
            ("", Stage::Rows, SourceQueryFailed, Abandon),
        ];
        for (state, stage, code, disposition) in cases {
            let made = by_state(state, "words", stage);
            assert_eq!((made.code, made.disposition), (code, disposition), "{state} {stage:?}");
        }
        let standby = "canceling statement due to conflict with recovery";
        assert_eq!(by_state("57014", standby, Stage::Rows).disposition, Retry);
    }

    #[test]
    fn values_of_rows_are_not_passed_on() {
        let message = r#"invalid input syntax for type integer: "12"3""#;
        let shown_message = "a value could not be read or computed (SQLSTATE 22P02)";
        assert_eq!(shown("22P02", message), shown_message);
        assert_eq!(shown("22P02", "la sintaxis no es válida: «12»"), shown_message);
        assert_eq!(
            shown("42P01", r#"relation "t" does not exist"#),
            r#"relation "t" does not exist"#
        );
        assert_eq!(shown("XX000", &"é".repeat(500)).chars().count(), 200);
    }
}
