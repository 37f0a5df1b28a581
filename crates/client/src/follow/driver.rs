//! Does what the machine says, over a connection that is made again whenever it is lost.

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt as _},
};
use outport_contract::stream::Channel;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, Sleep},
};

use super::{
    Answered, Fetched, FollowConfig, Item, Machine, Reason, Snapshotted, Step, Told, Trouble,
    machine::{End, Fault},
    socket::{Control, Frame, Loss, Socket},
};
use crate::{Backoff, Client, ClientError};

/// The close code of a server that cannot replay while so much happens.
const HAND_OFF_OVERFLOW: u16 = 4409;
/// Requests at the same time, of all channels.
const REQUESTS: usize = 8;

/// Follows until every channel has ended or nobody takes the items.
pub(super) async fn drive(
    client: Client,
    config: FollowConfig,
    machine: Machine,
    steps: Vec<Step>,
    items: mpsc::Sender<Item>,
) {
    let backoff = Backoff::new(config.backoff, config.most_backoff, config.seed);
    let link = Link::Connecting(connecting(&client));
    let mut driver = Driver {
        silence: config.heartbeat * 2,
        client,
        machine,
        items,
        backoff,
        link,
        subscribed: BTreeSet::new(),
        fetches: FuturesUnordered::new(),
        requests: Arc::new(Semaphore::new(REQUESTS)),
        replays_by_requests: false,
        since: None,
        losses: 0,
    };
    // None: nobody takes the items.
    let _: Option<()> = driver.run(steps).await;
    if let Link::Up { socket, .. } = driver.link {
        socket.close().await;
    }
}

enum Link {
    Waiting(Pin<Box<Sleep>>),
    Connecting(BoxFuture<'static, Result<Socket, Loss>>),
    Up {
        socket: Box<Socket>,
        heard: Instant,
    },
    /// Found to be of no use while something was said.
    Broken(Option<Loss>),
}

enum Heard {
    TryNow,
    Connected(Box<Socket>),
    Frame(Box<Frame>),
    Lost(Loss),
}

struct Driver {
    client: Client,
    machine: Machine,
    items: mpsc::Sender<Item>,
    backoff: Backoff,
    link: Link,
    /// What this connection is subscribed to, or has asked for.
    subscribed: BTreeSet<Channel>,
    fetches: FuturesUnordered<BoxFuture<'static, Answered>>,
    requests: Arc<Semaphore>,
    /// How long the server may say nothing.
    silence: Duration,
    /// This connection is asked for what happens from now on alone.
    replays_by_requests: bool,
    /// When the last connection was made.
    since: Option<Instant>,
    /// Connections in a row that were of no use.
    losses: u32,
}

fn connecting(client: &Client) -> BoxFuture<'static, Result<Socket, Loss>> {
    let client = client.clone();
    async move { Socket::connect(&client).await }.boxed()
}

impl Link {
    /// What happens next to the connection. Nothing is lost when this is given up in the midst.
    async fn next(&mut self, silence: Duration) -> Heard {
        match self {
            Self::Waiting(until) => {
                until.await;
                Heard::TryNow
            }
            Self::Connecting(socket) => match socket.await {
                Ok(socket) => Heard::Connected(Box::new(socket)),
                Err(loss) => Heard::Lost(loss),
            },
            Self::Up { socket, heard } => {
                match tokio::time::timeout_at(*heard + silence, socket.hear()).await {
                    Ok(Ok(frame)) => {
                        *heard = Instant::now();
                        Heard::Frame(Box::new(frame))
                    }
                    Ok(Err(loss)) => Heard::Lost(loss),
                    Err(_) => Heard::Lost(Loss::because("the server has fallen silent")),
                }
            }
            Self::Broken(loss) => {
                Heard::Lost(loss.take().unwrap_or_else(|| Loss::because("the connection broke")))
            }
        }
    }
}

impl Driver {
    async fn run(&mut self, steps: Vec<Step>) -> Option<()> {
        self.carry_out(steps).await?;
        while !self.machine.is_done() {
            let items = self.items.clone();
            tokio::select! {
                () = items.closed() => return None,
                Some(Answered { fetched, trouble }) = self.fetches.next() => {
                    let steps = match fetched {
                        Fetched::Page(channel, ticket, answer) => {
                            self.machine.replayed(&channel, ticket, answer)
                        }
                        Fetched::Snapshot(channel, ticket, answer) => {
                            self.machine.snapshotted(&channel, ticket, answer)
                        }
                    };
                    self.carry_out_after(trouble, steps).await?;
                }
                heard = self.link.next(self.silence) => self.take(heard).await?,
            }
        }
        Some(())
    }

    async fn take(&mut self, heard: Heard) -> Option<()> {
        match heard {
            Heard::TryNow => self.link = Link::Connecting(connecting(&self.client)),
            Heard::Connected(socket) => {
                let now = Instant::now();
                self.since = Some(now);
                self.link = Link::Up { socket, heard: now };
                self.subscribed.clear();
                for (channel, _, _) in self.machine.subscriptions() {
                    self.subscribe(&channel).await;
                }
            }
            Heard::Frame(frame) => {
                let steps = match *frame {
                    Frame::Batch(batch) => self.machine.batch(batch),
                    Frame::Pointer(pointer) => self.machine.pointer(&pointer),
                    Frame::Control(control) => return self.control(control).await,
                    Frame::Other => Vec::new(),
                };
                self.carry_out(steps).await?;
            }
            Heard::Lost(loss) => self.lost(loss).await?,
        }
        Some(())
    }

    async fn control(&mut self, control: Control) -> Option<()> {
        let Some(channel) = control.channel else { return Some(()) };
        let steps = match (control.kind.as_str(), control.code.as_deref()) {
            ("subscribed", _) => {
                let (head, epoch) = (control.head, control.epoch.as_deref());
                self.machine.subscribed(&channel, head, epoch, !self.replays_by_requests)
            }
            // The server ended it by itself: what it said before tells why, if it is for good.
            ("unsubscribed", Some(_)) => {
                self.subscribed.remove(&channel);
                self.subscribe(&channel).await;
                Vec::new()
            }
            ("error", Some("resync.required")) => self.machine.resync(&channel, Reason::Gone),
            ("error", Some("NOT_FOUND")) => self.machine.end(&channel, End::NotFound),
            ("error", Some("FORBIDDEN")) => self.machine.end(&channel, End::AccessRevoked),
            // Two subscriptions in each other's way: there is one, and gaps are closed in any case.
            ("error", Some("ALREADY_SUBSCRIBED" | "NOT_SUBSCRIBED")) => Vec::new(),
            ("error", code) => {
                let code = code.unwrap_or("error");
                let detail = control.detail.unwrap_or_default();
                return self.lost(Loss::because(format!("{channel}: {code} {detail}"))).await;
            }
            _ => Vec::new(),
        };
        self.carry_out(steps).await
    }

    /// The connection is of no use any more.
    async fn lost(&mut self, loss: Loss) -> Option<()> {
        if let Some(end) = loss.end {
            let steps = self.machine.end_all(&end);
            return self.carry_out(steps).await;
        }
        // One that stood for a while was of use; one that was closed at once was not.
        if self.since.take().is_some_and(|since| since.elapsed() >= self.silence / 2) {
            self.losses = 0;
        }
        self.replays_by_requests = loss.code == Some(HAND_OFF_OVERFLOW);
        let delay = self.backoff.delay(self.losses, loss.retry_after);
        self.losses = self.losses.saturating_add(1);
        self.link = Link::Waiting(Box::pin(tokio::time::sleep(delay)));
        self.items.send(Item::Reconnecting { delay, why: loss.why }).await.ok()
    }

    async fn carry_out(&mut self, steps: Vec<Step>) -> Option<()> {
        self.carry_out_after(None, steps).await
    }

    /// What is asked again after trouble waits as long as the server wants, and that is said.
    async fn carry_out_after(
        &mut self,
        mut trouble: Option<Trouble>,
        steps: Vec<Step>,
    ) -> Option<()> {
        for step in steps {
            match step {
                Step::Give { channel, epoch, event, first_time } => {
                    let told = Told { channel, epoch, event, first_time };
                    self.items.send(Item::Event(Box::new(told))).await.ok()?;
                }
                Step::Snapshot { snapshot, reason } => {
                    let taken = Snapshotted { snapshot, reason };
                    self.items.send(Item::Snapshot(Box::new(taken))).await.ok()?;
                }
                Step::End { channel, end } => {
                    self.items.send(Item::Ended { channel, end }).await.ok()?;
                }
                Step::Subscribe { channel } => self.subscribe(&channel).await,
                Step::Replay { channel, after, epoch, ticket, tries } => {
                    let delay = self.delay(&channel, tries, trouble.take()).await?;
                    self.ask(delay, move |client| async move {
                        let epoch = epoch.as_deref();
                        let (answer, trouble) =
                            told(client.replay(&channel, after, epoch).await, Fault::Resync);
                        Answered { fetched: Fetched::Page(channel, ticket, answer), trouble }
                    });
                }
                Step::LoadSnapshot { channel, ticket, tries } => {
                    let delay = self.delay(&channel, tries, trouble.take()).await?;
                    self.ask(delay, move |client| async move {
                        let (answer, trouble) =
                            told(client.snapshot(&channel).await, Fault::Failed);
                        Answered { fetched: Fetched::Snapshot(channel, ticket, answer), trouble }
                    });
                }
            }
        }
        Some(())
    }

    /// How long a request waits: when others brought nothing, and when a server asks to be left
    /// alone.
    async fn delay(
        &mut self,
        channel: &Channel,
        tries: u32,
        trouble: Option<Trouble>,
    ) -> Option<Duration> {
        let (asked, why) = trouble.map_or((None, None), |it| (it.retry_after, Some(it.why)));
        let delay = tries.checked_sub(1).map(|tries| self.backoff.delay(tries, asked));
        let delay = delay.or(asked).unwrap_or_default();
        if let Some(why) = why {
            let channel = channel.clone();
            self.items.send(Item::Retrying { channel, delay, why }).await.ok()?;
        }
        Some(delay)
    }

    /// Makes a request in its turn, after a wait.
    fn ask<F>(&self, delay: Duration, request: impl FnOnce(Client) -> F + Send + 'static)
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let (requests, client) = (Arc::clone(&self.requests), self.client.clone());
        let asked = async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let turn = requests.acquire().await;
            let answered = request(client).await;
            drop(turn);
            answered
        };
        self.fetches.push(asked.boxed());
    }

    /// Subscribes on the connection, if there is one. A new one subscribes to everything. Where
    /// more came live than a replay left room for, the replay is asked for by requests.
    async fn subscribe(&mut self, channel: &Channel) {
        let Some((_, after, epoch)) = self.machine.subscription(channel) else { return };
        let Link::Up { socket, .. } = &mut self.link else { return };
        let (after, epoch) = if self.replays_by_requests { (None, None) } else { (after, epoch) };
        let again = !self.subscribed.insert(channel.clone());
        let said = async {
            if again {
                socket.unsubscribe(channel).await?;
            }
            socket.subscribe(channel, after, epoch.as_ref()).await
        };
        if let Err(loss) = said.await {
            self.link = Link::Broken(Some(loss));
        }
    }
}

/// What an answer means, 410 among them, and what is to be said of one that is of no use.
fn told<T>(answer: Result<T, ClientError>, gone: Fault) -> (Result<T, Fault>, Option<Trouble>) {
    let error = match answer {
        Ok(answer) => return (Ok(answer), None),
        Err(error) => error,
    };
    let fault = match error.status() {
        Some(410) => gone,
        Some(401) => Fault::End(End::Unauthenticated),
        Some(403) => Fault::End(End::AccessRevoked),
        Some(404) => Fault::End(End::NotFound),
        Some(408 | 425 | 429) => Fault::Failed,
        Some(400..=499) => Fault::End(End::Refused(error.to_string())),
        _ => Fault::Failed,
    };
    // A resync and an end say so themselves.
    let trouble = (fault == Fault::Failed)
        .then(|| Trouble { why: error.to_string(), retry_after: error.retry_after() });
    (Err(fault), trouble)
}
