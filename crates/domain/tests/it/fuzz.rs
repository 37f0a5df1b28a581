//! Whatever text comes as a request or a resource file: it is understood, or all that is wrong is
//! told; never a panic, and the same every time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use chrono::{DateTime, Utc};
use outport_domain::{
    caller::Caller,
    id::{OrganizationId, UserId},
    locale::Locale,
    resource::Resource,
    spec::{self, Catalogue, RequestContext},
};

/// Inputs in an ordinary run; `tests/run --soak` looks for new ones for minutes.
const INPUTS: usize = 10_000;

const RESOURCE: &str = r#"
name = "order"
connection = "shop"
from = "sales.orders"
sort = ["-createdAt"]
[scope]
organization = "organization_id"
company = { column = "company", type = "text" }
deletedAt = "deleted_at"
[[columns]]
key = "createdAt"
source = "created_at"
type = "timestamp"
label = { pt-BR = "Criado em" }
[[columns]]
key = "total"
type = "decimal"
precision = 12
scale = 2
[[columns]]
key = "secret"
type = "text"
requiresScope = "orders:secret"
"#;

/// A column of each type that the resource above lacks, each under the name of its type.
const TYPES: [&str; 10] = [
    "text",
    "integer",
    "float",
    "boolean",
    "date",
    "localTimestamp",
    "time",
    "uuid",
    "json",
    "binary",
];

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    let columns = TYPES.map(|name| format!("[[columns]]\nkey = \"{name}\"\ntype = \"{name}\"\n"));
    let text = format!("{RESOURCE}{}", columns.concat());
    let resource = Resource::from_toml(&text).expect("a valid resource");
    Catalogue(BTreeMap::from([("order".to_owned(), resource.into())]))
});

static CALLER: LazyLock<Caller> = LazyLock::new(|| Caller {
    organization: OrganizationId::new(),
    companies: None,
    cooperatives: None,
    user: UserId::new(),
    email: Some("ana@example.com".to_owned()),
    name: None,
    locale: None,
    scopes: BTreeSet::new(),
    token: None,
});

fn is_understood_or_refused(body: &str) {
    let requested_at = DateTime::<Utc>::from_timestamp(1_782_907_200, 0).expect("an instant");
    let context = RequestContext {
        caller: &CALLER,
        locale: Locale::En,
        requested_at,
        resolved_filters: None,
    };
    let parse = || spec::parse(body, &CATALOGUE, context);
    let parsed = parse();
    match &parsed {
        Ok(spec) => {
            assert!(!spec.columns.is_empty());
            assert!(spec.columns.iter().all(|column| column.key != "secret"), "{body}");
            assert!(!spec.file_name.contains(['/', '\\', '\r', '\n', '\0']), "{}", spec.file_name);
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "nothing is wrong, and yet it is refused: {body}");
            assert!(errors.iter().all(|error| !error.message.is_empty()));
        }
    }
    // The worker reads the same body again.
    assert_eq!(format!("{parsed:?}"), format!("{:?}", parse()), "{body}");
}

/// What requests are made of; a byte stands for one of them.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"resource\":\"order\"",
    "\"columns\"",
    "\"filters\"",
    "\"sort\"",
    "\"createdAt\"",
    "\"total\"",
    "\"secret\"",
    "\"text\"",
    "\"integer\"",
    "\"float\"",
    "\"boolean\"",
    "\"date\"",
    "\"localTimestamp\"",
    "\"time\"",
    "\"uuid\"",
    "\"json\"",
    "\"binary\"",
    "\"_or\"",
    "\"operator\"",
    "\"value\"",
    "\"ignoreCase\"",
    "\"EQ\"",
    "\"NE\"",
    "\"GT\"",
    "\"LTE\"",
    "\"BETWEEN\"",
    "\"NOT_BETWEEN\"",
    "\"IN\"",
    "\"NOT_IN\"",
    "\"CONTAINS\"",
    "\"STARTS_WITH\"",
    "\"ENDS_WITH\"",
    "\"IS_NULL\"",
    "\"IS_NOT_NULL\"",
    "\"IN_LAST\"",
    "\"IN_NEXT\"",
    "\"IN_CURRENT\"",
    "\"IN_PREVIOUS\"",
    "\"amount\"",
    "\"unit\"",
    "\"includeCurrent\"",
    "\"day\"",
    "\"week\"",
    "\"quarter\"",
    "\"minute\"",
    "true",
    "false",
    "null",
    "0",
    "-1",
    "10000",
    "1e400",
    "18446744073709551616",
    "0.1",
    "\"2026-07-01\"",
    "\"2018-11-04\"",
    "\"9999-12-31\"",
    "\"-262143-01-01\"",
    "\"2026-07-01T12:00:00Z\"",
    "\"2026-07-01 12:00\"",
    "\"23:59:60\"",
    "\"\"",
    "\"%_\\\\\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "\"é🚀\"",
    "\"0197a801-1690-7590-b3cf-19599b9be3e4\"",
    "\"label\"",
    "\"key\"",
    "\"format\"",
    "\"CSV\"",
    "\"XLSX\"",
    "\"PARQUET\"",
    "\"compression\"",
    "\"zstd\"",
    "\"csv\"",
    "\"delimiter\"",
    "\";\"",
    "\"quote\"",
    "\"all\"",
    "\"bom\"",
    "\"nullText\"",
    "\"lineEnding\"",
    "\"CRLF\"",
    "\"timeZone\"",
    "\"America/Sao_Paulo\"",
    "\"Mars\"",
    "\"locale\"",
    "\"pt-BR\"",
    "\"fileName\"",
    "\"a.csv\"",
    "\"../x\"",
    "\"maxRowsPerFile\"",
    "\"maxBytesPerFile\"",
    "\"notify\"",
    "\"email\"",
    "\"a@example.com\"",
    "\"metadata\"",
    "\"scopeType\"",
    "\"COMPANY\"",
    "\"companyId\"",
    "\"cooperativeId\"",
    "\"-createdAt\"",
    " ",
    "\n",
];

/// Sentences of a language: a byte is one of its words, or itself.
fn sentence(bytes: &[u8], words: &[&str]) -> String {
    let word = |byte: &u8| match words.get(usize::from(*byte)) {
        Some(word) => (*word).to_owned(),
        None => char::from(*byte).to_string(),
    };
    bytes.iter().map(word).collect()
}

#[test]
fn fuzz_request() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        is_understood_or_refused(&String::from_utf8_lossy(bytes));
        is_understood_or_refused(&sentence(bytes, WORDS));
    });
}

#[test]
fn fuzz_filters() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        for filters in [String::from_utf8_lossy(bytes).into_owned(), sentence(bytes, WORDS)] {
            is_understood_or_refused(&format!(r#"{{"resource":"order","filters":{filters}}}"#));
        }
        // A condition with any column, operator and value, well-formed.
        if let [column, operator, rest @ ..] = bytes {
            let column = WORDS[10 + usize::from(*column) % 13];
            let operator = WORDS[27 + usize::from(*operator) % 17];
            let value = |byte: &u8| WORDS[51 + usize::from(*byte) % 22];
            let values: Vec<&str> = rest.iter().map(value).collect();
            let list = values.join(",");
            for value in [values.first().copied().unwrap_or("null"), &format!("[{list}]")] {
                is_understood_or_refused(&format!(
                    r#"{{"resource":"order","filters":{{{column}:{{"operator":{operator},"value":{value}}}}}}}"#
                ));
            }
        }
    });
}

/// What resource files are made of.
const LINES: &[&str] = &[
    "name = \"order\"\n",
    "connection = \"shop\"\n",
    "from = \"a.b\"\n",
    "query = \"SELECT 1\"\n",
    "sort = [\"-a\"]\n",
    "keyStem = \"o\"\n",
    "fileName = { es = \"pedidos\" }\n",
    "timeZone = \"UTC\"\n",
    "formulaGuard = \"off\"\n",
    "invalidText = \"fail\"\n",
    "notifyDomains = [\"example.com\"]\n",
    "[scope]\n",
    "organization = \"o\"\n",
    "organization = { column = \"o\", type = \"text\" }\n",
    "company = \"c\"\n",
    "deletedAt = \"d\"\n",
    "[[columns]]\n",
    "key = \"a\"\n",
    "key = \"b\"\n",
    "type = \"text\"\n",
    "type = \"decimal\"\n",
    "precision = 12\n",
    "scale = 2\n",
    "source = \"x\"\n",
    "label = { pt-BR = \"Á\" }\n",
    "requiresScope = \"s\"\n",
    "default = false\n",
    "=",
    "\"",
    "[",
    "]",
    "{",
    "}",
    "'''",
    "\n",
    "#",
    "1979-05-27",
    "-0x1",
    "inf",
    "\\u0000",
    ".",
    ",",
];

#[test]
fn fuzz_resource_file() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        let of_lines = sentence(bytes, LINES);
        // A file that is right, and more.
        let more = format!("{RESOURCE}{of_lines}");
        for text in [&String::from_utf8_lossy(bytes).into_owned(), &of_lines, &more] {
            match Resource::from_toml(text) {
                Ok(resource) => {
                    assert!(resource.columns.iter().any(|column| column.default), "{text}");
                    for column in &resource.columns {
                        assert_eq!(resource.column(&column.key), Some(column), "{text}");
                    }
                }
                Err(error) => assert!(!error.to_string().is_empty(), "{text}"),
            }
        }
    });
}
