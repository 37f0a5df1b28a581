//! Stored connections: changes at once, and jobs that read what changes.

use chrono::Utc;
use outport_domain::{
    connection::Connection,
    id::{ConnectionId, OrganizationId},
    job::JobKind,
};
use outport_store::{
    Store,
    connections::{self, Changed},
    fetcher,
    submit::{NewJob, Submitted},
};
use tokio::task::JoinSet;

use crate::bench::{Bench, new_job};

on_both_engines!(
    who_holds_a_connection_is_alone_with_it,
    a_job_is_submitted_to_what_was_seen_or_not_at_all,
    an_earlier_job_is_not_the_same_once_its_connection_is_gone,
    who_deletes_a_connection_and_who_submits_a_job_come_one_after_the_other,
);

async fn stored(store: &Store, name: &str) -> Connection {
    let connection = Connection {
        name: name.to_owned(),
        host: "db.example".to_owned(),
        port: 5432,
        metadata: Some(String::new()),
        ..Connection::blank(ConnectionId::new(), OrganizationId::new(), Utc::now())
    };
    let mut tx = store.begin().await.expect("a transaction");
    let created = connections::create(&mut tx, &connection).await.expect("a row");
    assert_eq!(created, Changed::Done);
    tx.commit().await.expect("a commit");
    connection
}

async fn change(store: &Store, of: &Connection, change: impl FnOnce(&mut Connection)) {
    let mut tx = store.begin().await.expect("a transaction");
    let held = connections::hold(&tx, of.organization, of.id).await.expect("a look");
    let mut connection = held.expect("the connection");
    change(&mut connection);
    let changed = connections::update(&mut tx, &connection).await.expect("a change");
    assert_eq!(changed, Changed::Done);
    tx.commit().await.expect("a commit");
}

async fn find(store: &Store, of: &Connection) -> Option<Connection> {
    connections::find(store, of.organization, of.id).await.expect("a look")
}

async fn who_holds_a_connection_is_alone_with_it(bench: Bench) {
    let connection = stored(&bench.store, "shop").await;
    let mut changes = JoinSet::new();
    for _ in 0..20 {
        let (store, of) = (bench.store.clone(), connection.clone());
        let add = |held: &mut Connection| held.metadata.as_mut().expect("a text").push('x');
        changes.spawn(async move { change(&store, &of, add).await });
    }
    changes.join_all().await;
    let after = find(&bench.store, &connection).await.expect("the connection");
    assert_eq!(after.metadata.map(|text| text.len()), Some(20), "no change is lost");
}

fn job_of(connection: &Connection) -> NewJob {
    NewJob {
        kind: JobKind::Fetcher,
        columns: vec![connection.name.clone()],
        ..new_job(connection.organization)
    }
}

/// Submits a job that reads this connection, as it was seen.
async fn submit(store: &Store, connection: &Connection, seen: &[Connection]) -> Option<Submitted> {
    let job = job_of(connection);
    let mut identity = [0; 32];
    identity[..16].copy_from_slice(job.id.uuid().as_bytes());
    submit_as(store, &job, identity, seen).await
}

async fn submit_as(
    store: &Store,
    job: &NewJob,
    identity: [u8; 32],
    seen: &[Connection],
) -> Option<Submitted> {
    let mut tx = store.begin().await.expect("a transaction");
    let submitted = fetcher::submit(&mut tx, job, identity, seen, 100).await.expect("an answer");
    tx.commit().await.expect("a commit");
    submitted
}

async fn a_job_is_submitted_to_what_was_seen_or_not_at_all(bench: Bench) {
    let store = &bench.store;
    let before = stored(store, "shop").await;
    change(store, &before, |held| held.metadata = Some("{}".to_owned())).await;
    let seen = std::slice::from_ref(&before);
    let submitted = submit(store, &before, seen).await;
    assert!(matches!(submitted, Some(Submitted::Created(_))), "it leads nowhere else");
    assert_eq!(submit(store, &before, &[]).await, None, "it was not there");
    change(store, &before, |held| "other.example".clone_into(&mut held.host)).await;
    assert_eq!(submit(store, &before, seen).await, None, "it leads elsewhere");
    let now = find(store, &before).await.expect("the connection");
    let submitted = submit(store, &before, &[now]).await;
    assert!(matches!(submitted, Some(Submitted::Created(_))), "{submitted:?}");
    assert_eq!(bench.count("SELECT COUNT(*) FROM jobs").await, 2);
    bench.assert_counters().await;
}

async fn an_earlier_job_is_not_the_same_once_its_connection_is_gone(bench: Bench) {
    let store = &bench.store;
    let connection = stored(store, "shop").await;
    let (job, seen) = (job_of(&connection), std::slice::from_ref(&connection));
    let submitted = submit_as(store, &job, [7; 32], seen).await;
    assert!(matches!(submitted, Some(Submitted::Created(_))), "{submitted:?}");
    let submitted = submit_as(store, &job, [7; 32], seen).await;
    assert!(matches!(submitted, Some(Submitted::Repeated(_))), "{submitted:?}");
    change(store, &connection, |held| held.product = Some("other".to_owned())).await;
    assert_eq!(submit_as(store, &job, [7; 32], seen).await, None, "of another product");
    let mut tx = store.begin().await.expect("a transaction");
    let deleted = connections::delete(&mut tx, connection.organization, connection.id).await;
    assert!(deleted.expect("an answer"));
    tx.commit().await.expect("a commit");
    assert_eq!(submit_as(store, &job, [7; 32], seen).await, None, "gone");
}

/// Deletes a connection that no job reads. Whether it did.
async fn delete(store: &Store, connection: &Connection) -> bool {
    let (organization, id) = (connection.organization, connection.id);
    let mut tx = store.begin().await.expect("a transaction");
    let held = connections::hold(&tx, organization, id).await.expect("a look");
    assert!(held.is_some(), "nobody else deletes it");
    if fetcher::is_in_use(&mut tx, organization, "shop", &[]).await.expect("an answer") {
        return false;
    }
    let deleted = connections::delete(&mut tx, organization, id).await.expect("an answer");
    tx.commit().await.expect("a commit");
    deleted
}

async fn who_deletes_a_connection_and_who_submits_a_job_come_one_after_the_other(bench: Bench) {
    let store = &bench.store;
    for _ in 0..20 {
        let connection = stored(store, "shop").await;
        let seen = std::slice::from_ref(&connection);
        let (deleted, submitted) =
            tokio::join!(delete(store, &connection), submit(store, &connection, seen));
        assert_ne!(deleted, submitted.is_some(), "one of them was first");
        assert_ne!(deleted, find(store, &connection).await.is_some());
    }
    bench.assert_counters().await;
}
