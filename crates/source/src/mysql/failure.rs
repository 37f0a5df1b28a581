//! What an error of the server or the wire means for the job.

use outport_domain::failure::FailureCode;
use sqlx::mysql::MySqlDatabaseError;

use crate::{
    SourceError,
    server::{not_of_the_server, plain},
};

pub(super) use crate::server::{Stage, lost};

pub(super) fn failure(error: sqlx::Error, stage: Stage) -> SourceError {
    let made = match &error {
        sqlx::Error::Database(database) => {
            let number = database
                .try_downcast_ref::<MySqlDatabaseError>()
                .map_or(0, MySqlDatabaseError::number);
            by_number(number, &database.code().unwrap_or_default(), database.message(), stage)
        }
        sqlx::Error::Configuration(cause) if cause.to_string().contains("RSA") => SourceError::new(
            FailureCode::SourceUnreachable,
            "the source database wants an encrypted connection for this user's password",
        )
        .abandoned(),
        error => not_of_the_server(error, stage),
    };
    made.with_cause(error)
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

/// By the server's error number. MySQL and MariaDB share those below 1900.
fn by_number(number: u16, sqlstate: &str, message: &str, stage: Stage) -> SourceError {
    let unreachable = |message: &str| SourceError::new(FailureCode::SourceUnreachable, message);
    let failed = || {
        SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the source database answered: {}", shown(number, sqlstate, message)),
        )
    };
    match number {
        // Wrong password, no password plugin in common, a password that has expired, a locked
        // account, a host that may not connect.
        1045 | 1130 | 1251 | 1275 | 1698 | 1820 | 1862 | 2059 | 3118 | 3955 | 4151 => {
            unreachable("the source database refused the credentials").abandoned()
        }
        1044 | 1049 if stage == Stage::Connect => {
            unreachable("the source server has no such database for this user").abandoned()
        }
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
            format!("the source has changed: {}", shown(number, sqlstate, message)),
        ),
        // The server's own words name the user and where it connects from.
        1044 | 1142 | 1143 | 1227 | 1345 | 1370 => SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the connection's user may not read {}", forbidden(message)),
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

/// A row, or a text made by the query, beyond what the server will send.
pub(super) fn too_large_for_server() -> SourceError {
    SourceError::new(
        FailureCode::ValueNotEncodable,
        "a row or value is larger than the source server's max_allowed_packet",
    )
}

/// What a message about missing rights is about.
fn forbidden(message: &str) -> String {
    [" for column ", " for table "]
        .iter()
        .find_map(|word| message.split_once(word))
        .map_or_else(|| "all that the resource names".to_owned(), |(_, name)| plain(name))
}

/// The server's own words, short, and without the values that it quotes in errors about data.
fn shown(number: u16, sqlstate: &str, message: &str) -> String {
    let text = plain(message);
    let about_data = sqlstate.starts_with("22")
        || sqlstate.starts_with("23")
        || matches!(number, 1292 | 1366 | 1411 | 1525 | 3140..=3160 | 4038..=4040);
    if !about_data {
        return text;
    }
    let mut parts = text.split('\'');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    if parts.next().is_some() {
        // From the first quote to the last: a value may hold quotes itself.
        shown.push_str("[value]");
        shown.push_str(parts.next_back().unwrap_or_default());
    }
    shown
}

#[cfg(test)]
mod tests {
    use outport_domain::failure::{Disposition, FailureCode};

    use super::{Stage, by_number, forbidden, shown};

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
            (1064, Stage::Query, SourceQueryFailed, Abandon),
        ];
        for (number, stage, code, disposition) in cases {
            let made = by_number(number, "HY000", "words", stage);
            assert_eq!((made.code, made.disposition), (code, disposition), "{number} {stage:?}");
        }
    }

    #[test]
    fn values_of_rows_users_and_hosts_are_not_passed_on() {
        let message = "Incorrect datetime value: '20'26' for column `t` at row 1";
        assert_eq!(
            shown(1292, "22007", message),
            "Incorrect datetime value: [value] for column `t` at row 1"
        );
        let missing = "Table 'shop.orders' doesn't exist";
        assert_eq!(shown(1146, "42S02", missing), missing);
        let denied = "SELECT command denied to user 'me'@'10.0.0.7' for table `shop`.`orders`";
        assert_eq!(forbidden(denied), "`shop`.`orders`");
        assert_eq!(
            forbidden("execute command denied to user 'me'@'10.0.0.7'"),
            "all that the resource names"
        );
        assert_eq!(shown(1105, "HY000", &"é".repeat(500)).chars().count(), 200);
    }
}
