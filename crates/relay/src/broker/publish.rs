//! Windows of messages, and what became of each.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use chrono::Utc;
use futures::future::join_all;
use lapin::{Channel, Confirmation, message::BasicReturnMessage};
use outport_contract::key_ring::KeyRing;

use super::{
    config::{BrokerConfig, Unroutable},
    emission::Outgoing,
    figures::Figures,
    link::Link,
    session::{Session, Trouble},
};

/// Messages of a window, at most: enough that its one round trip is cheap.
const WINDOW: usize = 500;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The broker has it.
    Published,
    /// No queue took it.
    Returned(String),
    /// The broker said no.
    Nacked,
    /// The broker closed the channel for it.
    Refused(String),
    /// Nobody knows; it may have arrived.
    Unknown(String),
}

/// Publishes job events.
pub(crate) struct Publisher {
    config: Arc<BrokerConfig>,
    keys: KeyRing,
    figures: Arc<Figures>,
    link: Arc<Link>,
    window: AtomicUsize,
}

impl Publisher {
    /// One that signs with the current key of this ring of external keys.
    pub(crate) fn new(config: BrokerConfig, keys: KeyRing, figures: Arc<Figures>) -> Self {
        let config = Arc::new(config);
        let link = Arc::new(Link::new(Arc::clone(&config), Arc::clone(&figures)));
        Self { config, keys, figures, link, window: AtomicUsize::new(WINDOW) }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.link.is_ready()
    }

    /// Messages that the next window should have: half as many after a window that failed, so
    /// that a slow broker confirms one in time, and twice as many after one that did not.
    pub(crate) fn window(&self) -> usize {
        self.window.load(Relaxed)
    }

    /// Publishes a window. One fate for each message, in their order.
    pub(crate) async fn publish(&self, window: &[Outgoing<'_>]) -> Vec<Fate> {
        let Some(session) = self.link.session() else {
            return unknown(window.len(), "there is no connection to the broker");
        };
        let fates = match self.together(&session, window).await {
            Ok(fates) => fates,
            Err(Trouble::Channel(error)) => {
                tracing::warn!(error, of = window.len(), "a window is sent again, one by one");
                self.one_by_one(&session, window).await
            }
            Err(trouble) => {
                let error = self.give_up(&session, &trouble);
                unknown(window.len(), &error)
            }
        };
        self.count(&fates);
        fates
    }

    /// Sends all, then waits for all. A window with one confirm missing says nothing about the
    /// others: a returned message may be with the confirm that is missing.
    async fn together(
        &self,
        session: &Session,
        window: &[Outgoing<'_>],
    ) -> Result<Vec<Fate>, Trouble> {
        let channel = session.channel().await?;
        let sending = window.iter().map(|message| self.send(session, &channel, *message));
        let mut troubles = Vec::new();
        let mut confirmations = Vec::with_capacity(window.len());
        for outcome in join_all(sending).await {
            match outcome {
                Ok(confirmation) => confirmations.push(confirmation),
                Err(trouble) => troubles.push(trouble),
            }
        }
        if let Some(worst) = worst(troubles) {
            return Err(worst);
        }
        session.give_back(channel);
        fates(window, confirmations)
    }

    /// Sends one, waits for it, sends the next: a message that costs the channel costs no other.
    async fn one_by_one(&self, session: &Arc<Session>, window: &[Outgoing<'_>]) -> Vec<Fate> {
        let mut fates = Vec::with_capacity(window.len());
        for message in window {
            let fate = match self.alone(session, *message).await {
                Ok(fate) => fate,
                Err(Trouble::Channel(error)) => Fate::Refused(error),
                Err(trouble) => {
                    let error = self.give_up(session, &trouble);
                    fates.extend(unknown(window.len() - fates.len(), &error));
                    break;
                }
            };
            fates.push(fate);
        }
        fates
    }

    async fn alone(&self, session: &Session, message: Outgoing<'_>) -> Result<Fate, Trouble> {
        let channel = session.channel().await?;
        let confirmation = self.send(session, &channel, message).await?;
        session.give_back(channel);
        let mut fates = fates(&[message], vec![confirmation])?;
        fates.pop().ok_or(Trouble::Foreign)
    }

    /// Every sending has an instant and signatures of its own.
    async fn send(
        &self,
        session: &Session,
        channel: &Channel,
        message: Outgoing<'_>,
    ) -> Result<Confirmation, Trouble> {
        let properties = message.properties(&self.config, &self.keys, Utc::now());
        let limit = self.config.confirm_time;
        session.send(channel, &self.config.exchange, message, properties, limit).await
    }

    /// The session did not do its work. Says why, for people.
    fn give_up(&self, session: &Arc<Session>, trouble: &Trouble) -> String {
        if matches!(trouble, Trouble::NotRequested | Trouble::Foreign) {
            tracing::error!(%trouble, "nothing is known about a window");
        }
        let is_blocked = session.is_blocked();
        self.link.fails(session);
        let halved = self.window() / 2;
        self.window.store(halved.max(1), Relaxed);
        if is_blocked { "the broker blocks publishers".to_owned() } else { trouble.to_string() }
    }

    fn count(&self, fates: &[Fate]) {
        for fate in fates {
            match fate {
                Fate::Published => self.figures.published(),
                Fate::Returned(_) => match self.config.unroutable {
                    Unroutable::Accept => self.figures.accepted_unroutable(),
                    Unroutable::Retry => self.figures.returned(),
                },
                Fate::Nacked => self.figures.nacked(),
                Fate::Refused(_) => self.figures.refused(),
                Fate::Unknown(_) => return,
            }
        }
        self.link.works();
        self.window.store((self.window() * 2).min(WINDOW), Relaxed);
    }
}

fn unknown(count: usize, error: &str) -> Vec<Fate> {
    vec![Fate::Unknown(error.to_owned()); count]
}

/// What a window failed of: the others follow from it.
fn worst(mut troubles: Vec<Trouble>) -> Option<Trouble> {
    let rank = |trouble: &Trouble| match trouble {
        Trouble::NotRequested | Trouble::Foreign => 0,
        Trouble::Connection(_) | Trouble::Certificate(_) => 1,
        Trouble::Late => 2,
        Trouble::Destination(_) => 3,
        Trouble::Channel(_) => 4,
    };
    troubles.sort_by_key(rank);
    troubles.into_iter().next()
}

/// The fates of a window that has all of its confirms.
fn fates(window: &[Outgoing<'_>], confirmations: Vec<Confirmation>) -> Result<Vec<Fate>, Trouble> {
    let is_nacked: Vec<bool> = confirmations.iter().map(Confirmation::is_nack).collect();
    let mut returned: HashMap<String, String> = HashMap::new();
    for message in confirmations.into_iter().filter_map(Confirmation::take_message) {
        let id = message.properties.message_id().as_ref().map(ToString::to_string);
        returned.insert(id.unwrap_or_default(), reason(&message));
    }
    let mut found = HashSet::new();
    let fates = window
        .iter()
        .zip(is_nacked)
        .map(|(message, is_nacked)| {
            let id = message.id();
            match (returned.get(&id), is_nacked) {
                (Some(reason), _) => {
                    found.insert(id);
                    Fate::Returned(reason.clone())
                }
                (None, true) => Fate::Nacked,
                (None, false) => Fate::Published,
            }
        })
        .collect();
    // If one is not ours, what is ours is not known either.
    if found.len() == returned.len() { Ok(fates) } else { Err(Trouble::Foreign) }
}

fn reason(message: &BasicReturnMessage) -> String {
    format!("{} {}", message.reply_code, message.reply_text)
}
