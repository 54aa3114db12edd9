//! The far end as the client knows it: frames that wait, counts, texts, and losses of the connection.
//!
//! A connection has counts and interfaces of its own. Their sums, and one list of interfaces, belong to the source; the
//! texts belong to it, too, and are sent again with each new connection.

use crate::batch::{self, Received};
use crate::link::SILENCE;
use crate::message::{Counts, MAX_INTERFACES, Origin, Request, Response, Text};
use crate::source::{EVERY_FRAME, WINDOW};
use fyke_capture::LinkState;
use fyke_frame::Frame;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two signs of life.
const BEAT: Duration = Duration::from_secs(5);
/// Most notices that wait.
const MAX_NOTICES: usize = 16;

/// Result of a look into the queue.
#[derive(Debug)]
pub(super) enum Taken {
    /// Frames.
    Frames(Arrived),
    /// There are none at the moment.
    Nothing,
    /// The source has ended, with the reason if it is not the end of the capture.
    End(Option<String>),
}

/// Frames that have arrived.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub received: Received,
    /// Interfaces that are new with them.
    pub more: Vec<Origin>,
    /// The place of each interface of the connection in the list of the source.
    places: Arc<Vec<u32>>,
}

impl Arrived {
    /// A frame, with the number that its interface has in the source.
    ///
    /// # Panics
    /// There are fewer.
    pub(super) fn frame(&self, index: usize) -> Frame<'_> {
        let frame = self.received.frame(index);
        Frame { interface: self.places[frame.interface as usize], ..frame }
    }
}

/// An edit that was sent: the texts that it removes and adds; `None` if the texts of the source stay as they are.
type Pending = Option<(Vec<u64>, Vec<Text>)>;

#[derive(Debug, Default)]
pub(super) struct State {
    queue: VecDeque<Arrived>,
    /// The interfaces of the source, and those that wait for the next frames.
    origins: Vec<Origin>,
    more: Vec<Origin>,
    places: Arc<Vec<u32>>,
    /// Bytes that the relay may still send; below zero after a message that was longer.
    granted: i64,
    /// Bytes of frames that were taken from the queue, and not granted again.
    freed: u64,
    /// Frames and counts of this connection, and the counts of those before.
    arrived: u64,
    counts: Counts,
    before: Counts,
    pub requests: Vec<Request>,
    /// Number of the last edit, those without an answer, and answers.
    edits: u64,
    pending: BTreeMap<u64, Pending>,
    pub answers: BTreeMap<u64, Option<String>>,
    /// The texts that the far side has, or will have with the next connection.
    texts: BTreeMap<u64, String>,
    /// Reason why the far side passes every frame in place of the texts, until the next connection.
    pub widened: Option<String>,
    pub restricted: bool,
    pub asked_end: bool,
    /// The end, with the reason if it is not that of the capture.
    pub end: Option<Option<String>>,
    pub is_closing: bool,
    beat: Option<Instant>,
    /// True if a lost connection is made again.
    pub reconnects: bool,
    /// True while there is no connection, and since when nothing is known.
    pub is_lost: bool,
    unseen_since: Option<Instant>,
    unseen: Duration,
    cuts: u64,
    pub notices: VecDeque<(LinkState, String)>,
}

impl State {
    /// The state of a first connection.
    pub(super) fn new(origins: Vec<Origin>, restricted: bool) -> State {
        let places = Arc::new((0..origins.len() as u32).collect());
        let granted = WINDOW as i64;
        State { origins, restricted, places, granted, ..State::default() }
    }

    /// True if nothing is taken from this connection any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_lost || self.end.is_some()
    }

    /// The requests that are to be sent now.
    pub(super) fn outgoing(&mut self) -> Vec<Request> {
        let mut requests = std::mem::take(&mut self.requests);
        // In larger parts: a message for each batch would cost more than it tells.
        if self.freed >= WINDOW / 8 {
            requests.push(Request::Credit { bytes: self.freed });
            self.granted += std::mem::take(&mut self.freed) as i64;
        }
        if requests.is_empty() && self.beat.is_none_or(|beat| beat.elapsed() > BEAT) {
            requests.push(Request::Alive {});
        }
        if !requests.is_empty() {
            self.beat = Some(Instant::now());
        }
        requests
    }

    /// The next frames, with true if there is room to grant; `None` if there are none now.
    pub(super) fn pop(&mut self) -> Option<(Arrived, bool)> {
        let arrived = self.queue.pop_front()?;
        self.freed += arrived.received.bytes() as u64;
        Some((arrived, self.freed >= WINDOW / 8))
    }

    /// Counts of all connections.
    pub(super) fn counts(&self) -> Counts {
        self.before.plus(&self.counts)
    }

    /// Number of losses of the connection, and the time without one.
    pub(super) fn cuts(&self) -> (u64, Duration) {
        let now = self.unseen_since.map_or(Duration::ZERO, |since| since.elapsed());
        (self.cuts, self.unseen + now)
    }

    /// Notes a new edit; returns its number.
    pub(super) fn begin_edit(&mut self, remove: Vec<u64>, add: Vec<Text>) -> u64 {
        self.edits += 1;
        let number = self.edits;
        if self.is_lost || self.widened.is_some() {
            // The next connection begins with the texts; until then no frame comes, or every frame.
            self.apply(remove, add);
            self.answers.insert(number, None);
            return number;
        }
        self.pending.insert(number, Some((remove.clone(), add.clone())));
        self.requests.push(Request::Edit { number, remove, add });
        number
    }

    fn apply(&mut self, remove: Vec<u64>, add: Vec<Text>) {
        self.texts.retain(|id, _| !remove.contains(id));
        self.texts.extend(add.into_iter().map(|text| (text.id, text.text)));
    }

    /// The edit that brings a new connection from the texts that it has to those that it needs; `None` if it has them.
    pub(super) fn missing(&mut self, there: &BTreeMap<u64, String>) -> Option<Request> {
        let every = BTreeMap::from([(EVERY_FRAME, String::new())]);
        let target = if self.widened.is_some() { &every } else { &self.texts };
        let remove: Vec<u64> =
            there.keys().filter(|id| !target.contains_key(id)).copied().collect();
        let add = target.iter().filter(|(id, _)| !there.contains_key(id));
        let add: Vec<Text> = add.map(|(&id, text)| Text { id, text: text.clone() }).collect();
        if remove.is_empty() && add.is_empty() {
            return None;
        }
        self.edits += 1;
        self.pending.insert(self.edits, None);
        Some(Request::Edit { number: self.edits, remove, add })
    }

    /// Notes the loss of the connection, of which nothing was heard for this time; an end if it is not made again.
    pub(super) fn cut(&mut self, why: String, silence: Duration) {
        if self.is_lost || self.end.is_some() {
            return;
        }
        if !self.reconnects || self.asked_end || self.is_closing {
            self.end = Some(Some(why));
            return;
        }
        self.is_lost = true;
        self.cuts += 1;
        let now = Instant::now();
        self.unseen_since = Some(now.checked_sub(silence).unwrap_or(now));
        self.notify(LinkState::Lost, why);
        self.before = self.counts();
        self.counts = Counts::default();
        self.widened = None;
        self.requests.clear();
        for (number, edit) in std::mem::take(&mut self.pending) {
            if let Some((remove, add)) = edit {
                self.apply(remove, add);
                self.answers.insert(number, None);
            }
        }
    }

    /// Begins with a new connection that may not send frames yet.
    ///
    /// # Errors
    /// It has too many new interfaces.
    pub(super) fn begin_again(
        &mut self,
        origins: Vec<Origin>,
        restricted: bool,
    ) -> Result<(), String> {
        (self.arrived, self.counts, self.granted) = (0, Counts::default(), 0);
        self.pending.retain(|_, edit| edit.is_some());
        self.restricted = restricted;
        self.places = Arc::default();
        self.add_origins(origins)
    }

    /// Ends the loss: grants the room that there is, and counts the time.
    pub(super) fn back(&mut self) {
        let queued: usize = self.queue.iter().map(|arrived| arrived.received.bytes()).sum();
        let room = WINDOW.saturating_sub(queued as u64);
        (self.granted, self.freed) = (room as i64, 0);
        if room > 0 {
            self.requests.push(Request::Credit { bytes: room });
        }
        self.is_lost = false;
        let lasted = self.unseen_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.unseen += lasted;
        let widened = self.widened.as_ref();
        let why = widened.map_or_else(String::new, |why| {
            format!("; it refuses a text ({why}), so it sends every frame")
        });
        self.notify(LinkState::Returned(lasted.as_millis() as u64), why);
    }

    pub fn notify(&mut self, state: LinkState, why: String) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back((state, why));
        }
    }

    /// Finds or adds interfaces of the connection.
    fn add_origins(&mut self, origins: Vec<Origin>) -> Result<(), String> {
        let places = Arc::make_mut(&mut self.places);
        for origin in origins {
            // Two of one connection with the same name and form are two.
            let is_free = |place: &usize| !places.contains(&(*place as u32));
            let known =
                (0..self.origins.len()).filter(is_free).find(|&at| self.origins[at] == origin);
            places.push(known.unwrap_or(self.origins.len()) as u32);
            if known.is_none() {
                self.origins.push(origin.clone());
                self.more.push(origin);
            }
            if self.origins.len() > MAX_INTERFACES {
                return Err(format!("it has more than {MAX_INTERFACES} interfaces"));
            }
        }
        Ok(())
    }

    /// Takes a message of frames.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub(super) fn take_frames(&mut self, body: Vec<u8>) -> Result<(), String> {
        let bytes = body.len();
        // A message begins while there is credit, and may be longer than what is left of it.
        if self.granted <= 0 || bytes > batch::MAX_BYTES {
            return Err("it sends more than it was granted".to_owned());
        }
        self.granted -= bytes as i64;
        let received = Received::new(body, self.places.len())?;
        self.arrived += received.len() as u64;
        let (more, places) = (std::mem::take(&mut self.more), Arc::clone(&self.places));
        self.queue.push_back(Arrived { received, more, places });
        Ok(())
    }

    /// Takes a response.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub(super) fn take_response(&mut self, body: &[u8]) -> Result<(), String> {
        let response = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        match response {
            Response::Edited { number, refused } => match self.pending.remove(&number) {
                None => return Err(format!("there is no edit {number}")),
                Some(edit) => {
                    if let Some((remove, add)) = edit.filter(|_| refused.is_none()) {
                        self.apply(remove, add);
                    }
                    self.answers.insert(number, refused);
                }
            },
            Response::Interfaces { more } => self.add_origins(more)?,
            Response::Counts(counts) => self.take_counts(counts)?,
            Response::Ended { counts, reason } => {
                self.take_counts(counts)?;
                match reason {
                    None => self.end = Some(None),
                    Some(reason) => self.cut(format!("the relay: {reason}"), Duration::ZERO),
                }
            }
            Response::Refused { reason, .. } => {
                let why = format!("the relay: {reason}");
                match reason.starts_with(SILENCE) {
                    true => self.cut(why, Duration::ZERO),
                    false => self.end = Some(Some(why)),
                }
            }
            Response::Hello { .. } => return Err("it greets twice".to_owned()),
        }
        Ok(())
    }

    fn take_counts(&mut self, counts: Counts) -> Result<(), String> {
        if !counts.follows(&self.counts) {
            return Err("its counts go back".to_owned());
        }
        if counts.sent != self.arrived {
            let (sent, arrived) = (counts.sent, self.arrived);
            return Err(format!("it counts {sent} frames as sent, and {arrived} have arrived"));
        }
        self.counts = counts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> Origin {
        let name = name.to_owned();
        Origin { name, link: 1, snaplen: 65_535, nanoseconds: true, netmask: 0 }
    }

    fn text(id: u64, text: &str) -> Text {
        Text { id, text: text.to_owned() }
    }

    fn tell(state: &mut State, response: &Response) {
        state.take_response(&serde_json::to_vec(response).unwrap()).unwrap();
    }

    fn connected() -> State {
        State { reconnects: true, ..State::new(vec![origin("a"), origin("b")], false) }
    }

    #[test]
    fn a_loss_keeps_texts_and_counts_and_the_next_connection_gets_the_texts() {
        let mut state = connected();
        let first = state.begin_edit(Vec::new(), vec![text(1, "udp"), text(2, "tcp")]);
        tell(&mut state, &Response::Edited { number: first, refused: None });
        let counts = Counts { rejected: 7, dropped: 1, ..Counts::default() };
        tell(&mut state, &Response::Counts(counts));
        // An edit without an answer, and one while there is no connection.
        let open = state.begin_edit(vec![1], vec![text(3, "arp")]);
        state.cut("gone".to_owned(), Duration::from_secs(3));
        assert_eq!(state.answers.remove(&open), Some(None));
        let away = state.begin_edit(vec![2], vec![text(4, "icmp")]);
        assert_eq!(state.answers.remove(&away), Some(None));
        assert!(state.requests.is_empty());
        // The other order of interfaces, one of them new.
        state.begin_again(vec![origin("b"), origin("c")], false).unwrap();
        assert_eq!((&state.places[..], state.more.len()), (&[1, 2][..], 1));
        let Some(Request::Edit { number, remove, add }) = state.missing(&BTreeMap::new()) else {
            panic!()
        };
        assert_eq!((remove, add), (Vec::new(), vec![text(3, "arp"), text(4, "icmp")]));
        tell(&mut state, &Response::Edited { number, refused: None });
        let there = BTreeMap::from([(3, "arp".to_owned()), (4, "icmp".to_owned())]);
        assert_eq!(state.missing(&there), None);
        state.back();
        assert_eq!(state.requests, [Request::Credit { bytes: WINDOW }]);
        tell(&mut state, &Response::Counts(Counts { rejected: 5, ..Counts::default() }));
        let sum = state.counts();
        assert_eq!((sum.rejected, sum.dropped), (12, 1));
        let (cuts, unseen) = state.cuts();
        assert!(cuts == 1 && unseen >= Duration::from_secs(3), "{cuts} {unseen:?}");
        let kinds: Vec<LinkState> = state.notices.iter().map(|(state, _)| *state).collect();
        assert!(matches!(kinds[..], [LinkState::Lost, LinkState::Returned(3_000..)]), "{kinds:?}");
    }

    #[test]
    fn a_text_that_is_refused_after_a_loss_widens_to_every_frame() {
        let mut state = connected();
        state.cut("gone".to_owned(), Duration::ZERO);
        state.begin_edit(Vec::new(), vec![text(1, "udp")]);
        state.begin_again(vec![origin("a")], false).unwrap();
        let Some(Request::Edit { number, .. }) = state.missing(&BTreeMap::new()) else { panic!() };
        tell(&mut state, &Response::Edited { number, refused: Some("no".to_owned()) });
        assert_eq!(state.answers.remove(&number), Some(Some("no".to_owned())));
        state.widened = Some("no".to_owned());
        let Some(Request::Edit { add, .. }) = state.missing(&BTreeMap::new()) else { panic!() };
        assert_eq!(add, [text(EVERY_FRAME, "")]);
        state.back();
        // Later edits are kept for the next connection.
        let number = state.begin_edit(vec![1], vec![text(2, "tcp")]);
        assert_eq!(state.answers.remove(&number), Some(None));
        state.cut("gone".to_owned(), Duration::ZERO);
        let Some(Request::Edit { add, .. }) = state.missing(&BTreeMap::new()) else { panic!() };
        assert_eq!(add, [text(2, "tcp")]);
    }

    #[test]
    fn ends_of_the_relay_are_losses_and_those_of_the_capture_are_not() {
        let ended = |reason: Option<&str>| Response::Ended {
            counts: Counts { rejected: 2, ..Counts::default() },
            reason: reason.map(str::to_owned),
        };
        let mut state = connected();
        tell(&mut state, &ended(Some("it was stopped")));
        assert!(state.is_lost && state.end.is_none() && state.counts().rejected == 2);
        let mut state = connected();
        tell(&mut state, &ended(None));
        assert_eq!((state.is_lost, state.end), (false, Some(None)));
        let mut state = State { reconnects: false, ..connected() };
        tell(&mut state, &ended(Some("it was stopped")));
        assert_eq!(state.end, Some(Some("the relay: it was stopped".to_owned())));
        for (reason, lost) in [(format!("{SILENCE}30 s"), true), ("no text".to_owned(), false)] {
            let mut state = connected();
            tell(&mut state, &Response::Refused { reason, later: false });
            assert_eq!((state.is_lost, state.end.is_some()), (lost, !lost));
        }
    }
}
