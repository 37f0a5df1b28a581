//! What the drivers say, sorted into [`StoreError`]'s answers to "what now?".

use sea_orm::{DbErr, RuntimeErr, sqlx};

use crate::StoreError;

impl From<DbErr> for StoreError {
    fn from(error: DbErr) -> Self {
        match &error {
            DbErr::ConnectionAcquire(_) | DbErr::Conn(_) => Self::Unreachable(error.into()),
            DbErr::Exec(RuntimeErr::SqlxError(cause))
            | DbErr::Query(RuntimeErr::SqlxError(cause)) => match Answer::of(cause) {
                Answer::Unreachable => Self::Unreachable(error.into()),
                Answer::Conflict => Self::Conflict(error.into()),
                Answer::Corrupt => Self::unreadable_column(),
                Answer::Refused => Self::Refused(error.into()),
            },
            DbErr::TryIntoErr { .. } | DbErr::Type(_) | DbErr::Json(_) => Self::unreadable_column(),
            _ => Self::Refused(error.into()),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match Answer::of(&error) {
            Answer::Unreachable => Self::Unreachable(error.into()),
            Answer::Conflict => Self::Conflict(error.into()),
            Answer::Corrupt => Self::unreadable_column(),
            Answer::Refused => Self::Refused(error.into()),
        }
    }
}

impl StoreError {
    /// Without the driver's words: they may hold the value.
    fn unreadable_column() -> Self {
        Self::Corrupt("a column cannot be decoded".to_owned())
    }
}

enum Answer {
    Unreachable,
    Conflict,
    Corrupt,
    Refused,
}

impl Answer {
    fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unreachable,
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::TypeNotFound { .. } => Self::Corrupt,
            sqlx::Error::Database(database) => {
                let code = database.code().unwrap_or_default();
                if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
                    Self::of_sqlstate(&code)
                } else {
                    Self::of_sqlite_code(&code)
                }
            }
            _ => Self::Refused,
        }
    }

    fn of_sqlstate(code: &str) -> Self {
        match code {
            // Serialization failure, deadlock, lock not available, statement timeout.
            "40001" | "40P01" | "55P03" | "57014" => Self::Conflict,
            // Shut down, crashed, starting up, idle too long, read only (a standby answers).
            "57P01" | "57P02" | "57P03" | "25P03" | "25006" => Self::Unreachable,
            // No connection; no room, memory or connections left.
            _ if code.starts_with("08") || code.starts_with("53") => Self::Unreachable,
            _ => Self::Refused,
        }
    }

    fn of_sqlite_code(code: &str) -> Self {
        // The low byte is the primary code: 5 is busy, 6 is locked, 10 is an error of the disk,
        // 13 is a full one, 14 is "cannot open".
        match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(5 | 6) => Self::Conflict,
            Ok(10 | 13 | 14) => Self::Unreachable,
            _ => Self::Refused,
        }
    }
}
