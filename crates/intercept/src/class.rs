//! The graph class `intercept`: reads which user has which address, edits the filter before it accordingly, and writes
//! the frames of users with a valid warrant, encrypted, to a file for each warrant. Passes the frames that it has
//! written.
//!
//! Parameters: `warrants`, a file or folder ([`warrant`]); `folder`, for files and log; `expression`,
//! the protocols that name users, `radius,dhcp,pppoe`; `secrets`, the file with the secrets of RADIUS; `port`, the
//! ports of RADIUS accounting; `servers`, the DHCP servers that are believed; `live=y`; `size`, most million bytes of
//! frames of a warrant. Frames beyond count as lost.
//! A file or a log that cannot be written ends the capture: all files are closed, and frames that a file was given and
//! does not have whole count as lost.
//! Cost: a walk over the headers of each frame that passes the filter, which lets only frames of these users and
//! messages about users pass.

use crate::facts::{Fact, Place};
use crate::log::ChainLog;
use crate::output::{Failure, Output};
use crate::pppoe::Sessions;
use crate::radius::{self, Secrets};
use crate::rows::Rows;
use crate::users::{Change, Users};
use crate::warrant::{self, Warrant};
use crate::{Identities, dhcp};
use fyke_capture::Interface;
use fyke_filters::FilterSet;
use fyke_frame::walk::walk;
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{
    Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the log in the folder.
pub const LOG: &str = "log.jsonl";

/// Most bytes of a file with secrets.
const SECRETS: u64 = 1 << 20;

/// State of a warrant.
enum Stage {
    Waits(Output),
    Valid(Output),
    Over,
}

/// Numbers for the counters.
#[derive(Default)]
struct Counts {
    messages: u64,
    wrong: u64,
    no_secret: u64,
    unreadable: u64,
    distrusted: u64,
    changes: u64,
    over_limit: u64,
    refused_rows: u64,
    written: u64,
    files: u64,
}

struct Intercept {
    identities: Identities,
    warrants: Vec<Warrant>,
    stages: Vec<Stage>,
    users: Users,
    sessions: Sessions,
    log: ChainLog,
    live: bool,
    most_bytes: u64,
    filters: Option<FilterSet>,
    rows: Vec<Rows>,
    /// The next time at which something changes without a message.
    next_ns: u64,
    counts: Counts,
    found: Vec<usize>,
    last_ns: u64,
    /// Frames that have passed, which is the number of the next one.
    passed: u64,
    /// The first failure.
    failed: Option<NodeError>,
    /// Frames that have passed and that a file lacks.
    late: BTreeSet<u64>,
}

impl Intercept {
    /// True if the filter has to pass the frames of a user: a warrant is valid or, in a file, may become so, because
    /// the times of frames that the filter rejects are not known.
    fn is_followed(&self, user: usize) -> bool {
        let follows = |warrant: &usize| match self.stages[*warrant] {
            Stage::Valid(_) => true,
            Stage::Waits(_) => !self.live,
            Stage::Over => false,
        };
        self.users.warrants(user).iter().any(follows)
    }

    /// Makes the rows of all link types equal to the places of users with a valid warrant. Returns true if the filter
    /// has changed.
    fn sync(&mut self) -> Result<bool, NodeError> {
        let deadlines =
            self.stages.iter().zip(&self.warrants).map(|(stage, warrant)| match stage {
                Stage::Waits(_) => warrant.from_ns,
                Stage::Valid(_) => warrant.until_ns,
                Stage::Over => u64::MAX,
            });
        self.next_ns = deadlines.min().unwrap_or(u64::MAX).min(self.users.deadline_ns());
        let Some(filters) = self.filters.clone() else { return Ok(false) };
        let bindings = self.users.bindings().filter(|(user, _)| self.is_followed(*user));
        let wanted: BTreeSet<Place> = bindings.map(|(_, place)| place).collect();
        let mut changed = false;
        for rows in &mut self.rows {
            let (edited, failures) = rows.sync(&wanted, &filters).map_err(NodeError::new)?;
            changed |= edited;
            self.counts.refused_rows += failures.len() as u64;
        }
        Ok(changed)
    }

    /// Records changes of places in the log, for each warrant that is not over.
    fn record(&mut self, changes: &[Change], now_ns: u64) -> Result<(), NodeError> {
        for change in changes {
            self.counts.changes += 1;
            for &warrant in self.users.warrants(change.user) {
                if matches!(self.stages[warrant], Stage::Over) {
                    continue;
                }
                let fields = [
                    ("warrant", Value::from(self.warrants[warrant].id.clone())),
                    ("place", change.place.to_string().into()),
                    ("why", change.why.into()),
                ];
                let event = if change.begins { "place begins" } else { "place ends" };
                self.log.add(now_ns, event, &fields).map_err(NodeError::new)?;
            }
        }
        Ok(())
    }

    /// Lets time pass. Returns true if the filter may have to change.
    fn advance(&mut self, now_ns: u64) -> Result<bool, NodeError> {
        self.last_ns = self.last_ns.max(now_ns);
        if now_ns < self.next_ns {
            return Ok(false);
        }
        for at in 0..self.stages.len() {
            let (from_ns, until_ns) = (self.warrants[at].from_ns, self.warrants[at].until_ns);
            if matches!(self.stages[at], Stage::Waits(_))
                && now_ns >= from_ns
                && let Stage::Waits(output) = std::mem::replace(&mut self.stages[at], Stage::Over)
            {
                self.stages[at] = Stage::Valid(output);
                let id = [("warrant", Value::from(self.warrants[at].id.clone()))];
                self.log.add(now_ns, "warrant begins", &id).map_err(NodeError::new)?;
            }
            if now_ns >= until_ns {
                self.close(at, now_ns, "warrant ends")?;
            }
        }
        let mut changes = Vec::new();
        self.users.expire(now_ns, &mut changes);
        self.record(&changes, now_ns)?;
        Ok(true)
    }

    /// Closes the file of a warrant.
    fn close(&mut self, at: usize, now_ns: u64, why: &str) -> Result<(), NodeError> {
        let stage = std::mem::replace(&mut self.stages[at], Stage::Over);
        let (Stage::Waits(output) | Stage::Valid(output)) = stage else { return Ok(()) };
        let (name, frames, written) = match output.finish() {
            Ok(finished) => finished,
            Err(failure) => return Err(self.lack(at, failure, now_ns)),
        };
        self.counts.files += 1;
        let fields = [
            ("warrant", Value::from(self.warrants[at].id.clone())),
            ("file", name.into()),
            ("frames", frames.into()),
            ("bytes", written.bytes.into()),
            ("sha256", written.sha256.into()),
            ("why", why.into()),
        ];
        self.log.add(now_ns, "file closed", &fields).map_err(NodeError::new)?;
        self.log.sync().map_err(NodeError::new)
    }

    /// Counts what the file of a warrant lacks, and records it. Returns the error.
    fn lack(&mut self, at: usize, failure: Failure, now_ns: u64) -> NodeError {
        self.counts.written -= failure.missing;
        self.late.extend(failure.passed);
        let fields = [
            ("warrant", Value::from(self.warrants[at].id.clone())),
            ("file", failure.name.into()),
            ("frames", failure.frames.into()),
            ("missing", failure.missing.into()),
            ("why", failure.error.to_string().into()),
        ];
        // The error of the file matters more than one of the log.
        let _ = self.log.add(now_ns, "file failed", &fields);
        NodeError::new(failure.error)
    }

    /// Closes all files and the log; returns the first error of this run.
    fn end(&mut self, now_ns: u64, why: &str) -> Result<(), NodeError> {
        let mut first = self.failed.take();
        for at in 0..self.stages.len() {
            let closed = self.close(at, now_ns, why);
            first = first.or(closed.err());
        }
        let mut fields: Vec<_> = self
            .counters()
            .into_iter()
            .map(|counter| (counter.name, Value::from(counter.value as u64)))
            .collect();
        if let Some(error) = &first {
            fields.push(("error".to_owned(), error.to_string().into()));
        }
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let ended = self.log.add(now_ns, "end", &fields).and_then(|()| self.log.sync());
        self.failed = first.or(ended.err().map(NodeError::new));
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Ends the capture after a failure, which each later call reports.
    fn fail(&mut self, error: NodeError) {
        self.failed = Some(error);
        let _reported_later = self.end(self.last_ns, "capture fails");
        // A frame that only some of its files have got does not pass: it is lost already.
        self.late.remove(&self.passed);
    }

    /// Reads what a frame tells about users.
    fn read(&mut self, frame: &Frame<'_>) -> Option<Fact> {
        let layers = walk(frame);
        if self.identities.pppoe
            && let Some(fact) = self.sessions.read(&layers, |name| self.users.is_named(name))
        {
            self.counts.messages += 1;
            return Some(fact);
        }
        let scope = layers.innermost_level()?;
        let (ip, udp) = (scope.ip()?, scope.udp()?);
        let (source, to) = (udp.source_port(), udp.destination_port());
        if self.identities.ports.contains(&to)
            && let Some(secrets) = &self.identities.secrets
        {
            match radius::read(udp.payload(), ip.source(), secrets) {
                radius::Read::Fact(fact) => {
                    self.counts.messages += 1;
                    return Some(fact);
                }
                radius::Read::Nothing => {}
                radius::Read::NoSecret => self.counts.no_secret += 1,
                radius::Read::Wrong => self.counts.wrong += 1,
                radius::Read::Unreadable => self.counts.unreadable += 1,
            }
            return None;
        }
        let ports = [dhcp::SERVER, dhcp::CLIENT];
        if !self.identities.dhcp || !ports.contains(&source) || !ports.contains(&to) {
            return None;
        }
        let from_server = source == dhcp::SERVER;
        let fact = dhcp::read(udp.payload(), from_server)?;
        let servers = &self.identities.servers;
        if from_server && !servers.is_empty() && !servers.contains(&ip.source()) {
            self.counts.distrusted += 1;
            return None;
        }
        self.counts.messages += 1;
        Some(fact)
    }

    /// Reads a frame and finds the users that it belongs to. Returns true if places have changed.
    fn learn(&mut self, frame: &Frame<'_>) -> Result<bool, NodeError> {
        self.found.clear();
        let fact = self.read(frame);
        // The last message of a user is still the user's own; the message that gives an address to another one is not.
        if matches!(fact, Some(Fact::Ended { .. })) {
            self.users.of(frame, &mut self.found);
        }
        let mut changes = Vec::new();
        if let Some(fact) = fact {
            self.users.apply(fact, frame.timestamp_ns, &mut changes);
            self.record(&changes, frame.timestamp_ns)?;
        }
        self.users.of(frame, &mut self.found);
        Ok(!changes.is_empty())
    }

    /// Writes a frame for all warrants of the users that it belongs to. Returns whether it was written for one, and
    /// whether it is missing for one.
    fn write(
        &mut self,
        interface: &Interface,
        frame: &Frame<'_>,
    ) -> Result<(bool, bool), NodeError> {
        let length = frame.data.len() as u64;
        let (mut given, mut lost) = (Vec::new(), false);
        for &user in &self.found {
            for &warrant in self.users.warrants(user) {
                let Stage::Valid(output) = &self.stages[warrant] else { continue };
                if !self.warrants[warrant].is_valid(frame.timestamp_ns) {
                    continue;
                }
                match output.bytes + length > self.most_bytes {
                    true => (self.counts.over_limit, lost) = (self.counts.over_limit + 1, true),
                    false => given.push(warrant),
                }
            }
        }
        let number = (!lost && !given.is_empty()).then_some(self.passed);
        for &warrant in &given {
            let Stage::Valid(output) = &mut self.stages[warrant] else { continue };
            if let Err(error) = output.write(interface, frame, number) {
                let stage = std::mem::replace(&mut self.stages[warrant], Stage::Over);
                let (Stage::Waits(output) | Stage::Valid(output)) = stage else { continue };
                return Err(self.lack(warrant, output.fail(&error), frame.timestamp_ns));
            }
            self.counts.written += 1;
        }
        self.passed += u64::from(number.is_some());
        Ok((!given.is_empty(), lost))
    }

    /// Knows the link type of a frame from now on. Returns true if it is new.
    fn meet(&mut self, link: LinkType) -> bool {
        let is_new = self.rows.iter().all(|rows| rows.link != link);
        if is_new {
            self.rows.push(Rows::new(link));
        }
        is_new
    }

    /// Judges a frame. Returns whether it was written, whether it is missing for a warrant, and the frame before which
    /// the batch has to be cut, because the filter has changed.
    fn judge(
        &mut self,
        arrival: &Arrival<'_>,
        index: usize,
        frame: &Frame<'_>,
    ) -> Result<(bool, bool, Option<usize>), NodeError> {
        let is_new = self.meet(frame.link);
        if (self.advance(frame.timestamp_ns)? || is_new) && self.sync()? {
            // The filter judges this frame again.
            return Ok((false, false, Some(index)));
        }
        let changed = self.learn(frame)?;
        let (is_written, is_lost) = self.write(arrival.interface(frame), frame)?;
        match changed.then(|| self.sync()).transpose() {
            Ok(synced) => Ok((is_written, is_lost, (synced == Some(true)).then_some(index + 1))),
            Err(error) => {
                self.fail(error);
                Ok((is_written, is_lost, None))
            }
        }
    }
}

impl Node for Intercept {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let (mut passed, mut lost) = (Mask::EMPTY, Mask::EMPTY);
        for (index, frame) in arrival.frames() {
            match self.judge(arrival, index, frame) {
                Ok((is_written, is_lost, cut)) => {
                    if is_lost {
                        lost.set(index);
                    } else if is_written {
                        passed.set(index);
                    }
                    if let Some(cut) = cut {
                        arrival.cut(cut);
                        break;
                    }
                }
                Err(error) => {
                    self.fail(error);
                    lost.set(index);
                }
            }
            if self.failed.is_some() {
                // The frames so far keep their outcomes; each later call reports the failure.
                lost = lost | arrival.mask().without(Mask::first(index + 1));
                break;
            }
        }
        arrival.lose(lost);
        Ok(passed)
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        if !self.live {
            return Ok(());
        }
        let passed = self.advance(now_ns()).and_then(|passed| match passed {
            true => self.sync().map(drop),
            false => Ok(()),
        });
        passed.or_else(|error| {
            self.fail(error);
            self.failed.clone().map_or(Ok(()), Err)
        })
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        match &self.failed {
            Some(failed) => Err(failed.clone()),
            None => self.end(self.last_ns, "capture ends"),
        }
    }

    fn lost(&self) -> u64 {
        self.late.len() as u64
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        [
            ("messages", counts.messages),
            ("wrong_authenticator", counts.wrong),
            ("no_secret", counts.no_secret),
            ("unreadable", counts.unreadable),
            ("distrusted_servers", counts.distrusted),
            ("late_messages", self.users.late),
            ("refused_places", self.users.refused),
            ("refused_rows", counts.refused_rows),
            ("changes", counts.changes),
            ("frames_written", counts.written),
            ("over_limit", counts.over_limit),
            ("frames_missing", self.late.len() as u64),
            ("files_closed", counts.files),
        ]
        .map(|(name, value)| Counter::count(name, value))
        .into()
    }

    /// The places that are followed, by warrant.
    fn entries(&self) -> Vec<(String, u64)> {
        let mut entries = Vec::new();
        for (user, place) in self.users.bindings() {
            for &warrant in self.users.warrants(user) {
                let Stage::Valid(output) = &self.stages[warrant] else { continue };
                let id = &self.warrants[warrant].id;
                entries.push((format!("warrant {id}: {place}"), output.frames));
            }
        }
        entries.truncate(999);
        entries
    }

    fn held(&self) -> Option<String> {
        Some("ip or ip6 or pppoes".to_owned())
    }

    fn connect(&mut self, filters: &FilterSet) {
        filters.tracked_by("intercept".to_owned());
        self.filters = Some(filters.clone());
        if self.live
            && let Err(error) = self.advance(now_ns())
        {
            return self.fail(error);
        }
        // Addresses that warrants name are followed from the first frame on. What the filter refuses now is refused
        // again, and reported, with the first frame.
        let _later = self.sync();
    }
}

/// The time of the system, in nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The identities of the settings; reads the secrets if there is a file.
pub(crate) fn identities(settings: &Settings) -> Result<Identities, MakeError> {
    let wrong = |name: &'static str| move |message: String| MakeError::new(name, message);
    let words = settings.text("expression").unwrap_or(crate::PROTOCOLS);
    let mut identities = Identities::parse(words).map_err(wrong("expression"))?;
    if let Some(text) = settings.text("port") {
        identities.ports = crate::ports(text).map_err(wrong("port"))?;
    }
    if let Some(text) = settings.text("servers") {
        let address = |word: &str| {
            word.trim().parse::<IpAddr>().map_err(|_| format!("{word:?} is not an address"))
        };
        let servers: Result<_, _> = text.split(',').map(address).collect();
        identities.servers = servers.map_err(wrong("servers"))?;
    }
    match (settings.text("secrets"), identities.radius) {
        (Some(file), true) => {
            let failed = |message: String| MakeError::new("secrets", format!("{file}: {message}"));
            let text = warrant::read_text(Path::new(file), SECRETS).map_err(failed)?;
            identities.secrets = Some(Secrets::parse(&text).map_err(failed)?);
        }
        (None, true) => {
            let message = "radius needs the file with the secrets of its clients";
            return Err(MakeError::new("secrets", message));
        }
        (_, false) => {}
    }
    Ok(identities)
}

/// The warrants of the settings.
fn warrants(settings: &Settings) -> Result<Vec<Warrant>, MakeError> {
    let warrants = warrant::read(Path::new(settings.required("warrants")?));
    warrants.map_err(|message| MakeError::new("warrants", message))
}

/// The most bytes of a warrant.
fn most(settings: &Settings) -> Result<u64, MakeError> {
    Ok(settings.number_or("size", 1..=1_000_000_000, 100_000)? * 1_000_000)
}

/// Checks the settings without writing anything.
fn check(settings: &Settings) -> Result<(), MakeError> {
    settings.flag("live")?;
    settings.required("folder")?;
    most(settings)?;
    identities(settings)?;
    warrants(settings).map(drop)
}

/// Makes a folder that only its user may enter, unless it is there; the folder that it is in must be there.
fn make_folder(folder: &Path) -> Result<(), String> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "{}: the folder that it is in does not exist; make that one first",
            folder.display()
        )),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{}: cannot make this folder: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let (identities, warrants) = (identities(settings)?, warrants(settings)?);
    let most = most(settings)?;
    let live = settings.flag("live")?;
    let folder = Path::new(settings.required("folder")?);
    let refused = |message: &dyn std::fmt::Display| MakeError::refused("folder", message);
    make_folder(folder).map_err(|error| refused(&error))?;
    let file = folder.join(LOG);
    let now_ns = now_ns();
    let mut log = ChainLog::open(&file, now_ns)
        .map_err(|error| refused(&format!("{}: {error}", file.display())))?;
    let begin = [("warrants", Value::from(warrants.len()))];
    log.add(now_ns, "begin", &begin).map_err(|error| refused(&error))?;
    let mut stages = Vec::new();
    for warrant in &warrants {
        if live && warrant.until_ns <= now_ns {
            let id = [("warrant", Value::from(warrant.id.clone()))];
            log.add(now_ns, "warrant is over", &id).map_err(|error| refused(&error))?;
            stages.push(Stage::Over);
            continue;
        }
        let output = Output::create(folder, &warrant.id, &warrant.key);
        stages.push(Stage::Waits(output.map_err(|error| refused(&error))?));
    }
    let links: BTreeSet<LinkType> = settings.interfaces().iter().map(|one| one.link).collect();
    Ok(Box::new(Intercept {
        identities,
        users: Users::new(&warrants),
        warrants,
        stages,
        sessions: Sessions::default(),
        log,
        live,
        most_bytes: most,
        filters: None,
        rows: links.into_iter().map(Rows::new).collect(),
        next_ns: 0,
        counts: Counts::default(),
        found: Vec::new(),
        last_ns: 0,
        passed: 0,
        failed: None,
        late: BTreeSet::new(),
    }))
}

/// The class, for registration.
pub const CLASS: Class = Class {
    name: "intercept",
    aliases: &[],
    summary: "writes the frames of users with a warrant, encrypted, and edits the filter before it",
    parameters: &[
        Parameter { name: "warrants", summary: "file or folder with warrants (TOML)" },
        Parameter { name: "folder", summary: "folder for encrypted files and the log" },
        Parameter { name: "expression", summary: "radius,dhcp,pppoe (all): what names users" },
        Parameter { name: "secrets", summary: "file with the secrets of RADIUS clients" },
        Parameter { name: "port", summary: "ports of RADIUS accounting, N[,N] (1813,1646)" },
        Parameter { name: "servers", summary: "DHCP servers that are believed (all)" },
        Parameter { name: "live", summary: "y: time passes even while no frame arrives" },
        Parameter { name: "size", summary: "most million bytes of a warrant (100000)" },
    ],
    cuts: |_| true,
    edits: true,
    ordered: |_| true,
    lasting: true,
    opens: |_| Opens::File,
    check: Some(check),
    make,
    ..Class::NODE
};
