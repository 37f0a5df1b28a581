//! The conditions of a data request. They mean what they mean in SQL: a NULL passes none of them.

use serde_json::value::RawValue;

use crate::{
    column::ColumnType,
    filter::{self, Operand, Wrong, operand},
    json::{FieldCode, FieldErrors, JsonType, array, join, object, string, type_of},
    limits::fixed,
    selection::{ColumnRef, Place, Predicate, Test, Value},
};

/// The operators of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the contract's and say what they do")]
pub enum Operator {
    Eq,
    Gt,
    Gte,
    Lt,
    Lte,
    Between,
    In,
    Nin,
    Ne,
    Like,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Eq,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::Between,
        Self::In,
        Self::Nin,
        Self::Ne,
        Self::Like,
    ];

    /// The name in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::Between => "between",
            Self::In => "in",
            Self::Nin => "nin",
            Self::Ne => "ne",
            Self::Like => "like",
        }
    }

    /// How many values it takes, as a rule; `None` when at least one.
    const fn values(self) -> Option<usize> {
        match self {
            Self::Gt | Self::Gte | Self::Lt | Self::Lte | Self::Like => Some(1),
            Self::Between => Some(2),
            Self::Eq | Self::In | Self::Nin | Self::Ne => None,
        }
    }

    /// The operator of our own filters that suits the same columns.
    const fn own(self) -> filter::Operator {
        match self {
            Self::Eq | Self::In | Self::Nin | Self::Ne => filter::Operator::In,
            Self::Gt | Self::Gte | Self::Lt | Self::Lte | Self::Between => filter::Operator::Gt,
            Self::Like => filter::Operator::Contains,
        }
    }

    fn suits(self, column_type: ColumnType) -> bool {
        // Equal floats are asked for as a range of one value.
        let floats = matches!(self, Self::Eq | Self::In | Self::Nin | Self::Ne)
            && column_type == ColumnType::Float;
        floats || self.own().suits(column_type)
    }
}

/// One operator with its values, not yet read as those of a column.
#[derive(Debug)]
pub struct Condition {
    operator: Operator,
    values: Vec<Box<RawValue>>,
}

/// The conditions of one field.
pub fn conditions(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Vec<Condition> {
    let Some(members) = object(raw, path, None, errors) else { return Vec::new() };
    if members.is_empty() {
        errors.push(path, FieldCode::Required, "must name an operator");
    }
    members.into_iter().filter_map(|(name, raw)| condition(&name, raw, path, errors)).collect()
}

fn condition(
    name: &str,
    raw: &RawValue,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<Condition> {
    let path = join(path, name);
    let Some(operator) = Operator::ALL.into_iter().find(|operator| operator.name() == name) else {
        let names = Operator::ALL.map(Operator::name).join(", ");
        errors.push(path, FieldCode::UnknownOperator, format!("must be one of {names}"));
        return None;
    };
    let elements = array(raw, &path, errors)?;
    let fits = operator.values().map_or(!elements.is_empty(), |many| elements.len() == many);
    if !fits {
        let rule = match operator.values() {
            None => "must have at least one value".to_owned(),
            Some(1) => "must have exactly one value".to_owned(),
            Some(many) => format!("must have exactly {many} values"),
        };
        errors.push(path, FieldCode::InvalidValue, rule);
        return None;
    }
    if elements.len() > fixed::VALUES_PER_LIST {
        let rule = format!("has more than {} values", fixed::VALUES_PER_LIST);
        errors.push(path, FieldCode::LimitExceeded, rule);
        return None;
    }
    Some(Condition { operator, values: elements.into_iter().map(ToOwned::to_owned).collect() })
}

impl Condition {
    /// The test of a column. What does not fit its type is told under `path`, the column's.
    pub fn predicate(
        &self,
        column: &ColumnRef,
        path: &str,
        errors: &mut FieldErrors,
    ) -> Option<Predicate> {
        let path = join(path, self.operator.name());
        if !self.operator.suits(column.column_type) {
            let rule = format!("does not suit a column of type {}", column.column_type.name());
            errors.push(path, FieldCode::UnknownOperator, rule);
            return None;
        }
        let plain = |test| Predicate::Column { column: column.clone(), test, negated: false };
        if self.operator == Operator::Like {
            let pattern = string(&self.values[0], &format!("{path}[0]"), errors)?;
            let Some(test) = like(&pattern) else {
                let rule = "must be a text with % at its start, its end or both, and no other \
                            wildcard; \\ makes one literal";
                errors.push(format!("{path}[0]"), FieldCode::NotSupported, rule);
                return None;
            };
            return Some(plain(test));
        }
        let mut operands = Vec::with_capacity(self.values.len());
        for (index, value) in self.values.iter().enumerate() {
            operands.push(read(value, column, &format!("{path}[{index}]"), errors));
        }
        // All of them were read, so that all that is wrong is told.
        let mut operands = operands.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
        let first = operands.next()?;
        Some(match self.operator {
            Operator::Gt => plain(first.above(false)),
            Operator::Gte => plain(first.above(true)),
            Operator::Lt => plain(first.below(false)),
            Operator::Lte => plain(first.below(true)),
            Operator::Between => {
                let to = operands.next()?.range(false, true);
                Predicate::All(vec![plain(first.range(true, false)), plain(to)])
            }
            Operator::Eq | Operator::In | Operator::Like => {
                equal(column, [first].into_iter().chain(operands), false)
            }
            Operator::Ne | Operator::Nin => {
                equal(column, [first].into_iter().chain(operands), true)
            }
        })
    }
}

/// Whether a column has one of the values, or, negated, has a value that is none of them.
fn equal(column: &ColumnRef, operands: impl Iterator<Item = Operand>, negated: bool) -> Predicate {
    let test = |test| Predicate::Column { column: column.clone(), test, negated };
    let mut exact = Vec::new();
    let mut parts = Vec::new();
    for operand in operands {
        match operand {
            Operand::Exact(value) if column.column_type != ColumnType::Float => exact.push(value),
            other => parts.push(test(other.range(true, true))),
        }
    }
    match exact.len() {
        0 => {}
        1 => parts.extend(exact.pop().map(|value| test(Test::Equal(value)))),
        _ => parts.push(test(Test::In(exact))),
    }
    if !negated {
        return Predicate::Any(parts);
    }
    // Our own negated tests let NULL pass; SQL's do not.
    parts.push(test(Test::Null));
    Predicate::All(parts)
}

fn read(
    raw: &RawValue,
    column: &ColumnRef,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<Operand> {
    if type_of(raw) == JsonType::Null {
        errors.push(path, FieldCode::InvalidValue, "must be a value; NULL passes no condition");
        return None;
    }
    // MySQL's BOOLEAN is a number to those who ask for it.
    let number = match raw.get() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    if let Some(value) = number.filter(|_| column.column_type == ColumnType::Boolean) {
        return Some(Operand::Exact(Value::Boolean(value)));
    }
    let (code, expected) = match operand(raw, column.column_type, chrono_tz::UTC) {
        Ok(operand) => return Some(operand),
        Err(Wrong::Type(expected)) => (FieldCode::InvalidType, expected),
        Err(Wrong::Value(expected)) => (FieldCode::InvalidValue, expected),
    };
    errors.push(path, code, format!("must be {expected}"));
    None
}

/// A pattern of SQL as a test; `None` where it is more than a text with something before or
/// after it.
fn like(pattern: &str) -> Option<Test> {
    let mut text = String::with_capacity(pattern.len());
    let (mut before, mut after) = (false, false);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' if text.is_empty() => before = true,
            '%' => after = true,
            // Something follows what may only be at the end.
            _ if after => return None,
            '_' => return None,
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
    let (place, text) = match (before, after) {
        // Whatever has a text.
        (true, _) if text.is_empty() => return Some(Test::Range { from: None, to: None }),
        (false, false) => return Some(Test::Equal(Value::Text(text))),
        (true, true) => (Place::Anywhere, text),
        (true, false) => (Place::End, text),
        (false, true) => (Place::Start, text),
    };
    Some(Test::Like { place, text, ignore_case: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_texts_with_something_around_them() {
        let found = |place, text: &str| {
            Some(Test::Like { place, text: text.to_owned(), ignore_case: false })
        };
        for (pattern, expected) in [
            ("%a%", found(Place::Anywhere, "a")),
            ("a%", found(Place::Start, "a")),
            ("%%a", found(Place::End, "a")),
            ("5\\%", Some(Test::Equal(Value::Text("5%".to_owned())))),
            ("%5\\_%", found(Place::Anywhere, "5_")),
            ("", Some(Test::Equal(Value::Text(String::new())))),
            ("%", Some(Test::Range { from: None, to: None })),
            ("a%b", None),
            ("a_", None),
            ("a\\", None),
        ] {
            assert_eq!(like(pattern), expected, "{pattern}");
        }
    }
}
