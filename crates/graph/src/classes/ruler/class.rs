//! Class `ruler`: filters and rewrites frames by a program of pattern rules.
//!
//! Accepted frames pass with the class value of their rule; rewritten frames replace the original. Frames that no
//! rule accepts, and rewrites beyond a limit, are rejected. Cost: one step of an automaton per byte. With `stream`,
//! rules apply to streams (`streams.rs`), or change the frames that have their bytes (`rewrites.rs`). Source: Hruby's
//! thesis, chapter 6.

mod rewrites;
mod streams;

use crate::node::{
    Arrival, Class, Counter, MakeError, Node, NodeError, Opens, Parameter, Settings,
};
use crate::texts;
use crate::waiting::{self, Bounds, Waiting};
use fyke_frame::{Frame, LinkType, Mask, walk};
use fyke_ruler::anonymise::{Anonymiser, KEY_LEN, parse_key};
use fyke_ruler::{Action, Limits, Program, Ruler, Substitution, Verdict};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// Longest wait of a frame of a stream that is rewritten, in seconds: longer than `tcp` waits for missing bytes.
const REWRITING_WAIT: u64 = 20;
/// Longest key file.
const MAX_KEY_BYTES: usize = 4096;

struct Rules {
    ruler: Ruler,
    /// True if the rules apply only to the bytes after all headers.
    payload: bool,
    filter: usize,
    links: Vec<LinkType>,
    made: Vec<u8>,
    rewritten: u64,
    refused: u64,
    other_link: u64,
}

impl Node for Rules {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let mut passed = Mask::EMPTY;
        for (index, frame) in arrival.frames() {
            if !self.links.is_empty() && !self.links.contains(&frame.link) {
                self.other_link += 1;
                continue;
            }
            let judged = if self.payload { walk(frame).payload() } else { frame.data };
            match self.ruler.run(self.filter, judged, frame.link, &mut self.made).0 {
                Verdict::Reject => {}
                Verdict::Refused => self.refused += 1,
                Verdict::Accept(class) => {
                    arrival.classify(index, class.unwrap_or(0));
                    passed.set(index);
                }
                Verdict::Rewrite => {
                    let cut = (frame.wire_len as usize).saturating_sub(frame.data.len());
                    let wire_len = u32::try_from(self.made.len() + cut).unwrap_or(u32::MAX);
                    arrival.replace(index, &Frame { data: &self.made, wire_len, ..*frame });
                    self.rewritten += 1;
                }
            }
        }
        Ok(passed)
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            Counter::count("rewritten", self.rewritten),
            Counter::count("refused", self.refused),
            Counter::count("other_link", self.other_link),
        ]
    }
}

fn program(settings: &Settings) -> Result<Program, MakeError> {
    if let Some(pattern) = settings.text("pattern") {
        return Program::of_pattern(pattern).map_err(|error| MakeError::new("pattern", error));
    }
    let name = settings.required("expression")?;
    let path = Path::new(name);
    let text = match fyke_ruler::built_in(name).filter(|_| !path.exists()) {
        Some(text) => text,
        None => texts::read(path, texts::MAX_TEXT_BYTES)
            .map_err(|error| MakeError::refused("expression", format!("{name}: {error}")))?,
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let load = |name: &str| {
        texts::read(folder.join(name), texts::MAX_TEXT_BYTES).map_err(|error| error.to_string())
    };
    Program::parse(name, &text, &load).map_err(|error| MakeError::new("expression", error))
}

/// Reads random bytes.
fn random<const N: usize>() -> Result<[u8; N], MakeError> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| MakeError::refused("", format!("/dev/urandom: {error}")))?;
    Ok(bytes)
}

/// Key of the hiding functions: that of the file, or one that all nodes of this run share.
fn key(settings: &Settings) -> Result<[u8; KEY_LEN], MakeError> {
    static RANDOM: OnceLock<[u8; KEY_LEN]> = OnceLock::new();
    let Some(name) = settings.text("key") else {
        let fresh = random::<KEY_LEN>()?;
        return Ok(*RANDOM.get_or_init(|| fresh));
    };
    let text = texts::read(name, MAX_KEY_BYTES)
        .map_err(|error| MakeError::refused("key", format!("{name}: {error}")))?;
    parse_key(&text).ok_or_else(|| {
        let digits = KEY_LEN * 2;
        MakeError::new("key", format!("{name}: expected {digits} hexadecimal digits"))
    })
}

/// Frames that wait for the verdict about their stream, if they shall.
fn waiting(settings: &Settings) -> Result<Option<Waiting>, MakeError> {
    let bounds = Bounds::read(settings)?;
    Ok(bounds.map(Waiting::new))
}

/// Selects the filter of the program by its name.
fn filter(settings: &Settings, program: &Program) -> Result<usize, MakeError> {
    let filter = match settings.text("filter") {
        Some(name) => program.filter(name),
        None => program.roots().first().copied().filter(|_| program.roots().len() == 1),
    };
    let filter = filter.ok_or_else(|| {
        let names: Vec<_> = program.filters.iter().map(|filter| filter.name.as_str()).collect();
        MakeError::new("filter", format!("name one of: {}", names.join(", ")))
    })?;
    let mut links = program.filters[filter].links.iter();
    match links.find(|link| LinkType::from_name(link).is_none()) {
        Some(link) => Err(MakeError::new("expression", format!("unknown link type {link}"))),
        None => Ok(filter),
    }
}

/// True if a rule of a filter rewrites.
fn rewrites(program: &Program, filter: usize) -> bool {
    let mut rules = program.filters[filter].rules.iter();
    rules.any(|rule| matches!(rule.action, Action::Rewrite { .. }))
}

/// True if the settings are right and streams are rewritten.
fn rewrites_streams(settings: &Settings) -> bool {
    let is_file = settings.flag("stream").unwrap_or(false) && settings.text("pattern").is_none();
    let program = if is_file { program(settings).ok() } else { None };
    program.is_some_and(|program| {
        filter(settings, &program).is_ok_and(|filter| rewrites(&program, filter))
    })
}

/// Reads the limits of frames that wait because their streams are rewritten.
fn rewriting_bounds(settings: &Settings) -> Result<Bounds, MakeError> {
    if settings.flag("conversation")? {
        let message = "every frame passes if streams are rewritten; leave it out";
        return Err(MakeError::new("conversation", message));
    }
    if settings.text("flow_waiting").is_some() {
        let message = "rewriting has one limit for all flows: waiting=";
        return Err(MakeError::new("flow_waiting", message));
    }
    Bounds::all(settings, REWRITING_WAIT)
}

/// Checks the rules and the parameters of a node for streams.
fn check_streams(settings: &Settings, program: &Program, filter: usize) -> Result<(), MakeError> {
    let own = &program.filters[filter];
    if !own.links.is_empty() {
        let message = format!("`{}` is for a link type; streams have none", own.name);
        return Err(MakeError::new("stream", message));
    }
    if rewrites(program, filter) {
        Substitution::check(program, filter)
            .map_err(|error| MakeError::new("expression", error))?;
        return rewriting_bounds(settings).map(drop);
    }
    waiting(settings).map(drop)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let program = program(settings)?;
    let filter = filter(settings, &program)?;
    let anonymiser = || Ok(Anonymiser::new(&key(settings)?, &random::<16>()?));
    if settings.flag("stream")? {
        check_streams(settings, &program, filter)?;
        if !rewrites(&program, filter) {
            let waiting = waiting(settings)?;
            return Ok(Box::new(streams::StreamRules::new(&program, filter, waiting)?));
        }
        let rules = Substitution::new(&program, filter, anonymiser()?)
            .map_err(|error| MakeError::new("expression", error))?
            .map_err(|error| MakeError::new("expression", error))?;
        let bounds = rewriting_bounds(settings)?;
        return Ok(Box::new(rewrites::StreamRewriter::new(rules, bounds)));
    }
    waiting(settings)?;
    let links = &program.filters[filter].links;
    let links = links.iter().filter_map(|link| LinkType::from_name(link)).collect();
    let anonymiser: Anonymiser = anonymiser()?;
    let ruler = Ruler::new(program, Limits::default(), anonymiser);
    let ruler = ruler.map_err(|error| MakeError::new("expression", error))?;
    Ok(Box::new(Rules {
        ruler,
        payload: settings.text("pattern").is_some(),
        filter,
        links,
        made: Vec::new(),
        rewritten: 0,
        refused: 0,
        other_link: 0,
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "ruler",
    aliases: &["regexp", "anonymize"],
    summary: "filters and rewrites frames by the pattern rules in the file `expression`",
    parameters: &[
        Parameter { name: "expression", summary: "file of rules; anonymise.rul is built in" },
        Parameter { name: "pattern", summary: "instead: a pattern that the payload has to match" },
        Parameter { name: "filter", summary: "name of the filter in the file (the only one)" },
        Parameter { name: "stream", summary: "y: apply the rules to streams, after `tcp`" },
        Parameter { name: "key", summary: "file with the key of hiding functions (random)" },
        waiting::PARAMETERS[0],
        waiting::PARAMETERS[1],
        waiting::PARAMETERS[2],
        waiting::PARAMETERS[3],
    ],
    classifies: true,
    replaces: |settings| {
        let is_stream = settings.flag("stream").unwrap_or(false);
        !is_stream || waiting::is_wanted(settings) || rewrites_streams(settings)
    },
    ordered: |settings| waiting::is_wanted(settings) || rewrites_streams(settings),
    parallel: true,
    wants_pieces: |settings| settings.flag("stream").unwrap_or(false),
    check: Some(|settings| {
        if settings.text("key").is_some() {
            key(settings)?;
        }
        let program = program(settings)?;
        let filter = filter(settings, &program)?;
        match settings.flag("stream")? {
            true => check_streams(settings, &program, filter),
            false => waiting(settings).map(drop),
        }
    }),
    make_checks: true,
    make,
    // A pattern is in the text; a program and a key are files.
    opens: |settings| match (settings.text("pattern"), settings.text("key")) {
        (Some(_), None) => Opens::Nothing,
        _ => Opens::File,
    },
    ..Class::NODE
};
