//! `fyke ruler`: checks, runs and draws pattern rules.
//!
//! The verdicts go to standard output as `VERDICT<TAB>FRAMES` and add up to all frames; with several filters, the
//! filter's name precedes them. A root filter is one that no other filter applies. All root filters for the link type
//! of a frame run on it in one pass over its bytes. Only one filter per frame may write to the output file.

mod live;
mod report;

use super::dump::announce;
use super::output::Output;
use super::privilege::{Doors, Needs, Privileges};
use super::run::serve;
use super::signals::stop_on_signals;
use super::{Failure, counts, open, output, read_text};
use crate::cli::{RulerAction, RulerArgs, RulerRunArgs};
use anyhow::Context;
use fyke_capture::{
    Account, Interface, Next, ReadError, Sink, Source, SourceStats, WriteError, WriteOptions,
};
use fyke_control::Accounting;
use fyke_frame::{Frame, LinkType};
use fyke_ruler::anonymise::{Anonymiser, KEY_LEN, parse_key};
use fyke_ruler::matcher::Engine;
use fyke_ruler::{Action, Limits, Program, Ruler, Verdict};
use live::Live;
use std::collections::BTreeMap;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Runs the command.
pub fn run(args: RulerArgs) -> Result<(), Failure> {
    match args.action {
        RulerAction::Check { file } => check(&file),
        RulerAction::Dot { file, filter } => dot(&file, filter.as_deref()),
        RulerAction::Run(args) => run_frames(*args),
    }
}

/// Returns the text of a built-in program, used if there is no such file.
fn built_in(file: &Path) -> Option<(&str, String)> {
    let name = file.to_str().filter(|_| !file.exists())?;
    Some((name, fyke_ruler::built_in(name)?))
}

/// Reads a program; its includes are searched in the same folder.
fn read(file: &Path) -> Result<Program, Failure> {
    if let Some((name, text)) = built_in(file) {
        let nothing = |name: &str| Err(format!("no {name}"));
        return Program::parse(name, &text, &nothing)
            .map_err(|error| Failure::Usage(error.to_string()));
    }
    let text = read_text(file).map_err(|error| match error.kind() {
        ErrorKind::InvalidData | ErrorKind::FileTooLarge => {
            Failure::Usage(format!("{}: {error}", file.display()))
        }
        _ => Failure::Running(anyhow::anyhow!("cannot read {}: {error}", file.display())),
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let load = |name: &str| read_text(&folder.join(name)).map_err(|error| error.to_string());
    Program::parse(&file.display().to_string(), &text, &load)
        .map_err(|error| Failure::Usage(error.to_string()))
}

fn compile(program: Program, key: &[u8; KEY_LEN], limits: Limits) -> Result<Ruler, Failure> {
    let mut seed = [0; 16];
    random_bytes(&mut seed)?;
    Ruler::new(program, limits, Anonymiser::new(key, &seed))
        .map_err(|error| Failure::Usage(error.to_string()))
}

fn random_bytes(bytes: &mut [u8]) -> Result<(), Failure> {
    let mut source = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    source.read_exact(bytes).context("cannot read /dev/urandom")?;
    Ok(())
}

/// Reads the key from a file; no message contains it.
fn key(file: Option<&Path>) -> Result<[u8; KEY_LEN], Failure> {
    let Some(file) = file else {
        let mut key = [0; KEY_LEN];
        random_bytes(&mut key)?;
        return Ok(key);
    };
    let text =
        read_text(file).with_context(|| format!("cannot read the key from {}", file.display()))?;
    parse_key(&text).ok_or_else(|| {
        Failure::Usage(format!(
            "{}: expected {} hexadecimal digits (od -An -tx1 -N{KEY_LEN} /dev/urandom makes them)",
            file.display(),
            KEY_LEN * 2
        ))
    })
}

fn check(file: &Path) -> Result<(), Failure> {
    let program = read(file)?;
    let mut out = output();
    let start = Instant::now();
    let mut ruler = compile(program, &[0; KEY_LEN], Limits::default())?;
    let took = start.elapsed();
    for number in 0..ruler.program().filters.len() {
        let report = fyke_ruler::report(ruler.program(), number, ruler.matcher(number));
        writeln!(
            out,
            "{}: rules {}, automata {}, gated {}, lazy {}, states {}, {} KiB, tags {} in {}, fixed {}",
            ruler.program().filters[number].name,
            report.rules,
            report.automata,
            report.gated,
            report.lazy,
            report.states,
            report.bytes.div_ceil(1024),
            report.tags,
            report.registers,
            report.fixed
        )?;
        if let Some(gate) = &report.gate {
            writeln!(out, "  searched for first: {gate}; {} rules need no more", report.decided)?;
        }
        for warning in &report.warnings {
            writeln!(out, "warning: {warning}")?;
        }
    }
    together(&mut ruler, &mut out)?;
    writeln!(out, "compiled in {:.1} ms", took.as_secs_f64() * 1e3)?;
    Ok(())
}

/// Reports the joint cost of filters for the same link types, which run together.
fn together(ruler: &mut Ruler, out: &mut impl Write) -> Result<(), Failure> {
    let mut sets: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
    for root in ruler.program().roots() {
        let links = ruler.program().filters[root].links.clone();
        sets.entry(links).or_default().push(root);
    }
    for filters in sets.into_values().filter(|filters| filters.len() > 1) {
        let joint = ruler.join(&filters, Limits::default());
        let joint = joint.map_err(|error| Failure::Usage(error.to_string()))?;
        let (cost, program) = (fyke_ruler::cost(ruler.joint(joint)), ruler.program());
        let names: Vec<&str> = filters.iter().map(|at| &*program.filters[*at].name).collect();
        writeln!(
            out,
            "together ({}): automata {}, gated {}, lazy {}, states {}, {} KiB",
            names.join(", "),
            cost.automata,
            cost.gated,
            cost.lazy,
            cost.states,
            cost.bytes.div_ceil(1024)
        )?;
        if cost.automata > 1 {
            let limit = Limits::default().states;
            writeln!(
                out,
                "warning: together these filters would have more than {limit} states, so up to {} \
                 passes over a frame are needed",
                cost.automata
            )?;
        }
    }
    Ok(())
}

fn dot(file: &Path, filter: Option<&str>) -> Result<(), Failure> {
    let program = read(file)?;
    let filter = one_filter(&program, filter)?;
    // The drawing shows the plain automaton, without the literal search before it.
    let limits = Limits { gate: false, ..Limits::default() };
    let ruler = compile(program, &[0; KEY_LEN], limits)?;
    let name = &ruler.program().filters[filter].name;
    let mut out = output();
    for part in ruler.matcher(filter).parts() {
        let rule = |rule: u32| {
            let number = part.rules[rule as usize] as usize;
            match &ruler.program().filters[filter].rules[number].action {
                Action::Accept(None) => "accept".to_owned(),
                Action::Accept(Some(class)) => format!("accept {class}"),
                Action::Reject => "reject".to_owned(),
                Action::Rewrite { .. } => format!("rewrite by rule {}", number + 1),
            }
        };
        match &part.engine {
            Engine::Dense(dense) => {
                out.write_all(fyke_ruler::dot(name, dense, &rule).as_bytes())?
            }
            Engine::Lazy => {
                note!("fyke: rule {} has no automaton to draw", part.rules[0] + 1);
            }
        }
    }
    Ok(())
}

/// Returns the index of the named filter, or of the only one.
fn one_filter(program: &Program, name: Option<&str>) -> Result<usize, Failure> {
    let names = || {
        let names: Vec<&str> = program.filters.iter().map(|filter| &*filter.name).collect();
        names.join(", ")
    };
    match (name, program.filters.len()) {
        (Some(name), _) => program
            .filter(name)
            .ok_or_else(|| Failure::Usage(format!("no filter \"{name}\"; there are: {}", names()))),
        (None, 1) => Ok(0),
        (None, 0) => Err(Failure::Usage("the file has no filter".to_owned())),
        (None, _) => Err(Failure::Usage(format!("choose a filter with --filter: {}", names()))),
    }
}

fn run_frames(mut args: RulerRunArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    let program = read(&args.file)?;
    let roots = match &args.filter {
        Some(name) => vec![one_filter(&program, Some(name))?],
        None => program.roots(),
    };
    for link in program.filters.iter().flat_map(|filter| &filter.links) {
        if LinkType::from_name(link).is_none() {
            return Err(Failure::Usage(format!("unknown link type {link}")));
        }
    }
    let ruler = compile(program, &key(args.key_file.as_deref())?, Limits::default())?;
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let mut source = open(&args.source, false)?;
    let sink = args.write.as_deref().map(|path| create(path, &args, source.interfaces()));
    let is_live = args.source.read.is_none();
    let live = Live::new(source.interfaces(), is_live);
    let mut runner = Runner {
        links: links(&ruler, &roots),
        sets: Vec::new(),
        verdicts: Vec::new(),
        counts: vec![BTreeMap::new(); roots.len()],
        other_link: 0,
        frames: 0,
        passed: 0,
        after: 0,
        failed: None,
        made: Vec::new(),
        made_bytes: 0,
        sink: sink.transpose()?,
        each: args.each.then(|| BufWriter::new(output())),
        ruler,
        roots,
    };
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    let mut needs = Needs::with(doors);
    needs.connects_to = super::remote::ports_again(&args.source);
    let entered = privileges.enter(&needs)?;
    let clients = entered.clients();
    let server = if args.no_control { None } else { serve(&live, entered.sockets, is_live) };
    let stop = stop_on_signals()?;
    if is_live {
        let clients = server.is_some().then_some(&*clients);
        announce(source.interfaces().iter(), args.source.snaplen, clients);
    }
    let limit = args.count_limit.unwrap_or(u64::MAX);
    let failure = runner.run(&mut *source, &live, &stop, limit)?;
    runner.end(&mut *source, is_live);
    let accounting = runner.accounting(&source.stats());
    live.show(&runner, &source.stats());
    let failed = runner.failed.take();
    let after = if failed.is_some() { 0 } else { runner.after };
    runner.report(&args)?;
    if is_live || failed.as_ref().is_some_and(|error| !error.is_closed_pipe()) {
        note!("{}", counts::sum(&accounting, 0, after));
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Creates the file for what passes; one that is being read is the user's to correct.
fn create(
    path: &Path,
    args: &RulerRunArgs,
    interfaces: &[Interface],
) -> Result<Box<dyn Sink>, Failure> {
    let (interfaces, nanoseconds) = (interfaces.to_vec(), Some(args.nano));
    // Frames of a file stay whole, as in `fyke dump`.
    let snaplen = args.source.read.as_ref().map_or(args.source.snaplen, |_| 0);
    let snaplen = super::snaplen(snaplen);
    let options = WriteOptions { snaplen, interfaces, nanoseconds, ..WriteOptions::default() };
    fyke_capture::create_file(path, options).map_err(|error| match error.is_input() {
        true => Failure::Usage(error.to_string()),
        false => error.into(),
    })
}

fn links(ruler: &Ruler, roots: &[usize]) -> Vec<Vec<LinkType>> {
    let of = |root: &usize| {
        let links = &ruler.program().filters[*root].links;
        links.iter().filter_map(|link| LinkType::from_name(link)).collect()
    };
    roots.iter().map(of).collect()
}

/// Runs filters on frames and counts verdicts.
struct Runner {
    ruler: Ruler,
    roots: Vec<usize>,
    /// Link types of each root filter; empty means all.
    links: Vec<Vec<LinkType>>,
    /// Sets of root filters by link type.
    sets: Vec<(LinkType, Set)>,
    /// Root filters and verdicts of the current frame.
    verdicts: Vec<(usize, Verdict)>,
    counts: Vec<BTreeMap<Verdict, u64>>,
    /// Frames of a link type that no filter applies to.
    other_link: u64,
    frames: u64,
    /// Frames that passed at least one filter.
    passed: u64,
    /// Frames that arrived after the requested number was reached, or after the file had failed; no filter has
    /// evaluated them.
    after: u64,
    /// Error of the output file, after which nothing is written.
    failed: Option<WriteError>,
    made: Vec<u8>,
    /// Bytes of rewritten frames.
    made_bytes: u64,
    sink: Option<Box<dyn Sink>>,
    each: Option<BufWriter<Output>>,
}

/// Root filters that run together.
struct Set {
    roots: Vec<usize>,
    /// Joint matcher, if there are several.
    joint: Option<usize>,
}

impl Runner {
    /// Returns the set for a link type; makes it for the first frame of that type.
    fn set(&mut self, link: LinkType) -> Result<usize, Failure> {
        if let Some(at) = self.sets.iter().position(|(known, _)| *known == link) {
            return Ok(at);
        }
        let is_for = |root: &usize| {
            let links = &self.links[*root];
            links.is_empty() || links.contains(&link)
        };
        let roots: Vec<usize> = (0..self.roots.len()).filter(is_for).collect();
        if roots.len() > 1 && self.sink.is_some() {
            return Err(Failure::Usage(
                "two filters would write the same frame: choose one with --filter".to_owned(),
            ));
        }
        let joint = if roots.len() > 1 {
            let filters: Vec<usize> = roots.iter().map(|root| self.roots[*root]).collect();
            let joint = self.ruler.join(&filters, Limits::default());
            Some(joint.map_err(|error| Failure::Usage(error.to_string()))?)
        } else {
            None
        };
        self.sets.push((link, Set { roots, joint }));
        Ok(self.sets.len() - 1)
    }

    fn frame(&mut self, frame: &Frame<'_>, interface: Option<&Interface>) -> Result<(), Failure> {
        self.frames += 1;
        let set = self.set(frame.link)?;
        let (Set { roots, joint }, verdicts) = (&self.sets[set].1, &mut self.verdicts);
        verdicts.clear();
        let made = &mut self.made;
        match (joint, &roots[..]) {
            (Some(joint), _) => {
                let each = |at: usize, verdict, _, _: &[u8]| verdicts.push((roots[at], verdict));
                self.ruler.run_joint(*joint, frame.data, frame.link, made, each);
            }
            (None, [root]) => {
                let (verdict, _) = self.ruler.run(self.roots[*root], frame.data, frame.link, made);
                verdicts.push((*root, verdict));
            }
            (None, _) => self.other_link += 1,
        }
        let mut passed = false;
        for (number, verdict) in self.verdicts.iter().copied() {
            *self.counts[number].entry(verdict).or_default() += 1;
            passed |= verdict.passes();
            if verdict == Verdict::Rewrite {
                self.made_bytes += self.made.len() as u64;
            }
            if let Some(out) = &mut self.each {
                let name = &self.ruler.program().filters[self.roots[number]].name;
                writeln!(out, "{}\t{name}\t{verdict}", self.frames)?;
            }
            if let (Some(sink), Some(interface), true) =
                (&mut self.sink, interface, verdict.passes())
            {
                let mut frame = *frame;
                if verdict == Verdict::Rewrite {
                    let cut = (frame.wire_len as usize).saturating_sub(frame.data.len());
                    frame.data = &self.made;
                    frame.wire_len = u32::try_from(self.made.len() + cut).unwrap_or(u32::MAX);
                }
                self.failed = sink.write(interface, &frame).err();
            }
        }
        self.passed += u64::from(passed);
        Ok(())
    }

    /// Runs the filters until the source ends, a signal or the limit stops it, or the file fails. What the kernel has
    /// counted by then is counted here, too. Returns the failure of the source.
    fn run(
        &mut self,
        source: &mut dyn Source,
        live: &Live,
        stop: &AtomicBool,
        limit: u64,
    ) -> Result<Option<ReadError>, Failure> {
        let mut stopping = false;
        loop {
            live.show(self, &source.stats());
            let over = stop.load(Ordering::Relaxed) || self.is_over(limit);
            if over && !std::mem::replace(&mut stopping, true) && !source.stop() {
                return Ok(None);
            }
            while let Some(notice) = source.take_notice() {
                note!("fyke: {notice}");
            }
            let (batch, look_back) = match source.next() {
                Ok(Next::Frames(batch, look_back)) => (batch, look_back),
                Ok(Next::Idle) => continue,
                Ok(Next::End) => return Ok(None),
                Err(error) => return Ok(Some(error)),
            };
            let interfaces = look_back.interfaces();
            for frame in batch.frames() {
                match self.is_over(limit) {
                    true => self.after += 1,
                    false => self.frame(frame, interfaces.get(frame.interface as usize))?,
                }
            }
        }
    }

    fn is_over(&self, limit: u64) -> bool {
        self.frames == limit || self.failed.is_some()
    }

    /// Ends the file, with what happened to the frames of a live interface.
    fn end(&mut self, source: &mut dyn Source, is_live: bool) {
        let stats = source.stats();
        let accounting = self.accounting(&stats);
        let Some(sink) = &mut self.sink else { return };
        if let ([interface], true) = (source.interfaces(), is_live) {
            let account = Account {
                received: Some(accounting.seen),
                dropped: Some(stats.dropped),
                accepted: Some(accounting.delivered),
                ..Account::default()
            };
            sink.account(interface, &account);
        }
        let ended = sink.end().and_then(|()| sink.flush());
        self.failed = self.failed.take().or(ended.err());
    }

    /// Returns the frame counts so far.
    fn accounting(&self, source: &SourceStats) -> Accounting {
        let unwritten =
            self.sink.as_ref().map_or(0, |sink| self.passed.saturating_sub(sink.stats().frames));
        let (after, unjudged) =
            if self.failed.is_some() { (0, self.after) } else { (self.after, 0) };
        let writer = Some(("writer", unwritten + unjudged)).filter(|(_, count)| *count > 0);
        let lost = source.lost().chain(writer);
        Accounting {
            seen: self.frames + self.after + source.dropped + source.unreadable,
            delivered: self.passed - unwritten,
            rejected: self.frames - self.passed + after,
            taken: 0,
            lost: lost.map(|(why, count)| (why.to_owned(), count)).collect(),
            not_seen: counts::without_connection("another machine", source),
            ..Accounting::default()
        }
    }

    /// Prints the counts.
    fn report(mut self, args: &RulerRunArgs) -> Result<(), Failure> {
        if let Some(mut out) = self.each.take() {
            out.flush()?;
        }
        report::print(&self, args)?;
        if args.each {
            return Ok(());
        }
        // If data goes to standard output, counts go to standard error.
        let to_stdout = args.write.as_deref().is_none_or(|path| path != Path::new("-"));
        let mut out: Box<dyn Write> =
            if to_stdout { Box::new(output()) } else { Box::new(std::io::stderr()) };
        if args.count {
            writeln!(out, "{}", self.passed)?;
            return Ok(());
        }
        for (number, counts) in self.counts.iter().enumerate() {
            let name = &self.ruler.program().filters[self.roots[number]].name;
            for (verdict, frames) in counts {
                if args.json {
                    let line = serde_json::json!({
                        "filter": name, "verdict": verdict.to_string(), "frames": frames
                    });
                    writeln!(out, "{line}")?;
                } else if self.roots.len() > 1 {
                    writeln!(out, "{name}\t{verdict}\t{frames}")?;
                } else {
                    writeln!(out, "{verdict}\t{frames}")?;
                }
            }
        }
        Ok(())
    }
}
