//! Substitution in a stream that comes in pieces: bytes are replaced by as many others, wherever segments divide them.
//!
//! A filter for it has one rule that rewrites, and then `* => accept`:
//!
//! ```text
//! filter hide
//! before:* "PASS " word:[^\r\n]{1,64} rest:** => before "PASS " fill(word, "x") hide(rest);
//! * => accept;
//! ```
//!
//! What is between the first and the last name is searched for; it has a largest length, and each of its parts keeps
//! its length. Everything else is refused ([`Substitution::new`]). The result equals that of the filter on all bytes of
//! the stream in one packet.
//!
//! The automaton is suspended between pieces. Bytes are *decided* if no later byte can make them part of a match: at
//! the end of most pieces all of them are, because the automaton is in its first state; else all but about as many as
//! a match may have ([`longest`](Substitution::longest)). The others are kept, and nothing else is.
//!
//! Cost: a step of the automaton per byte; for each match the automaton begins anew after it.

use crate::anonymise::Anonymiser;
use crate::error::Error;
use crate::matcher::{Limits, Matcher, Progress, Room, Stream};
use crate::node::Node;
use crate::program::{Action, Filter, Part, Program, Rule};
use crate::run::{CompileError, Ruler, Verdict};
use fyke_frame::LinkType;

/// Most bytes of a match.
pub const MAX_MATCH: u64 = 4096;
/// Length of a stream after which its positions count from zero again.
const RENEWED: usize = 1 << 30;

/// Form of a filter that replaces bytes.
#[derive(Debug, Clone)]
struct Shape {
    /// Slots before and after the match.
    before: u32,
    after: u32,
    longest: u64,
    /// Only the first match is replaced.
    once: bool,
    class: Option<u32>,
}

/// A filter that replaces bytes of streams, ready to run.
#[derive(Debug)]
pub struct Substitution {
    shape: Shape,
    matcher: Matcher,
    room: Room,
    /// The filter alone, for the new bytes of a match.
    ruler: Ruler,
    made: Vec<u8>,
}

/// State of a direction of a connection between its pieces.
#[derive(Debug, Clone)]
pub struct Open {
    stream: Stream,
    /// Offset of the automaton's first byte.
    base: u64,
    /// Offset of the first byte that is not decided.
    at: u64,
    /// Offset of the next byte.
    next: u64,
    /// Bytes that are not decided.
    tail: Vec<u8>,
    /// Nothing more is replaced.
    done: bool,
}

impl Open {
    /// Offset of the first byte that is not decided.
    pub fn decided(&self) -> u64 {
        self.at
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Open>() + self.stream.bytes() + self.tail.capacity()
    }
}

/// Receives the offset of replaced bytes, and the new ones.
pub type Change<'c> = &'c mut dyn FnMut(u64, &[u8]);

impl Substitution {
    /// Builds the automaton of a filter.
    ///
    /// # Errors
    /// If the filter has another form, with its location, or is over a limit.
    pub fn new(
        program: &Program,
        filter: usize,
        anonymiser: Anonymiser,
    ) -> Result<Result<Substitution, CompileError>, Error> {
        let shape = shape(program, filter)?;
        Ok(Substitution::of_shape(shape, program, filter, anonymiser))
    }

    /// Checks the form of a filter.
    ///
    /// # Errors
    /// If it is not a filter that replaces bytes of streams, with the reason.
    pub fn check(program: &Program, filter: usize) -> Result<(), Error> {
        shape(program, filter).map(drop)
    }

    fn of_shape(
        shape: Shape,
        program: &Program,
        filter: usize,
        anonymiser: Anonymiser,
    ) -> Result<Substitution, CompileError> {
        let filter = alone(&program.filters[filter]);
        // Without a gate, one automaton reads every byte, and its first state tells that nothing has begun.
        let limits = Limits { gate: false, ..Limits::default() };
        let too_large = |cause| CompileError { filter: filter.name.clone(), cause };
        let matcher = Matcher::new(&filter.rules[..1], limits).map_err(too_large)?;
        let program = Program { texts: program.texts.clone(), filters: vec![filter] };
        let ruler = Ruler::new(program, Limits::default(), anonymiser)?;
        Ok(Substitution { shape, matcher, room: Room::default(), ruler, made: Vec::new() })
    }

    /// Most bytes of a match.
    pub fn longest(&self) -> u64 {
        self.shape.longest
    }

    /// Class value of the rule that accepts what remains as it is.
    pub fn class(&self) -> Option<u32> {
        self.shape.class
    }

    /// The state before the first byte of a stream, or after missing bytes; `at` is the offset of the next byte.
    pub fn begin(&self, at: u64) -> Open {
        let stream = self.matcher.stream();
        Open { stream, base: at, at, next: at, tail: Vec::new(), done: false }
    }

    /// Takes the next bytes of a stream; `change` receives what is replaced, in order. Replaced bytes are decided.
    pub fn feed(&mut self, open: &mut Open, bytes: &[u8], change: Change<'_>) {
        open.next += bytes.len() as u64;
        if open.done {
            open.at = open.next;
            return;
        }
        let mut progress = self.matcher.feed(&mut open.stream, &mut self.room, bytes);
        let mut is_idle = progress == Progress::Open && self.matcher.is_at_start(&open.stream);
        if !is_idle || !open.tail.is_empty() {
            open.tail.extend_from_slice(bytes);
        }
        loop {
            match progress {
                Progress::Open => break,
                // Nothing has decided for gigabytes.
                Progress::TooLong => self.renew(open, open.at),
                Progress::Settled if self.replace(open, change) && !open.done => {}
                Progress::Settled => break,
            }
            let from = (open.base - open.at) as usize;
            let rest = open.tail.get(from..).unwrap_or_default();
            progress = self.matcher.feed(&mut open.stream, &mut self.room, rest);
            is_idle = progress == Progress::Open && self.matcher.is_at_start(&open.stream);
        }
        let first = if is_idle || open.done { open.next } else { self.first_undecided(open) };
        open.decide(first.max(open.base));
        if is_idle && open.stream.len() > RENEWED {
            self.renew(open, open.next);
        }
    }

    /// Decides about all bytes so far: the stream has ended, or bytes are missing.
    pub fn end(&mut self, open: &mut Open, change: Change<'_>) {
        while !open.done && self.replace(open, change) {
            let from = (open.base - open.at) as usize;
            let rest = open.tail.get(from..).unwrap_or_default();
            self.matcher.feed(&mut open.stream, &mut self.room, rest);
        }
        open.decide(open.next);
    }

    /// Applies the substitution to all of `bytes`; true if that changes them.
    pub fn apply(&mut self, bytes: &mut [u8]) -> bool {
        let mut changes: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut note = |at: u64, new: &[u8]| changes.push((at as usize, new.to_vec()));
        let mut open = self.begin(0);
        self.feed(&mut open, bytes, &mut note);
        self.end(&mut open, &mut note);
        for (at, new) in &changes {
            if let Some(place) = bytes.get_mut(*at..at + new.len()) {
                place.copy_from_slice(new);
            }
        }
        !changes.is_empty()
    }

    fn renew(&self, open: &mut Open, base: u64) {
        open.base = base;
        open.stream = self.matcher.stream();
    }

    /// Offset of the first byte that may be part of a match that is open: one that is complete may become longer, or
    /// its automaton has not noticed that it cannot.
    fn first_undecided(&mut self, open: &Open) -> u64 {
        let incomplete = open.next.saturating_sub(self.shape.longest - 1);
        self.found(open).map_or(incomplete, |(start, _)| start.min(incomplete))
    }

    /// Place of the match if the stream ends here.
    fn found(&mut self, open: &Open) -> Option<(u64, u64)> {
        let Substitution { shape, matcher, room, .. } = self;
        matcher.at_end(&open.stream, room);
        let len = open.stream.len();
        matcher.winner(room, 0)?;
        let (_, start) = matcher.slot(room, shape.before, len)?;
        let (end, _) = matcher.slot(room, shape.after, len)?;
        Some((open.base + start as u64, open.base + end as u64))
    }

    /// Replaces the match if there is one, and begins anew after it.
    fn replace(&mut self, open: &mut Open, change: Change<'_>) -> bool {
        let Some((start, end)) = self.found(open) else { return false };
        let Substitution { shape, matcher, ruler, made, .. } = self;
        let from = start.saturating_sub(open.at) as usize;
        let text = open.tail.get(from..(end - open.at) as usize).unwrap_or_default();
        let (verdict, _) = ruler.run(0, text, LinkType::RAW, made);
        if verdict != Verdict::Rewrite || made.len() != text.len() {
            // No limit of a rewrite is that low; if there were one, nothing would pass as it is.
            made.clear();
            made.resize(text.len(), 0);
        }
        change(start, made);
        open.base = end;
        open.stream = matcher.stream();
        open.done = shape.once;
        true
    }
}

impl Open {
    /// Forgets the bytes before `to`.
    fn decide(&mut self, to: u64) {
        let count = to.saturating_sub(self.at) as usize;
        self.tail.drain(..count.min(self.tail.len()));
        self.at = self.at.max(to);
    }
}

/// The filter with calls of itself only, and without corrections of headers.
fn alone(filter: &Filter) -> Filter {
    let mut filter = filter.clone();
    for rule in &mut filter.rules {
        if let Action::Rewrite { parts, fix_lengths, fix_checksums } = &mut rule.action {
            (*fix_lengths, *fix_checksums) = (false, false);
            if let Some(Part::Filter(callee, _)) = parts.last_mut() {
                *callee = 0;
            }
        }
    }
    filter
}

/// Finds out what a filter replaces.
fn shape(program: &Program, filter: usize) -> Result<Shape, Error> {
    let own = &program.filters[filter];
    let error = |span, message: &str| Error::new(&program.texts, span, message);
    let (rule, class) = match &own.rules[..] {
        [rule, Rule { pattern, action: Action::Accept(class), .. }] if is_all(pattern) => {
            (rule, *class)
        }
        _ => {
            let message =
                "a filter that rewrites streams has one rule that rewrites, then `* => accept`";
            return Err(error(own.span, message).hint("alternatives of one rule are divided by |"));
        }
    };
    let Action::Rewrite { parts, fix_lengths, .. } = &rule.action else {
        return Err(error(rule.span, "the first rule of a filter that rewrites streams rewrites"));
    };
    if *fix_lengths {
        return Err(error(rule.span, "`fix lengths` is for packets: streams keep their lengths"));
    }
    let nodes = flat(&rule.pattern);
    let form = "a rule that rewrites streams is `before:* … rest:** => before … FILTER(rest)`";
    let (Some((before, nodes)), Some((first, parts))) = (nodes.split_first(), parts.split_first())
    else {
        return Err(error(rule.span, form));
    };
    let (Some((after, nodes)), Some((last, parts))) = (nodes.split_last(), parts.split_last())
    else {
        return Err(error(rule.span, form));
    };
    let (before, after) = match (before, after) {
        (Node::Capture(before, one), Node::Capture(after, other))
            if one.is_any() && other.is_any() =>
        {
            (*before, *after)
        }
        _ => return Err(error(rule.span, form)),
    };
    let once = match last {
        Part::Copy(slot) if *slot == after => true,
        Part::Filter(callee, part) if *callee == filter && **part == Part::Copy(after) => false,
        _ => return Err(error(rule.span, form)),
    };
    if *first != Part::Copy(before) {
        return Err(error(rule.span, form));
    }
    if !keeps_lengths(nodes, parts) {
        let message = "streams keep their lengths: each part has to replace the same part of the pattern, \
                       with as many bytes";
        let hint = "parts are literal bytes of the same length, names, or functions of names, in the order \
                    of the pattern";
        return Err(error(rule.span, message).hint(hint));
    }
    let longest = nodes.iter().map(|node| node.max_len()).sum::<Option<u64>>();
    match longest {
        Some(longest @ 1..=MAX_MATCH) if !nodes.iter().all(|node| node.is_nullable()) => {
            Ok(Shape { before, after, longest, once, class })
        }
        Some(0..=MAX_MATCH) => Err(error(rule.span, "this rule replaces nothing")),
        _ => {
            let message = format!("a match in a stream has at most {MAX_MATCH} bytes");
            Err(error(rule.span, &message)
                .hint("[^\\n]{1,64} has a largest length, [^\\n]+ has not"))
        }
    }
}

/// True for `*` and `**`.
fn is_all(pattern: &Node) -> bool {
    matches!(flat(pattern)[..], [node] if node.is_any())
}

/// The elements of a pattern, without empty ones.
fn flat(node: &Node) -> Vec<&Node> {
    match node {
        Node::Sequence(nodes) => nodes.iter().flat_map(flat).collect(),
        node if node.fixed_len() == Some(0) => Vec::new(),
        node => vec![node],
    }
}

/// True if the parts replace the nodes one by one, with as many bytes.
fn keeps_lengths(mut nodes: &[&Node], parts: &[Part]) -> bool {
    for part in parts {
        if let Part::Literal(bytes) = part {
            let mut left = bytes.len() as u64;
            while left > 0 {
                let Some((node, rest)) = nodes.split_first() else { return false };
                let Some(fewer) = node.fixed_len().and_then(|len| left.checked_sub(len)) else {
                    return false;
                };
                (left, nodes) = (fewer, rest);
            }
            continue;
        }
        match (nodes.split_first(), slot_of(part)) {
            (Some((Node::Capture(own, _), rest)), Some(slot)) if *own == slot => nodes = rest,
            _ => return false,
        }
    }
    nodes.is_empty()
}

/// The slot of a part that has as many bytes as the slot.
fn slot_of(part: &Part) -> Option<u32> {
    match part {
        Part::Copy(slot) => Some(*slot),
        Part::Apply(_, part) => slot_of(part),
        Part::Literal(_) | Part::With(..) | Part::Filter(..) => None,
    }
}
