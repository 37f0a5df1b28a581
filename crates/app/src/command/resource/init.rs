//! `outport resource init`: asks a database what a table is, and writes its resource file.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use outport_domain::{resource::Resource, selection::Relation};
use outport_source::schema::{self, Description, Schema, TableName};

use super::{
    Failure, answered,
    draft::Draft,
    naming::{self, near},
    patience,
};
use crate::{
    command::{say, terminal},
    config::Config,
    process,
};

/// Tables that an error names when none is like the one that was asked for.
const TABLES_TOLD: usize = 10;

#[derive(clap::Args)]
pub(in crate::command) struct Options {
    /// The connection, as the configuration names it
    #[arg(long, value_name = "NAME")]
    connection: String,
    /// The table or view; `schema.table` is understood
    #[arg(long)]
    table: String,
    /// The schema that it is in; of MySQL the database [default: where the connection looks first]
    #[arg(long)]
    schema: Option<String>,
    /// The resource's name in requests [default: made from the table's]
    #[arg(long)]
    name: Option<String>,
    /// The column of the organization's id [default: found by its name]
    #[arg(long, value_name = "COLUMN")]
    organization: Option<String>,
    /// Where to write; `-` or `stdout` is standard output [default: NAME.toml in resourcesDir]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrites the file if it is there
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(options: Options, config: &Config) -> Result<ExitCode, Failure> {
    let Some(connection) = config.connections.get(&options.connection) else {
        return Err(Failure::Usage(unknown_connection(&options.connection, config)));
    };
    let database = schema::schema(connection);
    let found = answered(patience(config), find(&*database, &options)).await.map_err(|late| {
        let text = format!("connection '{}': {late}; is the table locked?", options.connection);
        Failure::Failed(text)
    });
    let (table, described) = found??;
    let last = table.last().map(String::as_str).unwrap_or_default();
    let name = options.name.clone().unwrap_or_else(|| naming::resource(last));
    let draft = Draft {
        name: &name,
        connection: &options.connection,
        table: &table,
        described: &described,
        organization: options.organization.as_deref(),
    };
    let text = draft.toml().map_err(Failure::Failed)?;
    // A name of the caller's own may break the rules.
    Resource::from_toml(&text).map_err(|error| Failure::Usage(format!("{error}")))?;
    let to = match &options.output {
        Some(path) if path == Path::new("-") || path == Path::new("stdout") => {
            io::stdout().write_all(text.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(path) => path.clone(),
        None => {
            refuse_second(&name, &options, config)?;
            std::fs::create_dir_all(&config.resources_dir)?;
            config.resources_dir.join(format!("{name}.toml"))
        }
    };
    write(&to, &text, options.force)?;
    let (shown, columns) = (to.display(), described.columns.len());
    say(&format!(
        "{shown} declares '{name}' from {columns} columns; read it, then run `outport resource check`"
    ))
}

fn unknown_connection(name: &str, config: &Config) -> String {
    let known: Vec<&str> = config.connections.keys().map(String::as_str).collect();
    let known = if known.is_empty() {
        "none is; connections.<name> declares one".to_owned()
    } else {
        known.join(", ")
    };
    format!("the connection '{name}' is not configured; configured: {known}")
}

/// The table's name as it was meant, and what it is.
async fn find(
    database: &dyn Schema,
    options: &Options,
) -> Result<(Vec<String>, Description), Failure> {
    let failed = |error: outport_source::SourceError| {
        Failure::Failed(format!("connection '{}': {error}", options.connection))
    };
    let mut names = vec![match &options.schema {
        Some(schema) => vec![schema.clone(), options.table.clone()],
        None => vec![options.table.clone()],
    }];
    if let (None, Some((schema, table))) = (&options.schema, options.table.split_once('.')) {
        names.push(vec![schema.to_owned(), table.to_owned()]);
    }
    for name in names {
        let relation = Relation::Table(name.clone());
        if let Some(described) = database.describe(&relation).await.map_err(failed)? {
            return Ok((name, described));
        }
    }
    let tables = database.tables().await.map_err(failed)?;
    Err(Failure::Failed(unknown_table(options, &tables)))
}

fn unknown_table(options: &Options, tables: &[TableName]) -> String {
    let Options { connection, table, schema, .. } = options;
    let place = schema.as_ref().map_or_else(String::new, |schema| format!(" in schema '{schema}'"));
    let named = |table: &TableName| terminal::text(&format!("{}.{}", table.schema, table.name));
    let wanted = table.rsplit('.').next().unwrap_or(table);
    let alike = near(wanted, tables.iter().map(|table| table.name.as_str()));
    let advice = if tables.is_empty() {
        "its user sees no tables at all".to_owned()
    } else if alike.is_empty() {
        let shown: Vec<String> = tables.iter().take(TABLES_TOLD).map(named).collect();
        let more = if tables.len() > TABLES_TOLD { ", …" } else { "" };
        format!("it has {}{more}", shown.join(", "))
    } else {
        let mut shown: Vec<String> = Vec::new();
        for name in alike {
            shown.extend(tables.iter().filter(|table| table.name == name).map(named));
        }
        shown.dedup();
        format!("perhaps {}", shown.join(", "))
    };
    format!("the connection '{connection}' has no table or view '{table}'{place}; {advice}")
}

/// A second resource of the same name would stop every process at its start.
fn refuse_second(name: &str, options: &Options, config: &Config) -> Result<(), Failure> {
    // What is wrong with other files is not this command's business.
    let declared = process::catalogue(config).is_ok_and(|catalogue| catalogue.0.contains_key(name));
    if declared && !options.force {
        return Err(Failure::Failed(format!(
            "the resource '{name}' is declared already in {}; --name gives this one another name",
            config.resources_dir.display()
        )));
    }
    Ok(())
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let mut how = OpenOptions::new();
    if force {
        how.write(true).create(true).truncate(true);
    } else {
        how.write(true).create_new(true);
    }
    let written = how.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let shown = path.display();
        Failure::Failed(if error.kind() == io::ErrorKind::AlreadyExists {
            format!("{shown} is there already; --force overwrites it")
        } else {
            format!("{shown}: {error}")
        })
    })
}
