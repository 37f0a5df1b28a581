//! A server and its channels, a follower's machine, and all that may happen between them. What the
//! machine says is checked against what is true.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use outport_client::{
    Page, Snapshot, Start,
    follow::{Fault, Limits, Machine, Reason, Step},
};
use outport_contract::stream::{Batch, Channel, Pointer, StreamEvent};
use serde_json::{Value, json};

use crate::words::{channel, named as event, told};

pub const LIMITS: Limits = Limits { held_events: 3, held_bytes: 4_000, given: 4, seen: 10_000 };

/// What may happen; `usize` numbers choose among what there is.
#[derive(Clone, Debug)]
pub enum Happening {
    Append {
        first: bool,
        second: bool,
        count: usize,
    },
    /// Events of a channel in any order, some twice, from the current epoch or the last one.
    Deliver {
        channel: usize,
        places: Vec<usize>,
        stale_epoch: bool,
    },
    Pointer {
        channel: usize,
        sequence: u64,
    },
    Heartbeat {
        channel: usize,
    },
    /// A pending request has its answer: true, failed, or a list with a hole.
    Answer {
        which: usize,
        how: How,
    },
    /// The connection is made anew, and the server sends what is missing.
    Reconnect,
    NewEpoch,
    Purge {
        channel: usize,
    },
    Told {
        channel: usize,
    },
    /// Another event under a sequence that was given or waits.
    Lie {
        channel: usize,
        place: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum How {
    Truly,
    Failed,
    WithAHole,
    Empty,
}

/// A channel as the server has it.
#[derive(Clone, Default)]
struct Log {
    ids: Vec<String>,
    floor: u64,
}

/// A request without an answer.
pub enum Asked {
    /// Of no use any more after a snapshot was asked for.
    Replay {
        channel: Channel,
        after: u64,
        epoch: Option<String>,
        ticket: u64,
        useful: bool,
    },
    Snapshot {
        channel: Channel,
        ticket: u64,
    },
}

pub struct World {
    machine: Machine,
    channels: [Channel; 2],
    epoch: usize,
    /// By epoch.
    logs: Vec<[Log; 2]>,
    made: usize,
    pub asked: VecDeque<Asked>,
    /// Where each channel was given up to: the epoch and the sequence.
    given: BTreeMap<Channel, (String, u64)>,
    /// Every id that was given.
    ids: BTreeSet<String>,
    lied: BTreeSet<String>,
    pub reasons: Vec<Option<Reason>>,
}

impl World {
    pub fn new() -> Self {
        let channels = [channel(1), channel(2)];
        let start = |epoch: &str| Start::After { sequence: 0, epoch: Some(epoch.to_owned()) };
        let starts = channels.clone().map(|channel| (channel, start("e0")));
        let given = channels.clone().map(|channel| (channel, ("e0".to_owned(), 0)));
        let (machine, steps) = Machine::start(starts, LIMITS);
        assert!(steps.is_empty(), "nothing is to be done before anything came");
        Self {
            machine,
            channels,
            epoch: 0,
            logs: vec![<[Log; 2]>::default()],
            made: 0,
            asked: VecDeque::new(),
            given: given.into(),
            ids: BTreeSet::new(),
            lied: BTreeSet::new(),
            reasons: Vec::new(),
        }
    }

    fn index(&self, channel: &Channel) -> usize {
        self.channels.iter().position(|known| known == channel).expect("one of two")
    }

    fn log(&self, channel: usize) -> &Log {
        &self.logs[self.epoch][channel]
    }

    fn head(&self, channel: usize) -> u64 {
        self.log(channel).ids.len() as u64
    }

    pub fn batch(&self, epoch: usize, channel: usize, events: &[Value]) -> Batch {
        let channel = &self.channels[channel];
        let message = json!({"protocol": "beyond-cdn-events/1", "channel": channel,
            "epoch": format!("e{epoch}"), "events": events});
        serde_json::from_value(message).expect("a batch")
    }

    fn pointer(&self, channel: usize, sequence: u64, reason: &str) -> Pointer {
        let message = json!({"protocol": "beyond-cdn-events/1", "channel": self.channels[channel],
            "epoch": format!("e{}", self.epoch), "sequence": sequence, "reason": reason});
        serde_json::from_value(message).expect("a pointer")
    }

    /// Does what the machine says, and checks that it may say it.
    fn obey(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Give { channel, epoch, event, first_time } => {
                    self.check_given(&channel, epoch.as_deref(), &event, first_time);
                }
                Step::Snapshot { snapshot, reason } => {
                    let epoch = snapshot.epoch.expect("this server says it");
                    self.given.insert(snapshot.channel, (epoch, snapshot.sequence));
                    self.reasons.push(reason);
                }
                Step::Replay { channel, after, epoch, ticket, .. } => {
                    assert_eq!(self.machine.cursor(&channel), Some(after));
                    let epoch = epoch.map(|epoch| epoch.to_string());
                    let under_way = self.asked.iter().any(|asked| match asked {
                        Asked::Replay { channel: other, useful, .. } => {
                            *useful && *other == channel
                        }
                        Asked::Snapshot { channel: other, .. } => *other == channel,
                    });
                    assert!(!under_way, "one request of a channel at a time");
                    let useful = true;
                    self.asked.push_back(Asked::Replay { channel, after, epoch, ticket, useful });
                }
                Step::LoadSnapshot { channel, ticket, .. } => {
                    for asked in &mut self.asked {
                        if let Asked::Replay { channel: other, useful, .. } = asked {
                            *useful &= *other != channel;
                        }
                    }
                    self.asked.push_back(Asked::Snapshot { channel, ticket });
                }
                Step::Subscribe { channel } => self.subscribe(&channel),
                Step::End { channel, end } => panic!("{channel}: {end}"),
            }
        }
        assert!(self.machine.held() <= 2 * LIMITS.held_events, "what waits is bounded");
    }

    fn check_given(
        &mut self,
        channel: &Channel,
        epoch: Option<&str>,
        event: &StreamEvent,
        first_time: bool,
    ) {
        let sequence = event.sequence.expect("a numbered event");
        let (of, last) = self.given.get_mut(channel).expect("a followed channel");
        assert_eq!((Some(of.as_str()), *last + 1), (epoch, sequence), "{channel}: in order");
        *last = sequence;
        let epoch: usize = of[1..].parse().expect("e and a number");
        let index = self.index(channel);
        let truth = &self.logs[epoch][index].ids[sequence as usize - 1];
        assert_eq!(&event.id, truth, "{channel} {sequence}");
        assert_eq!(first_time, self.ids.insert(event.id.clone()), "{}", event.id);
    }

    /// The server takes a subscription: it sends what is missing, or refuses the position.
    fn subscribe(&mut self, channel: &Channel) {
        let Some((_, after, epoch)) = self.machine.subscription(channel) else { return };
        let index = self.index(channel);
        let own = format!("e{}", self.epoch);
        let after = after.unwrap_or_else(|| self.head(index));
        if epoch.is_some_and(|epoch| *epoch != *own)
            || after < self.log(index).floor
            || after > self.head(index)
        {
            let steps = self.machine.resync(channel, Reason::Gone);
            return self.obey(steps);
        }
        let steps = self.machine.subscribed(channel, Some(self.head(index)), Some(&own), true);
        self.obey(steps);
        let missing: Vec<_> = (after..self.head(index))
            .map(|at| event(at + 1, &self.log(index).ids[at as usize]))
            .collect();
        let batch = self.batch(self.epoch, index, &missing);
        let steps = self.machine.batch(batch);
        self.obey(steps);
    }

    pub fn answer(&mut self, asked: Asked, how: How) {
        let steps = match asked {
            Asked::Snapshot { channel, ticket } => {
                let answer = match how {
                    How::Failed => Err(Fault::Failed),
                    _ => Ok(self.snapshot(&channel)),
                };
                self.machine.snapshotted(&channel, ticket, answer)
            }
            Asked::Replay { channel, after, epoch, ticket, .. } => {
                let answer = match how {
                    How::Failed => Err(Fault::Failed),
                    _ => self.page(&channel, after, epoch.as_deref(), how),
                };
                self.machine.replayed(&channel, ticket, answer)
            }
        };
        self.obey(steps);
    }

    fn snapshot(&self, channel: &Channel) -> Snapshot {
        let sequence = self.head(self.index(channel));
        let answer = json!({"channel": channel, "epoch": format!("e{}", self.epoch),
            "sequence": sequence});
        serde_json::from_value(answer).expect("a snapshot")
    }

    /// At most four events.
    fn page(
        &self,
        channel: &Channel,
        after: u64,
        epoch: Option<&str>,
        how: How,
    ) -> Result<Page, Fault> {
        let index = self.index(channel);
        let (log, head) = (self.log(index), self.head(index));
        let own = format!("e{}", self.epoch);
        if epoch.is_some_and(|epoch| epoch != own) || after < log.floor || after > head {
            return Err(Fault::Resync);
        }
        let events = (after..head).map(|at| event(at + 1, &log.ids[at as usize]));
        let mut events: Vec<_> = events.take(4).collect();
        match how {
            How::WithAHole if events.len() > 1 => drop(events.remove(events.len() / 2 - 1)),
            How::Empty => events.clear(),
            _ => {}
        }
        let answer = json!({"channel": channel, "epoch": own, "floor": log.floor, "head": head,
            "events": events});
        Ok(serde_json::from_value(answer).expect("a page"))
    }

    pub fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Append { first, second, count } => {
                for _ in 0..count {
                    self.made += 1;
                    let id = format!("evt_{}", self.made);
                    for (channel, wanted) in [(0, first), (1, second)] {
                        if wanted {
                            self.logs[self.epoch][channel].ids.push(id.clone());
                        }
                    }
                }
            }
            Happening::Deliver { channel, places, stale_epoch } => {
                let epoch = self.epoch.saturating_sub(usize::from(stale_epoch));
                let ids = &self.logs[epoch][channel].ids;
                if ids.is_empty() {
                    return;
                }
                let places = places.into_iter().map(|place| place % ids.len());
                let events: Vec<_> =
                    places.map(|place| event(place as u64 + 1, &ids[place])).collect();
                let steps = self.machine.batch(self.batch(epoch, channel, &events));
                self.obey(steps);
            }
            Happening::Pointer { channel, sequence } => {
                let steps = self.machine.pointer(&self.pointer(channel, sequence, "stale"));
                self.obey(steps);
            }
            Happening::Heartbeat { channel } => self.beat(channel),
            Happening::Answer { which, how } => {
                let at = which.checked_rem(self.asked.len()).unwrap_or_default();
                if let Some(asked) = self.asked.remove(at) {
                    self.answer(asked, how);
                }
            }
            Happening::Reconnect => self.reconnect(),
            Happening::NewEpoch => {
                self.epoch += 1;
                self.logs.push(<[Log; 2]>::default());
            }
            Happening::Purge { channel } => {
                let head = self.head(channel);
                self.logs[self.epoch][channel].floor = head;
            }
            Happening::Told { channel } => {
                let batch = self.batch(self.epoch, channel, &[told("resync.required")]);
                let steps = self.machine.batch(batch);
                self.obey(steps);
            }
            Happening::Lie { channel, place } => self.lie(channel, place),
        }
    }

    /// Another event under the sequence of one that was given lately: it must be noticed.
    fn lie(&mut self, channel: usize, place: usize) {
        let name = self.channels[channel].clone();
        let (epoch, last) = self.given[&name].clone();
        let lately = last.min(1 + place as u64 % LIMITS.given as u64);
        if lately == 0 || epoch != format!("e{}", self.epoch) {
            return;
        }
        let id = format!("evt_lie_{}", self.lied.len());
        self.lied.insert(id.clone());
        let batch = self.batch(self.epoch, channel, &[event(last + 1 - lately, &id)]);
        let steps = self.machine.batch(batch);
        self.obey(steps);
    }

    fn beat(&mut self, channel: usize) {
        let head = self.head(channel);
        let steps = self.machine.pointer(&self.pointer(channel, head, "head"));
        self.obey(steps);
    }

    pub fn reconnect(&mut self) {
        for (channel, _, _) in self.machine.subscriptions() {
            self.subscribe(&channel);
        }
    }

    /// The faults end: heartbeats, and true answers to everything.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.beat(0);
            self.beat(1);
            match self.asked.pop_front() {
                Some(asked) => self.answer(asked, How::Truly),
                None => break,
            }
        }
        assert!(self.asked.is_empty(), "nothing is asked for for ever");
        for (index, channel) in self.channels.clone().iter().enumerate() {
            let there = (format!("e{}", self.epoch), self.head(index));
            assert_eq!(self.given[channel], there, "{channel}: it arrives at the head");
        }
    }
}
