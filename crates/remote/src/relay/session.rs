//! One client, from its greeting to its end.
//!
//! The loop does what is possible, then waits for the client, the source, or an edit that another thread makes. Frames
//! are read only while the client has granted room and nothing waits to be sent, so a slow client costs one message of
//! memory; what it misses is lost in the ring of its reader, and counted there.

use super::connections::Counted;
use super::terms::Terms;
use super::{GREETING_LIMIT, Offer, Shared};
use crate::batch;
use crate::link::{Kind, Link, LinkError};
use crate::message::{Counts, Origin, Request, Response, Text, VERSION};
use fyke_capture::{Chunk, Filled};
use fyke_capture::{FilterSocket, FrameServer, SharedSource, SocketFilter, Source};
use fyke_filters::Inputs;
use fyke_frame::LinkType;
use fyke_serve::client::Connection;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of a greeting; a graph may be in it.
pub(super) const MAX_GREETING: usize = 256 << 10;
/// Bytes of a request around its texts, and for each byte of a text in quotes.
const ENVELOPE: usize = 64 << 10;
const QUOTING: usize = 6;
/// Most edits that wait.
const MAX_EDITS: usize = 16;
/// Most room that a client can grant.
const MAX_CREDIT: i64 = 64 << 20;
/// A client that is silent for this time is given up; it gives a sign of life every five seconds.
const SILENT: Duration = Duration::from_secs(30);
/// Time between two messages with counts, if they have changed; and if they have not.
const COUNTS: Duration = Duration::from_millis(200);
const BEAT: Duration = Duration::from_secs(1);
/// Longest wait.
const TURN: Duration = Duration::from_millis(100);
/// Wait for a source that cannot wake us.
const POLL: Duration = Duration::from_millis(5);

/// Counts of a client at its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent(pub Counts);

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { sent, rejected, dropped, overrun, unreadable, .. } = self.0;
        write!(f, "{sent} frames sent, {rejected} rejected, {overrun} lost because it was slow")?;
        if dropped + unreadable > 0 {
            write!(f, ", {dropped} lost by the capture, {unreadable} unreadable")?;
        }
        Ok(())
    }
}

/// The texts of a client are edited by its requests alone.
struct OwnTexts;

impl SocketFilter for OwnTexts {
    fn take_socket(&self, _: Arc<FilterSocket>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the frames come from a service"))
    }

    fn take_server(&self, _: Arc<dyn FrameServer>) -> io::Result<()> {
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        None
    }
}

/// An edit, with its number.
type Edit = (u64, Vec<u64>, Vec<Text>);

/// Makes the edits of a client at the service in a thread of its own: one may take seconds.
struct Editor {
    edits: SyncSender<Edit>,
    answers: Receiver<Response>,
    made: Arc<OwnedFd>,
}

/// A client that is served.
pub(super) struct Session {
    name: String,
    label: String,
    source: SharedSource,
    server: Option<Arc<Connection>>,
    editor: Option<Editor>,
    /// Reading of texts: for the check that each is a text alone.
    reading: (Inputs, fyke_filter::Options),
    terms: Terms,
    texts: BTreeSet<u64>,
    /// Texts that an edit without an answer removes and adds.
    changes: VecDeque<(Vec<u64>, Vec<u64>)>,
    chunk: Chunk,
    /// Frames of the chunk that were sent.
    done: usize,
    message: Vec<u8>,
    /// Bytes that the client has room for; below zero after a message that was longer.
    credit: i64,
    interfaces: usize,
    sent: u64,
    told: Counts,
    told_at: Instant,
    is_stopped: bool,
    has_texts: bool,
}

/// A source that was opened for a client.
struct Opened {
    label: String,
    source: SharedSource,
    server: Option<Arc<Connection>>,
    reading: (Inputs, fyke_filter::Options),
    /// True if frames come without a text of the client.
    has_texts: bool,
}

impl Opened {
    fn ring(offer: &Offer, user: Option<u32>) -> Result<Opened, String> {
        let Offer::Ring(name, path) = offer else { return Err("it is no ring".to_owned()) };
        let label = format!("ring:{name}");
        let source =
            SharedSource::connect(&label, path, user).map_err(|error| error.to_string())?;
        let reading = (Inputs { links: Vec::new() }, fyke_filter::Options::default());
        Ok(Opened { label, source, server: None, reading, has_texts: true })
    }

    fn service(
        connection: Connection,
        offer: &Offer,
        graph: Option<&str>,
        terms: &Terms,
    ) -> Result<Opened, String> {
        let label = format!("serve:{}", offer.name());
        let (link, netmask) = (LinkType(connection.hello().link), connection.hello().netmask);
        let reading = fyke_filter::Options {
            link,
            live: true,
            netmask: Some(netmask),
            ..fyke_filter::Options::default()
        };
        let reading = (Inputs { links: vec![link] }, reading);
        let reader = match graph {
            Some(graph) => connection.graph(graph, 0),
            None => connection.buffers(Vec::new(), terms.snaplen),
        };
        let reader = reader.map_err(|error| error.to_string())?;
        let server = Arc::new(connection);
        let mut source = SharedSource::served(&label, reader, Arc::clone(&server) as _);
        source.set_filter(Arc::new(OwnTexts)).map_err(|error| error.to_string())?;
        Ok(Opened { label, source, server: Some(server), reading, has_texts: graph.is_some() })
    }
}

/// Outcome of a turn of the loop.
enum Turn {
    /// More may be possible at once.
    Busy,
    /// Nothing to do for this time, and whether the source can wake us meanwhile.
    Wait(Duration, bool),
    /// The source has ended, with the reason if it is not the end of the capture.
    End(Option<String>),
}

/// Waits for the greeting.
fn greeting(link: &mut Link) -> Result<Request, String> {
    let start = Instant::now();
    loop {
        if let Some((kind, body)) = link.message().map_err(|error| error.to_string())? {
            let wrong = |error: serde_json::Error| format!("not a request: {error}");
            return match kind {
                Kind::Json => serde_json::from_slice(&body).map_err(wrong),
                Kind::Frames => Err("a client sends no frames".to_owned()),
            };
        }
        let left = GREETING_LIMIT.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(format!("no greeting within {} seconds", GREETING_LIMIT.as_secs()));
        }
        link.turn(left, &[]).map_err(|error| error.to_string())?;
    }
}

fn chosen(offers: &[Offer], ring: bool, name: Option<&str>) -> Result<Offer, String> {
    let kind = if ring { "ring" } else { "service" };
    let all: Vec<&Offer> = offers.iter().filter(|offer| offer.is_ring() == ring).collect();
    let names = || all.iter().map(|offer| offer.name()).collect::<Vec<_>>().join(", ");
    match (name, &all[..]) {
        (_, []) => Err(format!("this relay offers no {kind}")),
        (None, [one]) => Ok((*one).clone()),
        (None, _) => Err(format!("this relay offers several: add /NAME, one of {}", names())),
        (Some(name), _) => match all.iter().find(|offer| offer.name() == name) {
            Some(offer) => Ok((*offer).clone()),
            None => Err(format!("this relay offers no {kind} {name:?}, but {}", names())),
        },
    }
}

impl Session {
    /// Reads the greeting, opens the source, and answers.
    pub(super) fn open(
        shared: &Shared,
        counted: &mut Counted,
        link: &mut Link,
        name: &str,
    ) -> Result<Session, String> {
        let (offer, graph) = match greeting(link)? {
            Request::Hello { version: VERSION, name, ring, graph } => {
                (chosen(&shared.options.offers, ring, name.as_deref())?, graph)
            }
            Request::Hello { version, .. } => {
                return Err(format!("version {version}; this relay speaks {VERSION}"));
            }
            _ => return Err("a client greets first".to_owned()),
        };
        let options = &shared.options;
        let connection = match &offer {
            Offer::Ring(..) => None,
            Offer::Service(name) => {
                Some(Connection::open(name, options.user).map_err(|error| error.to_string())?)
            }
        };
        let interface = connection.as_ref().map_or(offer.name(), |it| &it.hello().interface);
        let terms = Terms::of(options, name, interface)?;
        counted.named(name, terms.readers)?;
        if terms.restricts() && (offer.is_ring() || graph.is_some()) {
            let what = if offer.is_ring() { "a ring" } else { "a graph" };
            return Err(format!(
                "the rule for {name:?} has a filter or a snap length, so {what} is refused"
            ));
        }
        let opened = match connection {
            None => Opened::ring(&offer, options.user),
            Some(connection) => Opened::service(connection, &offer, graph.as_deref(), &terms),
        };
        let mut session = Session::of(name, opened?, terms)?;
        let hello = Response::Hello {
            version: VERSION,
            client: name.to_owned(),
            filters: session.server.is_some(),
            restricted: session.is_restricted(),
            interfaces: session.new_interfaces(),
        };
        link.send_json(&hello).map_err(|error| error.to_string())?;
        link.set_limit(session.terms.text_bytes * QUOTING + ENVELOPE);
        Ok(session)
    }

    fn of(name: &str, opened: Opened, terms: Terms) -> Result<Session, String> {
        let Opened { label, source, server, reading, has_texts } = opened;
        let editor = server.as_ref().map(Editor::start).transpose();
        Ok(Session {
            name: name.to_owned(),
            label,
            source,
            editor: editor.map_err(|error| error.to_string())?,
            server,
            reading,
            terms,
            texts: BTreeSet::new(),
            changes: VecDeque::new(),
            chunk: Chunk::default(),
            done: 0,
            message: Vec::new(),
            credit: 0,
            interfaces: 0,
            sent: 0,
            told: Counts::default(),
            told_at: Instant::now(),
            is_stopped: false,
            has_texts,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The source, for messages.
    pub(super) fn source(&self) -> &str {
        &self.label
    }

    fn is_restricted(&self) -> bool {
        let there = self.server.as_ref().is_some_and(|server| server.is_restricted());
        there || !self.terms.filter.is_empty()
    }

    fn new_interfaces(&mut self) -> Vec<Origin> {
        let new = &self.source.interfaces()[self.interfaces..];
        let origins = new.iter().map(|interface| Origin {
            name: interface.description.clone(),
            link: interface.link.0,
            snaplen: interface.snaplen,
            nanoseconds: interface.nanoseconds,
            netmask: interface.netmask,
        });
        let origins: Vec<Origin> = origins.collect();
        self.interfaces += origins.len();
        origins
    }

    /// Serves until an end; returns what the client got.
    pub(super) fn run(mut self, link: &mut Link, stop: &AtomicBool) -> (Sent, Result<(), String>) {
        loop {
            let turn = self.turn(link, stop);
            let outcome = match turn {
                Ok(Turn::Busy) => continue,
                Ok(Turn::Wait(patience, wakes)) => match self.wait(link, patience, wakes) {
                    Ok(()) => continue,
                    Err(error) => Err(error.to_string()),
                },
                Ok(Turn::End(reason)) => {
                    let ended = Response::Ended { counts: self.counts(), reason: reason.clone() };
                    let sent = link.send_json(&ended).map_err(|error| error.to_string());
                    sent.and_then(|()| reason.map_or(Ok(()), Err))
                }
                // The client is gone, in order or not.
                Err(LinkError::Closed) => Ok(()),
                Err(error) => {
                    let reason = error.to_string();
                    let _gone = link.send_json(&Response::Refused { reason: reason.clone() });
                    Err(reason)
                }
            };
            return (Sent(self.counts()), outcome);
        }
    }

    fn turn(&mut self, link: &mut Link, stop: &AtomicBool) -> Result<Turn, LinkError> {
        while let Some((kind, body)) = link.message()? {
            if kind == Kind::Frames {
                return Err(LinkError::Wrong("a client sends no frames".to_owned()));
            }
            let request = serde_json::from_slice(&body);
            self.take(request.map_err(|error| LinkError::Wrong(error.to_string()))?, link)?;
        }
        while let Some(answer) = self.editor.as_ref().and_then(Editor::answer) {
            let (removed, added) = self.changes.pop_front().unwrap_or_default();
            if let Response::Edited { refused: Some(_), .. } = &answer {
                self.texts.retain(|id| !added.contains(id));
                self.texts.extend(removed);
            }
            link.send_json(&answer)?;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Turn::End(Some("it was stopped".to_owned())));
        }
        if link.silence() > SILENT {
            return Err(LinkError::Silent(SILENT.as_secs()));
        }
        self.tell_counts(link)?;
        let is_idle = !self.has_texts && !self.is_stopped;
        if link.is_sending() || self.credit <= 0 || is_idle {
            return Ok(Turn::Wait(TURN, false));
        }
        self.send_frames(link)
    }

    fn take(&mut self, request: Request, link: &mut Link) -> Result<(), LinkError> {
        match request {
            Request::Hello { .. } => Err(LinkError::Wrong("a second greeting".to_owned())),
            Request::Alive {} => Ok(()),
            Request::Credit { bytes } => {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                self.credit = self.credit.saturating_add(bytes);
                match self.credit > MAX_CREDIT {
                    true => Err(LinkError::Wrong(format!("more than {MAX_CREDIT} bytes granted"))),
                    false => Ok(()),
                }
            }
            Request::End {} => {
                self.is_stopped = true;
                self.source.stop();
                Ok(())
            }
            Request::Edit { number, remove, add } => match self.checked(remove, add) {
                Ok((remove, add)) => self.edit((number, remove, add)),
                Err(why) => link.send_json(&Response::Edited { number, refused: Some(why) }),
            },
        }
    }

    fn edit(&mut self, edit: Edit) -> Result<(), LinkError> {
        let Some(editor) = &self.editor else {
            return Err(LinkError::Wrong("a ring evaluates no texts".to_owned()));
        };
        self.has_texts = true;
        match editor.edits.try_send(edit) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                Err(LinkError::Wrong(format!("more than {MAX_EDITS} edits without an answer")))
            }
            Err(TrySendError::Disconnected(_)) => Err(LinkError::Closed),
        }
    }

    /// Checks texts alone, and joins them with the filter of the rule.
    fn checked(
        &mut self,
        remove: Vec<u64>,
        add: Vec<Text>,
    ) -> Result<(Vec<u64>, Vec<Text>), String> {
        let mut texts = self.texts.clone();
        texts.retain(|id| !remove.contains(id));
        texts.extend(add.iter().map(|text| text.id));
        if texts.len() > self.terms.texts {
            return Err(format!("{} texts; at most {}", texts.len(), self.terms.texts));
        }
        let (inputs, reading) = &self.reading;
        let join = |Text { id, text }: Text| {
            if text.len() > self.terms.text_bytes {
                let (given, limit) = (text.len(), self.terms.text_bytes);
                return Err(format!("text {id} has {given} bytes; at most {limit}"));
            }
            let filter = &self.terms.filter;
            if filter.is_empty() {
                return Ok(Text { id, text });
            }
            // Alone, so that it cannot leave its parentheses.
            inputs.check(&text, reading).map_err(|refused| refused.error.to_string())?;
            let text = match text.trim().is_empty() {
                true => filter.clone(),
                false => format!("({filter}) and ({text})"),
            };
            Ok(Text { id, text })
        };
        let add = add.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        let added = add.iter().map(|text| text.id).filter(|id| !self.texts.contains(id)).collect();
        let removed = remove.iter().copied().filter(|id| self.texts.contains(id)).collect();
        self.changes.push_back((removed, added));
        self.texts = texts;
        Ok((remove, add))
    }

    fn counts(&mut self) -> Counts {
        let server = self.server.clone();
        let stats = self.source.stats();
        let of_capture = server.map_or(0, |it| it.counts(self.sent, self.told.overrun).dropped);
        let restricted = !self.terms.filter.is_empty();
        let now = Counts {
            sent: self.sent,
            rejected: if restricted { 0 } else { stats.filtered },
            dropped: of_capture.min(stats.dropped),
            overrun: stats.dropped.saturating_sub(of_capture),
            unreadable: stats.unreadable,
            is_partial: stats.filtered_uncounted || restricted,
        };
        // Two requests see two moments; a count that was told is not taken back.
        let before = self.told;
        Counts {
            rejected: now.rejected.max(before.rejected),
            dropped: now.dropped.max(before.dropped),
            overrun: now.overrun.max(before.overrun),
            unreadable: now.unreadable.max(before.unreadable),
            ..now
        }
    }

    fn tell_counts(&mut self, link: &mut Link) -> Result<(), LinkError> {
        let since = self.told_at.elapsed();
        if since < COUNTS || link.is_sending() {
            return Ok(());
        }
        let now = self.counts();
        if now == self.told && since < BEAT {
            return Ok(());
        }
        (self.told, self.told_at) = (now, Instant::now());
        link.send_json(&Response::Counts(now))
    }

    /// Sends frames as one message.
    fn send_frames(&mut self, link: &mut Link) -> Result<Turn, LinkError> {
        if self.done >= self.chunk.len() {
            self.done = 0;
            match self.source.next_chunk(&mut self.chunk) {
                Ok(Filled::Frames) => {}
                Ok(Filled::Nothing) => return Ok(self.rest()),
                Ok(Filled::End) => return Ok(Turn::End(None)),
                Err(error) => return Ok(Turn::End(Some(error.to_string()))),
            }
            let more = self.new_interfaces();
            if !more.is_empty() {
                link.send_json(&Response::Interfaces { more })?;
            }
        }
        self.message.clear();
        while self.done < self.chunk.len() && self.message.len() < batch::FULL {
            batch::append(&self.chunk.frame(self.done), &mut self.message);
            self.done += 1;
            self.sent += 1;
        }
        self.credit -= self.message.len() as i64;
        link.send(Kind::Frames, &self.message)?;
        Ok(Turn::Busy)
    }

    /// The wait of a source that has no frames.
    fn rest(&mut self) -> Turn {
        match self.source.nap() {
            _ if self.is_stopped => Turn::Wait(POLL, false),
            Duration::ZERO if self.source.event().is_none() => Turn::Wait(POLL, false),
            Duration::ZERO => Turn::Wait(TURN, true),
            nap => Turn::Wait(nap, false),
        }
    }

    fn wait(&mut self, link: &mut Link, patience: Duration, wakes: bool) -> Result<(), LinkError> {
        let sleeps = wakes && self.source.begin_sleep();
        let patience = if wakes && !sleeps { Duration::ZERO } else { patience };
        let mut others = Vec::new();
        others.extend(self.editor.as_ref().map(|editor| editor.made.as_fd()));
        others.extend(self.source.event().filter(|_| sleeps));
        let turned = link.turn(patience, &others);
        drop(others);
        if sleeps {
            self.source.end_sleep();
        }
        turned
    }
}

impl Editor {
    /// The answer to the oldest edit, once it is there.
    fn answer(&self) -> Option<Response> {
        let mut count = [0_u8; 8];
        // Empty before the next answer.
        let _empty = rustix::io::read(&*self.made, &mut count);
        self.answers.try_recv().ok()
    }

    fn start(server: &Arc<Connection>) -> io::Result<Editor> {
        let (edits, waiting) = sync_channel::<Edit>(MAX_EDITS);
        let (told, answers): (Sender<Response>, _) = channel();
        let made = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (server, wake) = (Arc::clone(server), Arc::clone(&made));
        let edit = move || {
            for (number, remove, add) in waiting {
                let added: Vec<_> = add.iter().map(|text| (text.id, text.text.as_str())).collect();
                let refused = server.edit(&remove, &added).err().map(|error| error.to_string());
                if told.send(Response::Edited { number, refused }).is_err() {
                    return;
                }
                let _full = rustix::io::write(&*wake, &1_u64.to_ne_bytes());
            }
        };
        thread::Builder::new().name("edits".to_owned()).spawn(edit)?;
        Ok(Editor { edits, answers, made })
    }
}
