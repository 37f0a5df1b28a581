//! Filters with what is relative to the moment of the request made absolute: each such condition
//! becomes the two that its range is made of.

use chrono::{DateTime, NaiveDateTime, Utc};
use chrono_tz::Tz;
use serde_json::value::RawValue;

use super::{operator::Operator, relative::Relative};
use crate::{
    json::{FieldErrors, JsonType, array, object, string, type_of},
    resource::{Column, Resource},
    selection::{Bound, Test, Value},
};

/// The `filters` member with every relative condition replaced by a `GTE` and an `LT`; all else
/// is as sent, digit for digit. `None` when nothing in it is relative.
///
/// For filters that were parsed without a fault; what is faulty stays as it is.
pub fn resolved(
    raw: &RawValue,
    resource: &Resource,
    now: DateTime<Utc>,
    zone: Tz,
) -> Option<String> {
    let mut resolver = Resolver { resource, now, zone, found: false };
    let text = resolver.group(raw, true);
    resolver.found.then_some(text)
}

struct Resolver<'a> {
    resource: &'a Resource,
    now: DateTime<Utc>,
    zone: Tz,
    found: bool,
}

impl Resolver<'_> {
    fn group(&mut self, raw: &RawValue, top: bool) -> String {
        let Some(members) = object(raw, "", None, &mut FieldErrors::default()) else {
            return raw.get().to_owned();
        };
        let members = members.into_iter().map(|(name, value)| {
            let text = if name == "_or" && top {
                list(elements(value).into_iter().map(|group| self.group(group, false)))
            } else {
                self.conditions(&name, value)
            };
            format!("{}:{text}", serde_json::Value::from(name))
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }

    fn conditions(&mut self, name: &str, raw: &RawValue) -> String {
        let Some(column) = self.resource.column(name) else { return raw.get().to_owned() };
        if type_of(raw) == JsonType::Array {
            let conditions = elements(raw).into_iter();
            let conditions =
                conditions.flat_map(|condition| match self.bounds(condition, column) {
                    Some(bounds) => bounds.to_vec(),
                    None => vec![condition.get().to_owned()],
                });
            return list(conditions);
        }
        self.bounds(raw, column).map_or_else(|| raw.get().to_owned(), list)
    }

    /// The two bounds of a relative condition.
    fn bounds(&mut self, raw: &RawValue, column: &Column) -> Option<[String; 2]> {
        let errors = &mut FieldErrors::default();
        let members = object(raw, "", None, errors)?;
        let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, raw)| *raw);
        let name = string(member("operator")?, "", errors)?;
        let operator = Operator::ALL.into_iter().find(|operator| operator.name() == name)?;
        if !operator.is_relative() {
            return None;
        }
        let relative = Relative::read(operator, column.column_type, member("value")?, "", errors)?;
        let Test::Range { from: Some(from), to: Some(to) } =
            relative.range(column.column_type, self.now, self.zone)?
        else {
            return None;
        };
        self.found = true;
        Some([condition(Operator::Gte, &from)?, condition(Operator::Lt, &to)?])
    }
}

fn elements(raw: &RawValue) -> Vec<&RawValue> {
    array(raw, "", &mut FieldErrors::default()).unwrap_or_default()
}

fn list(elements: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", elements.into_iter().collect::<Vec<_>>().join(","))
}

fn condition(operator: Operator, bound: &Bound) -> Option<String> {
    let local = |moment: NaiveDateTime| moment.format("%Y-%m-%dT%H:%M:%S").to_string();
    let value = match &bound.value {
        Value::Date(day) => day.format("%Y-%m-%d").to_string(),
        Value::LocalTimestamp(moment) => local(*moment),
        Value::Timestamp(instant) => local(instant.naive_utc()) + "Z",
        _ => return None,
    };
    Some(format!(r#"{{"operator":"{}","value":"{value}"}}"#, operator.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = r#"
        name = "order"
        connection = "shop"
        from = "orders"
        [scope]
        organization = "organization_id"
        [[columns]]
        key = "at"
        type = "timestamp"
        [[columns]]
        key = "local"
        type = "localTimestamp"
        [[columns]]
        key = "day"
        type = "date"
        [[columns]]
        key = "total"
        type = "decimal"
    "#;

    fn of(filters: &str) -> Option<String> {
        let raw = RawValue::from_string(filters.to_owned()).expect("JSON");
        let resource = Resource::from_toml(RESOURCE).expect("a resource");
        // A Sunday evening in São Paulo, a Monday in UTC.
        let now = "2026-07-06T02:30:00Z".parse().expect("an instant");
        resolved(&raw, &resource, now, Tz::America__Sao_Paulo)
    }

    #[test]
    fn relative_conditions_become_two_bounds_and_all_else_stays_digit_for_digit() {
        let sent = r#"{"total": {"operator":"GT","value":1.10},
            "at":{"operator":"IN_CURRENT","value":{"unit":"day"}},
            "local":[{"operator":"IN_LAST","value":{"amount":2,"unit":"hour"}},{"operator":"IS_NOT_NULL"}],
            "_or":[{"day":{"operator":"IN_PREVIOUS","value":{"unit":"week"}}},{"total":{"operator":"EQ","value":"7"}}]}"#;
        let expected = r#"{"total":{"operator":"GT","value":1.10},
            "at":[{"operator":"GTE","value":"2026-07-05T03:00:00Z"},{"operator":"LT","value":"2026-07-06T03:00:00Z"}],
            "local":[{"operator":"GTE","value":"2026-07-05T21:00:00"},{"operator":"LT","value":"2026-07-05T23:00:00"},{"operator":"IS_NOT_NULL"}],
            "_or":[{"day":[{"operator":"GTE","value":"2026-06-22"},{"operator":"LT","value":"2026-06-29"}]},{"total":{"operator":"EQ","value":"7"}}]}"#;
        let expected: String = expected.lines().map(str::trim).collect();
        assert_eq!(of(sent), Some(expected));
    }

    #[test]
    fn filters_without_anything_relative_are_what_they_are() {
        for sent in ["{}", r#"{"at":{"operator":"GTE","value":"2026-07-05"}}"#, "null", "[]"] {
            assert_eq!(of(sent), None, "{sent}");
        }
    }

    #[test]
    fn what_is_resolved_says_the_same_at_any_time_and_in_any_zone() {
        use crate::filter::{FilterContext, parse};
        let resource = Resource::from_toml(RESOURCE).expect("a resource");
        let sent = r#"{"at":{"operator":"IN_LAST","value":{"amount":3,"unit":"month"}},"day":{"operator":"IN_NEXT","value":{"amount":1,"unit":"quarter","includeCurrent":true}}}"#;
        let predicate = |text: &str, now: &str, zone: Tz, resolved: bool| {
            let raw = RawValue::from_string(text.to_owned()).expect("JSON");
            let mut errors = FieldErrors::default();
            let now = now.parse().expect("an instant");
            let context = FilterContext { visible: &|_| true, zone, now, resolved };
            let predicate = parse(&raw, &resource, context, &mut errors);
            assert!(errors.is_empty(), "{:?}", errors.into_vec());
            format!("{predicate:?}").replace(['[', ']'], "")
        };
        let now = "2026-07-06T02:30:00Z";
        let first = predicate(sent, now, Tz::America__Sao_Paulo, false);
        let again = of(sent).expect("something relative");
        let second = predicate(&again, "2031-01-01T00:00:00Z", Tz::Asia__Tokyo, true);
        for bound in
            ["2026-04-01T03:00:00Z", "2026-07-01T03:00:00Z", "Date(2026-07-01)", "2027-01-01"]
        {
            assert!(first.contains(bound) && second.contains(bound), "{bound}\n{first}\n{second}");
        }
    }
}
