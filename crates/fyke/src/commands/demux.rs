//! `fyke demux`: every frame goes to the endpoints whose expressions it matches.
//!
//! The expressions are the filters of one pass set for each link type: passes of the same shape are rows of a table, so
//! the cost of a frame grows with the number of shapes, not of expressions. With `--scoped` they are read by meaning
//! and a fragment goes where its first fragment went, in and out of order, IPv4 and IPv6; what waits for its first
//! fragment is bounded in memory and time and counted.

mod endpoint;
mod rings;
mod scoped;

use super::{Failure, open, snaplen, stop_on_signals};
use crate::cli::DemuxArgs;
use endpoint::Endpoint;
use fyke_capture::{Interface, Next, Source};
use fyke_filter::Options;
use fyke_flow::Bounds;
use fyke_frame::{Batch, Frame, LinkType};
use fyke_pass::{FilterId, LowerError, MatchMode, Matches, PassSet, Reader};
use rings::Rings;
use scoped::Scoped;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a frame goes: numbers of rules, ascending.
type Rules = Arc<[u32]>;

/// An expression and the number of its endpoint.
struct Rule {
    expression: String,
    endpoint: usize,
    frames: u64,
}

/// Runs the command.
pub fn run(args: DemuxArgs) -> Result<(), Failure> {
    let mut source = open(&args.source, false)?;
    let snaplen = snaplen(args.source.snaplen);
    let interfaces = source.interfaces().to_vec();
    let link = interfaces.first().map_or(LinkType::EN10MB, |interface| interface.link);
    let (rules, names) = read_rules(&args.rules)?;
    let mut demux = Demux {
        scoped: args.scoped.then(|| Scoped::new(&rules, snaplen, bounds(&args))),
        rules,
        endpoints: Vec::new(),
        links: BTreeMap::new(),
        snaplen,
        judged: Judged::default(),
        interfaces,
        seen: 0,
        accepted: 0,
        deliveries: 0,
        live: args.source.read.is_none(),
    };
    // Wrong expressions are refused before anything is read, and before a file is made anew.
    match &mut demux.scoped {
        Some(scoped) => drop(scoped.filters_of(link)?),
        None => drop(demux.filters_of(link)?),
    }
    let rings = Rings::default();
    for name in names {
        demux.endpoints.push(Endpoint::open(name, &demux.interfaces, snaplen, &rings)?);
    }
    let limit = args.limit.unwrap_or(u64::MAX);
    let stop = stop_on_signals()?;
    let mut failure = None;
    while demux.seen < limit && !stop.load(Ordering::Relaxed) {
        match source.next() {
            Ok(Next::End) => break,
            Ok(Next::Idle) => {}
            Ok(Next::Frames(batch, held)) => demux.batch(&batch, held.interfaces(), limit)?,
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    demux.finish(&args)?;
    match failure {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}

fn bounds(args: &DemuxArgs) -> Bounds {
    let patience_ns = args.patience_seconds.saturating_mul(1_000_000_000);
    Bounds { patience_ns, ..Bounds::default() }
}

/// The rules, and the names of their endpoints, each once.
fn read_rules(texts: &[String]) -> Result<(Vec<Rule>, Vec<&str>), Failure> {
    let (mut rules, mut names) = (Vec::new(), Vec::new());
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for text in texts {
        let Some((expression, name)) = text.rsplit_once("=>") else {
            return Err(Failure::Usage(format!(
                "`{text}`: expected 'EXPR => ENDPOINT' (quoted: a shell would redirect)"
            )));
        };
        let name = name.trim();
        if name.is_empty() {
            return Err(Failure::Usage(format!("`{text}`: an endpoint is missing behind `=>`")));
        }
        let endpoint = *numbers.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        });
        rules.push(Rule { expression: expression.trim().to_owned(), endpoint, frames: 0 });
    }
    Ok((rules, names))
}

/// The expressions as passes for one link type.
struct LinkFilters {
    reader: Reader,
    /// Rule of a filter, and of filters with the same text.
    rules: HashMap<FilterId, Vec<u32>>,
    matches: Matches,
    // The passes live as long as their set.
    _set: PassSet,
}

impl LinkFilters {
    fn new(rules: &[Rule], link: LinkType, snaplen: u32) -> Result<Self, Failure> {
        let options = Options { link, snaplen, ..Options::default() };
        let mut set = PassSet::new(link);
        let mut by_text: HashMap<&str, FilterId> = HashMap::new();
        let mut of_filter: HashMap<FilterId, Vec<u32>> = HashMap::new();
        let mut edit = set.edit();
        for (number, rule) in rules.iter().enumerate() {
            let text = rule.expression.as_str();
            let id = match by_text.get(text) {
                Some(&id) => id,
                None => {
                    let predicate = fyke_filter::compile(text, &options)
                        .map_err(|error| Failure::Usage(error.to_string()))?;
                    let added = match edit.add_filter(&predicate) {
                        Err(LowerError::Full { limit }) => {
                            return Err(Failure::Usage(format!("more than {limit} passes")));
                        }
                        Err(_) => edit.add_ordered(&predicate),
                        added => added,
                    };
                    let id = added.map_err(|error| Failure::Usage(error.to_string()))?;
                    by_text.insert(text, id);
                    id
                }
            };
            of_filter.entry(id).or_default().push(number as u32);
        }
        edit.commit();
        let reader = set.reader();
        let matches = Matches::new(MatchMode::All);
        Ok(LinkFilters { reader, rules: of_filter, matches, _set: set })
    }

    /// The rules of each frame of a batch.
    fn judge(&mut self, batch: &Batch<'_>, judged: &mut Judged) {
        judged.clear(batch.len());
        let accepted = self.reader.evaluate_matches(batch, batch.all(), &mut self.matches);
        for index in accepted.iter() {
            let rules = &mut judged.of[index];
            for found in self.matches.of(index) {
                if let Some(more) = found.filter.and_then(|filter| self.rules.get(&filter)) {
                    rules.extend(more);
                }
            }
            rules.sort_unstable();
            rules.dedup();
        }
    }
}

/// The rules of each frame of a batch; reused.
#[derive(Default)]
struct Judged {
    of: Vec<Vec<u32>>,
}

impl Judged {
    fn clear(&mut self, count: usize) {
        self.of.resize_with(count.max(self.of.len()), Vec::new);
        self.of.iter_mut().for_each(Vec::clear);
    }
}

struct Demux {
    rules: Vec<Rule>,
    endpoints: Vec<Endpoint>,
    links: BTreeMap<LinkType, LinkFilters>,
    snaplen: u32,
    scoped: Option<Scoped>,
    judged: Judged,
    /// Interfaces known so far, for frames that are held.
    interfaces: Vec<Interface>,
    seen: u64,
    accepted: u64,
    /// Number of the delivery, so that an endpoint of several rules gets a frame once.
    deliveries: u64,
    live: bool,
}

impl Demux {
    fn filters_of(&mut self, link: LinkType) -> Result<&mut LinkFilters, Failure> {
        use std::collections::btree_map::Entry;
        Ok(match self.links.entry(link) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(LinkFilters::new(&self.rules, link, self.snaplen)?)
            }
        })
    }

    /// Dispatches the frames of a batch until `limit` frames were seen.
    fn batch(
        &mut self,
        batch: &Batch<'_>,
        interfaces: &[Interface],
        limit: u64,
    ) -> Result<(), Failure> {
        let Some(first) = batch.frames().first() else { return Ok(()) };
        if self.interfaces.len() < interfaces.len() {
            self.interfaces = interfaces.to_vec();
        }
        let rest = usize::try_from(limit - self.seen).unwrap_or(usize::MAX);
        let frames = &batch.frames()[..batch.len().min(rest)];
        self.seen += frames.len() as u64;
        if let Some(mut scoped) = self.scoped.take() {
            let done = frames.iter().try_for_each(|frame| {
                scoped.frame(frame, &mut |frame, rules| self.give(frame, rules))
            });
            self.scoped = Some(scoped);
            done?;
        } else {
            let mut judged = std::mem::take(&mut self.judged);
            self.filters_of(first.link)?.judge(batch, &mut judged);
            for (frame, rules) in frames.iter().zip(&judged.of) {
                self.give(frame, rules)?;
            }
            self.judged = judged;
        }
        match self.live {
            true => self.endpoints.iter_mut().try_for_each(Endpoint::flush),
            false => Ok(()),
        }
    }

    /// Sends a frame to the endpoints of rules; each endpoint gets it once.
    fn give(&mut self, frame: &Frame<'_>, rules: &[u32]) -> Result<(), Failure> {
        self.deliveries += 1;
        if rules.is_empty() {
            return Ok(());
        }
        let Some(interface) = self.interfaces.get(frame.interface as usize) else { return Ok(()) };
        self.accepted += 1;
        for &number in rules {
            let rule = &mut self.rules[number as usize];
            rule.frames += 1;
            self.endpoints[rule.endpoint].give(frame, interface, self.deliveries)?;
        }
        Ok(())
    }

    fn finish(&mut self, args: &DemuxArgs) -> Result<(), Failure> {
        let counters = match self.scoped.take() {
            Some(mut scoped) => Some(scoped.finish(&mut |frame, rules| self.give(frame, rules))?),
            None => None,
        };
        for endpoint in self.endpoints.drain(..) {
            endpoint.finish()?;
        }
        let to_stdout = args.rules.iter().any(|rule| rule.trim_end().ends_with("=> -"));
        let mut lines = String::new();
        for rule in &self.rules {
            lines.push_str(&format!("{}\t{}\n", rule.frames, rule.expression));
        }
        let rejected = self.seen - self.accepted;
        lines.push_str(&format!("{rejected}\treject\n"));
        match to_stdout {
            true => eprint!("{lines}"),
            false => std::io::stdout().write_all(lines.as_bytes())?,
        }
        if let Some(counters) = counters {
            eprintln!(
                "fragments: {} first, {} followed, {} held; of these {} woken, {} without a first, \
                 {} without room",
                counters.first,
                counters.followed,
                counters.held,
                counters.woken,
                counters.expired,
                counters.no_room
            );
        }
        Ok(())
    }
}
