//! PostgreSQL databases that do not store texts as UTF-8.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use outport_domain::{
    column::ColumnType::{Integer, Text},
    selection::{Bound, Place, Predicate, Relation, Selection, Test, Value},
};
use outport_source::Source;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::world::{
    column, ordered, postgres_client, postgres_source, postgres_url, read, run, selection, texts,
};

/// Runs a test in a database of this encoding, prepared by these statements.
async fn in_database(encoding: &str, prepared: &str, test: impl AsyncFnOnce(&Arc<dyn Source>)) {
    let name = format!("outport_source_{}", Uuid::new_v4().simple());
    let mut owner = postgres_client().await;
    let sql = format!(
        "CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    );
    run(&mut owner, &sql).await;
    let mut url = url::Url::parse(&postgres_url()).expect("a URL");
    url.set_path(&name);
    let outcome = AssertUnwindSafe(async {
        let mut client = PgConnection::connect(url.as_str()).await.expect("the database");
        sqlx::raw_sql(AssertSqlSafe(prepared)).execute(&mut client).await.expect(prepared);
        client.close().await.expect("the end");
        test(&postgres_source(url.to_string())).await;
    })
    .catch_unwind()
    .await;
    run(&mut owner, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn things(test: Option<(Test, bool)>) -> Selection {
    let table = Relation::Table(vec!["t".to_owned()]);
    let mut wanted = ordered(selection(table, &[("id", Integer), ("c", Text)]), "id");
    if let Some((test, negated)) = test {
        wanted.predicate = Predicate::Column { column: column("c", Text), test, negated };
    }
    wanted
}

async fn ids(source: &Arc<dyn Source>, wanted: &Selection) -> String {
    let rows = texts(&read(source, wanted).await.expect("rows"));
    rows.into_iter().map(|mut row| row.remove(0)).collect::<Vec<_>>().join(" ")
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn like(place: Place, text: &str, ignore_case: bool) -> Test {
    Test::Like { place, text: text.to_owned(), ignore_case }
}

#[tokio::test]
async fn bytes_of_no_encoding_come_as_they_are() {
    let prepared = "CREATE TABLE t (id integer, c text, p point, j json); \
        INSERT INTO t VALUES (1, E'caf\\xe9', '(1,2)', '{\"a\":1}'), \
          (2, E'caf\\xc3\\xa9', '(1,2)', NULL), (3, E'\\xff\\x80', NULL, NULL), (4, NULL, NULL, NULL)";
    in_database("SQL_ASCII", prepared, async |source| {
        let expected: [Option<&[u8]>; 4] =
            [Some(b"caf\xe9"), Some("café".as_bytes()), Some(b"\xff\x80"), None];
        // As bytes that we print, and, with a point among them, as the server's own text.
        for more in [&[][..], &[("p", Text)][..]] {
            let mut wanted = things(None);
            wanted.columns.extend(more.iter().map(|(name, kind)| column(name, *kind)));
            let rows = read(source, &wanted).await.expect("rows");
            let cells: Vec<_> = rows.iter().map(|row| row[1].as_deref()).collect();
            assert_eq!(cells, expected, "{more:?}");
        }
        for (test, passing) in [
            (Test::Equal(text("café")), "2"),
            (Test::In(vec![text("café"), text("no")]), "2"),
            (like(Place::Start, "caf", false), "1 2"),
            (like(Place::End, "fé", false), "2"),
            (like(Place::Start, "CAF", true), "1 2"),
        ] {
            assert_eq!(
                ids(source, &things(Some((test.clone(), false)))).await,
                passing,
                "{test:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn no_row_has_a_text_that_the_encoding_cannot_hold() {
    let prepared = "CREATE TABLE t (id integer, c text); \
        INSERT INTO t VALUES (1, 'abc'), (2, 'café'), (3, 'ÿ'), (4, ''), (5, NULL)";
    in_database("LATIN1", prepared, async |source| {
        let rows = texts(&read(source, &things(None)).await.expect("rows"));
        let cells: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(cells, ["abc", "café", "ÿ", "", "∅"]);
        let from = |value| Test::Range { from: Some(Bound { value, inclusive: true }), to: None };
        let to = |value| Test::Range { from: None, to: Some(Bound { value, inclusive: false }) };
        let cases = [
            (Test::Equal(text("café")), "2", "1 3 4 5"),
            (Test::Equal(text("abc€")), "", "1 2 3 4 5"),
            (Test::In(vec![text("€"), text("👍")]), "", "1 2 3 4 5"),
            (Test::In(vec![text("€"), text("café"), text("ÿ")]), "2 3", "1 4 5"),
            (like(Place::Anywhere, "€", false), "", "1 2 3 4 5"),
            (like(Place::Start, "a€", false), "", "1 2 3 4 5"),
            (like(Place::End, "é", false), "2", "1 3 4 5"),
            // Its upper case is not in LATIN1, it is.
            (like(Place::Anywhere, "Ÿ", true), "3", "1 2 4 5"),
            (like(Place::Anywhere, "Ÿ", false), "", "1 2 3 4 5"),
            (from(text("b€")), "2 3", "1 4 5"),
            (to(text("b€")), "1 4", "2 3 5"),
            (from(text("é")), "3", "1 2 4 5"),
        ];
        for (test, passing, others) in cases {
            for (negated, expected) in [(false, passing), (true, others)] {
                let wanted = things(Some((test.clone(), negated)));
                assert_eq!(ids(source, &wanted).await, expected, "{test:?} {negated}");
            }
        }
    })
    .await;
}
