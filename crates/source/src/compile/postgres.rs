//! PostgreSQL. COPY takes no parameters, so values are put into settings of the transaction,
//! `outport.p1` and on, by a prepared statement, and the query reads them back with
//! `current_setting`, each in a sub-select of its own: ordinary indexes are used, and what an
//! index does not decide costs no reading and casting of the setting for each row (measured:
//! that tripled the time of a whole table). Where the planner needs a constant (booleans, enum
//! labels, prefix patterns), [`literal`] renders one.
//!
//! Where the server's encoding lacks a character of a filter's text, no row has that text, and
//! order is that of the characters' numbers.
//!
//! A value is cast to suit the column's *real* type, so that the column itself is left alone
//! and its indexes apply; only a column whose real type cannot be compared so is cast.

mod operand;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use outport_domain::{
    column::ColumnType,
    failure::FailureCode,
    selection::{ColumnRef, Place, Value},
};

use super::{Comparison, Dialect, not_comparable, qualified};
use crate::SourceError;
use operand::{Operand, constants, operand};

/// What a column is in the database itself, domains looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RealType {
    /// Its name as SQL writes it.
    pub(crate) name: String,
    pub(crate) family: Family,
}

/// Types that are compared alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `text` and `varchar`, which know LIKE.
    Text,
    /// Further types of text, such as `char(n)`, `name` and `citext`.
    OtherText,
    Enum {
        labels: Vec<String>,
    },
    Integer,
    Numeric,
    Float4,
    Float8,
    Money,
    Boolean,
    Date,
    LocalTimestamp,
    Timestamp,
    Time,
    ZonedTime,
    Uuid,
    /// Arrays and composites.
    Nested,
    Other,
}

/// Compiles for one relation, whose columns' real types are known.
pub(crate) struct Postgres {
    types: HashMap<Arc<str>, RealType>,
    /// By column: the server's own function that prints it.
    printed_with: HashMap<Arc<str>, &'static str>,
    /// Characters that the server's encoding does not have.
    lacking: HashSet<char>,
    /// Whether values are constants of the statement.
    shows_values: bool,
    /// The values of `outport.p1` and on.
    pub(crate) parameters: Vec<String>,
}

impl Postgres {
    pub(crate) fn new(types: HashMap<Arc<str>, RealType>) -> Self {
        Self {
            types,
            printed_with: HashMap::new(),
            lacking: HashSet::new(),
            shows_values: false,
            parameters: Vec::new(),
        }
    }

    /// Compiles for the planner's eyes alone: its estimates need the values themselves.
    pub(crate) fn for_the_planner(&self) -> Self {
        let lacking = self.lacking.clone();
        Self { lacking, shows_values: true, ..Self::new(self.types.clone()) }
    }

    /// The server's encoding does not have these characters.
    pub(crate) fn lacks(&mut self, characters: HashSet<char>) {
        self.lacking = characters;
    }

    /// Whether a text can be sent to the server at all.
    fn fits(&self, text: &str) -> bool {
        self.lacking.is_empty() || !text.chars().any(|c| self.lacking.contains(&c))
    }

    /// Lets these functions make text of these columns' cells, as the text form of COPY would.
    pub(crate) fn print_with(&mut self, functions: HashMap<Arc<str>, &'static str>) {
        self.printed_with = functions;
    }

    fn real_type(&self, column: &ColumnRef) -> Result<RealType, SourceError> {
        self.types.get(&column.name).cloned().ok_or_else(|| {
            let message = format!("the source has no column '{}'", column.name);
            SourceError::new(FailureCode::SchemaMismatch, message)
        })
    }

    fn bind(&mut self, value: String) -> String {
        self.parameters.push(value);
        format!("current_setting('outport.p{}')", self.parameters.len())
    }

    /// A value as an expression of a type.
    fn value(&mut self, value: String, cast: &str) -> Result<String, SourceError> {
        Ok(if self.shows_values {
            format!("{}::{cast}", literal(&value)?)
        } else {
            format!("(SELECT {}::{cast})", self.bind(value))
        })
    }

    fn operand(&self, column: &ColumnRef, values: &[Value]) -> Result<Operand, SourceError> {
        let real = self.real_type(column)?;
        operand(&qualified(&column.name), &real, values)
            .ok_or_else(|| not_comparable(column, &real.name))
    }
}

impl Dialect for Postgres {
    fn cell(&self, column: &ColumnRef) -> String {
        let name = qualified(&column.name);
        let nested = self.types.get(&column.name).is_some_and(|real| real.family == Family::Nested);
        if nested && column.column_type == ColumnType::Json {
            return format!("to_json({name})");
        }
        match self.printed_with.get(&column.name) {
            Some(function) => format!("pg_catalog.textin(pg_catalog.{function}({name}))"),
            None => name,
        }
    }

    fn null(&self, column: &ColumnRef, negated: bool) -> String {
        let name = qualified(&column.name);
        let nested = self.types.get(&column.name).is_some_and(|real| real.family == Family::Nested);
        match (nested, negated) {
            // A composite `IS NULL` when all of its fields are, and `IS NOT NULL` when none is.
            (true, false) => format!("{name} IS NOT DISTINCT FROM NULL"),
            (true, true) => format!("{name} IS DISTINCT FROM NULL"),
            (false, false) => format!("{name} IS NULL"),
            (false, true) => format!("{name} IS NOT NULL"),
        }
    }

    fn compare(
        &mut self,
        column: &ColumnRef,
        comparison: Comparison,
        value: &Value,
    ) -> Result<String, SourceError> {
        let real = self.real_type(column)?;
        if let Value::Text(text) = value
            && !self.fits(text)
        {
            if comparison == Comparison::Equal {
                return Ok("FALSE".to_owned());
            }
            let (name, sql) = (qualified(&column.name), comparison.sql());
            let hex = self.bind(hex(text));
            let name = operand::text(&name, &real);
            return Ok(format!("convert_to({name}, 'UTF8') {sql} (SELECT decode({hex}, 'hex'))"));
        }
        if let Some(constants) = constants(&real, std::slice::from_ref(value))
            && comparison == Comparison::Equal
        {
            // A label that the enum does not have is no error: no row has it.
            return Ok(constants.first().map_or_else(
                || "FALSE".to_owned(),
                |constant| format!("{} = {constant}", qualified(&column.name)),
            ));
        }
        let Operand { column, cast, mut values } =
            self.operand(column, std::slice::from_ref(value))?;
        let value = self.value(values.remove(0), &cast)?;
        Ok(format!("{column} {} {value}", comparison.sql()))
    }

    fn among(&mut self, column: &ColumnRef, values: &[Value]) -> Result<String, SourceError> {
        let real = self.real_type(column)?;
        let fits = |value: &Value| !matches!(value, Value::Text(text) if !self.fits(text));
        let values: Cow<'_, [Value]> = if values.iter().all(fits) {
            values.into()
        } else {
            values.iter().filter(|value| fits(value)).cloned().collect()
        };
        if values.is_empty() {
            return Ok("FALSE".to_owned());
        }
        if let Some(constants) = constants(&real, &values) {
            return Ok(if constants.is_empty() {
                "FALSE".to_owned()
            } else {
                format!("{} IN ({})", qualified(&column.name), constants.join(", "))
            });
        }
        let Operand { column, cast, values } = self.operand(column, &values)?;
        if self.shows_values {
            return Ok(format!("{column} = ANY ({}::{cast}[])", literal(&array(&values))?));
        }
        let value = self.bind(array(&values));
        // Not `= ANY (array)`: the array would be parsed again for each row that an index does
        // not decide.
        Ok(format!("{column} IN (SELECT unnest({value}::{cast}[]))"))
    }

    fn like(
        &mut self,
        column: &ColumnRef,
        place: Place,
        text: &str,
        ignore_case: bool,
    ) -> Result<String, SourceError> {
        let real = self.real_type(column)?;
        let mut name = qualified(&column.name);
        if real.family != Family::Text {
            name = operand::text(&name, &real);
        }
        // The case that the server does have is as good.
        let lower = (ignore_case && !self.fits(text)).then(|| text.to_lowercase());
        let text = lower.as_deref().unwrap_or(text);
        if !self.fits(text) {
            return Ok("FALSE".to_owned());
        }
        let escaped = escaped(text);
        let pattern = match place {
            Place::Anywhere => format!("%{escaped}%"),
            Place::Start => format!("{escaped}%"),
            Place::End => format!("%{escaped}"),
        };
        // Only a constant tells the planner that the pattern is a prefix.
        let pattern = if place == Place::Start && !ignore_case {
            literal(&pattern)?
        } else {
            self.value(pattern, "text")?
        };
        Ok(format!("{name} {} {pattern}", if ignore_case { "ILIKE" } else { "LIKE" }))
    }
}

/// A text as an SQL constant. The only place where a value becomes part of a statement.
///
/// Right whatever `standard_conforming_strings` says: a backslash makes it an escape string, in
/// which backslashes are doubled. The connection's encoding is UTF-8, in which no byte of a
/// longer character looks like a quote.
pub(crate) fn literal(text: &str) -> Result<String, SourceError> {
    if text.contains('\0') {
        let message = "a filter's text holds a NUL, which no text of the source can";
        return Err(SourceError::new(FailureCode::SourceQueryFailed, message));
    }
    let quoted = text.replace('\'', "''");
    Ok(if quoted.contains('\\') {
        // The space keeps the E from joining a word before it.
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    })
}

/// The hex digits of a text's bytes in UTF-8.
pub(crate) fn hex(text: &str) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digits = |byte: u8| [byte >> 4, byte & 0xf].map(|digit| DIGITS[usize::from(digit)]);
    text.bytes().flat_map(digits).collect()
}

/// A text that LIKE takes literally.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Values as an array's text.
fn array(values: &[String]) -> String {
    let mut text = String::from("{");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push('"');
        for c in value.chars() {
            if matches!(c, '"' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
        text.push('"');
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::{array, escaped, literal};

    #[test]
    fn a_literal_cannot_be_left_by_any_text() {
        let cases = [
            ("", "''"),
            ("plain", "'plain'"),
            ("it's", "'it''s'"),
            ("''", "''''''"),
            ("a\"b", "'a\"b'"),
            ("\\", " E'\\\\'"),
            ("\\'", " E'\\\\'''"),
            ("\\\\'; DROP TABLE t; --", " E'\\\\\\\\''; DROP TABLE t; --'"),
            ("$$ $1 :x ?", "'$$ $1 :x ?'"),
            ("line\nbreak\ttab", "'line\nbreak\ttab'"),
            ("\u{2019}\u{ff07}é", "'\u{2019}\u{ff07}é'"),
        ];
        for (text, expected) in cases {
            assert_eq!(literal(text).expect("no NUL"), expected, "{text:?}");
        }
        assert!(literal("a\0b").is_err());
    }

    /// Reads a literal back as PostgreSQL would, with the setting either way.
    fn read(sql: &str, standard_conforming: bool) -> Option<String> {
        let (escapes, body) = match sql.strip_prefix(" E'") {
            Some(body) => (true, body),
            None => (!standard_conforming, sql.strip_prefix('\'')?),
        };
        let mut text = String::new();
        let mut chars = body.chars();
        while let Some(c) = chars.next() {
            match c {
                '\'' => match chars.next() {
                    Some('\'') => text.push('\''),
                    None => return Some(text),
                    Some(_) => return None,
                },
                '\\' if escapes => match chars.next() {
                    Some('\\') => text.push('\\'),
                    _ => return None,
                },
                c => text.push(c),
            }
        }
        None
    }

    #[test]
    fn every_short_text_of_dangerous_characters_reads_back_the_same() {
        const DANGEROUS: [char; 7] = ['\'', '\\', '"', 'E', '%', ';', ' '];
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer: Vec<String> = texts
                .iter()
                .flat_map(|text| DANGEROUS.iter().map(move |c| format!("{text}{c}")))
                .collect();
            for text in &longer {
                let sql = literal(text).expect("no NUL");
                for standard_conforming in [true, false] {
                    assert_eq!(read(&sql, standard_conforming).as_ref(), Some(text), "{sql}");
                }
            }
            texts = longer;
        }
    }

    #[test]
    fn wildcards_of_the_text_are_literal() {
        assert_eq!(escaped(r"50%_\"), r"50\%\_\\");
    }

    #[test]
    fn an_array_keeps_quotes_commas_and_the_word_null() {
        let values = [r#"a"b"#, r"c\d", "e,f", "NULL", "", "{}"].map(str::to_owned);
        assert_eq!(array(&values), r#"{"a\"b","c\\d","e,f","NULL","","{}"}"#);
    }
}
