//! Ids that cannot be confused: one generic type, one marker per thing it names.

use std::{cmp::Ordering, fmt, hash::Hash, marker::PhantomData, str::FromStr};

use uuid::Uuid;

/// A UUID that names one kind of thing. New ones are version 7, so they sort by birth.
pub struct Id<T>(Uuid, PhantomData<fn() -> T>);

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $alias:ident),* $(,)?) => {
        /// Markers of what an [`Id`] names.
        pub mod kind {
            $($(#[$doc])* #[derive(Debug)] pub enum $kind {})*
        }
        $($(#[$doc])* pub type $alias = Id<kind::$kind>;)*
    };
}

kinds! {
    /// An export job.
    Job => JobId,
    /// A schedule that produces export jobs.
    Schedule => ScheduleId,
    /// A tenant.
    Organization => OrganizationId,
    /// A company within an organization.
    Company => CompanyId,
    /// A cooperative within an organization.
    Cooperative => CooperativeId,
    /// A person or machine account that asks for exports.
    User => UserId,
    /// A committed event of the outbox.
    Event => EventId,
    /// One (event, handler, target) to be carried out.
    Delivery => DeliveryId,
    /// An API token.
    Token => TokenId,
    /// A stored connection.
    Connection => ConnectionId,
}

impl<T> Id<T> {
    /// A fresh id (UUID version 7).
    pub fn new() -> Self {
        Self::from_uuid(Uuid::now_v7())
    }

    /// The id with this value.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid, PhantomData)
    }

    /// The bare value, for the wire and the database.
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

impl<T> Default for Id<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<T> Hash for Id<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> fmt::Display for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> FromStr for Id<T> {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Only the canonical hyphenated form: one id has one spelling in URLs and logs.
        if text.len() == 36 {
            text.parse().map(Self::from_uuid)
        } else {
            Err(Uuid::parse_str("").expect_err("an empty text is no UUID"))
        }
    }
}

/// The fence of one run: every write of a worker names all of it, and a write whose fence no
/// longer matches the row changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The job that is being run.
    pub job: JobId,
    /// Which attempt; only ever grows.
    pub run: u32,
    /// Fresh with every claim.
    pub lease_token: Uuid,
}
