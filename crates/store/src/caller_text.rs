//! A caller as the tables hold it: tenant and user in columns of their own, the rest as JSON.

use std::collections::BTreeSet;

use outport_domain::{
    caller::Caller,
    id::{CompanyId, CooperativeId, OrganizationId, TokenId, UserId},
    locale::Locale,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::StoreError;

#[derive(Serialize, Deserialize)]
struct CallerText {
    companies: Option<Vec<Uuid>>,
    cooperatives: Option<Vec<Uuid>>,
    email: Option<String>,
    name: Option<String>,
    locale: Option<String>,
    scopes: BTreeSet<String>,
    token: Option<Uuid>,
}

/// The JSON part.
pub fn write(caller: &Caller) -> Result<String, StoreError> {
    let text = CallerText {
        companies: caller.companies.as_ref().map(|ids| ids.iter().map(|id| id.uuid()).collect()),
        cooperatives: caller
            .cooperatives
            .as_ref()
            .map(|ids| ids.iter().map(|id| id.uuid()).collect()),
        email: caller.email.clone(),
        name: caller.name.clone(),
        locale: caller.locale.map(|locale| locale.tag().to_owned()),
        scopes: caller.scopes.clone(),
        token: caller.token.map(TokenId::uuid),
    };
    serde_json::to_string(&text).map_err(|error| StoreError::Refused(error.into()))
}

/// The caller again.
pub fn read(organization: Uuid, user: Uuid, text: &str) -> Result<Caller, StoreError> {
    let text: CallerText = serde_json::from_str(text)
        .map_err(|_| StoreError::Corrupt("a caller is not the JSON of a caller".to_owned()))?;
    Ok(Caller {
        organization: OrganizationId::from_uuid(organization),
        companies: text.companies.map(|ids| ids.into_iter().map(CompanyId::from_uuid).collect()),
        cooperatives: text
            .cooperatives
            .map(|ids| ids.into_iter().map(CooperativeId::from_uuid).collect()),
        user: UserId::from_uuid(user),
        email: text.email,
        name: text.name,
        locale: text.locale.as_deref().and_then(Locale::from_tag),
        scopes: text.scopes,
        token: text.token.map(TokenId::from_uuid),
    })
}
