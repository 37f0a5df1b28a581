//! Products: who names one by `X-Product-Name` gets the connections of that product alone.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use outport_domain::{
    connection::{Connection, Products, products},
    id::OrganizationId,
    job::{ExportJob, JobKind},
};
use outport_store::{StoreError, connections};

use super::{FetCode, Refusal};
use crate::api::ApiState;

/// The product that a request is for, in lower case; `None` is for all.
pub struct Product(pub Option<String>);

impl FromRequestParts<Arc<ApiState>> for Product {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiState>) -> Result<Self, Refusal> {
        let mut values = parts.headers.get_all("x-product-name").iter();
        let Some(value) = values.next() else { return Ok(Self(None)) };
        let fits = |text: &&str| {
            (1..=100).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        let product = value.to_str().ok().filter(fits).ok_or_else(|| {
            wrong("X-Product-Name must have 1 to 100 letters, digits, '_' and '-'.")
        })?;
        // Which of two is meant, nobody knows.
        if values.next().is_some() {
            return Err(wrong("X-Product-Name must stand once."));
        }
        Ok(Self(Some(product.to_ascii_lowercase())))
    }
}

fn wrong(message: &str) -> Refusal {
    Refusal::new(FetCode::Header, message.to_owned())
}

impl Product {
    /// Refuses a connection that is of no product, or of another.
    pub fn check(&self, connection: &Connection) -> Result<(), Refusal> {
        self.check_one(&connection.name, connection.product.as_deref())
    }

    /// The same of all that are stored: others are missing, or configured for all.
    pub fn check_all(&self, stored: &[Connection]) -> Result<(), Refusal> {
        stored.iter().try_for_each(|connection| self.check(connection))
    }

    /// The same of those that a job was accepted to read, whatever has become of them.
    pub async fn check_job(&self, state: &ApiState, job: &ExportJob) -> Result<(), Refusal> {
        if self.0.is_none() {
            return Ok(());
        }
        let products = match &job.products {
            Some(products) => products,
            // Accepted before that was kept.
            None => &products_today(state, job).await?,
        };
        products.iter().try_for_each(|(name, product)| self.check_one(name, product.as_deref()))
    }

    fn check_one(&self, name: &str, product: Option<&str>) -> Result<(), Refusal> {
        let (code, of) = match (self.0.as_deref(), product) {
            (None, _) => return Ok(()),
            (Some(asked), Some(own)) if asked == own => return Ok(()),
            (Some(_), Some(_)) => (FetCode::ProductMismatch, "another product"),
            (Some(_), None) => (FetCode::ProductNotAssigned, "no product"),
        };
        Err(Refusal::new(code, format!("The connection '{name}' is of {of}.")))
    }
}

/// The stored connection that a resource reads, where it does: a configured one goes before it,
/// and is everybody's.
pub async fn products_of_resource(
    state: &ApiState,
    organization: OrganizationId,
    resource: &str,
) -> Result<Products, StoreError> {
    let resource = state.catalogue.0.get(resource);
    let connection = resource.map(|one| one.connection.as_str());
    match connection.filter(|name| !state.sources.contains_key(*name)) {
        Some(name) => products_named(state, organization, &[name]).await,
        None => Ok(Products::new()),
    }
}

async fn products_today(state: &ApiState, job: &ExportJob) -> Result<Products, StoreError> {
    let organization = job.scope.organization;
    match job.kind {
        JobKind::Fetcher => {
            // What a job of this kind has for columns are its connections.
            let names: Vec<&str> = job.columns.iter().map(String::as_str).collect();
            products_named(state, organization, &names).await
        }
        JobKind::Export => products_of_resource(state, organization, &job.resource).await,
    }
}

async fn products_named(
    state: &ApiState,
    organization: OrganizationId,
    names: &[&str],
) -> Result<Products, StoreError> {
    Ok(products(&connections::find_by_names(&state.store, organization, names).await?))
}
