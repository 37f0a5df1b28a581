//! How far a caller sees within its organization, compared with what something holds.

use outport_domain::{
    caller::Caller,
    id::{CompanyId, CooperativeId},
    job::ExportJob,
};

/// Whether every row that a job may hold is one that the caller may see. A job of a company or
/// cooperative of the caller's is; so is one whose requester saw no more than the caller does.
/// That a caller asked for a job itself is not enough: its rights may have shrunk since.
pub fn sees_job(caller: &Caller, job: &ExportJob) -> bool {
    if job.scope.organization != caller.organization {
        return false;
    }
    let own_company = job.scope.company.is_some_and(|id| lists(caller.companies.as_deref(), id));
    let own_cooperative =
        job.scope.cooperative.is_some_and(|id| lists(caller.cooperatives.as_deref(), id));
    own_company || own_cooperative || covers(caller, &job.caller)
}

/// Whether `caller` sees all that `other`, of the same organization, sees.
pub fn covers(caller: &Caller, other: &Caller) -> bool {
    covers_lists(caller, other.companies.as_deref(), other.cooperatives.as_deref())
}

/// Whether `caller` sees all that somebody restricted to these lists (`None`, `None`: not
/// restricted) sees. Somebody with both sees the rows of either.
pub fn covers_lists(
    caller: &Caller,
    companies: Option<&[CompanyId]>,
    cooperatives: Option<&[CooperativeId]>,
) -> bool {
    if !caller.is_restricted() {
        return true;
    }
    (companies.is_some() || cooperatives.is_some())
        && companies.unwrap_or_default().iter().all(|id| lists(caller.companies.as_deref(), *id))
        && cooperatives
            .unwrap_or_default()
            .iter()
            .all(|id| lists(caller.cooperatives.as_deref(), *id))
}

fn lists<T: PartialEq + Copy>(own: Option<&[T]>, id: T) -> bool {
    own.is_some_and(|own| own.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outport_domain::id::{OrganizationId, UserId};

    fn caller(companies: Option<&[u128]>, cooperatives: Option<&[u128]>) -> Caller {
        let ids =
            |list: &[u128]| list.iter().map(|n| uuid::Uuid::from_u128(*n)).collect::<Vec<_>>();
        Caller {
            organization: OrganizationId::from_uuid(uuid::Uuid::from_u128(1)),
            companies: companies
                .map(|list| ids(list).into_iter().map(CompanyId::from_uuid).collect()),
            cooperatives: cooperatives
                .map(|list| ids(list).into_iter().map(CooperativeId::from_uuid).collect()),
            user: UserId::new(),
            email: None,
            name: None,
            locale: None,
            scopes: [].into(),
            token: None,
        }
    }

    #[test]
    fn a_restricted_caller_never_covers_more_than_its_lists() {
        let all = caller(None, None);
        let one = caller(Some(&[1]), None);
        let two = caller(Some(&[1, 2]), None);
        let coop = caller(None, Some(&[1]));
        let both = caller(Some(&[1]), Some(&[1]));
        let cases = [
            (&all, &one, true),
            (&one, &all, false),
            (&two, &one, true),
            (&one, &two, false),
            (&one, &one, true),
            (&one, &coop, false),
            (&coop, &one, false),
            (&both, &one, true),
            (&both, &coop, true),
            (&one, &both, false),
        ];
        for (number, (wider, narrower, expected)) in cases.into_iter().enumerate() {
            assert_eq!(covers(wider, narrower), expected, "case {number}");
        }
    }
}
