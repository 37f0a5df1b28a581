//! Products: who names one by `X-Product-Name` gets the connections of that product alone.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};
use outport_domain::connection::Connection;

use super::{FetCode, Refusal};
use crate::api::ApiState;

/// The product that a request is for, in lower case; `None` is for all.
pub struct Product(pub Option<String>);

impl FromRequestParts<Arc<ApiState>> for Product {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<ApiState>) -> Result<Self, Refusal> {
        let Some(value) = parts.headers.get("x-product-name") else { return Ok(Self(None)) };
        let fits = |text: &&str| {
            (1..=100).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        let product = value.to_str().ok().filter(fits).ok_or_else(|| {
            let message = "X-Product-Name must have 1 to 100 letters, digits, '_' and '-'.";
            Refusal::new(FetCode::Header, message.to_owned())
        })?;
        Ok(Self(Some(product.to_ascii_lowercase())))
    }
}

impl Product {
    /// Refuses a connection that is of no product, or of another.
    pub fn check(&self, connection: &Connection) -> Result<(), Refusal> {
        let name = &connection.name;
        let (code, of) = match (&self.0, &connection.product) {
            (None, _) => return Ok(()),
            (Some(asked), Some(own)) if asked == own => return Ok(()),
            (Some(_), Some(_)) => (FetCode::ProductMismatch, "another product"),
            (Some(_), None) => (FetCode::ProductNotAssigned, "no product"),
        };
        Err(Refusal::new(code, format!("The connection '{name}' is of {of}.")))
    }

    /// The same of all that are stored: others are missing, or configured for all.
    pub fn check_all(&self, stored: &[Connection]) -> Result<(), Refusal> {
        stored.iter().try_for_each(|connection| self.check(connection))
    }
}
