//! A request's filters, parsed against the declared columns (rules 24 to 30).
//!
//! Relative operators (`IN_LAST` and its kin) are not read yet; they are refused by name.

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    column::ColumnType,
    json::{self, FieldCode, FieldErrors, JsonType, array, join, object, string, type_of},
    limits::fixed,
    resource::{Column, Resource},
    selection::{Bound, Place, Predicate, Test, Value},
};

/// The operators of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the contract's and say what they do")]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    Between,
    NotBetween,
    In,
    NotIn,
    Contains,
    NotContains,
    StartsWith,
    EndsWith,
    IsNull,
    IsNotNull,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::Between,
        Self::NotBetween,
        Self::In,
        Self::NotIn,
        Self::Contains,
        Self::NotContains,
        Self::StartsWith,
        Self::EndsWith,
        Self::IsNull,
        Self::IsNotNull,
    ];

    /// The name in requests, e.g. `NOT_BETWEEN`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eq => "EQ",
            Self::Ne => "NE",
            Self::Gt => "GT",
            Self::Gte => "GTE",
            Self::Lt => "LT",
            Self::Lte => "LTE",
            Self::Between => "BETWEEN",
            Self::NotBetween => "NOT_BETWEEN",
            Self::In => "IN",
            Self::NotIn => "NOT_IN",
            Self::Contains => "CONTAINS",
            Self::NotContains => "NOT_CONTAINS",
            Self::StartsWith => "STARTS_WITH",
            Self::EndsWith => "ENDS_WITH",
            Self::IsNull => "IS_NULL",
            Self::IsNotNull => "IS_NOT_NULL",
        }
    }

    /// Whether a column of this type may be tested so.
    pub const fn suits(self, column_type: ColumnType) -> bool {
        match self {
            Self::IsNull | Self::IsNotNull => true,
            Self::Eq | Self::Ne | Self::In | Self::NotIn => {
                !matches!(column_type, ColumnType::Json | ColumnType::Binary | ColumnType::Float)
            }
            Self::Gt | Self::Gte | Self::Lt | Self::Lte | Self::Between | Self::NotBetween => {
                !matches!(
                    column_type,
                    ColumnType::Json | ColumnType::Binary | ColumnType::Boolean | ColumnType::Uuid
                )
            }
            Self::Contains | Self::NotContains | Self::StartsWith | Self::EndsWith => {
                matches!(column_type, ColumnType::Text)
            }
        }
    }

    const fn negated(self) -> bool {
        matches!(
            self,
            Self::Ne | Self::NotBetween | Self::NotIn | Self::NotContains | Self::IsNotNull
        )
    }
}

/// Parses the `filters` member. Everything wrong is noted under its path; the predicate is only
/// meaningful when nothing was.
pub fn parse(
    raw: &RawValue,
    resource: &Resource,
    visible: &dyn Fn(&Column) -> bool,
    zone: Tz,
    errors: &mut FieldErrors,
) -> Predicate {
    let mut parser = Parser { resource, visible, zone, errors, conditions: 0 };
    let predicate = parser.group(raw, "filters", true);
    if parser.conditions > fixed::CONDITIONS_PER_EXPORT {
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
    visible: &'a dyn Fn(&Column) -> bool,
    zone: Tz,
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
            Some(column) if (self.visible)(column) => Some(column.clone()),
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
        match operand(raw, column.column_type, self.zone) {
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

/// One value of a condition: as it is, or a day that stands for all its instants.
enum Operand {
    Exact(Value),
    Day { start: Value, next: Value },
}

impl Operand {
    fn range(self, from: bool, to: bool) -> Test {
        let bound = |value, inclusive| Some(Bound { value, inclusive });
        match self {
            Self::Exact(value) => Test::Range {
                from: if from { bound(value.clone(), true) } else { None },
                to: if to { bound(value, true) } else { None },
            },
            Self::Day { start, next } => Test::Range {
                from: if from { bound(start, true) } else { None },
                to: if to { bound(next, false) } else { None },
            },
        }
    }

    /// `>=` when `own` is in, `>` when it is not: after a day means from the next day on.
    fn above(self, own: bool) -> Test {
        let (value, inclusive) = match self {
            Self::Exact(value) => (value, own),
            Self::Day { start, next } => (if own { start } else { next }, true),
        };
        Test::Range { from: Some(Bound { value, inclusive }), to: None }
    }

    /// `<=` when `own` is in, `<` when it is not: up to a day means to its end.
    fn below(self, own: bool) -> Test {
        let (value, inclusive) = match self {
            Self::Exact(value) => (value, own),
            Self::Day { start, next } => (if own { next } else { start }, false),
        };
        Test::Range { from: None, to: Some(Bound { value, inclusive }) }
    }
}

enum Wrong {
    Type(&'static str),
    Value(&'static str),
}

fn operand(raw: &RawValue, column_type: ColumnType, zone: Tz) -> Result<Operand, Wrong> {
    let text = match type_of(raw) {
        JsonType::String => {
            let text: String =
                serde_json::from_str(raw.get()).map_err(|_| Wrong::Type("a string"))?;
            if text.contains('\0') {
                return Err(Wrong::Value("free of the NUL character"));
            }
            Some(text)
        }
        JsonType::Null => return Err(Wrong::Value("a value; IS_NULL tests for NULL")),
        _ => None,
    };
    let number = (type_of(raw) == JsonType::Number).then(|| raw.get());
    let exact = |value| Ok(Operand::Exact(value));
    match column_type {
        ColumnType::Text => exact(Value::Text(text.ok_or(Wrong::Type("a string"))?)),
        ColumnType::Integer => {
            let digits = number
                .or(text.as_deref())
                .ok_or(Wrong::Type("a whole number, or one as a string"))?;
            exact(Value::Integer(
                whole_number(digits)
                    .ok_or(Wrong::Value("a whole number of at most 1,000 digits"))?,
            ))
        }
        ColumnType::Decimal | ColumnType::Float => {
            let digits =
                number.or(text.as_deref()).ok_or(Wrong::Type("a number, or one as a string"))?;
            exact(Value::Decimal(
                decimal_number(digits)
                    .ok_or(Wrong::Value("a decimal number of at most 1,000 digits"))?,
            ))
        }
        ColumnType::Boolean => exact(Value::Boolean(
            serde_json::from_str(raw.get()).map_err(|_| Wrong::Type("true or false"))?,
        )),
        ColumnType::Uuid => {
            let text = text.ok_or(Wrong::Type("a UUID string"))?;
            let uuid = Uuid::try_parse(&text).ok().filter(|_| text.len() == 36);
            exact(Value::Uuid(uuid.ok_or(Wrong::Value("a UUID in its hyphenated form"))?))
        }
        ColumnType::Date => {
            let day = text.as_deref().ok_or(Wrong::Type("a day as a string"))?;
            exact(Value::Date(parse_day(day).ok_or(Wrong::Value("a day such as 2026-07-01"))?))
        }
        ColumnType::Time => {
            let time = text.as_deref().ok_or(Wrong::Type("a time of day as a string"))?;
            let parsed = NaiveTime::parse_from_str(time, "%H:%M:%S%.f")
                .or_else(|_| NaiveTime::parse_from_str(time, "%H:%M"));
            exact(Value::Time(parsed.map_err(|_| Wrong::Value("a time such as 13:45:00"))?))
        }
        ColumnType::LocalTimestamp => {
            let text = text.as_deref().ok_or(Wrong::Type("a day or a time stamp as a string"))?;
            if let Some(day) = parse_day(text) {
                let next = day
                    .checked_add_days(Days::new(1))
                    .ok_or(Wrong::Value("a day that has a next one"))?;
                return Ok(Operand::Day {
                    start: Value::LocalTimestamp(day.and_time(NaiveTime::MIN)),
                    next: Value::LocalTimestamp(next.and_time(NaiveTime::MIN)),
                });
            }
            exact(Value::LocalTimestamp(parse_local(text).ok_or(Wrong::Value(
                "a day, or a time stamp without a zone such as 2026-07-01T13:45:00",
            ))?))
        }
        ColumnType::Timestamp => {
            let text = text.as_deref().ok_or(Wrong::Type("a day or an instant as a string"))?;
            if let Some(day) = parse_day(text) {
                let next = day
                    .checked_add_days(Days::new(1))
                    .ok_or(Wrong::Value("a day that has a next one"))?;
                return Ok(Operand::Day {
                    start: Value::Timestamp(day_start(day, zone)),
                    next: Value::Timestamp(day_start(next, zone)),
                });
            }
            let instant = DateTime::parse_from_rfc3339(text).map_err(|_| {
                Wrong::Value("a day, or an instant with a zone such as 2026-07-01T13:45:00Z")
            })?;
            exact(Value::Timestamp(instant.with_timezone(&Utc)))
        }
        ColumnType::Json | ColumnType::Binary => {
            Err(Wrong::Value("absent: this type has no values to compare"))
        }
    }
}

/// The first valid instant of a day in a zone: where midnight is skipped, the day starts later;
/// where it comes twice, with the earlier one.
pub fn day_start(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    let midnight = day.and_time(NaiveTime::MIN);
    let mut local = midnight;
    // Gaps are at most some hours long, but for days skipped whole (Samoa, 2011-12-30).
    for _ in 0..=(26 * 60) {
        if let Some(instant) = zone.from_local_datetime(&local).earliest() {
            return instant.with_timezone(&Utc);
        }
        local += chrono::TimeDelta::minutes(1);
    }
    Utc.from_utc_datetime(&midnight)
}

fn parse_day(text: &str) -> Option<NaiveDate> {
    (text.len() == 10).then(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()).flatten()
}

fn parse_local(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M"]
        .into_iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
}

const MOST_DIGITS: usize = 1_000;

fn whole_number(text: &str) -> Option<String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let valid = (1..=MOST_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.to_owned())
}

fn decimal_number(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        unsigned.len() <= 4 && digits(unsigned)
    });
    let valid =
        text.len() <= MOST_DIGITS && digits(whole) && fraction.is_none_or(digits) && exponent_fits;
    valid.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).expect("an instant").with_timezone(&Utc)
    }

    fn day(text: &str) -> NaiveDate {
        parse_day(text).expect("a day")
    }

    #[test]
    fn a_day_starts_at_its_first_valid_instant() {
        let cases = [
            ("2026-07-01", Tz::America__Sao_Paulo, "2026-07-01T03:00:00Z"),
            // Midnight was skipped: the clock went from 23:59:59 to 01:00:00.
            ("2018-11-04", Tz::America__Sao_Paulo, "2018-11-04T03:00:00Z"),
            // Midnight came twice: the earlier one counts.
            ("2018-02-18", Tz::America__Sao_Paulo, "2018-02-18T03:00:00Z"),
            ("2026-03-29", Tz::Europe__Berlin, "2026-03-28T23:00:00Z"),
            // The whole day was skipped, so it starts where the next one does.
            ("2011-12-30", Tz::Pacific__Apia, "2011-12-30T10:00:00Z"),
        ];
        for (text, zone, expected) in cases {
            assert_eq!(day_start(day(text), zone), instant(expected), "{text} in {zone}");
        }
    }

    #[test]
    fn numbers_keep_every_digit_and_nothing_else_passes() {
        for good in ["0", "-1", "18446744073709551616", "000123"] {
            assert_eq!(whole_number(good).as_deref(), Some(good));
        }
        for bad in ["", "-", "1.0", "1e3", "+1", " 1", "1 ", "0x1", "١"] {
            assert_eq!(whole_number(bad), None, "{bad:?}");
        }
        for good in ["0.10", "-1.50e10", "1E-7", "12345678901234567890.12345678901234567890"] {
            assert_eq!(decimal_number(good).as_deref(), Some(good));
        }
        for bad in ["", ".", "1.", ".5", "NaN", "Infinity", "1e", "1e99999", "--1", "1;DROP"] {
            assert_eq!(decimal_number(bad), None, "{bad:?}");
        }
    }
}
