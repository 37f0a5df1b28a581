//! Random filters as a request writes them, and what they mean, said as plainly as can be.

use std::{cmp::Ordering, collections::BTreeMap};

use chrono::{
    DateTime, Datelike, FixedOffset, NaiveDate, NaiveTime, SecondsFormat, TimeDelta, Utc,
};
use chrono_tz::Tz;
use outport_domain::{column::ColumnType, filter::Operator};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

use super::table::{COLUMNS, Cell, Column, Row, SCALE, cell, day, digits, local_day};

/// A value that a condition compares with: exact, or a day that stands for all its instants.
#[derive(Clone, Debug)]
pub enum Wanted {
    Exact(Cell),
    Day(NaiveDate),
}

#[derive(Clone, Debug)]
pub enum Meaning {
    Values(Vec<Wanted>),
    Part { text: String, ignore_case: bool },
    Null,
    Relative { amount: i64, unit: &'static str, current: bool },
}

/// A condition of one column.
#[derive(Clone, Debug)]
pub struct Condition {
    operator: Operator,
    meaning: Meaning,
    json: Value,
}

/// Conditions by column (all must hold), and alternatives (one must).
#[derive(Clone, Debug, Default)]
pub struct Filters {
    all: BTreeMap<usize, Vec<Condition>>,
    any: Vec<Filters>,
}

impl Filters {
    pub fn random(rows: &[Row], random: &mut StdRng) -> Self {
        let most = *[0, 1, 1, 2, 3].choose(random).expect("sizes");
        let mut filters = Self::group(rows, random, most);
        let alternatives = if random.random_bool(0.4) { random.random_range(1..4) } else { 0 };
        filters.any = (0..alternatives).map(|_| Self::group(rows, random, 1)).collect();
        filters
    }

    fn group(rows: &[Row], random: &mut StdRng, most: usize) -> Self {
        let mut all: BTreeMap<usize, Vec<Condition>> = BTreeMap::new();
        for _ in 0..most {
            let index = random.random_range(0..COLUMNS.len());
            all.entry(index).or_default().push(condition(index, rows, random));
        }
        Self { all, any: Vec::new() }
    }

    pub fn json(&self) -> Value {
        let mut members = serde_json::Map::new();
        for (index, conditions) in &self.all {
            let json = conditions.iter().map(|condition| condition.json.clone());
            let json: Vec<Value> = json.collect();
            let value = if let [one] = json.as_slice() { one.clone() } else { json.into() };
            members.insert(COLUMNS[*index].key.to_owned(), value);
        }
        if !self.any.is_empty() {
            members.insert("_or".to_owned(), self.any.iter().map(Self::json).collect());
        }
        members.into()
    }

    pub fn pass(&self, row: &Row, now: DateTime<Utc>, zone: Tz) -> bool {
        let all = self.all.iter().all(|(index, conditions)| {
            conditions.iter().all(|condition| condition.passes(row[*index].as_ref(), now, zone))
        });
        all && (self.any.is_empty() || self.any.iter().any(|group| group.pass(row, now, zone)))
    }

    /// Each condition on its own, to find the one that is at fault.
    pub fn parts(&self) -> Vec<Self> {
        let own = self.all.iter().flat_map(|(index, conditions)| {
            conditions.iter().map(|condition| Self {
                all: BTreeMap::from([(*index, vec![condition.clone()])]),
                any: Vec::new(),
            })
        });
        own.chain(self.any.iter().flat_map(Self::parts)).collect()
    }
}

impl Condition {
    fn passes(&self, cell: Option<&Cell>, now: DateTime<Utc>, zone: Tz) -> bool {
        use Operator::{
            Between, Contains, EndsWith, Eq, Gt, Gte, In, InCurrent, InLast, InNext, InPrevious,
            IsNotNull, IsNull, Lt, Lte, Ne, NotBetween, NotContains, NotIn, StartsWith,
        };
        let Some(cell) = cell else {
            // Rows without a value are in everything that is not something.
            return matches!(self.operator, IsNull | Ne | NotIn | NotBetween | NotContains);
        };
        match (&self.meaning, self.operator) {
            (Meaning::Null, operator) => operator == IsNotNull,
            (Meaning::Values(values), operator) => {
                let order = |index: usize| order(cell, &values[index], zone);
                let within = || order(0).is_ge() && order(1).is_le();
                let among = || (0..values.len()).any(|index| order(index).is_eq());
                match operator {
                    Eq => order(0).is_eq(),
                    Ne => order(0).is_ne(),
                    Gt => order(0).is_gt(),
                    Gte => order(0).is_ge(),
                    Lt => order(0).is_lt(),
                    Lte => order(0).is_le(),
                    Between => within(),
                    NotBetween => !within(),
                    In => among(),
                    NotIn => !among(),
                    other => panic!("{other:?} has no values"),
                }
            }
            (Meaning::Part { text, ignore_case }, operator) => {
                let Cell::Text(own) = cell else { panic!("parts are of texts") };
                let fold = |text: &str| -> String {
                    // Letter by letter, each to one.
                    let lower = |c: char| c.to_lowercase().next().expect("a letter");
                    if *ignore_case { text.chars().map(lower).collect() } else { text.to_owned() }
                };
                let (own, part) = (fold(own), fold(text));
                match operator {
                    Contains => own.contains(&part),
                    NotContains => !own.contains(&part),
                    StartsWith => own.starts_with(&part),
                    EndsWith => own.ends_with(&part),
                    other => panic!("{other:?} has no part"),
                }
            }
            (Meaning::Relative { amount, unit, current }, operator) => {
                let own = local_day(cell, zone).expect("a column of days");
                let today = now.with_timezone(&zone).date_naive();
                let away = number_of(unit, own) - number_of(unit, today);
                match operator {
                    InLast => (-amount..=i64::from(*current) - 1).contains(&away),
                    InNext => (1 - i64::from(*current)..=*amount).contains(&away),
                    InCurrent => away == 0,
                    InPrevious => away == -1,
                    other => panic!("{other:?} is not relative"),
                }
            }
        }
    }
}

/// Units are numbered, so that a difference of numbers is a distance in units.
fn number_of(unit: &str, day: NaiveDate) -> i64 {
    let days = i64::from(day.num_days_from_ce());
    let months = i64::from(day.year()) * 12 + i64::from(day.month0());
    match unit {
        "day" => days,
        // The first of January of the year 1 was a Monday.
        "week" => (days - 1).div_euclid(7),
        "month" => months,
        "quarter" => months.div_euclid(3),
        "year" => day.year().into(),
        other => panic!("no unit {other}"),
    }
}

fn order(cell: &Cell, wanted: &Wanted, zone: Tz) -> Ordering {
    match wanted {
        Wanted::Day(day) => local_day(cell, zone).expect("a column of moments").cmp(day),
        Wanted::Exact(wanted) => match (cell, wanted) {
            (Cell::Text(own), Cell::Text(wanted)) => own.cmp(wanted),
            (Cell::Integer(own), Cell::Integer(wanted))
            | (Cell::Decimal(own), Cell::Decimal(wanted)) => own.cmp(wanted),
            (Cell::Boolean(own), Cell::Boolean(wanted)) => own.cmp(wanted),
            (Cell::Date(own), Cell::Date(wanted)) => own.cmp(wanted),
            (Cell::Time(own), Cell::Time(wanted)) => own.cmp(wanted),
            (Cell::Local(own), Cell::Local(wanted)) => own.cmp(wanted),
            (Cell::Instant(own), Cell::Instant(wanted)) => own.cmp(wanted),
            (Cell::Uuid(own), Cell::Uuid(wanted)) => own.cmp(wanted),
            _ => panic!("{cell:?} and {wanted:?} are not of one type"),
        },
    }
}

fn condition(index: usize, rows: &[Row], random: &mut StdRng) -> Condition {
    let column = &COLUMNS[index];
    let operators: Vec<Operator> = Operator::ALL
        .into_iter()
        .filter(|operator| operator.suits(column.kind))
        .filter(|operator| column.key != "title" || !is_of_order(*operator))
        .collect();
    let operator = *operators.choose(random).expect("operators");
    let name = operator.name();
    let mut wanted = || wanted(index, rows, random);
    let (meaning, json) = match operator {
        Operator::IsNull | Operator::IsNotNull => (Meaning::Null, json!({"operator": name})),
        Operator::Between | Operator::NotBetween => {
            let (from, to) = (wanted(), wanted());
            let json = json!({"operator": name, "value": [from.json(random), to.json(random)]});
            (Meaning::Values(vec![from, to]), json)
        }
        Operator::In | Operator::NotIn => {
            let count = *[1, 3, 1_000].choose(random).expect("counts");
            let values = (0..count).map(|_| Wanted::Exact(near(index, rows, random)));
            let values: Vec<Wanted> = values.collect();
            let json: Vec<Value> = values.iter().map(|value| value.json(random)).collect();
            (Meaning::Values(values), json!({"operator": name, "value": json}))
        }
        Operator::Contains | Operator::NotContains | Operator::StartsWith | Operator::EndsWith => {
            let text = part(index, rows, random);
            let ignore_case = random.random();
            let json = json!({"operator": name, "value": text, "ignoreCase": ignore_case});
            (Meaning::Part { text, ignore_case }, json)
        }
        Operator::InLast | Operator::InNext | Operator::InCurrent | Operator::InPrevious => {
            relative(operator, random)
        }
        _ => {
            let value = wanted();
            let json = json!({"operator": name, "value": value.json(random)});
            (Meaning::Values(vec![value]), json)
        }
    };
    Condition { operator, meaning, json }
}

fn is_of_order(operator: Operator) -> bool {
    use Operator::{Between, Gt, Gte, Lt, Lte, NotBetween};
    matches!(operator, Gt | Gte | Lt | Lte | Between | NotBetween)
}

fn relative(operator: Operator, random: &mut StdRng) -> (Meaning, Value) {
    let unit = *["day", "week", "month", "quarter", "year"].choose(random).expect("units");
    let name = operator.name();
    if !matches!(operator, Operator::InLast | Operator::InNext) {
        let meaning = Meaning::Relative { amount: 1, unit, current: false };
        return (meaning, json!({"operator": name, "value": {"unit": unit}}));
    }
    let (amount, current) = (random.random_range(1..40), random.random());
    let value = json!({"amount": amount, "unit": unit, "includeCurrent": current});
    (Meaning::Relative { amount, unit, current }, json!({"operator": name, "value": value}))
}

/// A value to compare with: a row's own, one close to it, or any.
fn wanted(index: usize, rows: &[Row], random: &mut StdRng) -> Wanted {
    let moments = matches!(COLUMNS[index].kind, ColumnType::Timestamp | ColumnType::LocalTimestamp);
    if moments && random.random_bool(0.5) {
        return Wanted::Day(day(random));
    }
    Wanted::Exact(near(index, rows, random))
}

fn near(index: usize, rows: &[Row], random: &mut StdRng) -> Cell {
    let column = &COLUMNS[index];
    let own = own(index, rows, random).unwrap_or_else(|| cell(column, random));
    if random.random_bool(0.5) {
        return own;
    }
    let step = *[-1_i64, 1].choose(random).expect("steps");
    // Finer than any column is.
    let moments = [TimeDelta::microseconds(step), TimeDelta::nanoseconds(step * 500)];
    let delta = *moments.choose(random).expect("deltas");
    let end = NaiveDate::from_ymd_opt(10_000, 1, 1).expect("a day").and_time(NaiveTime::MIN);
    match own {
        Cell::Text(text) if column.key == "title" => Cell::Text(changed(&text, random)),
        Cell::Integer(number) => Cell::Integer(number + i128::from(step)),
        Cell::Decimal(scaled) => Cell::Decimal(scaled + i128::from(step)),
        Cell::Time(time) => Cell::Time(time.overflowing_add_signed(delta).0),
        // Texts of moments end with the year 9999.
        Cell::Local(local) if local + delta < end => Cell::Local(local + delta),
        Cell::Instant(at) if at.naive_utc() + delta < end => Cell::Instant(at + delta),
        other => other,
    }
}

fn own(index: usize, rows: &[Row], random: &mut StdRng) -> Option<Cell> {
    rows.choose(random).and_then(|row| row[index].clone())
}

/// A text that collations take for the same, or nearly.
fn changed(text: &str, random: &mut StdRng) -> String {
    match random.random_range(0..4) {
        0 => text.to_uppercase(),
        1 => text.to_lowercase(),
        2 => format!("{text} "),
        _ => text.replace('é', "e"),
    }
}

fn part(index: usize, rows: &[Row], random: &mut StdRng) -> String {
    let Some(Cell::Text(text)) = own(index, rows, random) else { return "a".to_owned() };
    let characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return "%".to_owned();
    }
    let from = random.random_range(0..characters.len());
    let to = random.random_range(from + 1..=characters.len());
    let part: String = characters[from..to].iter().collect();
    let part = if random.random_bool(0.3) { part.to_uppercase() } else { part };
    if part.is_empty() { "a".to_owned() } else { part }
}

impl Wanted {
    /// As a request may write it.
    fn json(&self, random: &mut StdRng) -> Value {
        let cell = match self {
            Self::Day(day) => return json!(day.to_string()),
            Self::Exact(cell) => cell,
        };
        match cell {
            Cell::Text(text) => json!(text),
            Cell::Integer(number) => match i64::try_from(*number) {
                Ok(number) if random.random() => json!(number),
                _ => json!(number.to_string()),
            },
            Cell::Decimal(scaled) if random.random() => json!(format!("{scaled}e-{SCALE}")),
            Cell::Decimal(scaled) => json!(digits(*scaled)),
            Cell::Boolean(flag) => json!(flag),
            Cell::Date(day) => json!(day.to_string()),
            Cell::Time(time) => json!(time.format("%H:%M:%S%.f").to_string()),
            Cell::Local(local) => json!(local.format("%Y-%m-%dT%H:%M:%S%.f").to_string()),
            Cell::Instant(at) => {
                let hours = random.random_range(-11..=12);
                let zone = FixedOffset::east_opt(hours * 3600).expect("an offset");
                let shifted = at.with_timezone(&zone);
                let at =
                    if (1..=9999).contains(&shifted.year()) { shifted } else { at.fixed_offset() };
                json!(at.to_rfc3339_opts(SecondsFormat::AutoSi, true))
            }
            Cell::Uuid(uuid) if random.random() => json!(uuid.to_string().to_uppercase()),
            Cell::Uuid(uuid) => json!(uuid.to_string()),
        }
    }
}

impl Column {
    /// Its part of a resource file.
    pub fn declared(&self) -> String {
        format!("[[columns]]\nkey = \"{}\"\ntype = \"{}\"\n", self.key, self.kind.name())
    }
}
