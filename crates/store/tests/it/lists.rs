//! Lists of jobs and the numbers of the metrics page.

use outport_domain::{
    id::{Id, OrganizationId},
    job::{ExportJob, JobStatus},
};
use outport_store::jobs::{self, JobFilter};
use uuid::Uuid;

use crate::bench::{Bench, HANDLER, first_page, new_job};

on_both_engines!(
    pages_stay_stable_while_jobs_arrive,
    filters_combine,
    a_job_is_found_in_its_organization_alone,
    gauges_count_what_is_there,
);

async fn list(bench: &Bench, organization: OrganizationId, filter: &JobFilter) -> Vec<Uuid> {
    let page = jobs::list(&bench.store, organization, filter, first_page(100)).await;
    page.expect("a page").items.iter().map(|job| job.id.uuid()).collect()
}

async fn pages_stay_stable_while_jobs_arrive(bench: Bench) {
    let organization = OrganizationId::new();
    let mut expected = Vec::new();
    for _ in 0..7 {
        expected.insert(0, bench.submit(&new_job(organization)).await.id);
        bench.submit(&new_job(OrganizationId::new())).await;
    }
    let mut request = first_page(3);
    let mut seen = Vec::new();
    loop {
        let page = jobs::list(&bench.store, organization, &JobFilter::default(), request).await;
        let page = page.expect("a page");
        assert!(page.items.len() <= 3);
        seen.extend(page.items.iter().map(|job: &ExportJob| job.id));
        bench.submit(&new_job(organization)).await;
        match page.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, expected);
}

async fn filters_combine(bench: Bench) {
    let organization = OrganizationId::new();
    let mut customers = new_job(organization);
    "customer".clone_into(&mut customers.resource);
    customers.schedule = Some(Id::new());
    let customers = bench.submit(&customers).await;
    let orders = bench.submit(&new_job(organization)).await;
    let claimed = bench.claim().await.expect("the older one").job;
    assert_eq!(claimed.id, customers.id);
    let all = JobFilter::default();
    let both = vec![orders.id.uuid(), customers.id.uuid()];
    assert_eq!(list(&bench, organization, &all).await, both);
    let one = vec![customers.id.uuid()];
    let status = JobFilter { status: Some(JobStatus::Processing), ..all.clone() };
    let resource = JobFilter { resource: Some("customer".to_owned()), ..all.clone() };
    let user = JobFilter { requested_by: Some(customers.caller.user), ..all.clone() };
    let schedule = JobFilter { schedule: customers.schedule, ..all.clone() };
    for filter in [status, resource, user, schedule] {
        assert_eq!(list(&bench, organization, &filter).await, one, "{filter:?}");
        assert_eq!(list(&bench, OrganizationId::new(), &filter).await, Vec::<Uuid>::new());
        let none = JobFilter { status: Some(JobStatus::Failed), ..filter };
        assert_eq!(list(&bench, organization, &none).await, Vec::<Uuid>::new());
    }
}

async fn a_job_is_found_in_its_organization_alone(bench: Bench) {
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    let elsewhere = jobs::find(&bench.store, OrganizationId::new(), job.id).await;
    assert_eq!(elsewhere.expect("a look"), None);
    let anywhere = jobs::find_in_any_organization(&bench.store, job.id).await;
    assert_eq!(anywhere.expect("a look"), Some(job));
}

async fn gauges_count_what_is_there(bench: Bench) {
    let empty = jobs::gauges(&bench.store).await.expect("numbers");
    assert_eq!(empty, jobs::Gauges::default());
    bench.register(HANDLER, &["export.completed"]).await;
    bench.completed(OrganizationId::new()).await;
    let organization = OrganizationId::new();
    bench.running(organization).await;
    bench.submit(&new_job(organization)).await;
    bench.force("UPDATE jobs SET due_at = due_at - 60000").await;
    let gauges = jobs::gauges(&bench.store).await.expect("numbers");
    assert_eq!((gauges.queued, gauges.running), (1, 1));
    assert!(gauges.oldest_queued.is_some_and(|age| age.as_secs() >= 60), "{gauges:?}");
    assert_eq!(gauges.deliveries, [(HANDLER.to_owned(), "PENDING", 1)]);
    assert!(gauges.oldest_delivery.is_some());
}
