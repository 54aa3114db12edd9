//! Class `demux`: filters with class values; a frame passes the class edges of all filters that accept it.
//!
//! All filters form one pass set for each link type: passes of the same shape are rows of a table, so the cost of a
//! frame grows with the number of shapes, not of filters. With `scoped` they are read by meaning, and a fragment
//! follows its first fragment ([`scoped`]); that costs a walk of the tree for each filter. Without it, filters can be
//! added and removed while the node runs, as one edit of the pass set. Source: the MPF paper's dispatch, in the pass
//! engine.

mod links;
mod scoped;

use crate::fits::{DEMUX_REMOVED, unfit};
use crate::kept::{Keeper, Kept};
use crate::node::{Arrival, Class, Counter, Emitted, MakeError, Node, NodeError, Opens};
use crate::node::{Needs, Parameter, Settings};
use fyke_filter::{Options, Reading};
use fyke_filters::{Change, FilterError, FilterSet, Tags};
use fyke_flow::Bounds;
use fyke_frame::{Batch, LinkType, Mask};
use links::Links;
use scoped::Scoped;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Numbers of filters, ascending.
type Rules = Arc<[u32]>;

/// A filter, its class value and its count.
#[derive(Debug, Clone)]
struct Rule {
    text: Arc<str>,
    class: u32,
    frames: u64,
}

/// Counts of the filters that an edit has removed.
#[derive(Default)]
struct Gone {
    /// Final counts of those that the last edit removed, each with its text and class value.
    last: Vec<(Arc<str>, u64)>,
    /// Number of ticks since then.
    ticks: u32,
    /// Sum over all removed ones.
    frames: u64,
}

impl Gone {
    /// Takes over what an edit has removed.
    fn take(&mut self, rules: impl Iterator<Item = Rule>) {
        let counted = |rule: Rule| (format!("{} => {}", rule.text, rule.class).into(), rule.frames);
        self.last = rules.map(counted).collect();
        self.ticks = 0;
        self.frames += self.last.iter().map(|(_, frames)| frames).sum::<u64>();
    }

    fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks == KEPT_TICKS {
            self.last = Vec::new();
        }
    }
}

/// Number of ticks, a tenth of a second each, for which the counts of removed filters can be read one by one.
const KEPT_TICKS: u32 = 100;

/// The filters and their counts.
#[derive(Default)]
struct Book {
    rules: Vec<Rule>,
    gone: Gone,
    /// True if a frame gets only the class value of the first filter that accepts it.
    first: bool,
    seen: u64,
    /// Frames that a filter has accepted.
    accepted: u64,
    /// Frames that wait for the first of their fragments.
    waiting: u64,
}

impl Book {
    /// Counts a frame for the filters `numbers` and passes their class values to `give`.
    fn count(&mut self, numbers: &[u32], mut give: impl FnMut(u32)) {
        let numbers = if self.first { &numbers[..numbers.len().min(1)] } else { numbers };
        self.accepted += u64::from(!numbers.is_empty());
        for &number in numbers {
            if let Some(rule) = self.rules.get_mut(number as usize) {
                rule.frames += 1;
                give(rule.class);
            }
        }
    }
}

struct Demux {
    book: Book,
    links: Links,
    scoped: Option<Scoped>,
    /// Keeps some of the frames that arrive.
    keeper: Option<Keeper>,
}

impl Demux {
    fn dispatch_scoped(scoped: &mut Scoped, book: &mut Book, arrival: &mut Arrival<'_>) -> Mask {
        let (mut passed, mut classes) = (Mask::EMPTY, Vec::new());
        let mut late = Vec::new();
        for (index, frame) in arrival.frames() {
            let now = scoped.frame(arrival.source(), frame, &mut late);
            for one in late.drain(..) {
                book.waiting -= 1;
                classes.clear();
                book.count(&one.rules, |class| classes.push(class));
                if !classes.is_empty() {
                    arrival.emit_classified(one.held.note.0, &one.held.frame(), &classes);
                }
            }
            match now {
                None => {
                    book.waiting += 1;
                    arrival.take(index);
                }
                Some(rules) => {
                    book.count(&rules, |class| arrival.classify(index, class));
                    if !rules.is_empty() {
                        passed.set(index);
                    }
                }
            }
        }
        passed
    }
}

impl Node for Demux {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(arrival);
        }
        let book = &mut self.book;
        book.seen += arrival.mask().count() as u64;
        if let Some(scoped) = &mut self.scoped {
            return Ok(Demux::dispatch_scoped(scoped, book, arrival));
        }
        let batch: &Batch<'_> = arrival.batch();
        let Some(first) = batch.frames().first() else { return Ok(Mask::EMPTY) };
        self.links.prepare(first.link, &book.rules).map_err(NodeError::new)?;
        Ok(self.links.judge(batch, arrival.mask(), |index, numbers| {
            book.count(numbers, |class| arrival.classify(index, class));
        }))
    }

    fn finish(&mut self, emitted: &mut Emitted) -> Result<(), NodeError> {
        let Some(scoped) = &mut self.scoped else { return Ok(()) };
        let mut classes = Vec::new();
        for one in scoped.finish() {
            self.book.waiting -= 1;
            classes.clear();
            self.book.count(&one.rules, |class| classes.push(class));
            if !classes.is_empty() {
                emitted.push_classified(one.held.note.0, &one.held.frame(), &classes);
            }
        }
        Ok(())
    }

    fn tick(&mut self, _emitted: &mut Emitted) -> Result<(), NodeError> {
        self.keeper.iter_mut().for_each(Keeper::tick);
        self.book.gone.tick();
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.keeper = Some(kept.keeper());
    }

    fn counters(&self) -> Vec<Counter> {
        let book = &self.book;
        let rules = book.rules.iter();
        let mut all: Vec<_> = rules
            .map(|rule| Counter::count(format!("{} => {}", rule.text, rule.class), rule.frames))
            .collect();
        let rejected = book.seen - book.accepted - book.waiting;
        all.push(Counter::count("reject", rejected));
        if book.gone.frames > 0 {
            all.push(Counter::count(DEMUX_REMOVED, book.gone.frames));
        }
        all.extend(unfit(self.links.unfit()));
        if let Some(scoped) = &self.scoped {
            all.extend(unfit(scoped.unfit()));
            let counters = scoped.counters();
            for (name, count) in [
                ("fragments_first", counters.first),
                ("fragments_followed", counters.followed),
                ("fragments_held", counters.held),
                ("fragments_woken", counters.woken),
                ("fragments_without_first", counters.expired),
                ("fragments_without_room", counters.no_room),
            ] {
                all.push(Counter::count(name, count));
            }
        }
        all
    }

    fn removed(&self) -> Vec<(Arc<str>, u64)> {
        self.book.gone.last.clone()
    }

    /// Adds and removes filters; those that stay keep their counts.
    fn change(&mut self, settings: &Settings) -> bool {
        let (Ok(mut rules), Ok(first)) = (rules(settings), settings.flag("first")) else {
            return false;
        };
        if self.scoped.is_some() || self.links.change(&rules).is_err() {
            return false;
        }
        let old = std::mem::take(&mut self.book.rules);
        // A filter that is there twice has two counts.
        let mut counts: HashMap<(Arc<str>, u32), VecDeque<usize>> = HashMap::new();
        for (at, rule) in old.iter().enumerate() {
            counts.entry((Arc::clone(&rule.text), rule.class)).or_default().push_back(at);
        }
        let mut old: Vec<_> = old.into_iter().map(Some).collect();
        for rule in &mut rules {
            let counts = counts.get_mut(&(Arc::clone(&rule.text), rule.class));
            let same = counts.and_then(VecDeque::pop_front).and_then(|at| old[at].take());
            rule.frames = same.map_or(0, |rule| rule.frames);
        }
        self.book.gone.take(old.into_iter().flatten());
        (self.book.rules, self.book.first) = (rules, first);
        true
    }
}

/// Parses `udp port 53 => 7`: a filter and its class value.
fn rules(settings: &Settings) -> Result<Vec<Rule>, MakeError> {
    settings.required("expression")?;
    let texts = settings.pairs().iter().filter(|(name, _)| name == "expression");
    let rule = |(_, text): &(String, String)| {
        let expected = "FILTER => CLASS, with a class value from 0 to 4294967295";
        let wrong = || MakeError::new("expression", format!("expected {expected}")).of(text);
        let (filter, class) = text.rsplit_once("=>").ok_or_else(wrong)?;
        let class = class.trim().parse().map_err(|_| wrong())?;
        Ok(Rule { text: filter.trim().into(), class, frames: 0 })
    };
    texts.map(rule).collect()
}

fn options(settings: &Settings) -> Result<Options, MakeError> {
    let defaults = Options::default();
    let snaplen = u64::from(defaults.snaplen);
    Ok(Options {
        link: settings.link().unwrap_or(LinkType::EN10MB),
        live: settings.flag("live")?,
        incoming_only: settings.incoming_only(),
        snaplen: settings.number_or("snaplen", 1..=snaplen, snaplen)? as u32,
        reading: if settings.flag("scoped")? { Reading::Scoped } else { Reading::Compat },
        netmask: Some(settings.netmask()),
        ..defaults
    })
}

fn bounds(settings: &Settings) -> Result<Bounds, MakeError> {
    if settings.text("patience").is_some() && !settings.flag("scoped")? {
        let message = "`patience` needs `scoped=y`: without it, no fragment waits";
        return Err(MakeError::new("patience", message));
    }
    let seconds = settings.number_or("patience", 0..=u64::MAX, 60)?;
    let patience_ns = seconds.saturating_mul(1_000_000_000);
    Ok(Bounds { patience_ns, ..Bounds::default() })
}

/// Accepts a text that fits one of the known link types, or any link type while no source is open.
fn check(settings: &Settings) -> Result<(), MakeError> {
    let options = options(settings)?;
    bounds(settings)?;
    settings.flag("first")?;
    let inputs = settings.inputs();
    rules(settings)?.iter().try_for_each(|rule| {
        inputs.check(&rule.text, &options).map_err(|refused| {
            // The open sources refuse it; sources that are opened later may accept it.
            let varies = refused.varies || !inputs.links.is_empty();
            MakeError { varies, ..blame(rule, FilterError::from(refused.error)) }
        })
    })
}

fn blame(rule: &Rule, error: FilterError) -> MakeError {
    MakeError::new("expression", error).of(&format!("{} => {}", rule.text, rule.class))
}

/// The filters of a node with these settings.
fn filters_of(settings: &Settings) -> Result<FilterSet, MakeError> {
    let filters = FilterSet::over(settings.inputs(), options(settings)?, Tags::Read);
    let rules = rules(settings)?;
    let changes: Vec<_> = rules.iter().map(|rule| Change::Add(&rule.text)).collect();
    let edited = filters.edit(&changes);
    edited.map_err(|refused| blame(&rules[refused.place], refused.error))?;
    Ok(filters)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let (options, rules, inputs) = (options(settings)?, rules(settings)?, settings.inputs());
    let mut links = Links::new(options);
    let mut scoped = None;
    if options.reading == Reading::Scoped {
        check(settings)?;
        let texts = rules.iter().map(|rule| Arc::clone(&rule.text)).collect();
        scoped = Some(Scoped::new(texts, options, bounds(settings)?));
    } else {
        for link in inputs.links {
            let prepared = links.prepare(link, &rules);
            prepared.map_err(|error| MakeError::new("expression", error))?;
        }
        if rules.iter().any(|rule| !links.fits(rule)) {
            check(settings)?;
        }
    }
    let book = Book { rules, first: settings.flag("first")?, ..Book::default() };
    Ok(Box::new(Demux { book, links, scoped, keeper: None }))
}

fn needs(settings: &Settings) -> Needs {
    let is_set = |flag| settings.flag(flag).unwrap_or(false);
    if is_set("scoped") {
        return Needs::All("has scoped texts, which need all fragments");
    }
    if !is_set("live") {
        return Needs::All("is read as for a file, by live=n or because it gets frames of a file");
    }
    let texts = rules(settings).unwrap_or_default();
    Needs::Classes(texts.into_iter().map(|rule| (rule.text.to_string(), rule.class)).collect())
}

/// The class.
pub const CLASS: Class = Class {
    name: "demux",
    aliases: &["dispatch"],
    summary: "passes frames that a filter accepts, with the class values of all that do",
    parameters: &[
        Parameter { name: "expression", summary: "FILTER => CLASS; may be repeated" },
        Parameter { name: "first", summary: "y: the class value of the first filter only" },
        Parameter { name: "scoped", summary: "y: read by meaning; fragments follow their first" },
        Parameter { name: "live", summary: "y: read as for a capture (default after devices)" },
        Parameter { name: "patience", summary: "seconds that a fragment waits for its first (60)" },
        Parameter { name: "snaplen", summary: "bytes that `accept` returns (262144)" },
    ],
    classifies: true,
    several_classes: true,
    parallel: true,
    needs,
    filters: Some(|settings| filters_of(settings).ok()),
    live: &["expression", "first"],
    // While fragments wait, the numbers of filters must not change.
    changes: |settings| !settings.flag("scoped").unwrap_or(true),
    check: Some(check),
    make,
    // Names of hosts are looked up in the network.
    opens: |settings| match settings.flag("names") {
        Ok(false) => Opens::Nothing,
        _ => Opens::Network,
    },
    ..Class::NODE
};
