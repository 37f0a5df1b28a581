//! Many submissions in one transaction, with a fixed number of statements.

use std::collections::{BTreeMap, HashMap};

use outport_domain::job::ExportJob;
use sea_orm::{
    ColumnTrait as _, ConnectionTrait as _, EntityTrait as _, ExprTrait as _, IntoActiveModel as _,
    QueryFilter as _, Value,
    sea_query::{Expr, OnConflict},
};
use uuid::Uuid;

use super::{IdempotencyKey, NewJob, Submitted};
use crate::{
    StoreError, Tx,
    entity::{idempotency_key, job, requester},
    hints::Topic,
    instant, job_row,
    outbox::ROWS_PER_INSERT,
    telling,
};

/// One submission.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub job: &'a NewJob,
    pub key: Option<&'a IdempotencyKey>,
}

/// Whose key it is: organization, user, token (nil without one), and the header's value.
type KeyId = (Uuid, Uuid, Uuid, String);

/// What is known of a key that is alive.
struct KnownKey {
    fingerprint: Vec<u8>,
    job: ExportJob,
}

impl Request<'_> {
    fn organization(&self) -> Uuid {
        self.job.scope.organization.uuid()
    }

    fn key_id(&self) -> Option<KeyId> {
        let caller = &self.job.caller;
        let token = caller.token.map(outport_domain::id::Id::uuid).unwrap_or_default();
        self.key.map(|key| (self.organization(), caller.user.uuid(), token, key.key.clone()))
    }
}

/// Submits all of them, in order: an earlier one counts for a later one. The turn rows are
/// locked first and in the order of their ids, so two batches cannot wait for each other, and
/// whoever holds an organization's turn row is alone with its idempotency keys.
pub async fn submit_all(
    tx: &mut Tx,
    requests: &[Request<'_>],
    queued_per_organization: u32,
) -> Result<Vec<Submitted>, StoreError> {
    let mut turns = take_turns(tx, requests, queued_per_organization).await?;
    let now = tx.now().await?;
    let mut known = known_keys(tx, requests, now).await?;
    let mut answers = Vec::with_capacity(requests.len());
    let mut rows = Vec::new();
    let mut keys = Vec::new();
    for request in requests {
        let key_id = request.key_id();
        if let (Some(id), Some(key)) = (&key_id, request.key)
            && let Some(first) = known.get(id)
        {
            answers.push(if first.fingerprint == key.fingerprint {
                Submitted::Repeated(first.job.clone())
            } else {
                Submitted::KeyReused
            });
            continue;
        }
        let turn = turns.entry(request.organization()).or_default();
        if turn.room <= 0 {
            answers.push(Submitted::QueueFull);
            continue;
        }
        turn.room -= 1;
        let mut row = job_row::of_new(request.job, now)?;
        row.waiting_told = turn.full;
        telling::tell_submitted(tx, &row, turn.full);
        let job = job_row::read(&row)?;
        if let (Some(id), Some(key)) = (key_id, request.key) {
            keys.push(key_row(&id, key, job.id.uuid(), now));
            let fingerprint = key.fingerprint.to_vec();
            known.insert(id, KnownKey { fingerprint, job: job.clone() });
        }
        rows.push(row);
        answers.push(Submitted::Created(job));
    }
    give_turns_back(tx, requests, &rows).await?;
    insert(tx, rows, keys).await?;
    // Even without a new job: claims have passed over the locked turn rows.
    tx.touch(Topic::Jobs);
    Ok(answers)
}

/// Whether an organization has room.
#[derive(Default)]
struct Turn {
    /// How many jobs it may still queue, these not counted.
    room: i64,
    /// Whether it runs as many jobs as it may.
    full: bool,
}

/// Counts all requests into their turn rows, which locks them.
async fn take_turns(
    tx: &Tx,
    requests: &[Request<'_>],
    queued_per_organization: u32,
) -> Result<HashMap<Uuid, Turn>, StoreError> {
    let mut wanted = BTreeMap::<Uuid, i32>::new();
    for request in requests {
        *wanted.entry(request.organization()).or_default() += 1;
    }
    let tuples = (0..wanted.len())
        .map(|i| format!("(${}, ${}, 0, 0)", 2 * i + 1, 2 * i + 2))
        .collect::<Vec<_>>()
        .join(", ");
    let sql = format!(
        "INSERT INTO turns (organization_id, queued, running, last_turn_at) VALUES {tuples} \
         ON CONFLICT (organization_id) DO UPDATE SET queued = turns.queued + excluded.queued \
         RETURNING organization_id, queued, running_most > 0 AND running >= running_most AS is_full"
    );
    let values = wanted.iter().flat_map(|(id, count)| [Value::from(*id), Value::from(*count)]);
    let rows = tx.connection().query_all_raw(tx.engine().statement(sql, values)).await?;
    rows.iter()
        .map(|row| {
            let organization: Uuid = row.try_get("", "organization_id")?;
            let queued: i32 = row.try_get("", "queued")?;
            let before = queued - wanted.get(&organization).copied().unwrap_or_default();
            let room = i64::from(queued_per_organization) - i64::from(before);
            Ok((organization, Turn { room, full: row.try_get("", "is_full")? }))
        })
        .collect()
}

/// Takes back what `take_turns` counted for requests that made no job.
async fn give_turns_back(
    tx: &Tx,
    requests: &[Request<'_>],
    created: &[job::Model],
) -> Result<(), StoreError> {
    let mut over = BTreeMap::<Uuid, i32>::new();
    for request in requests {
        *over.entry(request.organization()).or_default() += 1;
    }
    for row in created {
        *over.entry(row.organization_id).or_default() -= 1;
    }
    for (organization, count) in over {
        crate::turns::shift(tx, organization, -count, 0).await?;
    }
    Ok(())
}

/// The keys of these requests that are alive, with the jobs that they made.
async fn known_keys(
    tx: &Tx,
    requests: &[Request<'_>],
    now: i64,
) -> Result<HashMap<KeyId, KnownKey>, StoreError> {
    use idempotency_key::{Column, Entity};
    let ids = requests.iter().filter_map(Request::key_id).collect::<Vec<_>>();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let columns =
        [Column::OrganizationId, Column::UserId, Column::TokenId, Column::Key].map(Expr::col);
    let keys = Entity::find()
        .filter(Expr::tuple(columns).in_tuples(ids))
        .filter(Column::ExpiresAt.gt(now))
        .all(tx.connection())
        .await?;
    let jobs = job::Entity::find()
        .filter(job::Column::Id.is_in(keys.iter().map(|key| key.job_id)))
        .all(tx.connection())
        .await?
        .into_iter()
        .map(|row| Ok((row.id, job_row::read(&row)?)))
        .collect::<Result<HashMap<_, _>, StoreError>>()?;
    // A key whose job has been purged is as good as expired.
    Ok(keys
        .into_iter()
        .filter_map(|key| {
            let job = jobs.get(&key.job_id)?.clone();
            let id = (key.organization_id, key.user_id, key.token_id, key.key);
            Some((id, KnownKey { fingerprint: key.fingerprint, job }))
        })
        .collect())
}

fn key_row(id: &KeyId, key: &IdempotencyKey, job: Uuid, now: i64) -> idempotency_key::Model {
    idempotency_key::Model {
        organization_id: id.0,
        user_id: id.1,
        token_id: id.2,
        key: id.3.clone(),
        fingerprint: key.fingerprint.to_vec(),
        job_id: job,
        expires_at: now + instant::span(key.life),
    }
}

async fn insert(
    tx: &Tx,
    rows: Vec<job::Model>,
    keys: Vec<idempotency_key::Model>,
) -> Result<(), StoreError> {
    use idempotency_key::Column;
    if rows.is_empty() {
        return Ok(());
    }
    for chunk in rows.chunks(ROWS_PER_INSERT) {
        let requesters = chunk.iter().map(|row| {
            requester::Model { job_id: row.id, user_id: row.user_id }.into_active_model()
        });
        job::Entity::insert_many(chunk.iter().map(|row| row.clone().into_active_model()))
            .exec_without_returning(tx.connection())
            .await?;
        requester::Entity::insert_many(requesters).exec_without_returning(tx.connection()).await?;
    }
    for chunk in keys.chunks(ROWS_PER_INSERT) {
        // What is replaced has expired: a live key was found and made no job.
        let replace = OnConflict::columns([
            Column::OrganizationId,
            Column::UserId,
            Column::TokenId,
            Column::Key,
        ])
        .update_columns([Column::Fingerprint, Column::JobId, Column::ExpiresAt])
        .to_owned();
        idempotency_key::Entity::insert_many(
            chunk.iter().map(|key| key.clone().into_active_model()),
        )
        .on_conflict(replace)
        .exec_without_returning(tx.connection())
        .await?;
    }
    Ok(())
}
