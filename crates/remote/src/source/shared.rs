//! The state that the packet loop, threads that edit and the receiving thread share.
//!
//! The receiving thread also makes a lost connection again. The source gets its frames only once the far side has all
//! texts of the moment, so an edit that returned before holds for every frame after it.

use super::dial::{Dial, Greeted, NoLink, Waits};
use super::state::{State, Taken};
use crate::link::{Kind, Link, LinkError};
use crate::message::{Counts, Origin, Request, Text};
use crate::source::EVERY_FRAME;
use fyke_capture::{FrameServer, LinkState, ServerCounts};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of a message of a relay.
pub(super) const MAX_MESSAGE: usize = 1 << 20;
/// Time limit for an edit: a long text is compiled there.
const EDIT_LIMIT: Duration = Duration::from_secs(15);
/// Time for the receiving thread to notice that a connection was given up.
const NOTICE_LIMIT: Duration = Duration::from_secs(5);
/// Time after which a silent relay is given up; it tells its counts every second.
const SILENT: Duration = Duration::from_secs(15);
/// Longest wait of the receiving thread.
const TURN: Duration = Duration::from_millis(500);
/// Time for what is left to send at the end.
const LAST: Duration = Duration::from_millis(200);

/// The far end as this one knows it.
#[derive(Debug)]
pub(super) struct Shared {
    /// The connection until a thread has it.
    link: Mutex<Option<Link>>,
    /// The way to another connection, if a lost one is made again.
    dial: Option<Dial>,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the thread that waits for the connection.
    wake: OwnedFd,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        link: Link,
        dial: Option<Dial>,
        interfaces: Vec<Origin>,
        restricted: bool,
    ) -> io::Result<Shared> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Shared {
            link: Mutex::new(Some(link)),
            dial,
            state: Mutex::new(State::new(interfaces, restricted)),
            changed: Condvar::new(),
            wake,
        })
    }

    fn wake(&self) {
        // It is readable already if this fails.
        let _full = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        self.changed.notify_all();
    }

    /// Hands the connection to a thread of its own.
    pub(super) fn run(self: &Arc<Shared>) -> io::Result<()> {
        let Some(link) = lock(&self.link).take() else { return Ok(()) };
        lock(&self.state).reconnects = self.dial.is_some();
        let shared = Arc::clone(self);
        let receive = move || shared.receive(link);
        thread::Builder::new().name("remote".to_owned()).spawn(receive).map(drop)
    }

    /// Receives until the end, from one connection after the other.
    fn receive(&self, first: Link) {
        let (mut link, mut waits) = (first, Waits::new());
        loop {
            let start = Instant::now();
            while self.step(&mut link, TURN) {}
            let is_lost = lock(&self.state).is_lost;
            let Some(dial) = self.dial.as_ref().filter(|_| is_lost) else {
                return link.close(LAST);
            };
            drop(link);
            waits.lasted(start.elapsed());
            match self.connect_again(dial, &mut waits) {
                Some(next) => link = next,
                None => return self.changed.notify_all(),
            }
        }
    }

    /// Connects until it succeeds; `None` if the source ends before.
    fn connect_again(&self, dial: &Dial, waits: &mut Waits) -> Option<Link> {
        while self.pauses(waits.next()) {
            let why = match dial.connect() {
                Ok(greeted) => match self.rejoin(greeted) {
                    Ok(link) => return Some(link),
                    Err(error) if error.is_loss() => continue,
                    Err(error) => error.to_string(),
                },
                Err(NoLink { later: true, .. }) => continue,
                Err(NoLink { error, .. }) => error.reason(),
            };
            lock(&self.state).end.get_or_insert(Some(why));
        }
        None
    }

    /// Waits before an attempt; false if there is none, because the source ends.
    fn pauses(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut state = lock(&self.state);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.end.is_some() || state.is_closing {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Brings the texts to a new connection, which may send frames then.
    fn rejoin(&self, greeted: Greeted) -> Result<Link, LinkError> {
        let Greeted { mut link, filters, restricted, interfaces } = greeted;
        lock(&self.state).begin_again(interfaces, restricted).map_err(LinkError::Wrong)?;
        let mut there = BTreeMap::new();
        loop {
            let edit = {
                let state = &mut *lock(&self.state);
                if state.end.is_some() || state.is_closing {
                    return Err(LinkError::Closed);
                }
                match state.missing(&there) {
                    Some(edit) => edit,
                    None => {
                        state.back();
                        return Ok(link);
                    }
                }
            };
            let Request::Edit { number, remove, add } = &edit else { return Ok(link) };
            if !filters {
                return Err(LinkError::Wrong("it evaluates no texts any more".to_owned()));
            }
            link.send_json(&edit)?;
            match self.answer(&mut link, *number)? {
                None => {
                    there.retain(|id, _| !remove.contains(id));
                    there.extend(add.iter().map(|text| (text.id, text.text.clone())));
                }
                Some(why) if add.iter().any(|text| text.id == EVERY_FRAME) => {
                    return Err(LinkError::Wrong(format!("it refuses to send frames: {why}")));
                }
                Some(why) => {
                    let first = why.lines().next().unwrap_or_default().to_owned();
                    lock(&self.state).widened = Some(first);
                }
            }
        }
    }

    /// The answer to an edit of a new connection.
    fn answer(&self, link: &mut Link, number: u64) -> Result<Option<String>, LinkError> {
        let start = Instant::now();
        loop {
            while let Some((kind, body)) = link.message()? {
                self.take_message(kind, body)?;
            }
            let state = &mut *lock(&self.state);
            if let Some(answer) = state.answers.remove(&number) {
                return Ok(answer);
            }
            if state.end.is_some() || state.is_closing {
                return Err(LinkError::Closed);
            }
            if start.elapsed() > EDIT_LIMIT {
                return Err(LinkError::Silent(EDIT_LIMIT.as_secs()));
            }
            link.turn(Duration::from_millis(50), &[])?;
        }
    }

    fn take_message(&self, kind: Kind, body: Vec<u8>) -> Result<(), LinkError> {
        let state = &mut *lock(&self.state);
        match kind {
            Kind::Frames => state.take_frames(body),
            Kind::Json => state.take_response(&body),
        }
        .map_err(LinkError::Wrong)
    }

    /// Sends what waits, and takes what has come; false at the end of the connection.
    fn step(&self, link: &mut Link, patience: Duration) -> bool {
        let outcome = self.exchange(link, patience);
        let mut state = lock(&self.state);
        match outcome {
            Ok(()) => {}
            Err(error) if error.is_loss() => state.cut(error.to_string(), link.silence()),
            Err(error) => {
                state.end.get_or_insert_with(|| Some(error.to_string()));
            }
        }
        let is_on = !state.is_over() && !state.is_closing;
        drop(state);
        self.changed.notify_all();
        is_on
    }

    fn exchange(&self, link: &mut Link, patience: Duration) -> Result<(), LinkError> {
        let requests = lock(&self.state).outgoing();
        for request in requests {
            link.send_json(&request)?;
        }
        link.turn(patience, &[self.wake.as_fd()])?;
        let mut count = [0_u8; 8];
        // Empty if something else ended the wait.
        let _empty = rustix::io::read(&self.wake, &mut count);
        while !lock(&self.state).is_over() {
            let Some((kind, body)) = link.message()? else { break };
            self.take_message(kind, body)?;
        }
        match link.silence() > SILENT {
            true => Err(LinkError::Silent(SILENT.as_secs())),
            false => Ok(()),
        }
    }

    /// Takes frames from the queue; waits for some if there are none.
    pub(super) fn take(&self, patience: Duration) -> Taken {
        let until = Instant::now() + patience;
        let mut state = lock(&self.state);
        loop {
            if let Some((arrived, has_room)) = state.pop() {
                drop(state);
                if has_room {
                    self.wake();
                }
                return Taken::Frames(arrived);
            }
            if state.end.is_some() {
                // The reason is told once.
                return Taken::End(state.end.replace(None).flatten());
            }
            let left = until.saturating_duration_since(Instant::now());
            // The notice of a loss does not wait.
            if left.is_zero() || !state.notices.is_empty() {
                return Taken::Nothing;
            }
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.state).counts()
    }

    /// Number of losses of the connection, and milliseconds without one.
    pub(super) fn cuts(&self) -> (u64, u64) {
        let (cuts, unseen) = lock(&self.state).cuts();
        (cuts, unseen.as_millis() as u64)
    }

    pub(super) fn is_restricted(&self) -> bool {
        lock(&self.state).restricted
    }

    pub(super) fn take_notice(&self) -> Option<(LinkState, String)> {
        lock(&self.state).notices.pop_front()
    }

    pub(super) fn ask_for_end(&self) {
        let state = &mut *lock(&self.state);
        if !state.asked_end {
            state.asked_end = true;
            if state.is_lost {
                state.end.get_or_insert(None);
            } else {
                state.requests.push(Request::End {});
            }
        }
        self.wake();
    }

    /// Gives the connection up.
    pub(super) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.wake();
    }

    /// Makes an edit, and waits until it is in force there; without a connection, it is with the next one.
    pub(super) fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
        let add = added.iter().map(|&(id, text)| Text { id, text: text.to_owned() }).collect();
        let number = lock(&self.state).begin_edit(removed.to_vec(), add);
        self.wake();
        let mut until = Instant::now() + EDIT_LIMIT;
        loop {
            let mut state = lock(&self.state);
            if let Some(refused) = state.answers.remove(&number) {
                let error = |why: String| io::Error::new(ErrorKind::InvalidInput, why);
                return refused.map_or(Ok(()), |why| Err(error(why)));
            }
            if let Some(end) = &state.end {
                let why = end.clone().unwrap_or_else(|| "the capture there has ended".to_owned());
                return Err(io::Error::new(ErrorKind::ConnectionAborted, why));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The edit may be in force there or not. With another connection, it is.
                let why = format!("no answer to an edit within {} s", EDIT_LIMIT.as_secs());
                state.cut(why.clone(), Duration::ZERO);
                if state.end.is_some() {
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                until += NOTICE_LIMIT;
                drop(state);
                self.wake();
                continue;
            }
            drop(state);
            self.wait(left.min(TURN));
        }
    }

    /// Waits for a change: in the thread that has the connection, or here while none has it.
    fn wait(&self, patience: Duration) {
        if let Some(link) = &mut *lock(&self.link) {
            self.step(link, patience);
            return;
        }
        let state = lock(&self.state);
        let _changed_or_late = self.changed.wait_timeout(state, patience);
    }
}

/// The far service, for the filters of this end.
#[derive(Debug)]
pub(super) struct Far(pub(super) Arc<Shared>);

impl FrameServer for Far {
    fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
        self.0.edit(removed, added)
    }

    fn counts(&self, _: u64, _: u64) -> ServerCounts {
        let Counts { rejected, dropped, is_partial, .. } = self.0.counts();
        ServerCounts { rejected, dropped, is_partial }
    }

    fn end(&self) -> bool {
        self.0.ask_for_end();
        lock(&self.0.state).end.is_some()
    }

    fn end_reason(&self) -> Option<String> {
        lock(&self.0.state).end.clone().flatten()
    }

    fn is_gone(&self) -> bool {
        lock(&self.0.state).end.is_some()
    }

    fn is_restricted(&self) -> bool {
        self.0.is_restricted()
    }

    fn tell(&self, remark: String) {
        lock(&self.0.state).notify(LinkState::Filtering, remark);
    }
}
