//! Runs a program over packets: finds the rule, then accepts, rejects or rewrites the packet.
//!
//! A filter may pass a part to a filter, itself included; this rewrites repeated structures (labels of a name,
//! header lines). A call at the end of a rule is a loop; other calls nest up to [`MAX_NESTING`]. The number of
//! calls per packet is limited to a little more than its bytes. A packet that exceeds a limit is rejected and
//! counted ([`Verdict::Refused`]): a rewrite that hides bytes never lets a packet pass unchanged.

use crate::anonymise::Anonymiser;
use crate::fix;
use crate::matcher::{Limits, Matcher, Room};
use crate::nfa::TooLarge;
use crate::program::{Action, Overwrite, Part, Program, Rule, Value};
use fyke_frame::LinkType;

/// Maximum nesting of filters that are applied to parts.
pub const MAX_NESTING: usize = 32;
/// Maximum length of a rewritten packet.
pub const MAX_OUTPUT: usize = 1 << 20;

/// Result for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// No rule matches, or the rule rejects.
    Reject,
    /// The packet passes unchanged, with the class value of the rule.
    Accept(Option<u32>),
    /// The packet passes rewritten.
    Rewrite,
    /// The rewrite exceeded a limit: the packet does not pass.
    Refused,
}

impl Verdict {
    /// Returns true if a packet comes out.
    pub fn passes(self) -> bool {
        matches!(self, Verdict::Accept(_) | Verdict::Rewrite)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Reject => f.write_str("reject"),
            Verdict::Accept(None) => f.write_str("accept"),
            Verdict::Accept(Some(class)) => write!(f, "accept {class}"),
            Verdict::Rewrite => f.write_str("rewrite"),
            Verdict::Refused => f.write_str("refused"),
        }
    }
}

/// A program ready to run.
#[derive(Debug)]
pub struct Ruler {
    program: Program,
    matchers: Vec<Matcher>,
    rooms: Vec<Room>,
    joints: Vec<Joint>,
    anonymiser: Anonymiser,
    /// Calls left for the current packet.
    left: usize,
    /// Buffers for intermediate parts and for spans; they are reused, so later packets allocate nothing.
    spare: Vec<Vec<u8>>,
    spare_spans: Vec<Vec<Option<Range>>>,
    spare_orders: Vec<Vec<(usize, usize, usize)>>,
}

/// Start and end of a slot.
type Range = (usize, usize);

/// Filters that run together on each packet.
#[derive(Debug)]
struct Joint {
    filters: Vec<usize>,
    matcher: Matcher,
    room: Room,
}

/// Location of the match of a filter.
#[derive(Clone, Copy)]
enum Found {
    /// In the filter's own working memory.
    Own,
    /// In that of a joint, at this index in it.
    Joint(usize, usize),
}

/// Error: the automaton of a filter would exceed a limit.
#[derive(Debug, Clone)]
pub struct CompileError {
    /// Name of the filter.
    pub filter: String,
    /// Its size and the limit.
    pub cause: TooLarge,
}

impl std::error::Error for CompileError {}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "filter \"{}\" has more than {} positions; rule {} has the most: {}",
            self.filter,
            self.cause.limit,
            self.cause.rule + 1,
            self.cause.own
        )
    }
}

/// Error: a packet exceeds a limit.
struct Bound;

impl Ruler {
    /// Builds the automata of all filters.
    ///
    /// # Errors
    /// If one would exceed a limit.
    pub fn new(
        program: Program,
        limits: Limits,
        anonymiser: Anonymiser,
    ) -> Result<Ruler, CompileError> {
        let mut matchers = Vec::new();
        for filter in &program.filters {
            let matcher = Matcher::new(&filter.rules, limits)
                .map_err(|cause| CompileError { filter: filter.name.clone(), cause })?;
            matchers.push(matcher);
        }
        let rooms = matchers.iter().map(|_| Room::default()).collect();
        Ok(Ruler {
            program,
            matchers,
            rooms,
            joints: Vec::new(),
            anonymiser,
            left: 0,
            spare: Vec::new(),
            spare_spans: Vec::new(),
            spare_orders: Vec::new(),
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The automaton of a filter.
    pub fn matcher(&self, filter: usize) -> &Matcher {
        &self.matchers[filter]
    }

    /// The functions and their statistics.
    pub fn anonymiser(&self) -> &Anonymiser {
        &self.anonymiser
    }

    /// Evaluates a filter on a packet; a rewritten packet is written to `out`. Also returns the rule that matched.
    pub fn run(
        &mut self,
        filter: usize,
        packet: &[u8],
        link: LinkType,
        out: &mut Vec<u8>,
    ) -> (Verdict, Option<usize>) {
        let rule = self.matchers[filter].first_match(&mut self.rooms[filter], packet);
        (self.act(Found::Own, filter, rule, packet, link, out), rule)
    }

    /// Puts the rules of several filters into one matcher; returns its number for [`Ruler::run_joint`].
    ///
    /// # Errors
    /// If the rules of a filter exceed a limit.
    pub fn join(&mut self, filters: &[usize], limits: Limits) -> Result<usize, CompileError> {
        let rules: Vec<&[Rule]> =
            filters.iter().map(|filter| &self.program.filters[*filter].rules[..]).collect();
        let matcher = Matcher::of_filters(&rules, limits).map_err(|cause| {
            let names = filters.iter().map(|filter| &*self.program.filters[*filter].name);
            CompileError { filter: names.collect::<Vec<_>>().join("\" or \""), cause }
        })?;
        self.joints.push(Joint { filters: filters.to_vec(), matcher, room: Room::default() });
        Ok(self.joints.len() - 1)
    }

    /// The automata of a joint.
    pub fn joint(&self, joint: usize) -> &Matcher {
        &self.joints[joint].matcher
    }

    /// Evaluates all filters of a joint on a packet, in one pass over its bytes. Calls `each` with the index of
    /// every filter in the joint, its verdict and rule, and the rewritten packet (only for [`Verdict::Rewrite`]).
    pub fn run_joint(
        &mut self,
        joint: usize,
        packet: &[u8],
        link: LinkType,
        out: &mut Vec<u8>,
        mut each: impl FnMut(usize, Verdict, Option<usize>, &[u8]),
    ) {
        let Joint { matcher, room, .. } = &mut self.joints[joint];
        matcher.matches(room, packet);
        for place in 0..self.joints[joint].filters.len() {
            let Joint { filters, matcher, room } = &self.joints[joint];
            let (filter, rule) = (filters[place], matcher.winner(room, place));
            let verdict = self.act(Found::Joint(joint, place), filter, rule, packet, link, out);
            each(place, verdict, rule, out);
        }
    }

    /// Performs the action of a filter's rule.
    fn act(
        &mut self,
        found: Found,
        filter: usize,
        rule: Option<usize>,
        packet: &[u8],
        link: LinkType,
        out: &mut Vec<u8>,
    ) -> Verdict {
        out.clear();
        let Some(rule) = rule else { return Verdict::Reject };
        let (lengths, checksums) = match &self.program.filters[filter].rules[rule].action {
            Action::Accept(class) => return Verdict::Accept(*class),
            Action::Reject => return Verdict::Reject,
            Action::Rewrite { fix_lengths, fix_checksums, .. } => (*fix_lengths, *fix_checksums),
        };
        self.left = packet.len() * 2 + 64;
        // The program is moved out while parts are built from it, and moved back.
        let program =
            std::mem::replace(&mut self.program, Program { texts: vec![], filters: vec![] });
        let made = self.rewrite(&program, (found, filter, rule), packet, out, 0);
        self.program = program;
        let verdict = match made {
            Ok(true) => Verdict::Rewrite,
            Ok(false) => Verdict::Reject,
            Err(Bound) => Verdict::Refused,
        };
        if verdict == Verdict::Rewrite && (lengths || checksums) {
            fix::fix(out, packet.len(), link, lengths, checksums);
        }
        verdict
    }

    /// Performs the rewrite of a match; false if an applied filter rejects.
    fn rewrite(
        &mut self,
        program: &Program,
        rule: (Found, usize, usize),
        packet: &[u8],
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool, Bound> {
        let mut spans = self.spare_spans.pop().unwrap_or_default();
        let done = self.chain(program, rule, packet, out, depth, &mut spans);
        self.spare_spans.push(spans);
        done
    }

    /// Performs a rewrite, and those of the filters that its last part is passed to.
    fn chain(
        &mut self,
        program: &Program,
        (mut place, mut filter, mut rule): (Found, usize, usize),
        mut given: &[u8],
        out: &mut Vec<u8>,
        depth: usize,
        spans: &mut Vec<Option<Range>>,
    ) -> Result<bool, Bound> {
        loop {
            let found = &program.filters[filter].rules[rule];
            let Action::Rewrite { parts, .. } = &found.action else { return Ok(true) };
            let (matcher, room, at) = match place {
                Found::Own => (&self.matchers[filter], &self.rooms[filter], 0),
                Found::Joint(joint, at) => {
                    (&self.joints[joint].matcher, &self.joints[joint].room, at)
                }
            };
            spans.clear();
            spans.extend((0u32..).zip(&found.used).map(|(slot, used)| {
                if *used { matcher.slot_of(room, at, slot, given.len()) } else { None }
            }));
            let (last, others) = match parts.split_last() {
                None => return Ok(true),
                Some((Part::Filter(callee, inner), others)) => match **inner {
                    Part::Copy(slot) => (Some((*callee, slot)), others),
                    _ => (None, &parts[..]),
                },
                Some(_) => (None, &parts[..]),
            };
            let source = Source { bytes: given, spans };
            for part in others {
                if !self.part(program, part, &source, out, depth)? {
                    return Ok(false);
                }
            }
            let Some((callee, slot)) = last else { return Ok(true) };
            given = source.slot(slot);
            (place, filter) = (Found::Own, callee);
            match self.apply(program, filter, given)? {
                None => return Ok(false),
                Some((_, Action::Accept(_))) => {
                    out.extend_from_slice(given);
                    return Ok(true);
                }
                Some((number, _)) => rule = number,
            }
        }
    }

    /// Finds the rule of a filter for a part, unless the filter rejects it.
    fn apply<'p>(
        &mut self,
        program: &'p Program,
        filter: usize,
        given: &[u8],
    ) -> Result<Option<(usize, &'p Action)>, Bound> {
        self.left = self.left.checked_sub(1).ok_or(Bound)?;
        let found = self.matchers[filter].first_match(&mut self.rooms[filter], given);
        let action = found.map(|rule| (rule, &program.filters[filter].rules[rule].action));
        Ok(action.filter(|(_, action)| **action != Action::Reject))
    }

    fn part(
        &mut self,
        program: &Program,
        part: &Part,
        source: &Source<'_, '_>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool, Bound> {
        match part {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Copy(slot) => out.extend_from_slice(source.slot(*slot)),
            Part::With(slot, overwrites) => {
                return self.with(program, *slot, overwrites, source, out, depth);
            }
            Part::Apply(function, inner) => {
                if let Part::Copy(slot) = **inner {
                    self.anonymiser.apply(function, source.slot(slot), out);
                } else {
                    let mut made = self.spare.pop().unwrap_or_default();
                    made.clear();
                    let done = self.part(program, inner, source, &mut made, depth);
                    self.anonymiser.apply(function, &made, out);
                    self.spare.push(made);
                    return done;
                }
            }
            Part::Filter(callee, inner) => {
                if depth >= MAX_NESTING {
                    return Err(Bound);
                }
                let mut made = self.spare.pop().unwrap_or_default();
                made.clear();
                let done = self.part(program, inner, source, &mut made, depth)?;
                let done = done
                    && match self.apply(program, *callee, &made)? {
                        None => false,
                        Some((_, Action::Accept(_))) => {
                            out.extend_from_slice(&made);
                            true
                        }
                        Some((rule, _)) => {
                            let rule = (Found::Own, *callee, rule);
                            self.rewrite(program, rule, &made, out, depth + 1)?
                        }
                    };
                self.spare.push(made);
                return Ok(done);
            }
        }
        if out.len() > MAX_OUTPUT { Err(Bound) } else { Ok(true) }
    }

    /// Appends a part with some fields overwritten.
    fn with(
        &mut self,
        program: &Program,
        slot: u32,
        overwrites: &[Overwrite],
        source: &Source<'_, '_>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool, Bound> {
        let Some((start, end)) = source.spans[slot as usize] else { return Ok(true) };
        if in_place((start, end), overwrites, source, out) {
            return if out.len() > MAX_OUTPUT { Err(Bound) } else { Ok(true) };
        }
        let mut order = self.spare_orders.pop().unwrap_or_default();
        order.clear();
        order.extend(overwrites.iter().enumerate().filter_map(|(number, overwrite)| {
            let (from, to) = source.spans[overwrite.slot as usize]?;
            Some((from, number, to))
        }));
        order.sort_unstable();
        let mut done = start;
        for (from, number, to) in &order {
            let (from, to, overwrite) = (*from, *to, &overwrites[*number]);
            if let Value::Bits { first, width, value } = overwrite.value {
                if from >= done {
                    out.extend_from_slice(&source.bytes[done..to]);
                    done = to;
                }
                // Bit fields of one group follow each other; the group's bytes are the last written.
                let at = out.len() - (to - from);
                crate::resolve::put_bits(&mut out[at..], first, width, value);
            } else if let Value::Part(part) = &overwrite.value
                && from >= done
            {
                out.extend_from_slice(&source.bytes[done..from]);
                if !self.part(program, part, source, out, depth)? {
                    return Ok(false);
                }
                done = to;
            }
        }
        self.spare_orders.push(order);
        out.extend_from_slice(&source.bytes[done.min(end)..end]);
        if out.len() > MAX_OUTPUT { Err(Bound) } else { Ok(true) }
    }
}

/// Fast path for the common case: fields, in their order, are replaced by values of the same lengths. One copy,
/// then the changes. Returns false, with nothing written, in all other cases.
fn in_place(
    (start, end): Range,
    overwrites: &[Overwrite],
    source: &Source<'_, '_>,
    out: &mut Vec<u8>,
) -> bool {
    let changes = overwrites.iter().filter_map(|overwrite| {
        let span = source.spans[overwrite.slot as usize]?;
        Some((span, &overwrite.value))
    });
    let mut done = start;
    for ((from, to), value) in changes.clone() {
        match value {
            Value::Part(Part::Literal(bytes))
                if from >= done && to <= end && bytes.len() == to - from => {}
            _ => return false,
        }
        done = to;
    }
    let base = out.len();
    out.extend_from_slice(&source.bytes[start..end]);
    for ((from, to), value) in changes {
        if let Value::Part(Part::Literal(bytes)) = value {
            out[base + from - start..base + to - start].copy_from_slice(bytes);
        }
    }
    true
}

/// Sources of the parts.
struct Source<'a, 's> {
    bytes: &'a [u8],
    spans: &'s [Option<Range>],
}

impl<'a> Source<'a, '_> {
    fn slot(&self, slot: u32) -> &'a [u8] {
        match self.spans[slot as usize] {
            Some((start, end)) => self.bytes.get(start..end).unwrap_or_default(),
            None => &[],
        }
    }
}
