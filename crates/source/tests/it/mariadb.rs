//! What a MariaDB or MySQL source refuses.

use outport_domain::{
    column::ColumnType::Integer,
    failure::{Disposition, FailureCode},
    selection::Selection,
};
use outport_source::SourceError;

use crate::{
    cuts::mariadb_server,
    world::{
        World, is_mysql, mariadb_client, mariadb_source, mariadb_url, query, read, read_first,
        run_mariadb, selection, within,
    },
};

pub async fn refused(wanted: &Selection) -> SourceError {
    match read(&mariadb_source(mariadb_url()), wanted).await {
        Ok(rows) => panic!("{} rows", rows.len()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn words_that_a_function_signals_are_not_told_whatever_its_number() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE o (id integer); INSERT INTO o VALUES (1), (2); \
                 CREATE FUNCTION sly(i integer) RETURNS integer DETERMINISTIC BEGIN \
                   IF i > 1 THEN SIGNAL SQLSTATE '42000' SET MYSQL_ERRNO = 1064, \
                     MESSAGE_TEXT = 'customer Alice of table canary'; END IF; RETURN i; END; \
                 CREATE VIEW signals AS SELECT sly(id) AS id FROM o",
            )
            .await;
        let wanted = selection(world.table("signals"), &[("id", Integer)]);
        let error = read(&world.source(), &wanted).await.expect_err("it signals");
        assert!(error.message.contains("error 1064"), "{error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_table_that_is_rebuilt_while_it_is_opened_is_whole_or_an_error() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2)").await;
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        let source = world.source();
        for _ in 0..20 {
            let opened = source.open(&wanted);
            let rebuilt = world.run("ALTER TABLE t FORCE");
            let (opened, ()) = tokio::join!(opened, rebuilt);
            let rows = match opened {
                Ok(stream) => crate::world::rest(stream).await,
                Err(error) => Err(error),
            };
            match rows {
                Ok(rows) => assert_eq!(rows.len(), 2),
                Err(error) => assert_eq!(error.disposition, Disposition::Retry, "{error:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn only_one_statement_runs() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1)").await;
        let table = world.qualified("t");
        let sql = format!("SELECT 1 AS id) AS r; COMMIT; DELETE FROM {table}; SELECT (1");
        assert!(read(&world.source(), &query(sql, &[("id", Integer)])).await.is_err());
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        assert_eq!(read_first(world, &wanted).await, ["1"]);
    })
    .await;
}

#[tokio::test]
async fn nothing_can_be_written_through_a_function() {
    within(World::mariadb().await, async |world| {
        let table = world.qualified("t");
        world
            .run(&format!(
                "CREATE TABLE t (id integer); \
                 CREATE FUNCTION sly() RETURNS integer DETERMINISTIC MODIFIES SQL DATA \
                 BEGIN INSERT INTO {table} VALUES (1); RETURN 1; END"
            ))
            .await;
        let sql = format!("SELECT {} AS id", world.qualified("sly()"));
        let error = refused(&query(sql, &[("id", Integer)])).await;
        assert_eq!(error.code, FailureCode::SourceQueryFailed);
        assert!(error.message.contains("READ ONLY"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn what_is_forbidden_or_unknown_names_neither_user_nor_host() {
    within(World::mariadb().await, async |world| {
        let World::MariaDb { database } = world else { unreachable!() };
        let user = format!("u{}", &database[database.len() - 12..]);
        world
            .run(&format!(
                "CREATE TABLE mine (id integer); CREATE TABLE theirs (id integer); \
                 CREATE TABLE ours (id integer, secret integer); \
                 CREATE USER {user} IDENTIFIED BY 'right'; \
                 GRANT SELECT ON {database}.mine TO {user}; \
                 GRANT SELECT (id) ON {database}.ours TO {user}"
            ))
            .await;
        let with = |password: &str, path: &str| {
            let mut url = url::Url::parse(&mariadb_url()).expect("a URL");
            // MySQL takes no password that is not encrypted.
            url.set_query(None);
            url.set_username(&user).expect("a user");
            url.set_password(Some(password)).expect("a password");
            url.set_path(path);
            mariadb_source(url.into())
        };
        let mine = selection(world.table("mine"), &[("id", Integer)]);
        if is_mysql().await {
            // The server knows the password only after it was told it once, encrypted.
            let url =
                format!("mysql://{user}:right@{}/{database}?ssl-mode=DISABLED", mariadb_server());
            let error = mariadb_source(url).check().await.expect_err("a password in the open");
            assert_eq!(
                (error.code, error.disposition),
                (FailureCode::SourceUnreachable, Disposition::Abandon)
            );
            assert!(error.message.contains("encrypted"), "{error}");
        }
        assert!(read(&with("right", database), &mine).await.expect("no rows").is_empty());
        let ours = selection(world.table("ours"), &[("id", Integer)]);
        assert!(read(&with("right", database), &ours).await.expect("no rows").is_empty());
        let theirs = selection(world.table("theirs"), &[("id", Integer)]);
        let secret = selection(world.table("ours"), &[("secret", Integer)]);
        let cases = [
            (with("right", database), &secret, FailureCode::SourceQueryFailed),
            (with("wrong", database), &mine, FailureCode::SourceUnreachable),
            (with("right", "mysql"), &mine, FailureCode::SourceUnreachable),
            (with("right", database), &theirs, FailureCode::SourceQueryFailed),
        ];
        for (source, wanted, code) in cases {
            let Err(error) = read(&source, wanted).await else { panic!("rows") };
            assert_eq!((error.code, error.disposition), (code, Disposition::Abandon), "{error}");
            for secret in [user.as_str(), "127.0.0.1", "localhost", "wrong", "right"] {
                assert!(!error.message.contains(secret), "{error}");
            }
        }
        run_mariadb(&mut mariadb_client().await, &format!("DROP USER {user}")).await;
    })
    .await;
}

#[tokio::test]
async fn a_mariadb_url_that_is_none_is_not_quoted() {
    for url in ["not a url with s3cret", "mysql://u:s3cret@[::bad/db"] {
        let error = mariadb_source(url.to_owned()).check().await.expect_err("no URL");
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceUnreachable, Disposition::Abandon)
        );
        assert!(!error.message.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn the_scheme_may_be_that_of_mariadb() {
    let url = mariadb_url().replacen("mysql://", "mariadb://", 1);
    mariadb_source(url).check().await.expect("it answers");
}
