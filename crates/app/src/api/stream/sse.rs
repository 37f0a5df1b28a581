//! One channel by server-sent events. A stream is pulled by the client's reading: who does not
//! read is sent nothing, and gets a pointer when it reads on.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, header::CACHE_CONTROL},
    response::{
        IntoResponse as _, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use chrono::Utc;
use futures::{Stream, future::BoxFuture, stream};
use outport_contract::{
    redaction::told,
    stream::{Channel, Message, PROTOCOL},
};

use super::{
    Admitted,
    feed::{Cursor, End, Feed, Told},
    notice, tickets,
    visitor::{Over, Visitor},
};
use crate::{
    api::{
        ApiState,
        channels::{access, cursor, sequence},
        extract::{Params, Segment},
        metrics::{Held, StreamFigures},
        problem::{Problem, ProblemCode, ProblemView},
    },
    auth::AuthError,
};

const TRANSPORT: &str = "sse";
const LAST_EVENT_ID: &str = "last-event-id";

/// Follows a channel.
///
/// Each event is a message: `event` is its broadcast name, `data` the message, and `id`, of a
/// batch, `<epoch>:<sequence>`. A pointer has no `id` but for the first one, which says where the
/// stream begins.
#[utoipa::path(get, path = "/v1/channels/{channel}/stream", tag = "events",
    security(("bearer" = ["events:read"]), ()),
    params(
        ("channel" = String, Path),
        ("after" = Option<u64>, Query, description = "The last sequence that one has; from now on when absent"),
        ("epoch" = Option<String>, Query, description = "The epoch that it is of"),
        ("ticket" = Option<String>, Query, description = "A ticket, in place of the header"),
        ("Last-Event-ID" = Option<String>, Header, description = "`<epoch>:<sequence>`, in place of `after`"),
    ),
    responses(
        (status = 200, description = "Messages for as long as one listens", content_type = "text/event-stream"),
        (status = 400, description = "Every wrong parameter", body = ProblemView),
        (status = 401, description = "No valid credential or ticket", body = ProblemView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
        (status = 410, description = "The cursor cannot be trusted: load the snapshot", body = ProblemView),
        (status = 503, description = "At capacity, or stopping", body = ProblemView),
    ))]
pub async fn follow(
    State(state): State<Arc<ApiState>>,
    headers: HeaderMap,
    channel: Segment,
    params: Params,
) -> Result<Response, Problem> {
    let mut params = params.known(&["after", "epoch", "ticket"]);
    let (after, epoch) = cursor(&mut params);
    let ticket = params.get("ticket", "a ticket", |text| Some(text.to_owned()));
    params.finish()?;
    let identity = match ticket {
        Some(ticket) => tickets::redeem(&state, &ticket).await?,
        None => state.authenticator.identify(&headers, Utc::now()).await?,
    };
    let visitor = state.stream.visitor(identity);
    access::may_follow(&visitor.caller)?;
    let cursor = last_event(&headers)?.unwrap_or(Cursor { after, epoch });
    let channel = access::open(&state, &visitor.caller, &channel.0).await?;
    match visitor.over() {
        None => {}
        Some(Over::Expired | Over::Revoked) => return Err(AuthError::Invalid.into()),
        Some(Over::Unknown) => return Err(unavailable()),
    }
    let admitted = state.stream.admit(true)?;
    let counted = state.metrics.stream.channel();
    let feed = Feed::open(&state.stream, &state.store, &channel, &cursor, counted).await;
    let feed = feed.map_err(|end| match end {
        End::Resync(position) => Problem::resync(position),
        End::Failed(error) => error.into(),
        End::Overflow | End::Stopped => unavailable(),
    })?;
    let follower = Follower {
        _held: state.metrics.stream.connection(TRANSPORT),
        figures: state.metrics.stream.clone(),
        departure: Box::pin({
            let state = Arc::clone(&state);
            async move { state.stream.departure().await }
        }),
        channel,
        visitor,
        feed,
        _admitted: admitted,
        stage: Stage::First,
    };
    let period = state.stream.config().heartbeat;
    let sse = Sse::new(follower.stream()).keep_alive(KeepAlive::new().interval(period));
    let mut response = sse.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn unavailable() -> Problem {
    Problem::new(ProblemCode::Unavailable, "The stream cannot be served right now.")
        .retry_after(std::time::Duration::from_secs(2))
}

/// Where a client that comes back was.
fn last_event(headers: &HeaderMap) -> Result<Option<Cursor>, Problem> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let cursor = value.to_str().ok().and_then(|text| {
        let (epoch, after) = text.rsplit_once(':')?;
        let after = Some(sequence(after)?);
        (1..=100).contains(&epoch.len()).then(|| Cursor { after, epoch: Some(epoch.to_owned()) })
    });
    let rule = "must be the id of an event of this stream: <epoch>:<sequence>";
    cursor.map(Some).ok_or_else(|| Problem::invalid_parameter("Last-Event-ID", rule))
}

enum Stage {
    First,
    Following,
    Over,
}

struct Follower {
    channel: Channel,
    visitor: Visitor,
    feed: Feed,
    departure: BoxFuture<'static, ()>,
    figures: StreamFigures,
    stage: Stage,
    _held: Held,
    _admitted: Admitted,
}

impl Follower {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async move {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        match self.stage {
            Stage::First => {
                self.stage = Stage::Following;
                let here = self.feed.here();
                return Some(event(&here).id(self.id(here.sequence())));
            }
            Stage::Following => {}
            Stage::Over => return None,
        }
        loop {
            tokio::select! {
                biased;
                () = self.visitor.changed() => {
                    match self.visitor.over() {
                        Some(Over::Unknown) => return self.over(1013, None),
                        Some(Over::Expired) => return self.over(4401, Some(self.revoked())),
                        Some(Over::Revoked) => return self.over(4403, Some(self.revoked())),
                        None if self.visitor.lost(&self.channel) => {
                            return self.over(4403, Some(self.revoked()));
                        }
                        None => {}
                    }
                }
                () = &mut self.departure => return self.over(1013, None),
                next = self.feed.next() => return match next {
                    Ok(next) if next.name() == PROTOCOL => {
                        Some(event(&next).id(self.id(next.sequence())))
                    }
                    Ok(next) => Some(event(&next)),
                    Err(End::Resync(position)) => {
                        let caller = &self.visitor.caller;
                        let notice = notice::resync_required(caller, &self.channel, &position);
                        self.over(1000, Some(notice))
                    }
                    Err(End::Overflow) => self.over(4409, None),
                    Err(End::Stopped) => self.over(1013, None),
                    Err(End::Failed(error)) => {
                        let error = told(&error);
                        tracing::warn!(error, "a stream ends because the state database failed");
                        self.over(1013, None)
                    }
                },
            }
        }
    }

    fn id(&self, sequence: u64) -> String {
        format!("{}:{sequence}", self.feed.epoch())
    }

    fn revoked(&self) -> Message {
        notice::access_revoked(&self.visitor.caller, &self.channel, self.feed.epoch())
    }

    /// The last event, or none. The code is that of a WebSocket that ends for the same reason.
    fn over(&mut self, code: u16, notice: Option<Message>) -> Option<Event> {
        self.stage = Stage::Over;
        self.figures.closed(TRANSPORT, code);
        notice.map(|notice| event(&Told::Own(notice)))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Over) {
            self.figures.closed(TRANSPORT, 1000);
        }
    }
}

fn event(told: &Told) -> Event {
    Event::default().event(told.name()).data(told.text())
}
