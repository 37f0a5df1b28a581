//! What handlers of the facade take out of a request: the same as others, with its own errors.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
};

use super::Refusal;
use crate::api::{
    ApiState,
    extract::{JsonBody, Params},
    problem::Problem,
};

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

/// A request without parameters in its query.
pub struct NoQuery;

impl FromRequestParts<Arc<ApiState>> for NoQuery {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Refusal> {
        let params = Params::from_request_parts(parts, state).await?;
        params.known(&[]).finish()?;
        Ok(Self)
    }
}
