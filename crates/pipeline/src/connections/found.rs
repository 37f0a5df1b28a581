//! The connections that a request names, looked up once, so that whatever is decided about them is
//! decided about the same ones: a name may be another connection's a moment later.

use outport_domain::{
    connection::{Connection, ConnectionIds, Products},
    id::OrganizationId,
    job::ExportJob,
};
use outport_store::{StoreError, connections};

use super::{Connections, Unusable, Usable};

/// What the names of one request stood for when they were looked up.
pub struct Found {
    /// All that the organization stores by these names, in the order of their ids.
    pub seen: Vec<Connection>,
    /// Those of them that are read: a configured one that is shared goes before a stored one.
    pub stored: Vec<Connection>,
    /// Names of nothing that may be read.
    pub missing: Vec<String>,
}

impl Connections {
    /// What may be read whole by these names: configured connections that are shared, or else the
    /// organization's own.
    pub async fn find(
        &self,
        organization: OrganizationId,
        names: &[&str],
    ) -> Result<Found, StoreError> {
        self.look(organization, names, |name| !self.is_shared(name), |_| true).await
    }

    /// The connections that a facade job was accepted to read. Where one of them is gone, whatever
    /// has its name now is not read in its place.
    pub async fn find_accepted(&self, job: &ExportJob) -> Result<Found, StoreError> {
        // What a job of this kind has for columns are its connections.
        let names: Vec<&str> = job.columns.iter().map(String::as_str).collect();
        let is_stored = |name: &str| match &job.connection_ids {
            Some(ids) => ids.contains_key(name),
            None => !self.is_shared(name),
        };
        let was_accepted = |one: &Connection| was_accepted(job, one);
        self.look(job.scope.organization, &names, is_stored, was_accepted).await
    }

    async fn look(
        &self,
        organization: OrganizationId,
        names: &[&str],
        is_stored: impl Fn(&str) -> bool,
        is_read: impl Fn(&Connection) -> bool,
    ) -> Result<Found, StoreError> {
        let seen = connections::find_by_names(&self.0.store, organization, names).await?;
        let stored = seen.iter().filter(|one| is_stored(&one.name) && is_read(one));
        let stored: Vec<Connection> = stored.cloned().collect();
        let is_there = |name: &str| {
            let is_found = stored.iter().any(|one| one.name == name);
            if is_stored(name) { is_found } else { self.is_shared(name) }
        };
        let missing = names.iter().filter(|name| !is_there(name));
        let missing = missing.map(|name| (*name).to_owned()).collect();
        Ok(Found { seen, stored, missing })
    }

    fn is_shared(&self, name: &str) -> bool {
        self.0.shared.contains_key(name)
    }

    /// One of those that were found, ready to be dialled.
    pub async fn usable(&self, found: &Found, name: &str) -> Result<Usable, Unusable> {
        if let Some(connection) = found.stored.iter().find(|one| one.name == name) {
            return self.open(connection).await;
        }
        let is_missing = found.missing.iter().any(|one| one == name);
        match self.0.shared.get(name).filter(|_| !is_missing) {
            Some(config) => Ok(Usable { config: config.clone(), default_schema: None }),
            None => Err(Unusable::Unknown(name.to_owned())),
        }
    }
}

/// Whether it is the very connection that a job was accepted to read, as far as that was kept.
pub(super) fn was_accepted(job: &ExportJob, connection: &Connection) -> bool {
    let is_it = |ids: &ConnectionIds| ids.get(&connection.name) == Some(&connection.id);
    let is_of = |products: &Products| products.get(&connection.name) == Some(&connection.product);
    job.connection_ids.as_ref().is_none_or(is_it) && job.products.as_ref().is_none_or(is_of)
}
