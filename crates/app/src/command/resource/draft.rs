//! A resource file as it is first written: what a database's schema says, and what its names
//! suggest. Everything that was left out stands there as a comment with its reason.

use std::{collections::BTreeSet, fmt::Write as _};

use outport_domain::{column::ColumnType, limits::fixed};
use outport_source::schema::{Description, RealColumn};

use super::{
    naming::{is_secret, key, label, words},
    terminal,
};

/// Characters of a type in a comment: an enum may have a thousand values.
const TYPE_CHARS: usize = 80;

/// What the columns of a scope are called, best first.
const ORGANIZATION: &[&str] = &[
    "organization_id",
    "organisation_id",
    "org_id",
    "tenant_id",
    "organization_uuid",
    "organisation_uuid",
    "org_uuid",
    "tenant_uuid",
    "organization",
    "organisation",
    "org",
    "tenant",
];
const COMPANY: &[&str] = &["company_id", "company_uuid", "company"];
const COOPERATIVE: &[&str] = &["cooperative_id", "cooperative_uuid", "coop_id", "cooperative"];
const DELETED_AT: &[&str] = &["deleted_at", "deleted_on", "removed_at"];
const IS_DELETED: &[&str] = &["is_deleted", "deleted", "is_removed", "removed"];

/// What a file is written from.
pub(super) struct Draft<'a> {
    /// The resource's name.
    pub name: &'a str,
    /// The connection's name.
    pub connection: &'a str,
    /// The parts of the table's name.
    pub table: &'a [String],
    /// What the table is.
    pub described: &'a Description,
    /// The column of the organization's id, where the caller names it.
    pub organization: Option<&'a str>,
}

/// A column on its way into the file.
struct Entry<'a> {
    column: &'a RealColumn,
    key: String,
    /// Whether it stands there as a comment, because of its name.
    is_secret: bool,
    /// Why it is not exported unasked.
    unasked: Option<&'static str>,
}

impl Draft<'_> {
    /// The file, or one sentence that says what is missing.
    pub(super) fn toml(&self) -> Result<String, String> {
        let organization = self.organization()?;
        let entries = self.entries(organization)?;
        let mut text = self.head(&entries);
        self.scope(organization, &mut text);
        for entry in &entries {
            self.column(entry, &mut text);
        }
        Ok(text)
    }

    fn columns(&self) -> &[RealColumn] {
        &self.described.columns
    }

    fn called(&self, names: &[&str]) -> Option<&RealColumn> {
        let is = |name: &&str, column: &&RealColumn| words(&column.name).join("_") == **name;
        names.iter().find_map(|name| self.columns().iter().find(|column| is(name, column)))
    }

    /// The column that says whose rows they are.
    fn organization(&self) -> Result<&RealColumn, String> {
        let table = self.table.join(".");
        let fits = |column: &&RealColumn| holds_ids(column);
        let possible: Vec<&str> =
            self.columns().iter().filter(fits).map(|column| column.name.as_str()).collect();
        let advice = if possible.is_empty() {
            "none of its columns could hold one; declare a query that adds it, see \
             your-own-database.md"
                .to_owned()
        } else {
            format!("name it with --organization: {}", listed(&possible))
        };
        let found = match self.organization {
            Some(wanted) => {
                let column = self.described.column(wanted).ok_or_else(|| {
                    format!(
                        "{table} has no column '{wanted}' to hold the organization's id; {advice}"
                    )
                })?;
                Some(column)
            }
            None => self.called(ORGANIZATION),
        };
        match found {
            Some(column) if holds_ids(column) => Ok(column),
            Some(RealColumn { name, type_name, .. }) => Err(format!(
                "organizations have UUIDs, and the column '{name}' of {table} is {type_name}; {advice}"
            )),
            None => Err(format!(
                "no column of {table} looks like the organization's id, without which its rows \
                 would be everybody's; {advice}"
            )),
        }
    }

    fn entries(&self, organization: &RealColumn) -> Result<Vec<Entry<'_>>, String> {
        let mut keys = BTreeSet::new();
        let mut exported = 0;
        let mut entries = Vec::with_capacity(self.columns().len());
        for (index, column) in self.columns().iter().enumerate() {
            let stem = match key(&column.name) {
                key if key.is_empty() => format!("column{}", index + 1),
                key => key,
            };
            let mut key = stem.clone();
            let mut number = 2;
            while !keys.insert(key.clone()) {
                key = format!("{stem}{number}");
                number += 1;
            }
            let is_secret = is_secret(&column.name);
            let is_scope = column.name == organization.name
                || self.deleted_at().is_some_and(|mark| mark.name == column.name);
            let unasked = if is_scope {
                Some("The same in every row of an export, so only exported when asked for.")
            } else if exported == fixed::COLUMNS_PER_EXPORT {
                Some("One export has at most 200 columns, so this is only exported when asked for.")
            } else {
                exported += usize::from(!is_secret);
                None
            };
            entries.push(Entry { column, key, is_secret, unasked });
        }
        if exported == 0 {
            let first = entries.iter_mut().find(|entry| !entry.is_secret);
            first.ok_or("it has no column that may be exported")?.unasked = None;
        }
        Ok(entries)
    }

    fn head(&self, entries: &[Entry<'_>]) -> String {
        let table = self.table.join(".");
        let connection = self.connection;
        let mut text = format!(
            "# Written by `outport resource init` from {} of the connection '{}'. What stands here may\n\
             # be exported and nothing else, so read it before you use it.\n\n\
             name = {}\nconnection = {}\n",
            plain(&table),
            plain(connection),
            quoted(self.name),
            quoted(connection),
        );
        if self.table.iter().any(|part| part.contains('.')) {
            // The dot of `from` divides schema and table.
            line(&mut text, "query", &quoted(&format!("SELECT * FROM {}", self.described.sql)));
        } else {
            line(&mut text, "from", &quoted(&table));
        }
        line(&mut text, "keyStem", &quoted(self.name));
        let keys: Option<Vec<String>> = self
            .described
            .primary_key
            .iter()
            .map(|name| {
                let mut own = entries.iter().filter(|entry| !entry.is_secret);
                own.find(|entry| entry.column.name == *name).map(|entry| quoted(&entry.key))
            })
            .collect();
        if let Some(keys) = keys.filter(|keys| !keys.is_empty()) {
            text.push_str(
                "# The primary key, so that equal rows give equal files. Without an order, large tables\n\
                 # are read faster.\n",
            );
            line(&mut text, "sort", &format!("[{}]", keys.join(", ")));
        }
        text
    }

    fn deleted_at(&self) -> Option<&RealColumn> {
        self.called(DELETED_AT).filter(|column| column.nullable)
    }

    fn scope(&self, organization: &RealColumn, text: &mut String) {
        text.push_str("\n# Whose rows they are. Nobody gets those of others, whatever a request says.\n[scope]\n");
        line(text, "organization", &quoted(&organization.name));
        for (member, names) in [("company", COMPANY), ("cooperative", COOPERATIVE)] {
            match self.called(names).filter(|column| column.name != organization.name) {
                Some(column) if holds_ids(column) => line(text, member, &quoted(&column.name)),
                Some(column) => {
                    let RealColumn { name, type_name, .. } = column;
                    comment(text, &format!("{member}: '{name}' is {type_name}, and ids are UUIDs"));
                }
                None => {}
            }
        }
        if let Some(column) = self.deleted_at() {
            line(text, "deletedAt", &quoted(&column.name));
        } else if let Some(RealColumn { name, .. }) = self.called(DELETED_AT) {
            let why = "it is never NULL, and every row would count as deleted";
            comment(text, &format!("deletedAt: not '{name}', because {why}"));
        } else if let Some(RealColumn { name, .. }) = self.called(IS_DELETED) {
            comment(
                text,
                "deletedAt is for a column that is NULL while a row is there. To leave rows",
            );
            comment(text, &format!("out by '{name}', declare a query instead of from."));
        }
    }

    fn column(&self, entry: &Entry<'_>, text: &mut String) {
        let Entry { column, key, is_secret, unasked } = entry;
        text.push('\n');
        if *is_secret {
            let why = "Left out, because by its name it is a secret. requiresScope would guard it.";
            comment(text, why);
        }
        if let Some(why) = unasked.filter(|_| !is_secret) {
            comment(text, why);
        }
        let mut lines = "[[columns]]\n".to_owned();
        line(&mut lines, "key", &quoted(key));
        if column.name != *key {
            line(&mut lines, "source", &quoted(&column.name));
        }
        let label = label(&column.name);
        if !label.is_empty() {
            line(&mut lines, "label", &format!("{{ en = {} }}", quoted(&label)));
        }
        let declared = quoted(column.best().name());
        line(&mut lines, "type", &format!("{declared} # {}", plain(&self.remark(column))));
        if let Some(digits) = column.digits {
            line(&mut lines, "precision", &digits.precision.to_string());
            line(&mut lines, "scale", &digits.scale.to_string());
        }
        if unasked.is_some() {
            line(&mut lines, "default", "false");
        }
        for line in lines.lines() {
            let mark = if *is_secret { "# " } else { "" };
            text.push_str(mark);
            text.push_str(line);
            text.push('\n');
        }
    }

    /// What the database says of a column.
    fn remark(&self, column: &RealColumn) -> String {
        let mut remark = match column.type_name.chars().count() {
            0 => "no declared type".to_owned(),
            1..=TYPE_CHARS => column.type_name.clone(),
            _ => column.type_name.chars().take(TYPE_CHARS).chain(['…']).collect(),
        };
        if !column.nullable {
            remark.push_str(", not null");
        }
        if self.described.primary_key.contains(&column.name) {
            remark.push_str(", primary key");
        }
        if column.suits == [ColumnType::Text] {
            remark.push_str("; exported as the text that the database prints");
        }
        remark
    }
}

/// Whether a column could hold UUIDs by its type.
fn holds_ids(column: &RealColumn) -> bool {
    matches!(column.best(), ColumnType::Uuid | ColumnType::Text | ColumnType::Binary)
        && column.suits.contains(&ColumnType::Uuid)
}

fn listed(names: &[&str]) -> String {
    const MOST: usize = 10;
    let shown = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST { format!("{shown}, …") } else { shown }
}

fn line(text: &mut String, member: &str, value: &str) {
    writeln!(text, "{member} = {value}").expect("a string takes all");
}

fn comment(text: &mut String, says: &str) {
    writeln!(text, "# {}", plain(says)).expect("a string takes all");
}

/// A text that stays on its line of a comment, and moves no terminal.
fn plain(text: &str) -> String {
    text.replace(terminal::is_acted_on, " ")
}

/// A text as a string of TOML, on one line: JSON's escapes are TOML's.
fn quoted(text: &str) -> String {
    terminal::json(&serde_json::Value::from(text).to_string())
}
