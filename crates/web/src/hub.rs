//! Shared by several pages: one thread for the list of running fykes, one for the counts of each that is shown, and one
//! for the fleet. A thread ends when the last page has left.

use crate::fleet::Fleet;
use crate::view;
use fyke_control::{Client, ConnectError, Stats};
use hyper::body::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch::{self, Receiver, Sender};

/// Time between two looks for running fykes.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for counts after their time; a fyke that is stopped sends none.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// A subject of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The running fykes.
    Fykes,
    /// The counts of the fyke with this process id.
    Counts(u32),
    /// The same as lines of `fyke ctl --json watch`, for programs.
    Lines(u32),
    /// The group of machines.
    Fleet,
}

/// The last event of a topic, with its line end; empty before the first.
pub type Latest = Receiver<Bytes>;

/// The event with the counts of a running fyke.
type View = fn(u32, &Stats) -> Vec<u8>;

/// The end of a connection to a running fyke.
enum Read {
    /// No page is left.
    Unseen,
    /// It was closed after some counts.
    Closed,
    /// There are no counts at the moment, for a reason.
    Refused(String),
}

/// The topics that pages look at.
#[derive(Debug)]
pub struct Hub {
    topics: Mutex<HashMap<Topic, Arc<Sender<Bytes>>>>,
    interval: Duration,
    fleet: Option<Arc<dyn Fleet>>,
}

impl Hub {
    /// A hub without topics, which reads counts at this interval, and a group if there is one.
    pub fn new(interval: Duration, fleet: Option<Arc<dyn Fleet>>) -> Hub {
        Hub { topics: Mutex::default(), interval, fleet }
    }

    /// The topics that every page follows.
    pub fn common(&self) -> impl Iterator<Item = Topic> + use<> {
        std::iter::once(Topic::Fykes).chain(self.fleet.is_some().then_some(Topic::Fleet))
    }

    /// Subscribes to a topic.
    pub fn subscribe(self: &Arc<Hub>, topic: Topic) -> Latest {
        let mut topics = self.lock();
        if let Some(sender) = topics.get(&topic) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Bytes::new());
        let sender = Arc::new(sender);
        topics.insert(topic, Arc::clone(&sender));
        drop(topics);
        let (hub, to) = (Arc::clone(self), Arc::clone(&sender));
        let thread = std::thread::Builder::new().name("follow".to_owned());
        let started = thread.spawn(move || match topic {
            Topic::Fykes => hub.list(&to),
            Topic::Counts(pid) => hub.follow(topic, pid, view::counts, &to),
            Topic::Lines(pid) => hub.follow(topic, pid, view::lines, &to),
            Topic::Fleet => hub.follow_fleet(&to),
        });
        if let (Err(error), Topic::Counts(pid) | Topic::Lines(pid)) = (started, topic) {
            self.lock().remove(&topic);
            sender.send_replace(view::ended(pid, &format!("no thread for it: {error}")).into());
        }
        receiver
    }

    /// Lists the running fykes until no page is left.
    fn list(&self, to: &Sender<Bytes>) {
        while self.publish(Topic::Fykes, to, view::fykes(&fyke_control::list())) {
            std::thread::sleep(LIST_INTERVAL);
        }
    }

    /// Reads the group until no page is left.
    fn follow_fleet(&self, to: &Sender<Bytes>) {
        if let Some(fleet) = &self.fleet {
            fleet.follow(&mut |view| self.publish(Topic::Fleet, to, view::fleet(view)));
        }
    }

    /// Reads counts until the fyke has ended or no page is left. One that closes the connection and runs on, such as to
    /// a client that was stopped for long, is connected to again.
    fn follow(&self, topic: Topic, pid: u32, event: View, to: &Sender<Bytes>) {
        let mut known = false;
        let reason = loop {
            match Client::connect(Some(pid)) {
                Ok(client) => match self.read(client, topic, &|stats| event(pid, stats), to) {
                    Read::Unseen => return,
                    Read::Closed => known = true,
                    Read::Refused(reason)
                        if !self.publish(topic, to, view::ended(pid, &reason)) =>
                    {
                        return;
                    }
                    Read::Refused(_) => std::thread::sleep(LIST_INTERVAL),
                },
                Err(ConnectError::NoSuchPid { .. }) if known => break "it has ended".to_owned(),
                Err(error @ ConnectError::NoSuchPid { .. }) => break error.to_string(),
                Err(error) => {
                    if !self.publish(topic, to, view::ended(pid, &error.to_string())) {
                        return;
                    }
                    std::thread::sleep(LIST_INTERVAL);
                }
            }
        };
        self.lock().remove(&topic);
        to.send_replace(view::ended(pid, &reason).into());
    }

    /// Publishes counts as long as the connection is open.
    fn read(
        &self,
        mut client: Client,
        topic: Topic,
        event: &dyn Fn(&Stats) -> Vec<u8>,
        to: &Sender<Bytes>,
    ) -> Read {
        let interval_ms = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        client.set_answer_limit(SILENCE_LIMIT);
        let watch = match client.watch(interval_ms) {
            Ok(watch) => watch,
            Err(error) => return Read::Refused(error.to_string()),
        };
        let mut count = 0_u64;
        for stats in watch {
            match stats {
                Ok(stats) if self.publish(topic, to, event(&stats)) => count += 1,
                Ok(_) => return Read::Unseen,
                Err(error) => return Read::Refused(error.to_string()),
            }
        }
        match count {
            0 => Read::Refused("it closed the connection".to_owned()),
            _ => Read::Closed,
        }
    }

    /// Publishes an event if it is new; false, and the topic is removed, if no page is left.
    fn publish(&self, topic: Topic, to: &Sender<Bytes>, line: Vec<u8>) -> bool {
        let mut topics = self.lock();
        if to.receiver_count() == 0 {
            topics.remove(&topic);
            return false;
        }
        drop(topics);
        to.send_if_modified(|latest| {
            let is_new = *latest != line;
            if is_new {
                *latest = line.into();
            }
            is_new
        });
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, Arc<Sender<Bytes>>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
