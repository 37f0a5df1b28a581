//! The blocking half: opens the file, reads it, and hands batches over.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use outport_domain::{
    column::ColumnType,
    failure::FailureCode,
    selection::{Relation, Selection},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter, types::ValueRef};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Opened, functions};
use crate::{
    MOST_ROW_BYTES, SourceError, compile,
    compile::sqlite::{Affinity, Sqlite},
    handoff::Producer,
};

/// How long to wait for a writer that does not let readers in.
const BUSY: Duration = Duration::from_secs(10);

/// Steps of the engine between two looks at the stop flag.
const STEPS_PER_LOOK: i32 = 10_000;

/// Reads selections, one after the other. Says when they are opened, then hands rows over until
/// the end of the last, an error, or nobody wants them.
pub(super) fn run(
    path: &Path,
    reads: Vec<(Selection, Producer)>,
    stop: Arc<AtomicBool>,
    opened: oneshot::Sender<Result<Opened, SourceError>>,
) {
    let prepared = open(path).and_then(|connection| {
        connection
            .progress_handler(STEPS_PER_LOOK, Some(move || stop.load(Ordering::Relaxed)))
            .map_err(|error| failure(error, 0))?;
        let is_wal = is_wal(&connection)?;
        let snapshot_at = begin(&connection)?;
        let queries = reads.iter().map(|(selection, _)| compiled(&connection, selection));
        let queries = queries.collect::<Result<Vec<_>, _>>()?;
        check_length(&connection, path, 0)?;
        Ok((connection, Opened { snapshot_at, is_wal }, queries))
    });
    let (connection, queries) = match prepared {
        Ok((connection, how, queries)) => {
            if opened.send(Ok(how)).is_err() {
                return;
            }
            (connection, queries)
        }
        Err(error) => {
            // Nobody may be waiting any more; then nobody needs to know.
            drop(opened.send(Err(error)));
            return;
        }
    };
    for ((selection, mut producer), (sql, parameters)) in reads.into_iter().zip(queries) {
        let read = read(&connection, &sql, parameters, &selection, &mut producer);
        let length = || check_length(&connection, path, producer.rows());
        let told = match read.and_then(|read| length().map(|()| read)) {
            Ok(Read::ToTheEnd) => producer.end_blocking(),
            Ok(Read::Unwanted) => return,
            Err(error) => {
                drop(producer.fail_blocking(error));
                return;
            }
        };
        if told.is_err() {
            tracing::debug!("the consumer of an SQLite file's rows left before the last word");
            return;
        }
    }
}

/// Whether the file is there and a database.
pub(super) fn check(path: &Path) -> Result<(), SourceError> {
    let connection = open(path)?;
    connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
        .map_err(|error| failure(error, 0))
}

type Query = (String, Vec<rusqlite::types::Value>);

pub(super) fn open(path: &Path) -> Result<Connection, SourceError> {
    // Without the URI flag: a path is a path, whatever it is called.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| failure(error, 0))?;
    connection
        .busy_timeout(BUSY)
        .and_then(|()| connection.pragma_update(None, "query_only", true))
        .and_then(|()| connection.pragma_update(None, "cell_size_check", true))
        .and_then(|()| functions::register(&connection))
        .map_err(|error| failure(error, 0))?;
    Ok(connection)
}

/// Whether writers need not wait for readers.
fn is_wal(connection: &Connection) -> Result<bool, SourceError> {
    connection
        .pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))
        .map(|mode| mode == "wal")
        .map_err(|error| failure(error, 0))
}

/// Fails when the file ends before its last page does: the engine takes what lacks for zeros,
/// hence for rows of NULLs. What is in the write-ahead log need not be in the file yet.
fn check_length(connection: &Connection, path: &Path, rows: u64) -> Result<(), SourceError> {
    let number = |pragma: &str| {
        connection
            .pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
            .map_err(|error| failure(error, rows))
    };
    let whole = number("page_count")? * number("page_size")?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    if length(Path::new(&log)) == 0 && length(path) < whole as u64 {
        let message = "the source's file is shorter than it says";
        return Err(SourceError::new(FailureCode::SourceTruncated, message));
    }
    Ok(())
}

/// Takes the snapshot.
fn begin(connection: &Connection) -> Result<DateTime<Utc>, SourceError> {
    let snapshot_at = Utc::now();
    // BEGIN alone promises nothing; the first read takes the snapshot.
    connection
        .execute_batch("BEGIN")
        .and_then(|()| connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())))
        .map_err(|error| failure(error, 0))?;
    Ok(snapshot_at)
}

fn compiled(connection: &Connection, selection: &Selection) -> Result<Query, SourceError> {
    let mut dialect = Sqlite::new(affinities(connection, &selection.relation)?);
    let missing: Vec<String> = compile::named_columns(selection)
        .into_iter()
        .filter(|column| !dialect.has(column))
        .map(|column| format!("'{}'", column.name))
        .collect();
    if !missing.is_empty() {
        let message = format!("the source has no column {}", missing.join(", "));
        return Err(SourceError::new(FailureCode::SchemaMismatch, message));
    }
    let sql = compile::select(&mut dialect, selection)?;
    Ok((sql, dialect.parameters))
}

pub(super) fn affinities(
    connection: &Connection,
    relation: &Relation,
) -> Result<HashMap<String, Affinity>, SourceError> {
    let sql = format!("SELECT * FROM {} AS r", compile::relation(relation));
    if sql.contains('\0') {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "a name or query holds a NUL"));
    }
    let statement = connection.prepare(&sql).map_err(|error| failure(error, 0))?;
    let columns = statement.columns();
    Ok(columns
        .iter()
        .map(|column| (column.name().to_ascii_lowercase(), Affinity::of(column.decl_type())))
        .collect())
}

enum Read {
    /// The engine said that there are no more rows.
    ToTheEnd,
    Unwanted,
}

fn read(
    connection: &Connection,
    sql: &str,
    parameters: Vec<rusqlite::types::Value>,
    selection: &Selection,
    producer: &mut Producer,
) -> Result<Read, SourceError> {
    let mut statement = connection.prepare(sql).map_err(|error| failure(error, 0))?;
    let mut rows =
        statement.query(params_from_iter(parameters)).map_err(|error| failure(error, 0))?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => return Err(failure(error, producer.rows())),
        };
        let start = producer.batch.len_bytes();
        for (index, column) in selection.columns.iter().enumerate() {
            let value = row.get_ref(index).map_err(|error| failure(error, producer.rows()))?;
            let size = match value {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
                _ => 0,
            };
            if producer.batch.len_bytes() - start + size > MOST_ROW_BYTES {
                return Err(SourceError::row_too_large());
            }
            push(producer, value, column.column_type);
        }
        if (producer.is_full() || producer.is_old()) && producer.hand_over_blocking().is_err() {
            return Ok(Read::Unwanted);
        }
    }
    Ok(if producer.hand_over_blocking().is_ok() { Read::ToTheEnd } else { Read::Unwanted })
}

fn push(producer: &mut Producer, value: ValueRef<'_>, column_type: ColumnType) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let batch = &mut producer.batch;
    match value {
        ValueRef::Null => batch.push_null(),
        ValueRef::Integer(integer) => batch.push(itoa::Buffer::new().format(integer).as_bytes()),
        ValueRef::Real(real) if real.is_finite() => {
            batch.push(ryu::Buffer::new().format_finite(real).as_bytes());
        }
        ValueRef::Real(real) => batch.push(if real > 0.0 { b"Infinity" } else { b"-Infinity" }),
        ValueRef::Text(text) => batch.push(text),
        ValueRef::Blob(bytes) => match <[u8; 16]>::try_from(bytes) {
            Ok(bytes) if column_type == ColumnType::Uuid => {
                let mut text = Uuid::encode_buffer();
                batch.push(Uuid::from_bytes(bytes).hyphenated().encode_lower(&mut text).as_bytes());
            }
            _ => {
                let buffer = batch.buffer();
                buffer.extend_from_slice(b"\\x");
                for byte in bytes {
                    buffer.push(HEX[usize::from(byte >> 4)]);
                    buffer.push(HEX[usize::from(byte & 15)]);
                }
                batch.end_cell();
            }
        },
    }
}

/// What an error of the engine means, after so many rows.
pub(super) fn failure(error: rusqlite::Error, rows: u64) -> SourceError {
    let (code, text) = match &error {
        rusqlite::Error::SqliteFailure(error, text) => (Some(error.code), text.as_deref()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (Some(error.code), Some(msg.as_str())),
        _ => (None, None),
    };
    let text = text.unwrap_or_default();
    let made = match code {
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => SourceError::new(
            FailureCode::SourceUnreachable,
            "the source's file is not there or may not be read",
        ),
        Some(ErrorCode::SystemIoFailure) if rows > 0 => SourceError::new(
            FailureCode::SourceTruncated,
            "the source's file could not be read to the end",
        ),
        Some(ErrorCode::SystemIoFailure) => {
            SourceError::new(FailureCode::SourceUnreachable, "the source's file could not be read")
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => SourceError::new(
            FailureCode::SourceQueryFailed,
            "the source's file is damaged or no SQLite database",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            SourceError::new(FailureCode::SourceQueryFailed, "the source's file is locked")
                .retried()
        }
        Some(ErrorCode::OperationInterrupted) => {
            SourceError::new(FailureCode::SourceQueryFailed, "the query was interrupted")
        }
        Some(ErrorCode::TooBig) => SourceError::row_too_large(),
        _ if text.starts_with("no such table") || text.starts_with("no such column") => {
            SourceError::new(FailureCode::SchemaMismatch, format!("the source has {text}"))
        }
        _ => SourceError::new(
            FailureCode::SourceQueryFailed,
            format!("the source refused the query: {text}"),
        ),
    };
    made.with_cause(error)
}
