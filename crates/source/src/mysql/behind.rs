//! The tables behind a relation, and whether they have snapshots at all.
//!
//! The server names them in what it made of a statement, but for those that it has already read
//! and those behind a view that it does not merge into the statement. The definitions of views are
//! therefore read as well, and where something was read of a query's tables, every name of the query
//! is taken for one.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use outport_domain::{
    failure::FailureCode,
    selection::{Relation, Selection},
};
use sqlx::{AssertSqlSafe, Column, MySqlConnection, mysql::MySqlRow};

use super::{
    failure::{self, Stage, failure},
    relation::{QUOTE, all_of, checked},
    session::{rows, text},
    snapshot,
};
use crate::{SourceError, compile};

/// The number of the note that has what the server made of a statement.
const MADE_OF_IT: &str = "1003";

/// What encloses texts.
const TEXT_QUOTES: [char; 2] = ['\'', '"'];

/// The one storage engine that gives a consistent snapshot.
const TRANSACTIONAL: &str = "InnoDB";

/// Names that are looked up at once.
const AT_ONCE: usize = 500;

/// What may be a table: its schema, where that is told, and its name.
type Name = (Option<String>, String);

/// What stands behind a relation.
#[derive(Default)]
pub(super) struct Behind {
    /// A table, if there is any.
    pub(super) table: Option<Relation>,
    /// Whether the server may look for rows when it only plans to read the relation.
    pub(super) is_read_by_planning: bool,
    /// When we made the server look for rows, of its own, to find the table: where it keeps what it
    /// knows of tables in tables that have snapshots too, as MySQL does from 8.0 on.
    pub(super) looked_at: Option<DateTime<Utc>>,
}

/// Refuses what has no snapshot: tables of any storage engine but `InnoDB`, also behind a view or
/// in a query.
pub(super) async fn check_snapshots(
    connection: &mut MySqlConnection,
    selection: &Selection,
) -> Result<Behind, SourceError> {
    let mut named = BTreeSet::new();
    let plan = explained(connection, selection, &mut named).await?;
    let mut is_read = false;
    for (place, row) in plan.iter().enumerate() {
        match cell(row, "table")? {
            // What it read already of the inner ones is left out of what it made of the statement.
            // Only engines without snapshots know so exactly that a table has one row.
            Some(table)
                if cell(row, "type")?.as_deref() == Some("system") && !table.starts_with('<') =>
            {
                let named = format!("'{table}' (as the view or query names it)");
                return Err(without_snapshot(&named, "one that is not transactional"));
            }
            Some(_) => {}
            // The same, and its name is not told. The first is the statement itself.
            None => is_read |= place > 0,
        }
    }
    match &selection.relation {
        Relation::Table(parts) => {
            let (name, schema) = parts.split_last().map_or((None, None), |(name, schema)| {
                (Some(name.clone()), schema.first().cloned())
            });
            named.extend(name.map(|name| (schema, name)));
        }
        Relation::Query(query) if is_read => names(query, &mut named),
        Relation::Query(_) => {}
    }
    let mut behind = Behind { is_read_by_planning: plan.len() > 1, ..Behind::default() };
    look_behind(connection, named, &mut behind).await?;
    Ok(behind)
}

/// The plan of a statement that reads the relation; what the server made of it is searched for
/// names.
async fn explained(
    connection: &mut MySqlConnection,
    selection: &Selection,
    named: &mut BTreeSet<Name>,
) -> Result<Vec<MySqlRow>, SourceError> {
    let relation = compile::relation_by(QUOTE, &selection.relation);
    // Of a SELECT without rows the optimizer reads nothing before it names its tables.
    let sql = format!("SELECT {} FROM {relation} AS r LIMIT 0", all_of(selection));
    // MariaDB shows what it made of the statement only when asked; MySQL always does.
    let explain =
        format!("EXPLAIN /*M! EXTENDED */ /*!50700 FORMAT=TRADITIONAL */ {}", checked(&sql)?);
    let plan = rows(connection, explain).await.map_err(|error| {
        if failure::is_view_hidden(&error) { hidden().with_cause(error) } else { error }
    })?;
    let mut is_told = false;
    for warning in rows(connection, "SHOW WARNINGS").await? {
        if text(&warning, 1)?.as_deref() == Some(MADE_OF_IT) {
            full_names(&text(&warning, 2)?.unwrap_or_default(), named);
            is_told = true;
        }
    }
    if !is_told {
        let message = "the server does not tell which tables it reads: its max_error_count is too \
                       small";
        return Err(SourceError::new(FailureCode::SourceQueryFailed, message));
    }
    Ok(plan)
}

fn cell(row: &MySqlRow, name: &str) -> Result<Option<String>, SourceError> {
    sqlx::Row::columns(row)
        .iter()
        .position(|column| column.name().eq_ignore_ascii_case(name))
        .map_or(Ok(None), |index| text(row, index))
}

/// Looks at what has these names, and at what is behind those of them that are views.
async fn look_behind(
    connection: &mut MySqlConnection,
    mut named: BTreeSet<Name>,
    behind: &mut Behind,
) -> Result<(), SourceError> {
    let mut known = BTreeSet::new();
    while !named.is_empty() {
        let fresh: Vec<Name> = named.difference(&known).cloned().collect();
        known.append(&mut named);
        for chunk in fresh.chunks(AT_ONCE) {
            for (schema, view) in look(connection, chunk, behind).await? {
                let definition = definition(connection, &schema, &view).await?;
                full_names(&definition, &mut named);
            }
        }
        named.retain(|name| !known.contains(name));
    }
    Ok(())
}

/// Looks at what has these names. Returns the views among it.
async fn look(
    connection: &mut MySqlConnection,
    named: &[Name],
    behind: &mut Behind,
) -> Result<Vec<(String, String)>, SourceError> {
    let places = vec!["(COALESCE(?, DATABASE()), ?)"; named.len()].join(", ");
    let sql = format!(
        "SELECT COALESCE(NULL /*!80000 , CAST(UTC_TIMESTAMP(6) AS CHAR) */), t.* \
         FROM (SELECT 1) AS one LEFT JOIN \
           (SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES \
            WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({places}) \
              AND (ENGINE IS NOT NULL OR TABLE_TYPE = 'VIEW')) AS t ON TRUE"
    );
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for (schema, name) in named {
        query = query.bind(schema).bind(name);
    }
    let rows = query.fetch_all(connection).await.map_err(|error| failure(error, Stage::Query))?;
    let mut views = Vec::new();
    for row in rows {
        if let (None, Some(now)) = (behind.looked_at, text(&row, 0)?) {
            behind.looked_at = Some(snapshot::moment(&now)?);
        }
        let (Some(schema), Some(name)) = (text(&row, 1)?, text(&row, 2)?) else { continue };
        match text(&row, 3)? {
            None => views.push((schema, name)),
            Some(engine) if engine == TRANSACTIONAL => {
                behind.table = Some(Relation::Table(vec![schema, name]));
            }
            Some(engine) => return Err(without_snapshot(&format!("'{name}'"), &engine)),
        }
    }
    Ok(views)
}

/// What a view selects, its tables named in full.
async fn definition(
    connection: &mut MySqlConnection,
    schema: &str,
    view: &str,
) -> Result<String, SourceError> {
    let row = sqlx::query(
        "SELECT VIEW_DEFINITION FROM information_schema.VIEWS \
         WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
    )
    .bind(schema)
    .bind(view)
    .fetch_optional(connection)
    .await
    .map_err(|error| failure(error, Stage::Query))?;
    let definition = row.map(|row| text(&row, 0)).transpose()?.flatten();
    definition.filter(|definition| !definition.is_empty()).ok_or_else(hidden)
}

fn hidden() -> SourceError {
    SourceError::new(
        FailureCode::SourceQueryFailed,
        "the tables behind a view cannot be told, nor whether they have snapshots: grant SHOW VIEW \
         to the connection's user, and SELECT on the tables",
    )
}

fn without_snapshot(table: &str, engine: &str) -> SourceError {
    SourceError::new(
        FailureCode::SchemaMismatch,
        format!(
            "table {table} cannot be read as of one moment: its storage engine is {engine}, \
             not {TRANSACTIONAL}; ALTER TABLE … ENGINE = {TRANSACTIONAL} changes it"
        ),
    )
}

/// What is named with something before it, as the server names each table, and some other pairs,
/// which are no tables.
fn full_names(sql: &str, named: &mut BTreeSet<Name>) {
    let mut all = BTreeSet::new();
    names(sql, &mut all);
    named.extend(all.into_iter().filter(|(schema, _)| schema.is_some()));
}

/// The first one or two names of every dotted chain of names in a statement, its words among them.
/// Texts and comments, in which a quote may stand, are passed over; what a comment has for the
/// server is not.
fn names(sql: &str, named: &mut BTreeSet<Name>) {
    let mut rest = sql;
    let mut chain: Vec<String> = Vec::new();
    let mut is_dotted = false;
    let mut end = |chain: &mut Vec<String>| {
        let mut parts = std::mem::take(chain).into_iter();
        match (parts.next(), parts.next()) {
            (Some(schema), Some(name)) => named.insert((Some(schema), name)),
            (Some(name), None) => named.insert((None, name)),
            (None, _) => false,
        };
    };
    while let Some(first) = rest.chars().next() {
        let name = if let Some(after) = after_comment(rest) {
            rest = after;
            continue;
        } else if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        } else if TEXT_QUOTES.contains(&first) {
            rest = unquoted(rest).map_or("", |(_, after)| after);
            None
        } else if first == QUOTE {
            let (name, after) = unquoted(rest).unwrap_or_default();
            rest = after;
            Some(name)
        } else if is_of_a_word(first) {
            let length = rest.find(|c| !is_of_a_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(length);
            rest = after;
            Some(word.to_owned())
        } else {
            rest = &rest[first.len_utf8()..];
            if first == '.' && !chain.is_empty() {
                is_dotted = true;
                continue;
            }
            None
        };
        if !std::mem::take(&mut is_dotted) || name.is_none() {
            end(&mut chain);
        }
        chain.extend(name);
    }
    end(&mut chain);
}

fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// What comes after the comment at the beginning, or after the mark of one whose content is for the
/// server.
fn after_comment(sql: &str) -> Option<&str> {
    let is_to_the_end_of_a_line = sql.starts_with('#')
        || sql
            .strip_prefix("--")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
    if is_to_the_end_of_a_line {
        return Some(sql.split_once('\n').map_or("", |(_, rest)| rest));
    }
    for mark in ["/*!", "/*M!"] {
        if let Some(rest) = sql.strip_prefix(mark) {
            return Some(rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
    }
    let comment = sql.strip_prefix("/*")?;
    Some(comment.split_once("*/").map_or("", |(_, rest)| rest))
}

/// What stands in quotes at the beginning, and what comes after it. A doubled quote is one of
/// the name or text; a backslash keeps the next character of a text from ending it.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut characters = quoted.chars();
    let quote = characters.next()?;
    let mut name = String::new();
    loop {
        match characters.next()? {
            '\\' if quote != QUOTE => name.push(characters.next()?),
            c if c != quote => name.push(c),
            _ if characters.as_str().starts_with(quote) => name.extend(characters.next()),
            _ => return Some((name, characters.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{full_names, names};

    #[test]
    fn tables_are_found_in_what_the_server_made_of_a_statement() {
        let mut named = BTreeSet::new();
        full_names(
            "select `s`.`t`.`id` AS `id`,`q`.`l` AS `l` from `s`.`t` join `s 2`.`a``b` `q` \
             where `s`.`t`.`id` = `q`.`id`",
            &mut named,
        );
        let named: Vec<(&str, &str)> =
            named.iter().map(|(s, t)| (s.as_deref().unwrap_or_default(), t.as_str())).collect();
        assert_eq!(named, [("q", "id"), ("q", "l"), ("s", "t"), ("s 2", "a`b")]);
    }

    #[test]
    fn a_quote_in_a_text_or_comment_hides_no_table() {
        for hiding in [
            "'`'",
            "'it''s `'",
            r"'it\'s `'",
            r"'\\'",
            r#""`'""#,
            "1 -- `'\n",
            "1 # '\n",
            "/* '` */ 1",
        ] {
            let mut named = BTreeSet::new();
            full_names(
                &format!("select 1 from `s`.`t` where ({hiding} <> `s`.`u`.`l`)"),
                &mut named,
            );
            let pair = |table: &str| (Some("s".to_owned()), table.to_owned());
            assert_eq!(named, [pair("t"), pair("u")].into(), "{hiding}");
        }
    }

    #[test]
    fn every_name_of_a_query_may_be_a_table() {
        let mut named = BTreeSet::new();
        names("SELECT n.id FROM ações AS n, s . `t 2`/*! JOIN u */ WHERE 'x'.y", &mut named);
        let words = ["AS", "FROM", "JOIN", "SELECT", "WHERE", "ações", "n", "u", "y"];
        let mut expected: BTreeSet<_> =
            words.into_iter().map(|word| (None, word.to_owned())).collect();
        expected.insert((Some("n".to_owned()), "id".to_owned()));
        expected.insert((Some("s".to_owned()), "t 2".to_owned()));
        assert_eq!(named, expected);
    }
}
