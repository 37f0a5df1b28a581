//! MySQL and MariaDB. The text protocol takes no parameters, so values are put into user
//! variables, `@outport_p1` and on, by a prepared statement, and the query reads them back,
//! each cast to suit the column's *real* type: the column itself is left alone and its indexes
//! apply.
//!
//! **Texts are equal when their characters are**, whatever the column's collation says of
//! case, accents and trailing spaces: a scope must not let another's rows pass. The same test
//! in the column's own collation stands beside the exact one, so that an index is used. Ranges
//! are the column's collation's, as its order is. LIKE is exact too; `ignore_case` compares
//! lower case, and accents still matter.

mod number;
mod operand;

use std::{collections::HashMap, sync::Arc};

use outport_domain::{
    failure::FailureCode,
    selection::{ColumnRef, Place, Value},
};

use super::{Comparison, Dialect, not_comparable, qualified_by};
use crate::SourceError;
use operand::{Constant, Operand, Placed, operand};

/// The collation that knows the most letters of those that MySQL and MariaDB have in common; the
/// usual ones do not even know `ẞ`. In UTF-32 both cases have the same length: in UTF-8, MySQL
/// cuts the end off a text that grows, as `Ⱥ` does.
const FOLDING: &str = "utf32_unicode_520_ci";

/// A character set with a character for each byte, of which those of ASCII alone have two cases.
const ASCII_FOLDING: &str = "tis620";

/// Digits that a DECIMAL has after the point: 30 in MySQL, which refuses more, 38 in MariaDB.
pub(crate) const LEAST_MOST_FRACTION: usize = 30;

/// What a column is in the database itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RealType {
    /// Its name as SQL writes it.
    pub(crate) name: String,
    pub(crate) family: Family,
}

/// Types that are compared and printed alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Texts, enums and sets; MariaDB's UUID and INET types, too, show themselves as texts.
    Text {
        charset: String,
        collation: String,
    },
    Binary,
    Integer,
    /// With the digits after the point that the server allows at most.
    Decimal {
        most_fraction: usize,
    },
    Float,
    Double,
    Bit,
    Year,
    Date,
    DateTime,
    /// An instant.
    Timestamp,
    Time,
    Geometry,
    /// MySQL's JSON, and what has no type, such as a bare NULL.
    Other,
}

/// Compiles for one relation, whose columns' real types are known.
pub(crate) struct MySql {
    types: HashMap<Arc<str>, RealType>,
    /// The values of `@outport_p1` and on.
    pub(crate) parameters: Vec<String>,
    /// Whether a filter has the server take bytes for texts: it warns of those that are none.
    pub(crate) converts_bytes: bool,
}

impl MySql {
    pub(crate) fn new(types: HashMap<Arc<str>, RealType>) -> Self {
        Self { types, parameters: Vec::new(), converts_bytes: false }
    }

    pub(crate) fn real_type(&self, column: &ColumnRef) -> Result<&RealType, SourceError> {
        self.types.get(&column.name).ok_or_else(|| {
            let message = format!("the source has no column '{}'", column.name);
            SourceError::new(FailureCode::SchemaMismatch, message)
        })
    }

    fn bind(&mut self, value: String) -> String {
        self.parameters.push(value);
        variable(self.parameters.len())
    }

    fn constant(&mut self, constant: Constant) -> String {
        let variable = self.bind(constant.text);
        constant.cast.replacen('?', &variable, 1)
    }

    fn operand(&self, column: &ColumnRef, values: &[Value]) -> Result<Operand, SourceError> {
        let real = self.real_type(column)?;
        operand(&name(column), &real.family, values)
            .ok_or_else(|| not_comparable(column, &real.name))
    }

    /// Equality of texts: in the column's own collation for the sake of its index, and exact.
    fn text_among(&mut self, column: &ColumnRef, texts: &[&str]) -> Result<String, SourceError> {
        let (column, family) = (name(column), self.real_type(column)?.family.clone());
        let variables: Vec<String> = texts.iter().map(|text| self.bind((*text).into())).collect();
        let list = |cast: &dyn Fn(&String) -> String| {
            variables.iter().map(cast).collect::<Vec<_>>().join(", ")
        };
        let bytes = list(&|variable| format!("CAST({variable} AS BINARY)"));
        if family == Family::Binary {
            return Ok(format!("{column} IN ({bytes})"));
        }
        let exact = format!("CAST({} AS BINARY) IN ({bytes})", utf8(&column, &family));
        Ok(match &family {
            Family::Text { charset, collation } if texts.iter().all(|text| fits(charset, text)) => {
                let own = list(&|variable| own(variable, charset, collation));
                format!("{column} IN ({own}) AND {exact}")
            }
            _ => exact,
        })
    }

    /// A UUID may be text in either case, or sixteen bytes.
    fn uuid_among(&mut self, column: &ColumnRef, values: &[Value]) -> Result<String, SourceError> {
        let real = self.real_type(column)?.clone();
        let (column, declared) = (name(column), column);
        let mut own_values = Vec::new();
        let mut exact = Vec::new();
        for value in values {
            let Value::Uuid(uuid) = value else {
                return Err(not_comparable(declared, &real.name));
            };
            let text = self.bind(uuid.to_string());
            match &real.family {
                Family::Text { charset, collation } => {
                    own_values.push(own(&text, charset, collation));
                    own_values.push(own(&format!("UPPER({text})"), charset, collation));
                    exact.push(format!("CAST({text} AS BINARY)"));
                }
                Family::Binary => {
                    let bytes = self.bind(uuid.simple().to_string());
                    own_values.push(format!("UNHEX({bytes})"));
                    own_values.push(format!("CAST({text} AS BINARY)"));
                }
                _ => return Err(not_comparable(declared, &real.name)),
            }
        }
        let own = format!("{column} IN ({})", own_values.join(", "));
        if exact.is_empty() {
            return Ok(own);
        }
        let (exact, lower) = (exact.join(", "), format!("LOWER({})", utf8(&column, &real.family)));
        // The second alone would do. Most rows pass the first, which costs the server little.
        Ok(format!(
            "{own} AND (CAST({column} AS BINARY) IN ({exact}) OR CAST({lower} AS BINARY) IN ({exact}))"
        ))
    }

    /// Any number but zero is true. The column itself is compared, for its index.
    fn truth_among(&self, column: &ColumnRef, values: &[Value]) -> Result<String, SourceError> {
        let real = self.real_type(column)?;
        if !matches!(real.family, Family::Integer | Family::Decimal { .. } | Family::Bit) {
            return Err(not_comparable(column, &real.name));
        }
        let has = |truth| values.contains(&Value::Boolean(truth));
        Ok(match (has(true), has(false)) {
            (true, true) => format!("{} IS NOT NULL", name(column)),
            (true, false) => format!("{} <> 0", name(column)),
            (false, _) => format!("{} = 0", name(column)),
        })
    }

    /// A range of texts, in the column's own collation where the bound can be written in its
    /// character set.
    fn text_compare(
        &mut self,
        column: &ColumnRef,
        comparison: Comparison,
        text: &str,
    ) -> Result<String, SourceError> {
        let (column, family) = (name(column), self.real_type(column)?.family.clone());
        let variable = self.bind(text.to_owned());
        let (left, right) = match &family {
            Family::Binary => (column, format!("CAST({variable} AS BINARY)")),
            Family::Text { charset, collation } if fits(charset, text) => {
                (column, own(&variable, charset, collation))
            }
            _ => (utf8(&column, &family), own(&variable, "utf8mb4", "utf8mb4_general_ci")),
        };
        Ok(format!("{left} {} {right}", comparison.sql()))
    }
}

impl Dialect for MySql {
    const QUOTE: char = '`';

    /// sqlx 0.9 takes a row whose first cell is of 16 MiB or more for the end of the result:
    /// the length of such a cell begins with the byte of an end packet.
    const MARK: Option<&'static str> = Some("1");

    fn cell(&self, column: &ColumnRef) -> String {
        match self.types.get(&column.name) {
            // The server prints six digits of a FLOAT, and all of a DOUBLE.
            Some(RealType { family: Family::Float, .. }) => format!("({} * 1e0)", name(column)),
            _ => name(column),
        }
    }

    fn compare(
        &mut self,
        column: &ColumnRef,
        comparison: Comparison,
        value: &Value,
    ) -> Result<String, SourceError> {
        match value {
            Value::Text(text) if comparison != Comparison::Equal => {
                return self.text_compare(column, comparison, text);
            }
            Value::Text(_) | Value::Uuid(_) | Value::Boolean(_) => {
                return self.among(column, std::slice::from_ref(value));
            }
            _ => {}
        }
        let Operand { column, mut values } = self.operand(column, std::slice::from_ref(value))?;
        let (constant, comparison) = match (values.remove(0), comparison) {
            (Placed::At(constant), comparison) => (constant, comparison),
            (Placed::Between { .. } | Placed::Above | Placed::Below, Comparison::Equal)
            | (Placed::Above, Comparison::Greater | Comparison::AtLeast)
            | (Placed::Below, Comparison::Less | Comparison::AtMost) => {
                return Ok("FALSE".to_owned());
            }
            (Placed::Above | Placed::Below, _) => return Ok(format!("{column} IS NOT NULL")),
            (Placed::Between { constant, above }, comparison) => {
                let comparison = match (above, comparison.has_floor()) {
                    (true, true) => Comparison::Greater,
                    (true, false) => Comparison::AtMost,
                    (false, true) => Comparison::AtLeast,
                    (false, false) => Comparison::Less,
                };
                (constant, comparison)
            }
        };
        let constant = self.constant(constant);
        Ok(format!("{column} {} {constant}", comparison.sql()))
    }

    fn among(&mut self, column: &ColumnRef, values: &[Value]) -> Result<String, SourceError> {
        match values.first() {
            Some(Value::Uuid(_)) => return self.uuid_among(column, values),
            Some(Value::Boolean(_)) => return self.truth_among(column, values),
            Some(Value::Text(_)) => {
                let texts: Option<Vec<&str>> = values.iter().map(plain_text).collect();
                let texts = texts.ok_or_else(|| not_comparable(column, "another"))?;
                return self.text_among(column, &texts);
            }
            _ => {}
        }
        let Operand { column, values } = self.operand(column, values)?;
        // Of both kinds in one list, MySQL reads the bits of some that have a sign as if they had
        // none, or the other way round.
        let (mut whole, mut decimal) = (Vec::new(), Vec::new());
        for placed in values {
            if let Placed::At(constant) = placed {
                let list = if constant.is_decimal() { &mut decimal } else { &mut whole };
                list.push(self.constant(constant));
            }
        }
        let lists = [whole, decimal].into_iter().filter(|list| !list.is_empty());
        let tests: Vec<_> =
            lists.map(|list| format!("{column} IN ({})", list.join(", "))).collect();
        Ok(if tests.is_empty() { "FALSE".to_owned() } else { tests.join(" OR ") })
    }

    fn like(
        &mut self,
        column: &ColumnRef,
        place: Place,
        text: &str,
        ignore_case: bool,
    ) -> Result<String, SourceError> {
        let (column, family) = (name(column), self.real_type(column)?.family.clone());
        let escaped = escaped(text);
        let pattern = self.bind(match place {
            Place::Anywhere => format!("%{escaped}%"),
            Place::Start => format!("{escaped}%"),
            Place::End => format!("%{escaped}"),
        });
        let mut left = utf8(&column, &family);
        let mut right = format!("CONVERT({pattern} USING utf8mb4)");
        if ignore_case {
            let folded = |text: &str| {
                let lower = format!("LOWER(CONVERT({text} USING utf32) COLLATE {FOLDING})");
                format!("CONVERT({lower} USING utf8mb4)")
            };
            (left, right) = (folded(&left), folded(&right));
        }
        let exact = format!("{left} LIKE {right} COLLATE utf8mb4_bin ESCAPE '!'");
        Ok(match &family {
            // Only a prefix in the column's own collation uses its index.
            Family::Text { charset, collation }
                if place == Place::Start && !ignore_case && fits(charset, text) =>
            {
                let own = own(&pattern, charset, collation);
                format!("{column} LIKE {own} ESCAPE '!' AND {exact}")
            }
            // Of bytes that are no text there is no text to compare; of those of UTF-8, what is in
            // one is in the other.
            Family::Binary if !ignore_case => {
                format!("{column} LIKE CAST({pattern} AS BINARY) ESCAPE '!'")
            }
            // What is no text as a whole is cut or changed when it is made one: of that, only the
            // letters of ASCII have two cases.
            Family::Binary => {
                self.converts_bytes = true;
                let folded = |bytes: &str| format!("LOWER(CONVERT({bytes} USING {ASCII_FOLDING}))");
                let (bytes, pattern) =
                    (folded(&column), folded(&format!("CAST({pattern} AS BINARY)")));
                format!(
                    "IF(CAST({} AS BINARY) = {column}, {exact}, \
                     {bytes} LIKE {pattern} COLLATE {ASCII_FOLDING}_bin ESCAPE '!')",
                    utf8(&column, &family)
                )
            }
            _ => exact,
        })
    }
}

/// The user variable of a parameter, counted from one.
pub(crate) fn variable(number: usize) -> String {
    format!("@outport_p{number}")
}

fn name(column: &ColumnRef) -> String {
    qualified_by(MySql::QUOTE, &column.name)
}

fn plain_text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

/// A column's text in UTF-8.
fn utf8(column: &str, family: &Family) -> String {
    match family {
        Family::Text { .. } | Family::Binary => format!("CONVERT({column} USING utf8mb4)"),
        // As it is printed.
        Family::Geometry => format!(r"CONVERT(CONCAT('\\x', LOWER(HEX({column}))) USING utf8mb4)"),
        _ => format!("CAST({column} AS CHAR CHARACTER SET utf8mb4)"),
    }
}

/// A text in the character set and collation of a column.
fn own(variable: &str, charset: &str, collation: &str) -> String {
    format!("CONVERT({variable} USING {charset}) COLLATE {collation}")
}

/// Whether a character set can surely hold a text.
fn fits(charset: &str, text: &str) -> bool {
    match charset {
        "utf8mb4" | "utf16" | "utf16le" | "utf32" => true,
        "utf8" | "utf8mb3" | "ucs2" => text.chars().all(|c| u32::from(c) <= 0xffff),
        _ => text.is_ascii(),
    }
}

/// A text that LIKE takes literally with `!` as its escape.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::{escaped, fits};

    #[test]
    fn wildcards_of_the_text_are_literal() {
        assert_eq!(escaped(r"50%_\!"), r"50!%!_\!!");
    }

    #[test]
    fn a_text_fits_where_no_character_is_lost() {
        assert!(fits("utf8mb4", "👍"));
        assert!(fits("utf8mb3", "€") && !fits("utf8mb3", "👍"));
        assert!(fits("latin1", "abc") && !fits("latin1", "€"));
    }
}
