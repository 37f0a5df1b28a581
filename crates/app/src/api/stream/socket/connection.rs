//! One client's channels: what it asks for, and what ends them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use chrono::Utc;
use futures::{StreamExt as _, stream::SplitStream};
use outport_contract::{
    redaction::told,
    stream::{Channel, PROTOCOL},
};
use tokio::{
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    api::{
        ApiState,
        channels::access,
        problem::{Position, Problem, ProblemCode},
        stream::{
            Admitted,
            feed::{Cursor, End, Feed},
            frames::{Control, Frame, broadcast, unsubscribed},
            notice,
            outbox::{Outbox, Trouble},
            visitor::{Over, Visitor},
        },
    },
    auth::AuthError,
};

/// Heartbeats that a client may leave unanswered.
const UNANSWERED: u32 = 3;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Exit {
    /// We say so.
    Close(u16, &'static str),
    /// The same, after notices.
    Told(u16, &'static str, Vec<Utf8Bytes>),
    /// The client is not there any more.
    Gone,
}

const TOO_SLOW: Exit = Exit::Close(4408, "too slow");
const TRY_AGAIN: Exit = Exit::Close(1013, "try again");

struct Followed {
    /// What is queued of it is not sent.
    over: Arc<AtomicBool>,
    epoch: String,
    feed: AbortHandle,
}

/// What one client follows.
pub(super) struct Connection {
    state: Arc<ApiState>,
    outbox: Outbox,
    visitor: Option<Visitor>,
    admitted: Admitted,
    followed: HashMap<Channel, Followed>,
    feeds: JoinSet<(Channel, End)>,
}

impl Connection {
    pub(super) fn new(
        state: Arc<ApiState>,
        outbox: Outbox,
        visitor: Option<Visitor>,
        admitted: Admitted,
    ) -> Self {
        let (followed, feeds) = (HashMap::new(), JoinSet::new());
        Self { state, outbox, visitor, admitted, followed, feeds }
    }

    /// Serves the client until one of the two has enough.
    pub(super) async fn run(
        &mut self,
        client: &mut SplitStream<WebSocket>,
        mut troubled: oneshot::Receiver<Trouble>,
    ) -> Exit {
        let state = Arc::clone(&self.state);
        let config = state.stream.config();
        let mut departure = Box::pin(state.stream.departure());
        let anonymous_until = Instant::now() + config.auth_time;
        let patience = config.heartbeat * UNANSWERED;
        let mut heard = Instant::now();
        if let Err(exit) = self.welcome() {
            return exit;
        }
        loop {
            let is_anonymous = self.visitor.is_none();
            let step = tokio::select! {
                biased;
                () = changed(&mut self.visitor) => self.look(),
                () = &mut departure => Err(TRY_AGAIN),
                trouble = &mut troubled => match trouble {
                    Ok(Trouble::Slow) => Err(TOO_SLOW),
                    Ok(Trouble::Gone) | Err(_) => Err(Exit::Gone),
                },
                () = sleep_until(anonymous_until), if is_anonymous => {
                    Err(Exit::Close(4401, "no credential came in time"))
                }
                () = sleep_until(heard + patience) => Err(TOO_SLOW),
                Some(ended) = self.feeds.join_next_with_id() => match ended {
                    Ok((id, (channel, end))) => self.ended(id, &channel, end),
                    // It was unsubscribed.
                    Err(_) => Ok(()),
                },
                frame = client.next() => {
                    heard = Instant::now();
                    match frame {
                        Some(Ok(message)) => self.take(message).await,
                        // Too large, or no WebSocket's; if the client went, nobody reads this.
                        Some(Err(_)) => Err(Exit::Close(4400, "bad frame")),
                        None => Err(Exit::Gone),
                    }
                }
            };
            if let Err(exit) = step {
                for followed in self.followed.values() {
                    followed.over.store(true, Ordering::Relaxed);
                }
                return exit;
            }
        }
    }

    /// Says that the header's credential was taken.
    fn welcome(&mut self) -> Result<(), Exit> {
        if self.visitor.is_none() {
            return Ok(());
        }
        self.look()?;
        self.say(&Control { kind: "authenticated", ..Control::default() })
    }

    async fn take(&mut self, message: Message) -> Result<(), Exit> {
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => return Err(Exit::Close(4400, "bad frame: it must be a text")),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Close(_) => return Err(Exit::Gone),
        };
        let frame: Frame =
            serde_json::from_str(&text).map_err(|_| Exit::Close(4400, "bad frame"))?;
        match frame {
            Frame::Auth { token } => self.authenticate(&token).await,
            Frame::Subscribe { channel, after, epoch } => {
                self.subscribe(&channel, Cursor { after, epoch }).await
            }
            Frame::Unsubscribe { channel } => self.unsubscribe(&channel),
            Frame::Ping {} => self.say(&Control { kind: "pong", ..Control::default() }),
        }
    }

    async fn authenticate(&mut self, token: &str) -> Result<(), Exit> {
        if self.visitor.is_some() {
            return Err(Exit::Close(4400, "bad frame: there is a credential already"));
        }
        let identity = match self.state.authenticator.admit(token, Utc::now()).await {
            Ok(identity) => identity,
            Err(AuthError::TooMany { .. } | AuthError::KeysUnavailable | AuthError::Store(_)) => {
                return Err(TRY_AGAIN);
            }
            Err(_) => return Err(Exit::Close(4401, "the credential is not valid")),
        };
        if access::may_follow(&identity.caller).is_err() {
            return Err(Exit::Close(4403, "the credential lacks the scope events:read"));
        }
        self.visitor = Some(self.state.stream.visitor(identity));
        self.admitted.is_known();
        self.welcome()
    }

    async fn subscribe(&mut self, name: &str, cursor: Cursor) -> Result<(), Exit> {
        let Some(visitor) = &self.visitor else {
            return Err(Exit::Close(4401, "no credential"));
        };
        let state = Arc::clone(&self.state);
        // A frame that looks something up is a request like any other.
        if let Err(error) = state.authenticator.count(&visitor.caller, visitor.owner) {
            let problem = Problem::from(error);
            return self.refuse(name, problem.code.name(), problem.detail());
        }
        let channel = match access::open(&state, &visitor.caller, name).await {
            Ok(channel) => channel,
            Err(problem) => return self.refuse(name, problem.code.name(), problem.detail()),
        };
        if self.followed.contains_key(&channel) {
            return self.refuse(name, "ALREADY_SUBSCRIBED", "The channel is followed already.");
        }
        if self.followed.len() >= state.stream.config().channels {
            return Err(Exit::Close(4429, "too many channels"));
        }
        let counted = state.metrics.stream.channel();
        match Feed::open(&state.stream, &state.store, &channel, &cursor, counted).await {
            Ok(feed) => self.follow(channel, feed),
            Err(End::Resync(position)) => self.resync(&channel, &position),
            Err(End::Failed(error)) => {
                let problem = Problem::from(error);
                self.refuse(name, problem.code.name(), problem.detail())
            }
            Err(End::Overflow | End::Stopped) => Err(TRY_AGAIN),
        }
    }

    fn follow(&mut self, channel: Channel, feed: Feed) -> Result<(), Exit> {
        let (name, epoch) = (channel.to_string(), feed.epoch().to_owned());
        self.say(&Control {
            kind: "subscribed",
            channel: Some(&name),
            head: Some(feed.head()),
            epoch: Some(&epoch),
            ..Control::default()
        })?;
        let over = Arc::new(AtomicBool::new(false));
        let pumped = pump(channel.clone(), feed, self.outbox.clone(), Arc::clone(&over));
        let feed = self.feeds.spawn(pumped);
        self.followed.insert(channel, Followed { over, epoch, feed });
        Ok(())
    }

    fn unsubscribe(&mut self, name: &str) -> Result<(), Exit> {
        let channel = name.parse().ok().filter(|channel| self.followed.contains_key(channel));
        let Some(channel) = channel else {
            return self.refuse(name, "NOT_SUBSCRIBED", "The channel is not followed.");
        };
        self.stop(&channel);
        self.answer(unsubscribed(&channel, None))
    }

    /// Ends a channel; what is queued of it is not sent.
    fn stop(&mut self, channel: &Channel) {
        if let Some(followed) = self.followed.remove(channel) {
            followed.over.store(true, Ordering::Relaxed);
            followed.feed.abort();
        }
    }

    /// A feed has ended by itself.
    fn ended(&mut self, id: tokio::task::Id, channel: &Channel, end: End) -> Result<(), Exit> {
        if self.followed.get(channel).is_none_or(|followed| followed.feed.id() != id) {
            return Ok(());
        }
        match end {
            End::Resync(position) => {
                self.stop(channel);
                self.resync(channel, &position)
            }
            End::Overflow => Err(Exit::Close(4409, "more came live than the replay left room for")),
            End::Stopped => Err(TRY_AGAIN),
            End::Failed(error) => {
                let error = told(&error);
                tracing::warn!(error, "a stream ends because the state database failed");
                Err(TRY_AGAIN)
            }
        }
    }

    /// Looks at what the visitor may still follow.
    fn look(&mut self) -> Result<(), Exit> {
        let Some(visitor) = &self.visitor else { return Ok(()) };
        let over = visitor.over();
        if over == Some(Over::Unknown) {
            return Err(TRY_AGAIN);
        }
        let lost: Vec<Channel> = self
            .followed
            .keys()
            .filter(|channel| over.is_some() || visitor.lost(channel))
            .cloned()
            .collect();
        let mut notices = Vec::new();
        for channel in &lost {
            let epoch = &self.followed[channel].epoch;
            let notice = notice::access_revoked(&visitor.caller, channel, epoch);
            notices.push(broadcast(PROTOCOL, notice.text()));
        }
        for channel in &lost {
            self.stop(channel);
        }
        match over {
            Some(Over::Expired) => Err(Exit::Told(4401, "the credential has ended", notices)),
            Some(_) => Err(Exit::Told(4403, "access ended", notices)),
            None if !lost.is_empty() && self.followed.is_empty() => {
                Err(Exit::Told(4403, "access ended", notices))
            }
            None => notices.into_iter().try_for_each(|notice| self.answer(notice)),
        }
    }

    fn resync(&self, channel: &Channel, position: &Position) -> Result<(), Exit> {
        let Some(visitor) = &self.visitor else { return Ok(()) };
        let notice = notice::resync_required(&visitor.caller, channel, position);
        self.answer(broadcast(PROTOCOL, notice.text()))?;
        self.answer(unsubscribed(channel, Some(ProblemCode::ResyncRequired.name())))
    }

    fn refuse(&self, channel: &str, code: &'static str, detail: &str) -> Result<(), Exit> {
        self.say(&Control {
            kind: "error",
            channel: Some(channel),
            code: Some(code),
            detail: Some(detail),
            ..Control::default()
        })
    }

    fn say(&self, control: &Control<'_>) -> Result<(), Exit> {
        self.answer(control.frame())
    }

    fn answer(&self, frame: Utf8Bytes) -> Result<(), Exit> {
        if self.outbox.answer(frame) { Ok(()) } else { Err(TOO_SLOW) }
    }
}

async fn changed(visitor: &mut Option<Visitor>) {
    match visitor {
        Some(visitor) => visitor.changed().await,
        None => std::future::pending().await,
    }
}

/// Queues what a feed has, as there is room.
async fn pump(
    channel: Channel,
    mut feed: Feed,
    outbox: Outbox,
    over: Arc<AtomicBool>,
) -> (Channel, End) {
    loop {
        let told = match feed.next().await {
            Ok(told) => told,
            Err(end) => return (channel, end),
        };
        tokio::select! {
            biased;
            () = outbox.push(told.frame(), &over) => {}
            end = feed.hold() => return (channel, end),
        }
    }
}
