//! Who calls, and what it may see.

use std::collections::BTreeSet;

use crate::{
    id::{CompanyId, CooperativeId, OrganizationId, TokenId, UserId},
    locale::Locale,
};

/// A right that a credential carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permission {
    /// Read one's organization's exports and download their files.
    ExportsRead,
    /// Request, cancel, rerun and delete exports.
    ExportsWrite,
    /// Request exports on behalf of a user named in `X-Outport-User`.
    ExportsActFor,
    /// Read what may be exported.
    ResourcesRead,
    /// See and retry deliveries.
    DeliveriesAdmin,
    /// Make and revoke API tokens of one's organization.
    TokensAdmin,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ExportsRead,
        Self::ExportsWrite,
        Self::ExportsActFor,
        Self::ResourcesRead,
        Self::DeliveriesAdmin,
        Self::TokensAdmin,
    ];

    /// The scope's name in tokens and claims, e.g. `exports:read`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExportsRead => "exports:read",
            Self::ExportsWrite => "exports:write",
            Self::ExportsActFor => "exports:act-for",
            Self::ResourcesRead => "resources:read",
            Self::DeliveriesAdmin => "deliveries:admin",
            Self::TokensAdmin => "tokens:admin",
        }
    }
}

/// An authenticated caller. Everything here comes from its credential, nothing from a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant; every read and write is limited to it.
    pub organization: OrganizationId,
    /// The companies it may see; `None` means all of its organization.
    pub companies: Option<Vec<CompanyId>>,
    /// The cooperatives it may see; `None` means all of its organization.
    pub cooperatives: Option<Vec<CooperativeId>>,
    /// Who it is.
    pub user: UserId,
    /// Where it is told about its exports.
    pub email: Option<String>,
    /// How mails address it.
    pub name: Option<String>,
    /// Its language, when its credential says one.
    pub locale: Option<Locale>,
    /// Names of the scopes granted. Ours are [`Permission`]s; a resource may ask for others.
    pub scopes: BTreeSet<String>,
    /// The API token it used, if it used one.
    pub token: Option<TokenId>,
}

impl Caller {
    /// Whether the credential carries this right.
    pub fn may(&self, permission: Permission) -> bool {
        self.scopes.contains(permission.name())
    }

    /// Whether it sees only some companies or cooperatives of its organization.
    pub fn is_restricted(&self) -> bool {
        self.companies.is_some() || self.cooperatives.is_some()
    }
}
