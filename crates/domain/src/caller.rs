//! Who calls, and what it may see.

use std::collections::BTreeSet;

use crate::{
    id::{CompanyId, CooperativeId, OrganizationId, TokenId, UserId},
    locale::Locale,
};

/// Whether a text is one plain e-mail address, without a name, comments or quotes: the only form
/// that mails are sent to.
pub fn is_plain_address(text: &str) -> bool {
    let labels = |part: &str| part.split('.').all(|label| !label.is_empty());
    text.len() <= 254
        && text.split_once('@').is_some_and(|(local, domain)| {
            labels(local) && labels(domain) && domain.contains('.') && !domain.contains('@')
        })
        && text
            .chars()
            .all(|c| !c.is_control() && !c.is_whitespace() && !"<>,;:\"()[]\\".contains(c))
}

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
    /// Store, change, test and delete connections of one's organization.
    ConnectionsAdmin,
    /// Read whatever one's organization's connections may read, by the Fetcher facade.
    FetcherRun,
    /// Follow the live stream of what one may see.
    EventsRead,
    /// Post events to the live stream.
    EventsWrite,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ExportsRead,
        Self::ExportsWrite,
        Self::ExportsActFor,
        Self::ResourcesRead,
        Self::DeliveriesAdmin,
        Self::TokensAdmin,
        Self::ConnectionsAdmin,
        Self::FetcherRun,
        Self::EventsRead,
        Self::EventsWrite,
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
            Self::ConnectionsAdmin => "connections:admin",
            Self::FetcherRun => "fetcher:run",
            Self::EventsRead => "events:read",
            Self::EventsWrite => "events:write",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_plain_address_and_nothing_else_is_an_address() {
        for text in ["ana@example.com", "a.b+c@mail.example.com", "joão@exemplo.com.br"] {
            assert!(is_plain_address(text), "{text:?}");
        }
        let long = format!("{}@example.com", "a".repeat(250));
        for text in [
            "",
            "ana",
            "ana@",
            "@example.com",
            "ana@localhost",
            "ana@.com",
            "ana@example.",
            "a@b@c.d",
            "a@b.c, v@x.y",
            "a@b.c,v@x.y",
            "a@b.c;v@x.y",
            "Ana <ana@b.c>",
            "a b@c.d",
            "a..b@c.d",
            "a@b.c\r\nBcc: v@x.y",
            "\"a\"@b.c",
            "a(x)@b.c",
            &long,
        ] {
            assert!(!is_plain_address(text), "{text:?}");
        }
    }
}
