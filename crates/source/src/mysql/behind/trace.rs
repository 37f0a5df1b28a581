//! The tables that a statement reads, as the server tells them while it prepares the statement:
//! every `SELECT` in it as the server itself prints it, also those in CTEs and behind views, and
//! with what it reads while planning. Schemas are not told.
//!
//! MariaDB has a trace since 10.4, MySQL since 5.6. To whom the server would not show all that it
//! reads it gives none.

use std::collections::BTreeSet;

use sqlx::MySqlConnection;

use super::tables::Found;
use crate::{
    SourceError,
    mysql::session::{rows, text},
};

/// What stands before each `SELECT` in a trace, and in no text of it: there, quotes are escaped.
const SELECT: &str = "\"expanded_query\": ";

/// Bytes that a trace may have: more than what longer queries need, and less than what a row of the
/// protocol has in one piece.
const MOST_BYTES: u32 = 12 << 20;

/// Asks the server to keep what it makes of the next statement. Returns whether it can.
pub(super) async fn begin(connection: &mut MySqlConnection) -> bool {
    let sql = format!(
        "SET SESSION optimizer_trace = 'enabled=on', optimizer_trace_max_mem_size = {MOST_BYTES} \
             /*!80000 , optimizer_trace_offset = -1, optimizer_trace_limit = 1 */"
    );
    rows(connection, sql).await.is_ok()
}

/// What was kept, if it is all there.
pub(super) async fn end(connection: &mut MySqlConnection) -> Result<Option<Traced>, SourceError> {
    let kept = "SELECT MISSING_BYTES_BEYOND_MAX_MEM_SIZE + INSUFFICIENT_PRIVILEGES, TRACE \
                FROM information_schema.OPTIMIZER_TRACE";
    let kept = rows(connection, kept).await?;
    rows(connection, "SET SESSION optimizer_trace = 'enabled=off'").await?;
    let Some(kept) = kept.first() else { return Ok(None) };
    let is_whole = text(kept, 0)?.as_deref() == Some("0");
    let trace = text(kept, 1)?.filter(|_| is_whole);
    Ok(trace.and_then(|trace| Traced::read(&trace)))
}

/// What a trace names.
pub(super) struct Traced {
    /// Tables, views and the uses of CTEs.
    names: BTreeSet<String>,
    folded: BTreeSet<String>,
    ctes: BTreeSet<String>,
    /// Whether nothing in it may be read in two ways.
    is_sure: bool,
}

impl Traced {
    fn read(trace: &str) -> Option<Self> {
        let mut found = Found::default();
        let mut is_told = false;
        for (at, mark) in trace.match_indices(SELECT) {
            // The whole is not always JSON, in MariaDB: it prints some conditions as they are.
            let rest = &trace[at + mark.len()..];
            let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            found.in_trace(&texts.next()?.ok()?);
            is_told = true;
        }
        let names: BTreeSet<_> = found.tables.into_iter().map(|(_, name)| name).collect();
        let folded = names.iter().map(|name| folded(name)).collect();
        let is_sure = !found.has_foreign_texts;
        is_told.then_some(Self { names, folded, ctes: found.ctes, is_sure })
    }

    /// Whether something of this name is read, or may be.
    pub(super) fn has(&self, name: &str) -> bool {
        !self.is_sure || self.folded.contains(&folded(name))
    }

    /// The names of tables and views that were not found.
    pub(super) fn beyond<'a>(&'a self, found: &Found) -> impl Iterator<Item = &'a String> {
        let known: BTreeSet<_> = found.tables.iter().map(|(_, name)| folded(name)).collect();
        let others = self.names.difference(&self.ctes);
        let others: Vec<_> = others.filter(|name| !found.ctes.contains(*name)).collect();
        others.into_iter().filter(move |name| !known.contains(&folded(name)))
    }
}

/// The case of a name may differ between who wrote it and who keeps it.
fn folded(name: &str) -> String {
    name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{Found, Traced};

    #[test]
    fn the_names_in_every_select_of_a_trace_are_told() {
        let trace = r#"{ "steps": [
            { "select#": 2, "expanded_query": "/* select#2 */ select distinct `Big`.`id` AS `i\\d \"from x\"` from (`t` join `Big`)" },
            { "condition": 'no \\x00 JSON', "expanded_query": "/* select#1 */ select 1 from (with c as (select 1 from `u`) select 1 from c) r" }"#;
        let traced = Traced::read(trace).expect("a trace");
        for (name, is_there) in
            [("t", true), ("big", true), ("u", true), ("x", false), ("r", false)]
        {
            assert_eq!(traced.has(name), is_there, "{name}");
        }
        let mut found = Found::default();
        found.in_query("SELECT 1 FROM t, s.U");
        assert_eq!(traced.beyond(&found).collect::<Vec<_>>(), ["Big"]);
    }

    #[test]
    fn a_text_of_a_character_set_may_hide_what_follows() {
        let trace = r#""expanded_query": "select _sjis'\\x95\\' AS `z` from `t`""#;
        assert!(Traced::read(trace).expect("a trace").has("t"));
    }

    #[test]
    fn what_is_no_trace_tells_nothing() {
        for trace in ["", "{}", r#""expanded_query": "select 1 from t"#] {
            assert!(Traced::read(trace).is_none(), "{trace}");
        }
    }
}
