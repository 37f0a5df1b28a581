//! Servers that do not store texts as UTF-8.
//!
//! One of `SQL_ASCII` stores whatever bytes it was given: they travel as they are, and what is no
//! UTF-8 is the encoders' business (rule 10). Others know some characters only. A filter's text
//! with any other cannot even be sent; so these characters are found out first.

use std::collections::{BTreeSet, HashSet};

use outport_domain::selection::{Bound, Predicate, Test, Value};
use sqlx::{AssertSqlSafe, PgConnection};

use super::failure::{Stage, failure};
use crate::{SourceError, compile::postgres::hex, postgres::session};

/// How a server stores texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    /// Bytes of no encoding.
    Bytes,
    /// Some characters only.
    Narrow,
}

impl Encoding {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "UTF8" => Self::Utf8,
            "SQL_ASCII" => Self::Bytes,
            _ => Self::Narrow,
        }
    }

    /// The encoding that texts travel in.
    pub(super) const fn of_client(self) -> &'static str {
        match self {
            Self::Utf8 | Self::Narrow => "UTF8",
            Self::Bytes => "SQL_ASCII",
        }
    }
}

/// The characters of a predicate's texts, and their lower-case forms, that the server's encoding
/// does not have. Within a transaction.
pub(super) async fn lacking(
    connection: &mut PgConnection,
    predicate: &Predicate,
) -> Result<HashSet<char>, SourceError> {
    let mut asked = BTreeSet::new();
    collect(predicate, &mut asked);
    let asked: Vec<char> = asked.into_iter().collect();
    let mut lacking = HashSet::new();
    // All of them at once, as nearly always none or one is lacking; then the halves.
    let mut open = vec![asked.as_slice()];
    while let Some(part) = open.pop() {
        if part.is_empty() || has_all(connection, part).await? {
            continue;
        }
        match part {
            [one] => drop(lacking.insert(*one)),
            many => open.extend(<[_; 2]>::from(many.split_at(many.len() / 2))),
        }
    }
    Ok(lacking)
}

fn collect(predicate: &Predicate, characters: &mut BTreeSet<char>) {
    let mut take = |value: &Value| {
        if let Value::Text(text) = value {
            let lower = text.chars().flat_map(char::to_lowercase);
            characters.extend(text.chars().chain(lower).filter(|c| !c.is_ascii()));
        }
    };
    match predicate {
        Predicate::All(parts) | Predicate::Any(parts) => {
            for part in parts {
                collect(part, characters);
            }
        }
        Predicate::Column { test, .. } => match test {
            Test::Equal(value) => take(value),
            Test::In(values) => values.iter().for_each(take),
            Test::Range { from, to } => {
                for Bound { value, .. } in from.iter().chain(to) {
                    take(value);
                }
            }
            Test::Like { text, .. } => take(&Value::Text(text.clone())),
            Test::Null => {}
        },
    }
}

async fn has_all(connection: &mut PgConnection, characters: &[char]) -> Result<bool, SourceError> {
    let text: String = characters.iter().collect();
    let sql = format!(
        "SAVEPOINT asked; SELECT length(convert_from('\\x{}'::bytea, 'UTF8')); RELEASE asked",
        hex(&text)
    );
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await {
        Ok(_) => Ok(true),
        Err(error) => {
            let state = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
            // Untranslatable; not in the repertoire.
            if !matches!(state.as_deref(), Some("22P05" | "22021")) {
                return Err(failure(error, Stage::Query));
            }
            session::run(connection, "ROLLBACK TO asked; RELEASE asked".to_owned()).await?;
            Ok(false)
        }
    }
}
