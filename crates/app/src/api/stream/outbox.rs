//! What waits to be written to one WebSocket, and the task that writes it. What waits is bounded
//! in bytes: feeds wait for room, so that a broadcast passes them by and a pointer takes its place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Bytes,
    extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket},
};
use futures::{SinkExt as _, stream::SplitSink};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout,
};

/// Bytes of answers to the client's own frames that may wait.
const ANSWERS: usize = 64 * 1024;
/// Time that a client has to take its last words: one that reads nothing now may read them later.
const PARTING: Duration = Duration::from_secs(30);

/// What the writer may have to say to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The client does not read.
    Slow,
    /// The client is not there.
    Gone,
}

/// The last words to a client.
pub struct Goodbye {
    /// What it is told before.
    pub notices: Vec<Utf8Bytes>,
    /// Why.
    pub code: u16,
    /// The same in words.
    pub reason: &'static str,
}

struct Item {
    frame: Utf8Bytes,
    /// Set when what it is of has ended: then it is not sent.
    over: Option<Arc<AtomicBool>>,
    room: OwnedSemaphorePermit,
}

/// Puts frames into the queue. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    items: mpsc::UnboundedSender<Item>,
    room: Arc<Semaphore>,
    most: usize,
    answers: Arc<Semaphore>,
}

impl Outbox {
    /// An outbox of this many bytes, and its writer.
    pub fn new(
        sink: SplitSink<WebSocket, Message>,
        most: usize,
        stall: Duration,
        heartbeat: Duration,
    ) -> (Self, Writer) {
        let (sender, items) = mpsc::unbounded_channel();
        let (room, answers) = (Semaphore::new(most), Semaphore::new(ANSWERS));
        let outbox = Self { items: sender, room: room.into(), most, answers: answers.into() };
        (outbox, Writer { sink, items, stall, heartbeat })
    }

    /// Queues a message of a feed once there is room. `over` takes it out again.
    pub async fn push(&self, frame: Utf8Bytes, over: &Arc<AtomicBool>) {
        let bytes = frame.len().min(self.most) as u32;
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        // It is never closed.
        if let Ok(room) = room {
            self.put(Item { frame, over: Some(Arc::clone(over)), room });
        }
    }

    /// Queues an answer; `false` when too many of them wait already.
    pub fn answer(&self, frame: Utf8Bytes) -> bool {
        let bytes = frame.len().min(ANSWERS) as u32;
        let room = Arc::clone(&self.answers).try_acquire_many_owned(bytes);
        let fits = room.is_ok();
        if let Ok(room) = room {
            self.put(Item { frame, over: None, room });
        }
        fits
    }

    fn put(&self, item: Item) {
        // A writer that has ended has said why.
        drop(self.items.send(item));
    }
}

/// Writes what is queued.
pub struct Writer {
    sink: SplitSink<WebSocket, Message>,
    items: mpsc::UnboundedReceiver<Item>,
    stall: Duration,
    heartbeat: Duration,
}

impl Writer {
    /// Writes until the last words, or until there is trouble; then it waits for the last words.
    pub async fn run(
        mut self,
        mut goodbye: oneshot::Receiver<Goodbye>,
        trouble: oneshot::Sender<Trouble>,
    ) {
        let last = tokio::select! {
            biased;
            last = &mut goodbye => last,
            found = self.write() => {
                let _ = trouble.send(found);
                if found == Trouble::Gone {
                    return;
                }
                goodbye.await
            }
        };
        if let Ok(last) = last
            && timeout(PARTING, self.part(last)).await.is_err()
        {
            tracing::debug!("a client did not take the end of its connection");
        }
    }

    /// A message that is half out when this is dropped goes out before what comes next.
    async fn write(&mut self) -> Trouble {
        let mut ping = tokio::time::interval(self.heartbeat);
        ping.reset();
        loop {
            let (message, _room) = tokio::select! {
                item = self.items.recv() => match item {
                    Some(Item { over: Some(over), .. }) if over.load(Ordering::Relaxed) => continue,
                    Some(Item { frame, room, .. }) => (Message::Text(frame), Some(room)),
                    None => std::future::pending().await,
                },
                _ = ping.tick() => (Message::Ping(Bytes::new()), None),
            };
            match timeout(self.stall, self.sink.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Trouble::Gone,
                Err(_) => return Trouble::Slow,
            }
        }
    }

    async fn part(&mut self, last: Goodbye) {
        let close = CloseFrame { code: last.code, reason: last.reason.into() };
        let frames = last.notices.into_iter().map(Message::Text);
        for frame in frames.chain([Message::Close(Some(close))]) {
            if self.sink.send(frame).await.is_err() {
                return;
            }
        }
    }
}
