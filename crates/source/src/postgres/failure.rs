//! What an error of the server or the wire means for the job.

use outport_domain::failure::FailureCode;
use sqlx::postgres::{PgDatabaseError, PgErrorPosition};

use crate::{
    SourceError,
    server::{not_of_the_server, plain},
};

pub(super) use crate::server::{Stage, lost};

pub(super) fn failure(error: sqlx::Error, stage: Stage) -> SourceError {
    let Some(database) = error.as_database_error() else {
        return not_of_the_server(&error, stage).with_cause(error);
    };
    let sqlstate = database.code().unwrap_or_default().into_owned();
    let told = database
        .try_downcast_ref::<PgDatabaseError>()
        .filter(|database| may_be_told(database))
        .map(|database| plain(database.message()));
    let made = by_state(&sqlstate, told.as_deref(), stage);
    if told.is_some() { made.with_cause(error) } else { made }
}

/// Whether a connection was refused for what it began with: a pooler knows few startup
/// parameters (08P01, the protocol's own violation), and some do not have the feature at all.
pub(super) fn is_startup_refused(error: &SourceError) -> bool {
    let sqlstate = error
        .cause
        .as_deref()
        .and_then(|cause| cause.downcast_ref::<sqlx::Error>())
        .and_then(sqlx::Error::as_database_error)
        .and_then(sqlx::error::DatabaseError::code);
    matches!(sqlstate.as_deref(), Some("08P01" | "0A000" | "42704"))
}

/// Whether a message speaks of connections, rights, names, locks and means alone.
///
/// All others may quote values of rows: data exceptions and broken constraints do, a function
/// behind a view may raise whatever it likes, and a text that is cast to a name may be no name
/// of anything. Messages depend on the server's language, so none of them is passed on or logged.
fn may_be_told(error: &PgDatabaseError) -> bool {
    const CLASSES: [&str; 12] =
        ["08", "0A", "25", "28", "3D", "3F", "40", "53", "54", "55", "57", "58"];
    let (class, rest) = error.code().split_at_checked(2).unwrap_or_default();
    let told = match class {
        // Names of the statement itself have a position in it, and in nothing that it calls.
        "42" => {
            rest == "501"
                || (matches!(error.position(), Some(PgErrorPosition::Original(_)))
                    && error.r#where().is_none())
        }
        class => CLASSES.contains(&class),
    };
    told && error.routine() != Some(RAISED)
}

/// The server's routine that raises what a PL/pgSQL function asks for.
const RAISED: &str = "exec_stmt_raise";

/// By the server's SQLSTATE, and its words where they may be told.
fn by_state(sqlstate: &str, told: Option<&str>, stage: Stage) -> SourceError {
    let unreachable = |message: &str| SourceError::new(FailureCode::SourceUnreachable, message);
    let failed = || {
        let message = told.map_or_else(
            || format!("a value could not be read or computed (SQLSTATE {sqlstate})"),
            str::to_owned,
        );
        SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the source database answered: {message}"),
        )
    };
    match (sqlstate.get(..2).unwrap_or_default(), sqlstate) {
        ("28", _) => unreachable("the source database refused the credentials").abandoned(),
        (_, "3D000" | "57P04") => unreachable("the source server has no such database").abandoned(),
        // Servers say so only to clients that break the protocol, poolers for much else.
        (_, "08P01") => by_pooler(told.unwrap_or_default(), stage),
        // Before a general look at its class: the server shuts down, restarts or was told to
        // end this connection.
        ("08", _) | (_, "57P01" | "57P02" | "57P03" | "57P05") => lost(stage),
        (_, "53300") => unreachable("the source server has no connection to spare"),
        (_, "42P01" | "42703" | "3F000") => {
            let message = told.map_or_else(|| format!("SQLSTATE {sqlstate}"), str::to_owned);
            SourceError::new(
                FailureCode::SchemaMismatch,
                format!("the source has changed: {message}"),
            )
        }
        // Serialization failures and deadlocks (so a standby cancels what is in the way of its
        // recovery), locks that were not to be had, and want of memory or disk: another time it
        // may go well.
        ("40" | "53" | "58", _) | (_, "55P03") => failed().retried(),
        _ => failed(),
    }
}

/// By a pooler's own words, which are English whatever the server's language.
fn by_pooler(message: &str, stage: Stage) -> SourceError {
    let pooler = |what: &str| {
        let message =
            format!("the connection pooler (such as pgbouncer) before the source database {what}");
        SourceError::new(FailureCode::SourceUnreachable, message)
    };
    if let Some((_, parameter)) = message.split_once("unsupported startup parameter") {
        let name = parameter.rsplit(": ").next().unwrap_or_default();
        return pooler(&format!(
            "refuses the startup parameter '{name}': take it out of the connection's URL, name it \
             in the pooler's ignore_startup_parameters, or connect to PostgreSQL directly"
        ))
        .abandoned();
    }
    if message.contains("statement pooling") {
        return pooler(
            "pools statements, and an export needs a transaction: set its pool_mode to \
             transaction or session for this user or database, or connect to PostgreSQL directly",
        )
        .abandoned();
    }
    if message.contains("query_wait_timeout") {
        return pooler(
            "had no server connection to spare in time: each export holds one until its end",
        );
    }
    match stage {
        Stage::Connect => pooler("refused the connection; its log says why"),
        Stage::Query | Stage::Rows => lost(stage),
    }
}

#[cfg(test)]
mod tests {
    use outport_domain::failure::{Disposition, FailureCode};

    use super::{Stage, by_pooler, by_state};

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
            ("57P04", Stage::Rows, SourceUnreachable, Abandon),
            ("08006", Stage::Rows, SourceTruncated, Retry),
            ("08P01", Stage::Rows, SourceTruncated, Retry),
            ("42P01", Stage::Query, SchemaMismatch, Abandon),
            ("42703", Stage::Query, SchemaMismatch, Abandon),
            ("40001", Stage::Rows, SourceQueryFailed, Retry),
            ("40P01", Stage::Query, SourceQueryFailed, Retry),
            ("57014", Stage::Rows, SourceQueryFailed, Abandon),
            ("22012", Stage::Rows, SourceQueryFailed, Abandon),
            ("42501", Stage::Query, SourceQueryFailed, Abandon),
            ("P0001", Stage::Rows, SourceQueryFailed, Abandon),
            ("", Stage::Rows, SourceQueryFailed, Abandon),
        ];
        for (state, stage, code, disposition) in cases {
            for told in [Some("words"), None] {
                let made = by_state(state, told, stage);
                assert_eq!((made.code, made.disposition), (code, disposition), "{state} {stage:?}");
                let named = told.is_some() || !matches!(code, SourceQueryFailed | SchemaMismatch);
                assert!(named || made.message.contains(state), "{made}");
            }
        }
    }

    #[test]
    fn a_poolers_refusal_says_what_to_do() {
        use Disposition::{Abandon, Retry};
        let cases = [
            ("unsupported startup parameter: search_path", Abandon, "'search_path'"),
            ("unsupported startup parameter in options: geqo", Abandon, "'geqo'"),
            ("transaction blocks not allowed in statement pooling mode", Abandon, "pool_mode"),
            ("query_wait_timeout", Retry, "to spare"),
            ("no such database: secret", Retry, "its log"),
        ];
        for (message, disposition, word) in cases {
            let made = by_pooler(message, Stage::Connect);
            assert_eq!(made.code, FailureCode::SourceUnreachable);
            assert_eq!(made.disposition, disposition, "{message}");
            assert!(made.message.contains("pgbouncer"), "{made}");
            assert!(made.message.contains(word), "{made}");
            assert!(!made.message.contains("secret"), "{made}");
        }
    }
}
