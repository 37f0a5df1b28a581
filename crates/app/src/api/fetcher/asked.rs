//! What handlers of the facade take out of a request: the same as others, with its own errors.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, request::Parts},
};

use super::{FetCode, Refusal};
use crate::api::{ApiState, extract::JsonBody, problem::Problem};

/// Something taken out of a request's head.
pub struct Asked<T>(pub T);

impl<T> FromRequestParts<Arc<ApiState>> for Asked<T>
where
    T: FromRequestParts<Arc<ApiState>, Rejection = Problem>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Refusal> {
        Ok(Self(T::from_request_parts(parts, state).await?))
    }
}

/// A JSON body as text.
pub struct AskedBody(pub String);

impl FromRequest<Arc<ApiState>> for AskedBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &Arc<ApiState>) -> Result<Self, Refusal> {
        let JsonBody(body) = JsonBody::from_request(request, state).await?;
        Ok(Self(body))
    }
}

/// The product that `X-Product-Name` names, in lower case.
pub fn product(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get("x-product-name") else { return Ok(None) };
    let fits = |text: &&str| {
        (1..=100).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let product = value.to_str().ok().filter(fits).ok_or_else(|| {
        let message = "X-Product-Name must have 1 to 100 letters, digits, '_' and '-'.".to_owned();
        Refusal::new(FetCode::Header, message)
    })?;
    Ok(Some(product.to_ascii_lowercase()))
}
