//! No value of a row reaches an error, its cause or what is logged of it, whatever the server says
//! and in whatever language.

use std::error::Error;

use outport_domain::{
    column::ColumnType::Text,
    failure::{Disposition, FailureCode},
};
use outport_source::SourceError;

use crate::world::{World, query, read, within};

const CANARY: &str = "4417-CANARY-9371";

/// All that could be printed of an error.
fn whole(error: &SourceError) -> String {
    let mut all = vec![format!("{error} {error:?}")];
    let mut cause = error.source();
    while let Some(error) = cause {
        all.push(format!("{error} {error:?}"));
        cause = error.source();
    }
    all.join(" ")
}

async fn fails(world: &World, sql: &str, words: &str, disposition: Disposition) {
    let Err(error) = read(&world.source(), &query(sql, &[("c", Text)])).await else {
        panic!("rows of {sql}")
    };
    assert!(!whole(&error).contains("CANARY"), "{sql}: {}", whole(&error));
    assert!(error.message.contains(words), "{sql}: {error}");
    assert_eq!(error.disposition, disposition, "{sql}");
}

#[tokio::test]
async fn postgres_errors_about_values_are_told_by_state_alone() {
    use Disposition::{Abandon, Retry};
    within(World::postgres().await, async |world| {
        let World::Postgres { schema } = world else { unreachable!() };
        world
            .run(&format!(
                "CREATE TABLE t AS SELECT '{CANARY}'::text AS c; \
                 CREATE FUNCTION raised(c text, code text) RETURNS text LANGUAGE plpgsql AS $$ \
                 BEGIN RAISE EXCEPTION 'value %', c USING ERRCODE = code, DETAIL = c, HINT = c; END $$; \
                 CREATE FUNCTION evaluated(c text) RETURNS text LANGUAGE plpgsql AS $$ \
                 DECLARE made text; BEGIN EXECUTE 'SELECT \"' || c || '\"' INTO made; RETURN made; END $$"
            ))
            .await;
        let cases = [
            ("c::integer::text", "SQLSTATE 22P02", Abandon),
            ("c::regclass::text", "SQLSTATE 42P01", Abandon),
            ("c::regtype::text", "SQLSTATE 42", Abandon),
            ("(c::date)::text", "SQLSTATE 22007", Abandon),
            ("SCHEMA.raised(c, 'P0001')", "SQLSTATE P0001", Abandon),
            ("SCHEMA.raised(c, '42501')", "SQLSTATE 42501", Abandon),
            ("SCHEMA.raised(c, '40001')", "SQLSTATE 40001", Retry),
            ("SCHEMA.evaluated(c)", "SQLSTATE 42703", Abandon),
        ];
        for (expression, words, disposition) in cases {
            let expression = expression.replace("SCHEMA", schema);
            let sql = format!("SELECT {expression} AS c FROM {schema}.t");
            fails(world, &sql, words, disposition).await;
        }
    })
    .await;
}

#[tokio::test]
async fn mariadb_errors_about_values_are_told_by_number_alone() {
    use Disposition::{Abandon, Retry};
    within(World::mariadb().await, async |world| {
        let World::MariaDb { database } = world else { unreachable!() };
        world.run(&format!("CREATE TABLE t (c text); INSERT INTO t VALUES ('{CANARY}')")).await;
        for (name, language) in [("en", "en_US"), ("de", "de_DE"), ("ja", "ja_JP")] {
            let body = |name2: &str, body: &str| {
                format!(
                    "CREATE FUNCTION {name2}_{name}(c text) RETURNS text NO SQL BEGIN \
                     DECLARE n integer; SET SESSION lc_messages = '{language}', \
                     sql_mode = 'STRICT_ALL_TABLES'; {body}; RETURN c; END"
                )
            };
            world.run(&body("signaled", "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = c")).await;
            world.run(&body("retried", "SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = c")).await;
            world.run(&body("assigned", "SET n = CONCAT('x', c)")).await;
            let cases = [
                ("signaled", "error 1644, SQLSTATE 45000", Abandon),
                ("retried", "error 1644, SQLSTATE 40001", Retry),
                ("assigned", "error 1366, SQLSTATE", Abandon),
            ];
            for (function, words, disposition) in cases {
                let sql = format!("SELECT {database}.{function}_{name}(c) AS c FROM {database}.t");
                fails(world, &sql, words, disposition).await;
            }
        }
        let sql = format!("SELECT EXTRACTVALUE('<a/>', '/~{CANARY}') AS c");
        fails(world, &sql, "error 1105", Abandon).await;
    })
    .await;
}

#[tokio::test]
async fn what_is_no_value_is_still_said_in_the_servers_words() {
    within(World::postgres().await, async |world| {
        let wanted = query("SELECT gone AS c FROM pg_class", &[("c", Text)]);
        let error = read(&world.source(), &wanted).await.expect_err("no such column");
        assert_eq!(error.code, FailureCode::SchemaMismatch);
        assert!(error.message.contains("gone"), "{error}");
    })
    .await;
    within(World::mariadb().await, async |world| {
        let wanted = query("SELECT gone AS c FROM information_schema.TABLES", &[("c", Text)]);
        let error = read(&world.source(), &wanted).await.expect_err("no such column");
        assert_eq!(error.code, FailureCode::SchemaMismatch);
        assert!(error.message.contains("gone"), "{error}");
    })
    .await;
}
