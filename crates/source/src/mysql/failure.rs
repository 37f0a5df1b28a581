//! What an error of the server or the wire means for the job.

use outport_domain::failure::FailureCode;
use sqlx::mysql::MySqlDatabaseError;

use crate::{
    SourceError,
    server::{not_of_the_server, plain},
};

pub(super) use crate::server::{Stage, lost};

pub(super) fn failure(error: sqlx::Error, stage: Stage) -> SourceError {
    told_by(error, stage, may_be_told)
}

/// Of the statement that gives the rows: a function in it may signal any number, with any words.
pub(super) fn failure_of_rows(error: sqlx::Error, stage: Stage) -> SourceError {
    told_by(error, stage, |_| false)
}

fn told_by(error: sqlx::Error, stage: Stage, may_be_told: fn(u16) -> bool) -> SourceError {
    let Some(database) = error.as_database_error() else {
        let made = match &error {
            sqlx::Error::Configuration(cause) if cause.to_string().contains("RSA") => {
                SourceError::new(
                    FailureCode::SourceUnreachable,
                    "the source database wants an encrypted connection for this user's password",
                )
                .abandoned()
            }
            error => not_of_the_server(error, stage),
        };
        return made.with_cause(error);
    };
    let number =
        database.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number);
    let sqlstate = database.code().unwrap_or_default().into_owned();
    let told = may_be_told(number).then(|| plain(database.message()));
    let made = by_number(number, &sqlstate, told.as_deref(), stage);
    if told.is_some() { made.with_cause(error) } else { made }
}

/// Whether a thread that should be killed was not there any more.
pub(super) fn is_no_such_thread(error: &SourceError) -> bool {
    number(error) == Some(1094)
}

/// Whether the server would not say which tables are behind a view.
pub(super) fn is_view_hidden(error: &SourceError) -> bool {
    number(error) == Some(1345)
}

fn number(error: &SourceError) -> Option<u16> {
    error
        .cause
        .as_deref()?
        .downcast_ref::<sqlx::Error>()?
        .as_database_error()?
        .try_downcast_ref::<MySqlDatabaseError>()
        .map(MySqlDatabaseError::number)
}

/// Errors whose messages speak of connections, rights, names, locks and means alone. MySQL and
/// MariaDB share those below 1900.
///
/// All others may quote values of rows: errors about data do, functions of XML and JSON among
/// them, and a function behind a view may signal whatever it likes. Messages depend on the
/// server's language, so none of them is passed on or logged.
fn may_be_told(number: u16) -> bool {
    matches!(
        number,
        1020..=1021
            | 1030
            | 1037..=1038
            | 1040..=1041
            | 1044..=1046
            | 1049
            | 1051..=1054
            | 1060
            | 1064
            | 1066
            | 1072
            | 1077..=1080
            | 1109
            | 1114
            | 1129..=1130
            | 1135
            | 1142..=1143
            | 1146
            | 1152..=1153
            | 1156..=1161
            | 1184
            | 1203
            | 1205
            | 1213
            | 1226..=1227
            | 1235
            | 1251
            | 1267
            | 1270..=1271
            | 1275
            | 1290
            | 1305
            | 1317
            | 1345
            | 1356
            | 1370
            | 1412
            | 1582
            | 1614..=1615
            | 1637
            | 1698
            | 1792
            | 1820
            | 1862
            | 1927
            | 1969
            | 2006
            | 2013
            | 2059
            | 3024
            | 3032
            | 3118
            | 3169
            | 3955
            | 4031
            | 4078..=4079
            | 4151
    )
}

/// By the server's error number, and its words where they may be told.
fn by_number(number: u16, sqlstate: &str, told: Option<&str>, stage: Stage) -> SourceError {
    let unreachable = |message: &str| SourceError::new(FailureCode::SourceUnreachable, message);
    let failed = || {
        let message = told.map_or_else(
            || format!("{} (error {number}, SQLSTATE {sqlstate})", untold(number)),
            str::to_owned,
        );
        SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the source database answered: {message}"),
        )
    };
    match number {
        // Wrong password, no password plugin in common or loaded, a password that has expired, a
        // locked account, a host that may not connect.
        1045 | 1130 | 1251 | 1275 | 1524 | 1698 | 1820 | 1862 | 2059 | 3118 | 3955 | 4151 => {
            unreachable("the source database refused the credentials").abandoned()
        }
        1044 | 1049 if stage == Stage::Connect => {
            unreachable("the source server has no such database for this user").abandoned()
        }
        3159 => unreachable("the source server wants an encrypted connection").abandoned(),
        1040 | 1129 | 1203 | 1226 => unreachable("the source server has no connection to spare"),
        // The server shuts down, or was told to end this connection, or the wire broke.
        1053
        | 1077..=1080
        | 1152
        | 1156..=1161
        | 1184
        | 1927
        | 2006
        | 2013
        | 3032
        | 3169
        | 4031 => lost(stage),
        1049 | 1051 | 1054 | 1109 | 1146 | 1356 => SourceError::new(
            FailureCode::SchemaMismatch,
            format!("the source has changed: {}", told.unwrap_or("a name in it is not known")),
        ),
        // The server's own words name the user and where it connects from.
        1044 | 1142 | 1143 | 1227 | 1345 | 1370 => SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the connection's user may not read {}", forbidden(told.unwrap_or_default())),
        ),
        1153 => too_large_for_server(),
        // Locks, a table changed since the snapshot, and want of memory or disk: another time
        // it may go well.
        1020 | 1021 | 1030 | 1037 | 1038 | 1041 | 1114 | 1135 | 1205 | 1213 | 1412 | 1614
        | 1615 | 1637 => failed().retried(),
        _ if sqlstate.starts_with("40") => failed().retried(),
        _ => failed(),
    }
}

/// What happened, in words of ours.
fn untold(number: u16) -> &'static str {
    match number {
        1205 => "a lock was waited for too long",
        1213 => "there was a deadlock",
        1317 => "the query was interrupted",
        1969 | 3024 => "the query took longer than the server lets it",
        _ => "the query, or a value in it, could not be read or computed",
    }
}

/// A row, or a text made by the query, beyond what the server will send.
pub(super) fn too_large_for_server() -> SourceError {
    SourceError::new(
        FailureCode::ValueNotEncodable,
        "a row or value is larger than the source server's max_allowed_packet",
    )
}

/// What a message about missing rights is about.
fn forbidden(message: &str) -> &str {
    [" for column ", " for table "]
        .iter()
        .find_map(|word| message.split_once(word))
        .map_or("all that the resource names", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use outport_domain::failure::{Disposition, FailureCode};

    use super::{Stage, by_number, forbidden, may_be_told};

    #[test]
    fn a_number_decides_code_and_disposition() {
        use Disposition::{Abandon, Retry};
        use FailureCode::{
            SchemaMismatch, SourceQueryFailed, SourceTruncated, SourceUnreachable,
            ValueNotEncodable,
        };
        let cases = [
            (1045, Stage::Connect, SourceUnreachable, Abandon),
            (1049, Stage::Connect, SourceUnreachable, Abandon),
            (1524, Stage::Connect, SourceUnreachable, Abandon),
            (3159, Stage::Connect, SourceUnreachable, Abandon),
            (1040, Stage::Connect, SourceUnreachable, Retry),
            (1053, Stage::Query, SourceUnreachable, Retry),
            (1053, Stage::Rows, SourceTruncated, Retry),
            (1927, Stage::Rows, SourceTruncated, Retry),
            (1146, Stage::Query, SchemaMismatch, Abandon),
            (1054, Stage::Query, SchemaMismatch, Abandon),
            (1205, Stage::Rows, SourceQueryFailed, Retry),
            (1213, Stage::Rows, SourceQueryFailed, Retry),
            (1412, Stage::Query, SourceQueryFailed, Retry),
            (1317, Stage::Rows, SourceQueryFailed, Abandon),
            (1969, Stage::Rows, SourceQueryFailed, Abandon),
            (1153, Stage::Rows, ValueNotEncodable, Abandon),
            (1105, Stage::Rows, SourceQueryFailed, Abandon),
            (1064, Stage::Query, SourceQueryFailed, Abandon),
        ];
        for (number, stage, code, disposition) in cases {
            let told = may_be_told(number).then_some("words");
            let made = by_number(number, "HY000", told, stage);
            assert_eq!((made.code, made.disposition), (code, disposition), "{number} {stage:?}");
        }
    }

    #[test]
    fn errors_about_data_are_told_by_number_alone() {
        for number in [0, 1062, 1105, 1139, 1292, 1366, 1525, 1644, 1690, 3140, 3141, 4038] {
            assert!(!may_be_told(number), "{number}");
            let made = by_number(number, "22003", None, Stage::Rows);
            assert!(made.message.contains(&format!("(error {number}, SQLSTATE 22003)")), "{made}");
        }
    }

    #[test]
    fn users_and_hosts_are_not_passed_on() {
        let denied = "SELECT command denied to user 'me'@'10.0.0.7' for table `shop`.`orders`";
        assert_eq!(forbidden(denied), "`shop`.`orders`");
        assert_eq!(
            forbidden("execute command denied to user 'me'@'10.0.0.7'"),
            "all that the resource names"
        );
    }
}
