//! For consumers of Outport: follows channels of the live stream without loss, verifies what
//! comes, downloads files, and checks whether a server keeps the stream's rules.
//!
//! ```no_run
//! use futures::StreamExt as _;
//! use outport_client::{Client, FollowConfig, Follower, Item, Start};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("https://outport.example", "opt_…")?;
//! let channel = "job:0197a801-1690-7590-b3cf-19599b9be3e4".parse()?;
//! let mut items = Follower::start(client, [(channel, Start::Snapshot)], FollowConfig::default());
//! while let Some(item) = items.next().await {
//!     match item {
//!         Item::Snapshot(taken) => println!("it is so at {}", taken.snapshot.sequence),
//!         Item::Event(told) if told.first_time => println!("{}", told.event.event_type),
//!         Item::Event(_) => {} // The same event by another channel.
//!         Item::Reconnecting { delay, why } => eprintln!("again in {delay:?}: {why}"),
//!         Item::Retrying { delay, why, .. } => eprintln!("again in {delay:?}: {why}"),
//!         Item::Ended { channel, end } => eprintln!("{channel}: {end}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Words.** A *cursor* is the sequence up to which a channel's events were given to the caller.
//! A *gap* is what lies between the cursor and a sequence that the channel is known to have
//! reached. A gap is closed by a *replay*. When a position can no longer be trusted, a *snapshot*
//! is loaded and following goes on from its sequence: a *resync*.
//!
//! **Invariants.** Of every channel each event after the start is given once and in order, or a
//! snapshot is given in place of what cannot be. A cursor moves back by a snapshot alone. What
//! waits for a gap to close is bounded, and so is what is remembered of ids. The rules are in one
//! place without input and output: [`follow::Machine`].
//!
//! **Absent on purpose.** A store of cursors: each event comes with what it takes to go on after
//! it ([`Start::After`]). Any cryptography of its own: [`verify`] is the contract's.

mod backoff;
mod client;
pub mod conformance;
mod download;
pub mod follow;
mod page;

pub use backoff::Backoff;
pub use client::{Client, ClientError, InvalidToken};
pub use download::{DownloadError, Downloaded};
pub use follow::{End, FollowConfig, Follower, Item, Reason, Snapshotted, Start, Told};
/// Verifies what came by the broker or as a file, as the contract says it.
pub use outport_contract::signature as verify;
pub use page::{Page, Snapshot};
