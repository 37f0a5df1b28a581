//! Channels and scopes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Letters of an application's name, at most.
const MOST_NAME: usize = 100;

/// What a channel is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelKind {
    /// One job.
    Job,
    /// One application of an organization.
    Application,
    /// One organization.
    Organization,
}

impl ChannelKind {
    /// All of them, in the order of the catalogue.
    pub const ALL: [Self; 3] = [Self::Job, Self::Application, Self::Organization];

    /// What a channel's name begins with, before the colon.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Application => "application",
            Self::Organization => "organization",
        }
    }
}

/// A channel; its text is `job:<id>`, `application:<organization>.<name>` or
/// `organization:<id>`, ids as lower-case UUIDs. One channel has one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Of a job.
    Job(Uuid),
    /// Of an application: its organization and its name, 1 to 100 of `a-z A-Z 0-9 _ -`.
    Application(Uuid, String),
    /// Of an organization.
    Organization(Uuid),
}

/// Why a text names no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be job:<id>, application:<organization id>.<name> or organization:<id>, ids as \
     lower-case UUIDs"
)]
pub struct InvalidChannel;

impl Channel {
    /// What it is about.
    pub const fn kind(&self) -> ChannelKind {
        match self {
            Self::Job(_) => ChannelKind::Job,
            Self::Application(..) => ChannelKind::Application,
            Self::Organization(_) => ChannelKind::Organization,
        }
    }

    /// Whether an application may be called so.
    pub fn is_application_name(name: &str) -> bool {
        (1..=MOST_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind().name();
        match self {
            Self::Job(id) | Self::Organization(id) => write!(f, "{kind}:{id}"),
            Self::Application(organization, name) => write!(f, "{kind}:{organization}.{name}"),
        }
    }
}

impl FromStr for Channel {
    type Err = InvalidChannel;

    fn from_str(text: &str) -> Result<Self, InvalidChannel> {
        let (kind, rest) = text.split_once(':').ok_or(InvalidChannel)?;
        match kind {
            "job" => Ok(Self::Job(id(rest)?)),
            "organization" => Ok(Self::Organization(id(rest)?)),
            "application" => {
                let (organization, name) = rest.split_once('.').ok_or(InvalidChannel)?;
                if !Self::is_application_name(name) {
                    return Err(InvalidChannel);
                }
                Ok(Self::Application(id(organization)?, name.to_owned()))
            }
            _ => Err(InvalidChannel),
        }
    }
}

/// Only the one spelling: a channel that had two would have two sequences.
fn id(text: &str) -> Result<Uuid, InvalidChannel> {
    let id: Uuid = text.parse().map_err(|_| InvalidChannel)?;
    if id.to_string() == text { Ok(id) } else { Err(InvalidChannel) }
}

impl Serialize for Channel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Channel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Whom an event concerns: the organization always, the others when they apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// The organization.
    pub organization: Uuid,
    /// The application, `<organization id>.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Uuid>,
}

impl Scope {
    /// The scope of a job of an organization's application.
    pub fn of_job(organization: Uuid, application: &str, job: Uuid) -> Self {
        let application = Some(format!("{organization}.{application}"));
        Self { organization, application, job: Some(job) }
    }

    /// Its channel of a kind; `None` when the scope has no such member, or when its application
    /// is no application of its organization.
    pub fn channel(&self, kind: ChannelKind) -> Option<Channel> {
        match kind {
            ChannelKind::Organization => Some(Channel::Organization(self.organization)),
            ChannelKind::Job => self.job.map(Channel::Job),
            ChannelKind::Application => {
                let channel = format!("application:{}", self.application.as_deref()?).parse();
                let own = |channel: &Channel| matches!(channel, Channel::Application(owner, _) if *owner == self.organization);
                channel.ok().filter(own)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0197a801-1690-7590-b3cf-19599b9be3e4";

    #[test]
    fn a_channel_has_one_text() {
        for text in [
            format!("job:{ID}"),
            format!("organization:{ID}"),
            format!("application:{ID}.Shop_1-x"),
        ] {
            let channel: Channel = text.parse().expect("a channel");
            assert_eq!(channel.to_string(), text);
        }
        for text in [
            String::new(),
            "job".to_owned(),
            "job:".to_owned(),
            format!("job:{}", ID.to_uppercase()),
            format!("job:{}", ID.replace('-', "")),
            format!("job:{{{ID}}}"),
            format!("jobs:{ID}"),
            format!("Job:{ID}"),
            format!(" job:{ID}"),
            format!("job:{ID}\n"),
            format!("application:{ID}"),
            format!("application:{ID}."),
            format!("application:{ID}.a.b"),
            format!("application:{ID}.{}", "a".repeat(101)),
        ] {
            assert_eq!(text.parse::<Channel>(), Err(InvalidChannel), "{text:?}");
        }
    }

    #[test]
    fn a_scope_has_the_channels_of_its_members() {
        let id: Uuid = ID.parse().expect("an id");
        let scope = Scope::of_job(id, "shop", Uuid::from_u128(7));
        let channels = ChannelKind::ALL.map(|kind| scope.channel(kind).expect("it").to_string());
        assert_eq!(
            channels,
            [
                "job:00000000-0000-0000-0000-000000000007".to_owned(),
                format!("application:{ID}.shop"),
                format!("organization:{ID}")
            ]
        );
        let foreign = Scope { organization: Uuid::from_u128(1), ..scope };
        assert_eq!(foreign.channel(ChannelKind::Application), None);
        let bare = Scope { application: None, job: None, ..foreign };
        assert_eq!(bare.channel(ChannelKind::Job), None);
        assert_eq!(bare.channel(ChannelKind::Application), None);
    }
}
