//! What cannot be opened says why, with the code and the name.

use std::{sync::Arc, time::Duration};

use outport_domain::{
    column::ColumnType::{Boolean, Integer, Text},
    failure::{Disposition, FailureCode},
    selection::{Predicate, Relation, Test, Value},
};
use outport_source::{Source, SourceConfig, SourceError, connect};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::world::{
    World, column, on_every_engine, postgres_source, postgres_url, query, read, selection, within,
};

async fn refused(
    source: &Arc<dyn Source>,
    wanted: &outport_domain::selection::Selection,
) -> SourceError {
    match read(source, wanted).await {
        Ok(rows) => panic!("{} rows", rows.len()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_missing_table_or_column_is_named() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE here (id integer)").await;
        let source = world.source();
        let error =
            refused(&source, &selection(world.table("gone_table"), &[("id", Integer)])).await;
        assert_eq!(error.code, FailureCode::SchemaMismatch);
        assert!(error.message.contains("gone_table"), "{error}");

        let error =
            refused(&source, &selection(world.table("here"), &[("gone_column", Text)])).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SchemaMismatch, Disposition::Abandon)
        );
        assert!(error.message.contains("gone_column"), "{error}");

        // Also where it is only tested.
        let mut wanted = selection(world.table("here"), &[("id", Integer)]);
        wanted.predicate = Predicate::Column {
            column: column("gone_scope", Text),
            test: Test::Equal(Value::Text("gone_scope".into())),
            negated: false,
        };
        let error = refused(&source, &wanted).await;
        assert_eq!(error.code, FailureCode::SchemaMismatch);
        assert!(error.message.contains("gone_scope"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_column_of_another_type_than_declared_is_named() {
    within(World::postgres().await, async |world| {
        world.run("CREATE TABLE t (id integer, active text)").await;
        let mut wanted = selection(world.table("t"), &[("id", Integer)]);
        wanted.predicate = Predicate::Column {
            column: column("active", Boolean),
            test: Test::Equal(Value::Boolean(true)),
            negated: false,
        };
        let error = refused(&world.source(), &wanted).await;
        assert_eq!(error.code, FailureCode::SchemaMismatch);
        assert!(error.message.contains("active") && error.message.contains("text"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_wrong_query_or_name_is_refused_by_the_engine() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE t (id integer)").await;
        let error = refused(&world.source(), &query("SELECT FROM WHERE", &[("id", Integer)])).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceQueryFailed, Disposition::Abandon)
        );
        let statements = format!("SELECT 1 AS id); DELETE FROM {}; --", world.qualified("t"));
        assert!(read(&world.source(), &query(statements, &[("id", Integer)])).await.is_err());
        let nul = Relation::Table(vec!["t\0u".into()]);
        let error = refused(&world.source(), &selection(nul, &[("id", Integer)])).await;
        assert_eq!(error.code, FailureCode::SchemaMismatch);
        let error = refused(&world.source(), &selection(world.table("t"), &[])).await;
        assert_eq!(error.code, FailureCode::SchemaMismatch);
    })
    .await;
}

#[tokio::test]
async fn nothing_can_be_written() {
    within(World::postgres().await, async |world| {
        let table = world.qualified("t");
        world.run("CREATE TABLE t (id integer); CREATE SEQUENCE s").await;
        world
            .run(&format!(
                "CREATE FUNCTION sly() RETURNS integer LANGUAGE sql \
                 AS 'INSERT INTO {table} VALUES (1) RETURNING id'"
            ))
            .await;
        for sql in [
            format!("SELECT nextval('{}') AS id", world.qualified("s")),
            format!("SELECT {} AS id", world.qualified("sly()")),
        ] {
            let error = refused(&world.source(), &query(sql, &[("id", Integer)])).await;
            assert_eq!(error.code, FailureCode::SourceQueryFailed);
            assert!(error.message.contains("read-only"), "{error}");
        }
    })
    .await;
}

fn with_authority(user: &str, port: Option<u16>) -> Arc<dyn Source> {
    let mut url = url::Url::parse(&postgres_url()).expect("a URL");
    url.set_username(user).expect("a user");
    if let Some(port) = port {
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(port)).expect("a port");
    }
    postgres_source(url.into())
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let source = with_authority("postgres", Some(port));
    let error = refused(&source, &query("SELECT 1 AS id", &[("id", Integer)])).await;
    assert_eq!(
        (error.code, error.disposition),
        (FailureCode::SourceUnreachable, Disposition::Retry)
    );
    assert!(
        !error.message.contains("127.0.0.1") && !error.message.contains(&port.to_string()),
        "{error}"
    );
    assert!(source.check().await.is_err());
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let source =
        connect(&SourceConfig::Postgres { url, connect_timeout: Duration::from_millis(200) });
    let error = source.check().await.expect_err("no answer");
    assert_eq!(
        (error.code, error.disposition),
        (FailureCode::SourceUnreachable, Disposition::Retry)
    );
    drop(listener);
}

/// A server of tests may not offer TLS at all, which is told alike.
#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_told_from_a_server_that_is_away() {
    for mode in ["verify-ca", "verify-full"] {
        let mut url = url::Url::parse(&postgres_url()).expect("a URL");
        url.set_query(Some(&format!("sslmode={mode}")));
        let error = postgres_source(url.into()).check().await.expect_err("a stranger");
        assert_eq!(
            (error.code, error.message.as_str()),
            (
                FailureCode::SourceUnreachable,
                "no encrypted connection to the source database could be made"
            ),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn an_unknown_role_is_refused_for_good() {
    let source = with_authority("outport_no_such_role", None);
    let error = refused(&source, &query("SELECT 1 AS id", &[("id", Integer)])).await;
    assert_eq!(
        (error.code, error.disposition),
        (FailureCode::SourceUnreachable, Disposition::Abandon)
    );
    assert!(!error.message.contains("outport_no_such_role"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_for_good() {
    // Servers of tests often trust everybody, so this one only says what a strict one says.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.expect("a client");
        let mut startup = [0; 1024];
        assert!(client.read(&mut startup).await.expect("a startup message") > 8);
        let fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"me\"\0\0";
        let mut message = vec![b'E'];
        message.extend_from_slice(&u32::try_from(fields.len() + 4).expect("short").to_be_bytes());
        message.extend_from_slice(fields);
        client.write_all(&message).await.expect("the refusal");
    });
    let error = with_authority("me", Some(port)).check().await.expect_err("a refusal");
    assert_eq!(
        (error.code, error.disposition),
        (FailureCode::SourceUnreachable, Disposition::Abandon)
    );
    assert!(!error.message.contains("me\""), "{error}");
    server.await.expect("the server");
}

#[tokio::test]
async fn a_url_that_is_none_is_not_quoted() {
    for url in ["not a url with s3cret", "postgres://u:s3cret@[::bad/db"] {
        let error = postgres_source(url.to_owned()).check().await.expect_err("no URL");
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceUnreachable, Disposition::Abandon)
        );
        assert!(!error.message.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_is_missing_or_no_database_is_told_apart() {
    within(World::sqlite(), async |world| {
        let wanted = query("SELECT 1 AS id", &[("id", Integer)]);
        let error = refused(&world.source(), &wanted).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceUnreachable, Disposition::Retry)
        );
        assert!(!error.message.contains("source.db"), "{error}");
        assert!(!world.path().exists(), "reading must not make a file");

        std::fs::write(world.path(), vec![b'x'; 8192]).expect("a file");
        let error = refused(&world.source(), &wanted).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceQueryFailed, Disposition::Abandon)
        );
        assert_eq!(
            world.source().check().await.expect_err("no database").code,
            FailureCode::SourceQueryFailed
        );
    })
    .await;
}

#[tokio::test]
async fn a_file_that_was_cut_short_is_never_a_short_result() {
    within(World::sqlite(), async |world| {
        world
            .run(
                "CREATE TABLE t (id integer, pad text); \
                 INSERT INTO t WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20000) \
                 SELECT n, printf('%.*c', 200, 'x') FROM s",
            )
            .await;
        let whole = std::fs::read(world.path()).expect("the file");
        let wanted = selection(world.table("t"), &[("id", Integer), ("pad", Text)]);
        assert_eq!(read(&world.source(), &wanted).await.expect("rows").len(), 20_000);
        for part in [whole.len() / 2, whole.len() - 4096, whole.len() / 3 + 100] {
            std::fs::write(world.path(), &whole[..part]).expect("a cut file");
            let error = refused(&world.source(), &wanted).await;
            assert!(
                matches!(error.code, FailureCode::SourceQueryFailed | FailureCode::SourceTruncated),
                "{error:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_good_source_passes_its_check() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE t (id integer)").await;
        world.source().check().await.expect("it answers");
    })
    .await;
}
