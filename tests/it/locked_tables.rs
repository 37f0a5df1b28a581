//! `outport check`, `outport resource check` and `outport resource init` where somebody has locked
//! a table: it is told, and everything else is looked at all the same.

use sqlx::{Connection as _, MySqlConnection};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    harness::{MariaDb, PATIENCE, database::Postgres},
    resource_files::Place,
};

const LATE: &str = "no answer within 2 s; is the table locked?";

/// Resources over three tables, `big` between the others.
fn declare(place: &Place) {
    for name in ["able", "big", "small"] {
        let text = format!(
            "name = \"{name}\"\nconnection = \"shop\"\nfrom = \"{name}\"\n[scope]\n\
             organization = \"organization_id\"\n[[columns]]\nkey = \"code\"\ntype = \"text\""
        );
        place.declare(&format!("{name}.toml"), &text);
    }
}

fn tables(uuid: &str) -> String {
    let one =
        |name| format!("CREATE TABLE {name} (code text, organization_id {uuid} PRIMARY KEY);");
    ["able", "big", "small"].map(one).concat()
}

/// Each command says what is locked, and all the rest.
async fn is_told(url: &str) {
    let place = impatient(url);
    declare(&place);
    for arguments in [&["resource", "check"][..], &["check"]] {
        let came = place.outport(arguments).await;
        came.is(1, "");
        let lines: Vec<String> = came
            .said
            .lines()
            .filter(|line| line.contains(" resource "))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected =
            ["ok resource able", &format!("FAIL resource big from {LATE}"), "ok resource small"];
        assert_eq!(lines, expected, "{arguments:?}: {came:?}");
    }
}

fn impatient(url: &str) -> Place {
    let mut place = Place::with(url);
    // A lease is as long at most, and its heartbeat much shorter.
    for (name, value) in
        [("NO_PROGRESS_SECONDS", "2"), ("LEASE_SECONDS", "2"), ("HEARTBEAT_MILLISECONDS", "500")]
    {
        place.env.insert(format!("OUTPORT_LIMITS_{name}"), value.to_owned());
    }
    place
}

#[tokio::test]
async fn a_locked_table_of_postgres_is_told_and_the_rest_is_checked() {
    let postgres = Postgres::create().await;
    postgres.run(&tables("uuid")).await;
    postgres.run("BEGIN; LOCK TABLE big IN ACCESS EXCLUSIVE MODE").await;
    is_told(&postgres.url()).await;
    postgres.run("ROLLBACK").await;
}

#[tokio::test]
async fn a_locked_table_of_mariadb_is_told_and_the_rest_is_checked() {
    let mariadb = MariaDb::create().await;
    mariadb.run(&tables("char(36)")).await;
    let mut locking = MySqlConnection::connect(&mariadb.url()).await.expect("a connection");
    sqlx::raw_sql("LOCK TABLES big WRITE").execute(&mut locking).await.expect("a lock");
    is_told(&mariadb.url()).await;
    let place = impatient(&mariadb.url());
    place.init("big", &[]).await.is(1, &format!("connection 'shop': {LATE}"));
    locking.close().await.expect("it closes");
}

#[tokio::test]
async fn what_was_compared_is_told_while_the_next_table_is_waited_for() {
    let postgres = Postgres::create().await;
    postgres.run(&tables("uuid")).await;
    postgres.run("BEGIN; LOCK TABLE big IN ACCESS EXCLUSIVE MODE").await;
    let place = Place::with(&postgres.url());
    declare(&place);
    let mut command = place.command(&["resource", "check"]);
    command.stdout(std::process::Stdio::piped());
    let checking = tokio::process::Command::from(command).kill_on_drop(true).spawn();
    let mut checking = checking.expect("it starts");
    let mut said = BufReader::new(checking.stdout.take().expect("a pipe")).lines();
    let rest = async {
        let first = said.next_line().await.expect("readable").expect("a line");
        assert_eq!(first, "ok    resource able");
        // Only who has read that lets the table go.
        postgres.run("ROLLBACK").await;
        let mut rest = Vec::new();
        while let Some(line) = said.next_line().await.expect("readable") {
            rest.push(line);
        }
        rest
    };
    let rest = tokio::time::timeout(PATIENCE, rest).await.expect("it ends");
    assert_eq!(rest, ["ok    resource big", "ok    resource small"]);
    assert!(checking.wait().await.expect("a status").success());
}
