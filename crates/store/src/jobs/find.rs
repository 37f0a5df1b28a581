//! Finders. The short names enforce tenancy.

use outport_domain::{
    id::{JobId, OrganizationId},
    job::{ExportJob, JobKind, JobStatus},
};
use sea_orm::{
    ColumnTrait as _, ConnectionTrait as _, EntityTrait as _, QueryFilter as _, Select,
    sea_query::Expr,
};

use super::JobFilter;
use crate::{
    Page, PageRequest, Store, StoreError,
    entity::job::{Column, Entity},
    instant, job_row, paging,
};

/// Jobs before a pending one that are counted.
const POSITIONS: i64 = 100;

/// The words of job queries.
trait Words {
    fn of(self, organization: OrganizationId) -> Self;
    fn matching(self, filter: &JobFilter) -> Self;
}

impl Words for Select<Entity> {
    fn of(self, organization: OrganizationId) -> Self {
        self.filter(Column::OrganizationId.eq(organization.uuid()))
    }

    fn matching(self, filter: &JobFilter) -> Self {
        // What is asked for as of a Fetcher is no export.
        let mut query = self.filter(Column::Kind.eq(JobKind::Export.name()));
        if let Some(status) = filter.status {
            // Literally, so that a partial index on the status can serve it.
            query = query.filter(Expr::cust(format!("status = '{}'", status.name())));
        }
        if let Some(resource) = &filter.resource {
            query = query.filter(Column::Resource.eq(resource));
        }
        if let Some(user) = filter.requested_by {
            query = query.filter(Column::UserId.eq(user.uuid()));
        }
        if let Some(application) = &filter.application {
            query = query.filter(Column::Application.eq(application));
        }
        if let Some(schedule) = filter.schedule {
            query = query.filter(Column::ScheduleId.eq(schedule.uuid()));
        }
        query
    }
}

/// A job of this organization.
pub async fn find(
    store: &Store,
    organization: OrganizationId,
    job: JobId,
) -> Result<Option<ExportJob>, StoreError> {
    let row = Entity::find_by_id(job.uuid()).of(organization).one(store.reader()).await?;
    row.as_ref().map(job_row::read).transpose()
}

/// A job of any organization: for workers, handlers and links, never for the API.
pub async fn find_in_any_organization(
    store: &Store,
    job: JobId,
) -> Result<Option<ExportJob>, StoreError> {
    let row = Entity::find_by_id(job.uuid()).one(store.reader()).await?;
    row.as_ref().map(job_row::read).transpose()
}

/// Jobs of this organization, newest first.
pub async fn list(
    store: &Store,
    organization: OrganizationId,
    filter: &JobFilter,
    page: PageRequest,
) -> Result<Page<ExportJob>, StoreError> {
    paging::page(list_query(organization, filter), Column::Id, page, store.reader(), job_row::read)
        .await
}

/// What a list pages through.
pub(crate) fn list_query(organization: OrganizationId, filter: &JobFilter) -> Select<Entity> {
    Entity::find().of(organization).matching(filter)
}

/// How many due jobs of its organization are before a pending job (0: it is next), for those
/// within the first hundred.
pub async fn queue_position(store: &Store, job: &ExportJob) -> Result<Option<u32>, StoreError> {
    if job.status != JobStatus::Pending {
        return Ok(None);
    }
    let sql = format!(
        "SELECT COUNT(*) AS before FROM (SELECT 1 FROM jobs WHERE organization_id = $1 \
         AND status = 'PENDING' AND due_at <= {} AND (due_at, id) < ($2, $3) \
         ORDER BY due_at, id LIMIT {POSITIONS}) AS first",
        store.engine().now()
    );
    let values = [
        job.scope.organization.uuid().into(),
        instant::millis(job.due_at).into(),
        job.id.uuid().into(),
    ];
    let row = store.reader().query_one_raw(store.engine().statement(sql, values)).await?;
    let before: i64 = row.map_or(Ok(POSITIONS), |row| row.try_get("", "before"))?;
    Ok((before < POSITIONS).then_some(before as u32))
}
