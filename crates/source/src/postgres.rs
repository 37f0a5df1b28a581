//! PostgreSQL: connections of its own, one `REPEATABLE READ READ ONLY` transaction, the base
//! tables locked before the snapshot, then `COPY … TO STDOUT`.
//!
//! Printed is what the server prints with the settings of `session` pinned: booleans as `t`
//! and `f`, bytes as `\x` and hex digits, instants in the selection's zone, floats as the
//! shortest text that reads back the same. Arrays and composites of columns declared JSON are
//! JSON; everything else is as the server's type writes itself. Where every column's type is
//! known well enough, rows travel as bytes and [`print`] makes the same text of them; otherwise
//! the server's own text travels.
//!
//! A large plain table whose order does not matter is read over several connections, see
//! `ranges`. The URL may say over how many: `connections=1` in its query turns that off. Behind a
//! pooler it is one, unless the URL says so.
//!
//! Columns declared text may be enums: equality compares labels and uses indexes, the rest
//! compares the label's text.

mod cancel;
mod connect;
mod copy_binary;
mod copy_text;
mod encoding;
mod estimate;
mod failure;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod plans;
mod print;
mod ranges;
mod reader;
mod relation;
mod schema;
mod session;

use std::{collections::HashMap, sync::Arc, thread::available_parallelism, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::{failure::FailureCode, selection::Selection};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::task::JoinHandle;

use crate::{
    Batch, Next, RowStream, Source, SourceError, compile,
    compile::postgres::{Postgres, RealType},
    handoff,
    handoff::Turns,
    malformed, several,
};
use cancel::Backends;
use connect::Server;
use encoding::Encoding;
use failure::{Stage, failure};
use ranges::Statement;
use reader::{Share, Wire};
use relation::Tables;
use session::Pins;

/// How long a cancel may take before the connections are closed all the same.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// Connections that read one table at once, unless the URL says otherwise: one for each core of
/// ours, and no more than this.
const MOST_CONNECTIONS: usize = 4;

/// Full batches of one connection that may wait for their turn: the rows of a whole range and a
/// little more, so that nobody waits for another to finish.
const WAITING_IN_TURNS: usize = 10;

/// One PostgreSQL server.
pub struct PostgresSource {
    server: Server,
    /// That read one table at once, if it can be cut; what the URL says.
    connections: Option<usize>,
}

/// What is wrong with the form of a URL, if anything is.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let (url, _) = connect::without_connections(url);
    url.parse::<PgConnectOptions>().map(|_| ()).map_err(|error| malformed(&error))
}

impl PostgresSource {
    /// A source; nothing is connected to yet.
    pub fn new(url: &str, connect_timeout: Duration) -> Self {
        let (url, connections) = connect::without_connections(url);
        Self { server: Server::new(url, connect_timeout), connections }
    }

    /// The same source, with certificates at hand.
    #[must_use]
    pub fn with_tls(self, tls: Arc<crate::Tls>) -> Self {
        Self { server: self.server.with_tls(tls), ..self }
    }

    /// Connections that read one table at once, if it can be cut.
    fn connections(&self) -> usize {
        self.connections.unwrap_or_else(|| {
            if self.server.is_pooled() {
                1
            } else {
                available_parallelism().map_or(1, usize::from).min(MOST_CONNECTIONS)
            }
        })
    }
}

#[async_trait]
impl Source for PostgresSource {
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        let mut connection = self.server.connect().await?;
        let mut pins = Pins::new(selection.time_zone);
        let backends = Backends::new(self.server.clone(), pins.name.clone());
        session::begin_to_look(&mut connection, &mut pins, &self.server).await?;
        let mut compiled = compiled(&mut connection, &pins, selection, Vec::new()).await?;
        let parameters = std::mem::take(&mut compiled.dialect.parameters);
        let tables = relation::looked_at(&mut connection).await?;
        let estimated_rows = estimate::rows(&mut connection, &compiled.dialect, selection).await;
        let whole = std::slice::from_ref(&compiled);
        let snapshot_at =
            begin_to_read(&mut connection, &pins, &[selection], whole, &tables, &parameters)
                .await?;
        let Compiled { sql, wire, .. } = compiled;

        let mut connections = vec![connection];
        let statement = self.cut(sql, selection, &pins, &parameters, &mut connections).await?;
        let columns = selection.columns.len();
        let readers = connections.len();
        let waiting = if readers > 1 { WAITING_IN_TURNS } else { handoff::WAITING };
        let mut tasks = Vec::with_capacity(readers);
        let mut consumers = Vec::with_capacity(readers);
        for (reader, connection) in connections.into_iter().enumerate() {
            let (producer, consumer) = handoff::handoff_of(columns, waiting);
            let share = Share { statement: statement.clone(), reader, readers, wire: wire.clone() };
            tasks.push(AbortOnDrop(tokio::spawn(reader::run(connection, share, producer))));
            consumers.push(consumer);
        }
        let turns = Turns::new(consumers);
        Ok(Box::new(PostgresStream { snapshot_at, estimated_rows, turns, tasks, backends }))
    }

    /// One connection, one transaction, one statement after the other.
    async fn open_several(
        &self,
        selections: &[&Selection],
    ) -> Result<Vec<Box<dyn RowStream>>, SourceError> {
        let mut connection = self.server.connect().await?;
        let mut pins = Pins::new(selections[0].time_zone);
        let backends = Backends::new(self.server.clone(), pins.name.clone());
        session::begin_to_look(&mut connection, &mut pins, &self.server).await?;
        let mut parameters = Vec::new();
        let mut all = Vec::with_capacity(selections.len());
        let mut reads = Vec::with_capacity(selections.len());
        let mut consumers = Vec::with_capacity(selections.len());
        for selection in selections {
            let mut compiled = compiled(&mut connection, &pins, selection, parameters).await?;
            parameters = std::mem::take(&mut compiled.dialect.parameters);
            let (producer, consumer) = handoff::handoff(selection.columns.len());
            let statement = Statement::whole(compiled.sql.clone());
            let share = Share { statement, reader: 0, readers: 1, wire: compiled.wire.clone() };
            reads.push((share, producer));
            consumers.push(consumer);
            all.push(compiled);
        }
        let tables = relation::looked_at(&mut connection).await?;
        let snapshot_at =
            begin_to_read(&mut connection, &pins, selections, &all, &tables, &parameters).await?;
        let tasks = vec![AbortOnDrop(tokio::spawn(reader::run_each(connection, reads)))];
        Ok(several::streams(snapshot_at, consumers, |last| {
            let turns = Turns::new(vec![last]);
            Box::new(PostgresStream { snapshot_at, estimated_rows: None, turns, tasks, backends })
        }))
    }

    async fn estimate(&self, selection: &Selection) -> Result<Option<u64>, SourceError> {
        let mut connection = self.server.connect().await?;
        let mut pins = Pins::new(selection.time_zone);
        session::begin_to_look(&mut connection, &mut pins, &self.server).await?;
        // The look at a table's columns waits for whoever has locked it.
        session::run(&mut connection, "SET LOCAL lock_timeout = '1s'".to_owned()).await?;
        let types = relation::real_types(&mut connection, selection).await?;
        let rows = estimate::rows(&mut connection, &Postgres::new(types), selection).await;
        session::run(&mut connection, "ROLLBACK".to_owned()).await?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))?;
        Ok(rows)
    }

    async fn check(&self) -> Result<(), SourceError> {
        let mut connection = self.server.connect().await?;
        let mut pins = Pins::new(chrono_tz::UTC);
        session::begin_to_look(&mut connection, &mut pins, &self.server).await?;
        session::run(&mut connection, "COMMIT".to_owned()).await?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))
    }

    fn note(&self) -> Option<&'static str> {
        self.server.note()
    }
}

/// A selection as the server at hand is asked for it.
struct Compiled {
    dialect: Postgres,
    /// What the statement and its wire rely on.
    types: HashMap<Arc<str>, RealType>,
    sql: String,
    wire: Wire,
}

/// Compiles a selection; its parameters come after those given.
async fn compiled(
    connection: &mut PgConnection,
    pins: &Pins,
    selection: &Selection,
    parameters: Vec<String>,
) -> Result<Compiled, SourceError> {
    let types = relation::real_types(connection, selection).await?;
    let wire = wire(&types, selection);
    let mut dialect = Postgres::new(types.clone());
    dialect.parameters = parameters;
    if pins.encoding == Encoding::Narrow {
        dialect.lacks(encoding::lacking(connection, &selection.predicate).await?);
    }
    let wire = match wire {
        Some((wire, functions)) => {
            dialect.print_with(functions);
            wire
        }
        None => Wire::Text(selection.columns.len()),
    };
    let sql = compile::select(&mut dialect, selection)?;
    Ok(Compiled { dialect, types, sql, wire })
}

/// Ends the looking, locks the tables, takes the snapshot, and makes sure that what was seen of
/// the tables still holds: between the two transactions a table may have been altered, and the
/// bytes of a number would be read as those of a float. What cannot be locked before the snapshot
/// is taken, such as a materialized view, may have been written anew before planning locked it.
/// From here on the locks keep it all as it is.
async fn begin_to_read(
    connection: &mut PgConnection,
    pins: &Pins,
    selections: &[&Selection],
    compiled: &[Compiled],
    tables: &Tables,
    parameters: &[String],
) -> Result<DateTime<Utc>, SourceError> {
    session::begin_to_read(connection, pins, &tables.to_lock()).await.map_err(altered)?;
    let snapshot_at = session::take_snapshot(connection, parameters).await?;
    let locked = relation::looked_at(connection).await?;
    let mut same = true;
    for (selection, compiled) in selections.iter().zip(compiled) {
        same &=
            relation::real_types(connection, selection).await.map_err(altered)? == compiled.types;
    }
    if same && relation::looked_at(connection).await?.are_still(tables, &locked) {
        return Ok(snapshot_at);
    }
    let message = "a table was altered, or a view refreshed, while the export began";
    Err(altered(SourceError::new(FailureCode::SchemaMismatch, message)))
}

/// What was there a moment ago is looked at again.
fn altered(error: SourceError) -> SourceError {
    if error.code == FailureCode::SchemaMismatch { error.retried() } else { error }
}

impl PostgresSource {
    /// Cuts the statement into ranges and adds connections to read them, where that serves.
    async fn cut(
        &self,
        sql: String,
        selection: &Selection,
        pins: &Pins,
        parameters: &[String],
        connections: &mut Vec<PgConnection>,
    ) -> Result<Statement, SourceError> {
        let further = self.connections().saturating_sub(1);
        if further == 0 {
            return Ok(Statement::whole(sql));
        }
        let first = &mut connections[0];
        let Some(table) = ranges::of(first, selection, &sql).await? else {
            return Ok(Statement::whole(sql));
        };
        let joined = ranges::join(first, &table, pins, parameters, &self.server, further).await?;
        connections.extend(joined);
        Ok(table.statement)
    }
}

/// How rows travel, and which functions of the server print which columns; `None` when a column
/// is of a type that only travels as text.
fn wire(
    types: &HashMap<Arc<str>, RealType>,
    selection: &Selection,
) -> Option<(Wire, HashMap<Arc<str>, &'static str>)> {
    let in_utc = selection.time_zone == chrono_tz::UTC;
    let mut forms = Vec::with_capacity(selection.columns.len());
    let mut functions = HashMap::new();
    for column in &selection.columns {
        let real = types.get(&column.name)?;
        let (form, function) = print::form(real, column.column_type, in_utc)?;
        forms.push(form);
        functions.extend(function.map(|function| (Arc::clone(&column.name), function)));
    }
    Some((Wire::Binary(forms), functions))
}

/// Drops a reader, and its connection with it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The order of the fields is the order of their end: first the connections are closed, then the
/// server is told to give up what it may still be computing.
struct PostgresStream {
    snapshot_at: DateTime<Utc>,
    estimated_rows: Option<u64>,
    turns: Turns,
    tasks: Vec<AbortOnDrop>,
    backends: Backends,
}

#[async_trait]
impl RowStream for PostgresStream {
    fn snapshot_at(&self) -> DateTime<Utc> {
        self.snapshot_at
    }

    fn estimated_rows(&self) -> Option<u64> {
        self.estimated_rows
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        let next = self.turns.next(batch).await?;
        if let Next::End { .. } = next {
            self.backends.are_done();
        }
        Ok(next)
    }

    async fn cancel(self: Box<Self>) {
        let Self { tasks, mut backends, turns, .. } = *self;
        // First the cancel, then the sockets: a server that is computing notices the former,
        // one that is waiting for us to read the latter.
        if let Err(error) = backends.cancel(CANCEL_TIME).await {
            tracing::warn!(error = %error, "a query could not be canceled; its connection is closed");
        }
        drop(turns);
        for task in &tasks {
            task.0.abort();
        }
        for mut task in tasks {
            // Aborted or ended; either way the connection is closed after this.
            if let Err(error) = (&mut task.0).await
                && error.is_panic()
            {
                tracing::error!("the reader of a PostgreSQL source panicked");
            }
        }
    }
}
