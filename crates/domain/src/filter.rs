//! A request's filters, parsed against the declared columns (rules 24 to 30).

mod operand;
mod operator;
mod relative;
mod resolved;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::value::RawValue;

use crate::{
    json::{self, FieldCode, FieldErrors, JsonType, array, join, object, string, type_of},
    limits::fixed,
    resource::{Column, Resource},
    selection::{Place, Predicate, Test},
};
pub use operand::day_start;
pub(crate) use operand::{Operand, Wrong, operand};
pub use operator::Operator;
use relative::Relative;
pub use resolved::resolved;

/// What filters are read against, besides the resource.
#[derive(Clone, Copy)]
pub struct FilterContext<'a> {
    /// Which columns the caller may read.
    pub visible: &'a dyn Fn(&Column) -> bool,
    /// The zone that days are days in.
    pub zone: Tz,
    /// What relative operators are relative to.
    pub now: DateTime<Utc>,
    /// Whether these are [`resolved`] filters of a request that was accepted: they may have more
    /// conditions than it had.
    pub resolved: bool,
}

/// Parses the `filters` member. Everything wrong is noted under its path; the predicate is only
/// meaningful when nothing was.
pub fn parse(
    raw: &RawValue,
    resource: &Resource,
    context: FilterContext<'_>,
    errors: &mut FieldErrors,
) -> Predicate {
    let mut parser = Parser { resource, context, errors, conditions: 0 };
    let predicate = parser.group(raw, "filters", true);
    if parser.conditions > fixed::CONDITIONS_PER_EXPORT && !context.resolved {
        errors.push(
            "filters",
            FieldCode::LimitExceeded,
            format!("has more than {} conditions", fixed::CONDITIONS_PER_EXPORT),
        );
    }
    predicate
}

struct Parser<'a> {
    resource: &'a Resource,
    context: FilterContext<'a>,
    errors: &'a mut FieldErrors,
    conditions: usize,
}

impl Parser<'_> {
    /// An object of column → condition(s), AND-ed; at the top level also `_or`.
    fn group(&mut self, raw: &RawValue, path: &str, top: bool) -> Predicate {
        let mut all = Vec::new();
        for (name, value) in object(raw, path, None, self.errors).unwrap_or_default() {
            let path = join(path, &name);
            if name == "_or" && top {
                all.push(self.alternatives(value, &path));
                continue;
            }
            let Some(column) = self.column(&name, &path) else { continue };
            if type_of(value) == JsonType::Array {
                let conditions = array(value, &path, self.errors).unwrap_or_default();
                if conditions.is_empty() {
                    self.errors.push(&path, FieldCode::InvalidValue, "must not be empty");
                }
                for (index, condition) in conditions.into_iter().enumerate() {
                    all.extend(self.condition(condition, &column, &format!("{path}[{index}]")));
                }
            } else {
                all.extend(self.condition(value, &column, &path));
            }
        }
        Predicate::All(all)
    }

    fn alternatives(&mut self, raw: &RawValue, path: &str) -> Predicate {
        let groups = array(raw, path, self.errors).unwrap_or_default();
        if groups.is_empty() {
            self.errors.push(path, FieldCode::InvalidValue, "must hold at least one alternative");
        }
        let mut any = Vec::with_capacity(groups.len());
        for (index, group) in groups.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            let group = self.group(group, &path, false);
            if group == Predicate::All(Vec::new()) && self.errors.is_empty() {
                // An empty alternative would silently mean "no filter".
                self.errors.push(path, FieldCode::InvalidValue, "must hold at least one condition");
            }
            any.push(group);
        }
        Predicate::Any(any)
    }

    fn column(&mut self, name: &str, path: &str) -> Option<Column> {
        match self.resource.column(name) {
            Some(column) if (self.context.visible)(column) => Some(column.clone()),
            Some(_) => {
                self.errors.push(
                    path,
                    FieldCode::ForbiddenColumn,
                    format!("column '{name}' may not be read"),
                );
                None
            }
            None => {
                self.errors.push(
                    path,
                    FieldCode::UnknownColumn,
                    format!("resource '{}' has no column '{name}'", self.resource.name),
                );
                None
            }
        }
    }

    fn condition(&mut self, raw: &RawValue, column: &Column, path: &str) -> Option<Predicate> {
        self.conditions += 1;
        let members = object(raw, path, Some(&["operator", "value", "ignoreCase"]), self.errors)?;
        let member =
            |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
        let Some(operator) = member("operator") else {
            self.errors.push(join(path, "operator"), FieldCode::Required, "is required");
            return None;
        };
        let operator = self.operator(operator, column, &join(path, "operator"))?;
        let ignore_case = match member("ignoreCase") {
            Some(raw) => {
                let path = join(path, "ignoreCase");
                if !matches!(
                    operator,
                    Operator::Contains
                        | Operator::NotContains
                        | Operator::StartsWith
                        | Operator::EndsWith
                ) {
                    self.errors.push(
                        path,
                        FieldCode::NotSupported,
                        "belongs to the operators on parts of a text",
                    );
                    return None;
                }
                json::boolean(raw, &path, self.errors)?
            }
            None => false,
        };
        let value_path = join(path, "value");
        let test = match (operator, member("value")) {
            (Operator::IsNull | Operator::IsNotNull, None) => Test::Null,
            (Operator::IsNull | Operator::IsNotNull, Some(raw))
                if type_of(raw) == JsonType::Null =>
            {
                Test::Null
            }
            (Operator::IsNull | Operator::IsNotNull, Some(_)) => {
                self.errors.push(
                    value_path,
                    FieldCode::InvalidValue,
                    "must be absent for this operator",
                );
                return None;
            }
            (_, None) => {
                self.errors.push(value_path, FieldCode::Required, "is required for this operator");
                return None;
            }
            (operator, Some(raw)) => self.test(operator, raw, column, ignore_case, &value_path)?,
        };
        Some(column_test(column, test, operator.negated()))
    }

    fn operator(&mut self, raw: &RawValue, column: &Column, path: &str) -> Option<Operator> {
        let name = string(raw, path, self.errors)?;
        let Some(operator) = Operator::ALL.into_iter().find(|operator| operator.name() == name)
        else {
            self.errors.push(path, FieldCode::UnknownOperator, "is not an operator");
            return None;
        };
        if !operator.suits(column.column_type) {
            self.errors.push(
                path,
                FieldCode::UnknownOperator,
                format!(
                    "does not apply to '{}', which is of type {}",
                    column.key,
                    column.column_type.name()
                ),
            );
            return None;
        }
        Some(operator)
    }

    fn test(
        &mut self,
        operator: Operator,
        raw: &RawValue,
        column: &Column,
        ignore_case: bool,
        path: &str,
    ) -> Option<Test> {
        match operator {
            Operator::Eq | Operator::Ne => {
                let operand = self.operand(raw, column, path)?;
                Some(match operand {
                    Operand::Exact(value) => Test::Equal(value),
                    Operand::Day { .. } => operand.range(true, true),
                })
            }
            Operator::Gt => Some(self.operand(raw, column, path)?.above(false)),
            Operator::Gte => Some(self.operand(raw, column, path)?.above(true)),
            Operator::Lt => Some(self.operand(raw, column, path)?.below(false)),
            Operator::Lte => Some(self.operand(raw, column, path)?.below(true)),
            Operator::Between | Operator::NotBetween => self.between(raw, column, path),
            Operator::In | Operator::NotIn => self.list(raw, column, path),
            Operator::Contains | Operator::NotContains => {
                self.like(raw, Place::Anywhere, ignore_case, path)
            }
            Operator::StartsWith => self.like(raw, Place::Start, ignore_case, path),
            Operator::EndsWith => self.like(raw, Place::End, ignore_case, path),
            Operator::IsNull | Operator::IsNotNull => Some(Test::Null),
            Operator::InLast | Operator::InNext | Operator::InCurrent | Operator::InPrevious => {
                let relative =
                    Relative::read(operator, column.column_type, raw, path, self.errors)?;
                let range = relative.range(column.column_type, self.context.now, self.context.zone);
                if range.is_none() {
                    let message = "reaches beyond the years 1 to 9999";
                    self.errors.push(path, FieldCode::InvalidValue, message);
                }
                range
            }
        }
    }

    fn between(&mut self, raw: &RawValue, column: &Column, path: &str) -> Option<Test> {
        let ends = array(raw, path, self.errors)?;
        let [from, to] = ends.as_slice() else {
            self.errors.push(
                path,
                FieldCode::InvalidValue,
                "must be an array of exactly two values",
            );
            return None;
        };
        let from = self.operand(from, column, &format!("{path}[0]"));
        let to = self.operand(to, column, &format!("{path}[1]"));
        let (Test::Range { from, .. }, Test::Range { to, .. }) =
            (from?.above(true), to?.below(true))
        else {
            return None;
        };
        Some(Test::Range { from, to })
    }

    fn list(&mut self, raw: &RawValue, column: &Column, path: &str) -> Option<Test> {
        let elements = array(raw, path, self.errors)?;
        if elements.is_empty() {
            self.errors.push(path, FieldCode::InvalidValue, "must not be an empty list");
            return None;
        }
        if elements.len() > fixed::VALUES_PER_LIST {
            self.errors.push(
                path,
                FieldCode::LimitExceeded,
                format!("has more than {} values", fixed::VALUES_PER_LIST),
            );
            return None;
        }
        let mut values = Vec::with_capacity(elements.len());
        for (index, element) in elements.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            match self.operand(element, column, &path) {
                Some(Operand::Exact(value)) => values.push(value),
                Some(Operand::Day { .. }) => {
                    self.errors.push(
                        path,
                        FieldCode::NotSupported,
                        "a list on a timestamp takes instants; use BETWEEN for days",
                    );
                }
                None => {}
            }
        }
        Some(Test::In(values))
    }

    fn like(
        &mut self,
        raw: &RawValue,
        place: Place,
        ignore_case: bool,
        path: &str,
    ) -> Option<Test> {
        let text = string(raw, path, self.errors)?;
        if text.is_empty() {
            self.errors.push(path, FieldCode::InvalidValue, "must not be an empty text");
            return None;
        }
        Some(Test::Like { place, text, ignore_case })
    }

    fn operand(&mut self, raw: &RawValue, column: &Column, path: &str) -> Option<Operand> {
        match operand(raw, column.column_type, self.context.zone) {
            Ok(operand) => Some(operand),
            Err(Wrong::Type(expected)) => {
                self.errors.push(path, FieldCode::InvalidType, format!("must be {expected}"));
                None
            }
            Err(Wrong::Value(expected)) => {
                self.errors.push(path, FieldCode::InvalidValue, format!("must be {expected}"));
                None
            }
        }
    }
}

fn column_test(column: &Column, test: Test, negated: bool) -> Predicate {
    Predicate::Column { column: column.reference(), test, negated }
}
