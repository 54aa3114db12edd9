//! One reader, from its greeting to its end: its requests and their answers, in a thread of its own.

use super::{Connection, ENVELOPE, GREETING_LIMIT, QUOTING, Shared, lock};
use crate::compiling::Compiling;
use crate::events::{Event, Events};
use crate::message::{Edited, HANDED_ON, Hello, MAX_PROGRAM, Request, Response, Text, VERSIONS};
use crate::policy::Terms;
use crate::restore::Restored;
use crate::service::{Service, Texts};
use crate::store::{Saved, Store, save};
use crate::table::Descriptors;
use crate::wire::{Assembler, DESCRIPTORS, Incoming};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most frames that a reader can tell that it read or lost: more are not true, and sums of several would overflow.
const MOST_FRAMES: u64 = 1 << 48;

/// One reader, from its greeting to its end.
pub(super) struct Session<'s> {
    connection: &'s Connection,
    service: &'s Service,
    compiling: &'s Compiling,
    terms: &'s Terms,
    store: Option<&'s Arc<Store>>,
    events: &'s Events,
    /// True once the whole service ends.
    stopping: &'s AtomicBool,
    /// True once the log has its first texts.
    is_reported: bool,
    greeted: bool,
    /// Version of the protocol.
    version: u32,
    snaplen: u32,
    reader: Option<u64>,
    texts: Texts,
    /// Number and text of its graph.
    graph: Option<(u64, String)>,
    /// Numbers of its files.
    files: Vec<u64>,
    /// True until the reader knows that this process continues with it: requests before that are void.
    is_moving: bool,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let kept = {
                let mut known = lock(&self.connection.known);
                known.reader = None;
                known.kept.take()
            };
            if let (Some(store), Some((slot, _))) = (self.store, kept) {
                store.forget(reader, slot);
            }
            self.remove_graph();
            self.report_end(reader);
            self.service.leave(reader, &self.texts);
        }
        self.service.files().end(&self.files);
    }
}

impl<'s> Session<'s> {
    pub fn new(connection: &'s Connection, shared: &'s Shared) -> Session<'s> {
        Session {
            connection,
            service: &shared.service,
            compiling: &shared.compiling,
            terms: &connection.terms,
            store: shared.store.as_ref(),
            events: &shared.events,
            stopping: &shared.stopping,
            is_reported: false,
            greeted: false,
            version: 0,
            snaplen: 0,
            reader: None,
            texts: Texts::default(),
            graph: None,
            files: Vec::new(),
            is_moving: false,
        }
    }

    /// Tells the log that the reader has opened, once it has texts.
    fn report_begin(&mut self, reader: u64) {
        let texts = lock(&self.connection.known).texts.clone();
        if !self.is_reported && !texts.is_empty() {
            self.is_reported = true;
            let client = self.connection.client();
            self.events.report(&Event::Opened { reader, client, texts });
        }
    }

    /// Tells the log that the reader leaves, unless all do.
    fn report_end(&self, reader: u64) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let (counts, client) = (self.service.counts(reader), self.connection.client());
        let known = lock(&self.connection.known);
        let (read, reason) = ((known.read, known.lost), known.ended.clone());
        drop(known);
        self.events.report(&Event::Left { reader, client, counts, read, reason });
    }

    fn remove_graph(&mut self) {
        if let Some((id, _)) = self.graph.take() {
            self.service.remove_graph(id);
        }
    }

    /// Continues with a reader of a process before this one.
    pub fn go_on(mut self, one: Restored) {
        let Restored { number, buffers, texts, saved, graph, from, .. } = one;
        (self.greeted, self.is_moving, self.is_reported) = (true, true, true);
        (self.version, self.snaplen) = (saved.version, saved.snaplen);
        (self.reader, self.texts) = (Some(number), texts);
        self.graph = graph.zip(saved.graph);
        self.show_texts();
        let texts = self.texts.iter().map(|(id, _)| id).collect();
        let moved = Response::Moved { from, texts, epoch: self.service.epoch() };
        let descriptors: Vec<_> = buffers.iter().map(AsFd::as_fd).collect();
        if self.connection.send(&moved, &descriptors).is_err() {
            return;
        }
        drop::<Descriptors>(buffers);
        self.service.call(number);
        self.run();
    }

    /// Has the reader kept for a process after this one, if its protocol can move.
    fn keep(&mut self, reader: u64) {
        let Some(store) = self.store.filter(|_| self.version >= HANDED_ON) else { return };
        let Some(slot) = store.slot() else { return };
        let program = lock(&self.connection.known).program.clone();
        let saved = self.saved(reader, slot, program);
        let own = self.service.keep(reader, slot);
        let link = self.connection.socket.as_fd();
        match own.and_then(|own| store.keep(reader, link, &own, &saved)) {
            Ok(file) => {
                lock(&self.connection.known).kept = Some((slot, file));
                // It may have been paused meanwhile.
                self.save(reader);
            }
            Err(_) => {
                // It ends with this process.
                self.service.keep_no_more(reader);
                store.forget(reader, slot);
            }
        }
    }

    fn saved(&self, reader: u64, slot: usize, program: String) -> Saved {
        let text = |(id, text): (u64, &str)| Text { id, text: text.to_owned() };
        let (is_paused, meter) = self.service.state(reader);
        Saved {
            version: self.version,
            slot,
            program,
            snaplen: self.snaplen,
            texts: self.texts.iter().map(text).collect(),
            graph: self.graph.as_ref().map(|(_, graph)| graph.clone()),
            is_paused,
            meter,
        }
    }

    /// Writes the state of the reader for a process after this one.
    fn save(&self, reader: u64) {
        // Held throughout: another thread may pause the reader.
        let known = lock(&self.connection.known);
        if let Some((slot, file)) = &known.kept {
            let saved = self.saved(reader, *slot, known.program.clone());
            // Without memory, the process after this one has the state before.
            let _old_state = save(file, &saved);
        }
    }

    /// Answers until the reader closes, breaks a rule, or does not read its answers.
    pub fn run(mut self) {
        let mut assembler = Assembler::new(ENVELOPE);
        if self.greeted {
            assembler.set_limit(self.terms.limits.text_bytes * QUOTING + ENVELOPE);
        }
        loop {
            let patience = (!self.greeted).then_some(GREETING_LIMIT);
            // A reader that opens its buffers may lend a page; the kernel closes all other descriptors.
            let mut given = Vec::new();
            let into = (self.greeted && self.reader.is_none()).then_some(&mut given);
            let got = assembler.receive(&self.connection.socket, patience, into);
            let answered = match got {
                Ok(Incoming::Message(message)) => self.answer(&message, given),
                Ok(Incoming::TooLong) => {
                    let limit = self.terms.limits.text_bytes;
                    let _gone = self.refuse(format!(
                        "the request is too long: a text has at most {limit} bytes, and a packet \
                         {} bytes",
                        crate::wire::MAX_PACKET
                    ));
                    return;
                }
                Ok(Incoming::Quiet | Incoming::More) => {
                    let seconds = GREETING_LIMIT.as_secs();
                    let _gone = self.refuse(format!("no greeting within {seconds} seconds"));
                    return;
                }
                Ok(Incoming::Closed) | Err(_) => return,
            };
            if answered.is_err() {
                return;
            }
            if self.greeted {
                assembler.set_limit(self.terms.limits.text_bytes * QUOTING + ENVELOPE);
            }
        }
    }

    fn refuse(&self, message: String) -> io::Result<()> {
        self.connection.send(&Response::Error { message }, &[])
    }

    fn refuse_open(&self, reason: String) -> io::Result<()> {
        let client = self.connection.client();
        self.events.report(&Event::Refused { client, reason: reason.clone() });
        self.refuse(reason)
    }

    fn answer(&mut self, message: &[u8], mut given: Vec<OwnedFd>) -> io::Result<()> {
        let request = match Request::from_bytes(message) {
            Ok(request) => request,
            Err(error) => return self.refuse(format!("not a request: {error}")),
        };
        if request == (Request::Resume {}) {
            self.is_moving = false;
            return Ok(());
        }
        if self.is_moving {
            return Ok(());
        }
        let response = match (request, self.reader) {
            (Request::Hello { versions, program }, _) => self.hello(&versions, &program),
            _ if !self.greeted => Err("a reader greets first".to_owned()),
            (Request::Files {}, Some(_)) => Err("send files before `open`".to_owned()),
            (Request::Files {}, None) => self.add_files(given),
            (Request::Open { .. }, Some(_)) => Err("the buffers are open already".to_owned()),
            (Request::Open { texts, graph: Some(_), .. }, None) if !texts.is_empty() => {
                Err("a reader has texts or a graph, not both".to_owned())
            }
            (Request::Open { texts, snaplen, graph }, None) => {
                return self.open(&texts, snaplen, graph, given.pop());
            }
            (_, None) => Err("no buffers are open; open them first".to_owned()),
            (Request::Graph { graph }, Some(reader)) => {
                let set = self.set_graph(reader, graph);
                self.save(reader);
                set
            }
            (Request::Edit { .. }, Some(_)) if self.graph.is_some() => {
                Err("this reader has a graph; replace it by a request `graph`".to_owned())
            }
            (Request::Edit { remove, add }, Some(reader)) => {
                let edited = self.edit(reader, &remove, &add);
                self.show_texts();
                self.save(reader);
                self.report_begin(reader);
                edited.map(Response::Edited)
            }
            (pause @ (Request::Pause {} | Request::Start {}), Some(reader)) => {
                let edited = self.service.pause(reader, pause == Request::Pause {});
                self.save(reader);
                edited.map(Response::Edited).map_err(|refused| refused.to_string())
            }
            (Request::Counts { read, lost }, Some(reader)) => {
                let mut known = lock(&self.connection.known);
                (known.read, known.lost) = (read.min(MOST_FRAMES), lost.min(MOST_FRAMES));
                drop(known);
                let failure =
                    self.graph.as_ref().and_then(|(id, _)| self.service.graph_failure(*id));
                if let Some(reason) = failure {
                    self.connection.end(self.service, &reason);
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(Response::Counts(self.service.counts(reader)))
            }
            (Request::End {}, Some(reader)) => Ok(self.end(reader)),
            (Request::Resume {}, Some(_)) => return Ok(()),
        };
        match response {
            Ok(response) => self.connection.send(&response, &[]),
            Err(message) => self.refuse(message),
        }
    }

    fn end(&mut self, reader: u64) -> Response {
        let counts = match self.graph.is_some() {
            false => self.service.end(reader),
            true => {
                self.service.drain();
                self.remove_graph();
                self.service.end_now(reader)
            }
        };
        Response::Ended { counts, reason: String::new() }
    }

    fn add_files(&mut self, given: Vec<OwnedFd>) -> Result<Response, String> {
        if given.is_empty() {
            return Err("no descriptor came with the request".to_owned());
        }
        if given.len() > DESCRIPTORS {
            return Err(format!(
                "more than {DESCRIPTORS} descriptors came with the request; send the others with another one"
            ));
        }
        let numbers = self.service.files().add(self.connection.peer.user, given)?;
        self.files.extend(&numbers);
        Ok(Response::Files { numbers })
    }

    fn hello(&mut self, versions: &[u32], program: &str) -> Result<Response, String> {
        let version = VERSIONS.iter().copied().find(|version| versions.contains(version));
        let version = version.ok_or_else(|| {
            format!("versions {versions:?} are not spoken here; this service speaks {VERSIONS:?}")
        })?;
        let interface = self.service.interface().ok_or("the capture does not run")?;
        (self.greeted, self.version) = (true, version);
        let is_shown = |letter: &char| !letter.is_control();
        let program = program.chars().filter(is_shown).take(MAX_PROGRAM).collect();
        lock(&self.connection.known).program = program;
        Ok(Response::Hello(Hello {
            version,
            interface: interface.name.clone(),
            link: interface.link.0,
            netmask: interface.netmask,
            snaplen: interface.snaplen.min(self.terms.group.snaplen),
            group: self.terms.group.to_string(),
            restricted: !self.terms.group.filter.is_empty(),
            limits: self.terms.limits,
        }))
    }

    /// Makes the buffers and sends them. A refused text leaves none.
    fn open(
        &mut self,
        texts: &[Text],
        snaplen: u32,
        graph: Option<String>,
        page: Option<OwnedFd>,
    ) -> io::Result<()> {
        let user = self.connection.peer.user;
        let joined = self.service.join(user, self.terms, snaplen, graph.is_some());
        let (reader, buffers) = match joined {
            Ok(joined) => joined,
            Err(refused) => return self.refuse_open(refused.to_string()),
        };
        (self.reader, self.snaplen) = (Some(reader), snaplen);
        // Before the first frame, so that the reader need not look once more.
        let event = page.map(|page| self.service.let_sleep(reader, page)).transpose();
        let event = match event {
            Ok(event) => event,
            Err(refused) => {
                self.reader = None;
                self.service.leave(reader, &self.texts);
                return self.refuse_open(refused.to_string());
            }
        };
        let opened = match graph {
            Some(graph) => self.put_graph(reader, graph),
            None => self.edit(reader, &[], texts),
        };
        match opened {
            Ok(edited) => {
                lock(&self.connection.known).reader = Some(reader);
                self.show_texts();
                self.keep(reader);
                self.report_begin(reader);
                let buffers: Vec<_> = buffers.iter().chain(&event).map(AsFd::as_fd).collect();
                self.connection.send(&Response::Opened(edited), &buffers)
            }
            Err(refused) => {
                self.reader = None;
                self.service.leave(reader, &self.texts);
                self.refuse_open(refused)
            }
        }
    }

    fn edit(&mut self, reader: u64, remove: &[u64], add: &[Text]) -> Result<Edited, String> {
        let (texts, terms, service) = (&mut self.texts, self.terms, self.service);
        self.compiling.time(self.connection.peer.user, terms.compile, || {
            let edited = service.edit(reader, texts, remove, add, terms);
            edited.map_err(|refused| refused.to_string())
        })
    }

    fn put_graph(&mut self, reader: u64, graph: String) -> Result<Edited, String> {
        let (old, terms) = (self.graph.as_ref().map(|(id, _)| *id), self.terms);
        let put = || self.service.put_graph(reader, &graph, terms, old);
        let (id, edited) = self
            .compiling
            .time(self.connection.peer.user, terms.compile, || put().map_err(|r| r.to_string()))?;
        self.graph = Some((id, graph));
        Ok(edited)
    }

    fn set_graph(&mut self, reader: u64, graph: String) -> Result<Response, String> {
        if self.graph.is_none() {
            return Err("this reader has texts; open a connection with a graph".to_owned());
        }
        let edited = self.put_graph(reader, graph)?;
        self.show_texts();
        Ok(Response::Edited(edited))
    }

    fn show_texts(&self) {
        let graph = self.graph.as_ref().map(|(_, graph)| graph.clone());
        let texts = self.texts.iter().map(|(_, text)| text.to_owned()).chain(graph);
        lock(&self.connection.known).texts = texts.collect();
    }
}
