use std::collections::BTreeSet;

use super::*;
use crate::{
    json::FieldError,
    selection::{Bound, Test, Value},
};

const BODY: &str = r#"{"dataRequest":{
    "mappedFields":{"shop":{"orders":["code","id"],"items":["*"]}},
    "filters":{"shop":{"orders":{"created":{"gte":["2026-07-01"]}}}}},
    "metadata":{"source":"payments"}}"#;

fn wrong(body: &str) -> Vec<String> {
    let errors = parse(body).expect_err(body).into_vec();
    errors.into_iter().map(|error| format!("{} {}", error.field, error.code.name())).collect()
}

/// The body with `dataRequest.mappedFields` and its filters.
fn body(mapped_fields: &str, filters: &str) -> String {
    format!(
        r#"{{"dataRequest":{{"mappedFields":{mapped_fields},"filters":{filters}}},"metadata":{{"source":"a"}}}}"#
    )
}

fn table() -> RealTable {
    let columns = [
        ("id", ColumnType::Timestamp),
        ("code", ColumnType::Text),
        ("created", ColumnType::Timestamp),
        ("amount", ColumnType::Decimal),
        ("weight", ColumnType::Float),
        ("paid", ColumnType::Boolean),
    ];
    RealTable {
        relation: Relation::Table(vec!["orders".to_owned()]),
        columns: columns.map(|(name, column_type)| column(name, &[column_type])).into(),
        ignores_case: false,
    }
}

/// The selection of the one table `orders` with this filter.
fn selection(filter: &str) -> Result<Selection, Vec<String>> {
    let body =
        body(r#"{"shop":{"orders":["code"]}}"#, &format!(r#"{{"shop":{{"orders":{filter}}}}}"#));
    let request = parse(&body).unwrap_or_else(|errors| panic!("{body}: {errors:?}"));
    let mut errors = FieldErrors::default();
    let (_, selection) =
        request.connections["shop"]["orders"].selection(&table(), "orders", &mut errors);
    let errors = errors.into_vec();
    if errors.is_empty() {
        return Ok(selection);
    }
    let told = |error: FieldError| {
        let place = error.field.strip_prefix("dataRequest.filters.").expect("the filter's place");
        format!("{place} {}", error.code.name())
    };
    Err(errors.into_iter().map(told).collect())
}

#[test]
fn a_request_is_taken_apart() {
    let request = parse(BODY).expect("a request");
    let tables = &request.connections["shop"];
    assert_eq!(tables.keys().collect::<Vec<_>>(), ["items", "orders"]);
    assert_eq!(tables["items"].fields(), None);
    let mut errors = FieldErrors::default();
    let (names, selection) = tables["orders"].selection(&table(), "", &mut errors);
    assert!(errors.is_empty());
    assert_eq!(names, ["code", "id"], "sorted");
    assert_eq!(selection.columns[1].column_type, ColumnType::Timestamp);
    let (names, _) = tables["items"].selection(&table(), "", &mut errors);
    assert_eq!(names, ["amount", "code", "created", "id", "paid", "weight"]);
    assert_eq!(request.metadata, r#"{"source":"payments"}"#);
}

#[test]
fn the_identity_is_that_of_the_meaning() {
    let of = |body: &str| parse(body).expect("a request").identity;
    let spelled = r#"{"metadata":{"\u0073ource":"payments"},"dataRequest":{
        "filters":{"shop":{"orders":{"created":{"gte":["2026-07-01"]}}}},
        "mappedFields":{"shop":{"items":["*"],"orders":["code","id"]}}}}"#;
    assert_eq!(of(BODY), of(spelled));
    let others = [
        BODY.replace("payments", "other"),
        BODY.replace("2026-07-01", "2026-07-02"),
        BODY.replace(r#"["*"]"#, r#"["code"]"#),
    ];
    let all: BTreeSet<_> = others.iter().map(|body| of(body)).chain([of(BODY)]).collect();
    assert_eq!(all.len(), 4);
    let without = |filters: &str| of(&body(r#"{"a":{"b":["c"]}}"#, filters));
    assert_eq!(without("null"), without("{}"));
}

#[test]
fn everything_wrong_is_told_with_its_place() {
    for (body, expected) in [
        (r#"{"metadata":{"source":"a"}}"#.to_owned(), "dataRequest REQUIRED"),
        (r#"{"dataRequest":{"mappedFields":{"a":{"b":["c"]}}}}"#.to_owned(), "metadata REQUIRED"),
        (BODY.replace("\"source\"", "\"sauce\""), "metadata.source REQUIRED"),
        (BODY.replace("\"payments\"", "\" \""), "metadata.source INVALID_VALUE"),
        (BODY.replace("\"payments\"", "\"a\",\"error\":1"), "metadata.error NOT_ALLOWED"),
        (
            BODY.replace("\"payments\"", "\"a\",\"terminalEventPending\":1"),
            "metadata.terminalEventPending NOT_ALLOWED",
        ),
        (BODY.replace("\"payments\"", "\"a\",\"source\":\"b\""), "metadata.source DUPLICATE"),
        (
            BODY.replace("\"payments\"", "\"a\",\"x\":[{\"y\":1,\"y\":1}]"),
            "metadata.x[0].y DUPLICATE",
        ),
        (BODY.replace("\"dataRequest\"", "\"dataRequests\""), "dataRequests UNKNOWN_MEMBER"),
        (body("{}", "{}"), "dataRequest.mappedFields REQUIRED"),
        (body(r#"{"a":{}}"#, "{}"), "dataRequest.mappedFields.a REQUIRED"),
        (body(r#"{"a":{"b":[]}}"#, "{}"), "dataRequest.mappedFields.a.b REQUIRED"),
        (body(r#"{"a":{"b":["c","c"]}}"#, "{}"), "dataRequest.mappedFields.a.b[1] DUPLICATE"),
        (body(r#"{"a":{"b":["c","*"]}}"#, "{}"), "dataRequest.mappedFields.a.b[1] INVALID_VALUE"),
        (body(r#"{"a":{"b":"c"}}"#, "{}"), "dataRequest.mappedFields.a.b INVALID_TYPE"),
        (body(r#"{"a":{"b":["c"]}}"#, r#"{"x":{}}"#), "dataRequest.filters.x NOT_FOUND"),
        (
            body(r#"{"a":{"b":["c"]}}"#, r#"{"a":{"x":{"c":{"eq":[1]}}}}"#),
            "dataRequest.filters.a.x NOT_FOUND",
        ),
        (
            body(r#"{"a":{"b":["c"]}}"#, r#"{"a":{"b":{"c":{"is":[1]}}}}"#),
            "dataRequest.filters.a.b.c.is UNKNOWN_OPERATOR",
        ),
        (
            body(r#"{"a":{"b":["c"]}}"#, r#"{"a":{"b":{"c":{"eq":1}}}}"#),
            "dataRequest.filters.a.b.c.eq INVALID_TYPE",
        ),
        (
            body(r#"{"a":{"b":["c"]}}"#, r#"{"a":{"b":{"c":{"between":[1]}}}}"#),
            "dataRequest.filters.a.b.c.between INVALID_VALUE",
        ),
    ] {
        assert!(wrong(&body).contains(&expected.to_owned()), "{body}: {:?}", wrong(&body));
    }
}

#[test]
fn the_limits_hold() {
    let many = |count: usize, value: &str| {
        let members: Vec<String> = (0..count).map(|n| format!("\"n{n}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    };
    let fields = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"f{n}\"")).collect();
        format!("[{}]", names.join(","))
    };
    let table = r#"{"t":["f"]}"#;
    let one = |tables: &str| format!(r#"{{"c":{tables}}}"#);
    for fits in [
        many(CONNECTIONS, table),
        one(&many(TABLES, "[\"f\"]")),
        one(&format!(r#"{{"t":{}}}"#, fields(FIELDS))),
    ] {
        assert!(parse(&body(&fits, "{}")).is_ok(), "{fits}");
    }
    for over in [
        many(CONNECTIONS + 1, table),
        one(&many(TABLES + 1, "[\"f\"]")),
        one(&format!(r#"{{"t":{}}}"#, fields(FIELDS + 1))),
    ] {
        let told = wrong(&body(&over, "{}"));
        assert!(told.iter().any(|one| one.ends_with(" LIMIT_EXCEEDED")), "{told:?}");
    }
}

#[test]
fn a_column_or_filter_that_is_not_there_is_never_ignored() {
    assert_eq!(
        selection(r#"{"cod":{"eq":["A"]}}"#),
        Err(vec!["orders.cod UNKNOWN_COLUMN".to_owned()])
    );
    let request = parse(&body(r#"{"shop":{"orders":["coed"]}}"#, "{}")).expect("a request");
    let mut errors = FieldErrors::default();
    request.connections["shop"]["orders"].selection(&table(), "orders", &mut errors);
    let told = errors.into_vec();
    assert_eq!(told[0].code, FieldCode::UnknownColumn);
    assert_eq!(told[0].field, "dataRequest.mappedFields.orders.coed");
}

#[test]
fn a_column_named_id_takes_what_its_type_takes() {
    let found = selection(r#"{"id":{"gte":["2026-07-01"]}}"#).expect("a day");
    let Predicate::All(tests) = found.predicate else { panic!("tests are AND-ed") };
    let Predicate::Column { test: Test::Range { from: Some(from), to: None }, .. } = &tests[0]
    else {
        panic!("{tests:?}")
    };
    assert!(matches!(from, Bound { value: Value::Timestamp(_), inclusive: true }));
}

#[test]
fn a_null_passes_no_condition() {
    let found = selection(r#"{"code":{"ne":["A"]}}"#).expect("a filter").predicate;
    let text = format!("{found:?}");
    assert!(text.contains("test: Null, negated: true"), "{text}");
}

#[test]
fn values_are_read_as_the_column_takes_them() {
    for good in [
        r#"{"amount":{"between":[1.10,"20"]}}"#,
        r#"{"weight":{"eq":[0.5]}}"#,
        r#"{"paid":{"eq":[1]}}"#,
        r#"{"paid":{"ne":[true]}}"#,
        r#"{"code":{"in":["A","B"]}}"#,
        r#"{"code":{"like":["A%"]}}"#,
        r#"{"created":{"in":["2026-07-01","2026-07-02T00:00:00Z"]}}"#,
    ] {
        assert!(selection(good).is_ok(), "{good}: {:?}", selection(good));
    }
    for (bad, expected) in [
        (r#"{"amount":{"eq":["A"]}}"#, "orders.amount.eq[0] INVALID_VALUE"),
        (r#"{"paid":{"gt":[true]}}"#, "orders.paid.gt UNKNOWN_OPERATOR"),
        (r#"{"amount":{"like":["1%"]}}"#, "orders.amount.like UNKNOWN_OPERATOR"),
        (r#"{"code":{"like":["A_"]}}"#, "orders.code.like[0] NOT_SUPPORTED"),
        (r#"{"code":{"eq":[null]}}"#, "orders.code.eq[0] INVALID_VALUE"),
        (r#"{"id":{"eq":["tomorrow"]}}"#, "orders.id.eq[0] INVALID_VALUE"),
    ] {
        assert_eq!(selection(bad), Err(vec![expected.to_owned()]), "{bad}");
    }
}

#[test]
fn a_table_may_be_named_with_its_schema() {
    let table =
        |parts: &[&str]| Relation::Table(parts.iter().map(|&part| part.to_owned()).collect());
    assert_eq!(relations("orders", None), [table(&["orders"])]);
    assert_eq!(relations("a.orders", None), [table(&["a.orders"]), table(&["a", "orders"])]);
    // The connection's own schema is the only one that an unqualified name is looked for in.
    assert_eq!(relations("orders", Some("s")), [table(&["s", "orders"])]);
    assert_eq!(relations("a.b", Some("s")), [table(&["s", "a.b"]), table(&["a", "b"])]);
}

#[test]
fn a_null_is_told_in_the_words_of_these_filters() {
    for filter in [r#"{"code":{"eq":[null]}}"#, r#"{"code":{"like":[null]}}"#] {
        let filters = format!(r#"{{"shop":{{"orders":{filter}}}}}"#);
        let body = body(r#"{"shop":{"orders":["*"]}}"#, &filters);
        let request = parse(&body).expect("a request");
        let mut errors = FieldErrors::default();
        request.connections["shop"]["orders"].selection(&table(), "shop.orders", &mut errors);
        let message = errors.into_vec().remove(0).message;
        assert!(!message.contains("IS_NULL"), "{message}");
    }
}
