//! The consumer half of the conformance kit: servers that misbehave, and a follower that gives
//! every event once and in order all the same, or says that it begins anew.

mod downloading;
mod endings;
mod following;
mod model;
mod reconnecting;
mod resyncing;
mod schedules;
mod server;
mod words;
