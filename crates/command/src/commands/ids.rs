//! `fyke ids`: judges traffic by rules of Snort and Suricata.
//!
//! Alerts go to standard output as text, or to a file as JSON (`--eve`); the summary goes to standard error. Exit
//! status 0 with alerts or without.

mod alerts;
mod live;

use super::dump::announce;
use super::privilege::{Doors, Needs, Privileges};
use super::run::serve;
use super::signals::{stop_on_signals, stop_or_reload};
use super::snort2ruler::{Progress, dialect, read, variables};
use super::{Failure, graphs, open, output};
use crate::cli::{ChecksumChoice, IdsArgs, RecordKind};
use alerts::Alerts;
use anyhow::Context;
use fyke_capture::{Next, ReadError, Source, SourceStats, wait_for_any};
use fyke_ids::engine::Policies;
use fyke_ids::{Checksums, Engine, Index, Kinds, Limits, RuleFiles, eve};
use live::Live;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two records of the counters, in nanoseconds.
const STATS_NS: u64 = 10_000_000_000;
/// Longest wait for frames or an edit.
const PATIENCE: Duration = Duration::from_millis(10);
/// Longest wait for frames of a source that cannot wait for an edit at the same time.
const POLL: Duration = Duration::from_millis(1);

/// Runs the command.
pub fn run(mut args: IdsArgs) -> Result<(), Failure> {
    if !args.prefilter.is_empty() {
        return print_prefilter(&args);
    }
    super::read_list(&mut args.source)?;
    super::enter_namespace(&args.source)?;
    graphs::check_source(&args.source)?;
    if args.source.workers > 1 {
        return Err(Failure::Usage(
            "--workers: rules are judged by one thread; omit this option".to_owned(),
        ));
    }
    let policies = policies(&args)?;
    let rules = rules(&args)?;
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let mut source = open(&args.source, false)?;
    let is_live = args.source.read.is_none();
    let mut run = Run {
        engine: Engine::with_policies(rules, limits(&args), policies),
        out: Alerts::open(&args)?,
        after: 0,
        limit: args.count_limit.unwrap_or(u64::MAX),
        rotated: Arc::default(),
        stats: None,
        time_ns: 0,
    };
    let wants = |kind| args.records.contains(&kind);
    run.engine.record(Kinds {
        flow: wants(RecordKind::Flow),
        dns: wants(RecordKind::Dns),
        tls: wants(RecordKind::Tls),
        http: wants(RecordKind::Http),
        packet: wants(RecordKind::Packet),
    });
    run.stats = wants(RecordKind::Stats).then_some(0);
    let live = Live::new(source.interfaces(), is_live, &args.rules, run.engine.rules())?;
    live.publish(&run.engine, &source.stats());
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    let mut needs = Needs::with(doors);
    needs.connects_to = super::remote::ports_again(&args.source);
    if let Some(file) = run.out.file() {
        needs.reopens(file);
    }
    let entered = privileges.enter(&needs)?;
    let clients = entered.clients();
    let server = if args.no_control { None } else { serve(&live, entered.sockets, is_live) };
    let stop = match run.out.file() {
        None => stop_on_signals()?,
        Some(_) => {
            let rotated = Arc::clone(&run.rotated);
            stop_or_reload(move || rotated.store(true, Ordering::Relaxed))?
        }
    };
    if is_live {
        let clients = server.is_some().then_some(&*clients);
        announce(source.interfaces().iter(), args.source.snaplen, clients);
        source.set_patience(if source.readiness().is_some() { Duration::ZERO } else { POLL });
    }
    let failure = run.run(&mut *source, &live, &stop, is_live);
    live.end();
    run.engine.finish(&mut |alert| run.out.write(alert));
    run.out.write_lines(run.engine.take_records());
    while run.engine.end_flow() {
        run.out.write_lines(run.engine.take_records());
    }
    run.write_stats(&source.stats());
    let written = run.out.end();
    run.report(&mut *source);
    written.context("cannot write the alerts")?;
    failure.map_or(Ok(()), |error| Err(error.into()))
}

fn limits(args: &IdsArgs) -> Limits {
    Limits {
        bytes: usize::try_from(args.memory).unwrap_or(usize::MAX).saturating_mul(1 << 20),
        midstream: args.midstream,
        one_direction: args.one_direction,
        ignore_vlan: args.ignore_vlan,
        checksums: checksums(args),
        ..Limits::default()
    }
}

/// The bytes that count in overlaps: the older ones, but for the policies that are given.
fn policies(args: &IdsArgs) -> Result<Policies, Failure> {
    let mut policies = Policies::default();
    for text in &args.policies {
        policies.add(text).map_err(|error| Failure::Usage(format!("--policy {error}")))?;
    }
    Ok(policies)
}

/// Prints the pre-filter of the files of rules.
fn print_prefilter(args: &IdsArgs) -> Result<(), Failure> {
    let variables = variables(&args.rules)?;
    let mut text = Vec::new();
    let mut starts = Vec::new();
    for file in &args.prefilter {
        starts.push((text.iter().filter(|byte| **byte == b'\n').count(), file));
        text.extend(read(file)?);
        text.push(b'\n');
    }
    let found = fyke_ids::prefilter(&text, &variables).map_err(|mut refused| {
        let at = starts.iter().rposition(|(start, _)| *start < refused.line).unwrap_or(0);
        refused.line -= starts[at].0;
        Failure::Usage(format!(
            "--prefilter {}: {refused}; no filter is known that is not weaker than this rule",
            starts[at].1.display()
        ))
    })?;
    let mut out = output();
    writeln!(out, "{}", found.expression)?;
    out.flush()?;
    note!("fyke: {} rules, {} different headers", found.rules, found.headers);
    Ok(())
}

/// Treatment of packets with a wrong checksum. Only a socket of the kernel tells which of them a device still computes.
fn checksums(args: &IdsArgs) -> Checksums {
    let is_shared = args.source.interface.iter().any(|name| graphs::is_shared(name));
    match args.checksums {
        ChecksumChoice::Yes => Checksums::Required,
        ChecksumChoice::No => Checksums::Ignored,
        ChecksumChoice::Auto if args.source.read.is_some() || is_shared => Checksums::Learned,
        ChecksumChoice::Auto => Checksums::Required,
    }
}

/// Reads and translates the files of rules.
fn rules(args: &IdsArgs) -> Result<Index, Failure> {
    let (variables, dialect) = (variables(&args.rules)?, dialect(&args.rules));
    let mut progress = Progress::new();
    let RuleFiles { rules, total, refused } =
        RuleFiles::read(&args.files, dialect, &variables, &mut |step| progress.tell(step))?;
    drop(progress);
    if rules.is_empty() {
        return Err(Failure::Usage(format!(
            "-S: none of {total} rules can be judged; `fyke snort2ruler` gives the reasons"
        )));
    }
    if refused > 0 {
        note!(
            "fyke: {refused} of {total} rules are not judged; `fyke snort2ruler` gives the reasons"
        );
    }
    Ok(Index::new(rules))
}

/// A run over a source.
struct Run {
    engine: Engine,
    out: Alerts,
    /// Frames that arrived after the limit.
    after: u64,
    limit: u64,
    /// The file of alerts has been moved away.
    rotated: Arc<AtomicBool>,
    /// Time of the next record of counters, if they are wanted; 0 before the first frame.
    stats: Option<u64>,
    /// Time of the last frame.
    time_ns: u64,
}

impl Run {
    /// Judges frames until the source ends, or a signal, the limit or a failed output stops it. Returns the failure of
    /// the source.
    fn run(
        &mut self,
        source: &mut dyn Source,
        live: &Live,
        stop: &AtomicBool,
        is_live: bool,
    ) -> Option<ReadError> {
        let mut stopping = false;
        loop {
            live.edit(&mut self.engine);
            if self.rotated.swap(false, Ordering::Relaxed) {
                self.out.reopen();
            }
            live.publish(&self.engine, &source.stats());
            let over = stop.load(Ordering::Relaxed) || self.is_over();
            if over && !std::mem::replace(&mut stopping, true) && !source.stop() {
                return None;
            }
            while let Some(notice) = source.take_notice() {
                note!("fyke: {notice}");
            }
            let batch = match source.next() {
                Ok(Next::Frames(batch, _)) => batch,
                Ok(Next::Idle) => {
                    if let Some(readiness) = source.readiness() {
                        wait_for_any(&[readiness, live.woken()], PATIENCE);
                    }
                    continue;
                }
                Ok(Next::End) => return None,
                Err(error) => return Some(error),
            };
            for frame in batch.frames() {
                live.edit_if_wanted(&mut self.engine);
                match self.is_over() {
                    true => self.after += 1,
                    false => {
                        self.engine.frame(frame, &mut |alert| self.out.write(alert));
                        self.out.write_lines(self.engine.take_records());
                        self.time_ns = self.time_ns.max(frame.timestamp_ns);
                    }
                }
            }
            if self.stats.is_some_and(|next_ns| self.time_ns >= next_ns) {
                let is_first = self.stats == Some(0);
                self.stats = Some(self.time_ns.saturating_add(STATS_NS));
                if !is_first {
                    // The batch is not borrowed any more.
                    let stats = source.stats();
                    self.write_stats(&stats);
                }
            }
            if is_live {
                // Writing may take longer than an edit may wait.
                live.edit_if_wanted(&mut self.engine);
                self.out.flush();
            }
        }
    }

    /// Writes a record of the counters, if they are wanted.
    fn write_stats(&mut self, source: &SourceStats) {
        if self.stats.is_some() {
            let lost = source.dropped + source.unreadable;
            let line = eve::stats(self.time_ns, &self.engine.counters(), lost);
            self.out.write_lines(vec![line]);
        }
    }

    fn is_over(&self) -> bool {
        self.engine.counters().frames >= self.limit || self.out.has_failed()
    }

    fn report(&self, source: &mut dyn Source) {
        let (counters, streams, stats) =
            (self.engine.counters(), self.engine.stream_counters(), source.stats());
        let lost = stats.lost().map(|(why, count)| format!("; {count} lost before ({why})"));
        let if_any = |count: u64, text: &str| match count {
            0 => String::new(),
            count => format!("{}{count} {}", &text[..2], &text[2..]),
        };
        note!(
            "{} frames: {} judged, {} fragments of {} packets, {} with a wrong checksum, {} without IP{}{}",
            counters.frames,
            counters.judged,
            counters.fragments,
            self.engine.fragment_counters().packets,
            counters.damaged,
            counters.other,
            lost.collect::<String>(),
            if_any(self.after, "; after the limit"),
        );
        if counters.unsummed > 0 {
            note!(
                "{} packets with a wrong checksum are judged: their sender has used no right one in the flow; \
                 --checksums yes leaves them out",
                counters.unsummed
            );
        }
        note!(
            "{} flows ({} forgotten for lack of room{}), {} messages{}{}{}, {} bytes of streams, {} bytes missing",
            counters.flows,
            counters.forgotten,
            if_any(counters.forgotten_open, ", established ones among them"),
            counters.messages,
            if_any(counters.encoded, ", with a body that is judged compressed"),
            if_any(counters.cut_heads, ", with a head that is judged in part"),
            if_any(counters.damaged_bodies, ", with a chunk without a length"),
            streams.delivered_bytes,
            streams.missing_bytes
        );
        if counters.beyond_bytes > 0 {
            note!(
                "{} bytes of streams not judged, after the first {} of a direction",
                counters.beyond_bytes,
                fyke_ids::engine::flow::MAX_STREAM
            );
        }
        note!(
            "{} rules, {} verifications ({} at a limit{}{}): {} matches = {} alerts + {} held back + {} silent",
            self.engine.rules().len(),
            counters.verified,
            counters.limited,
            if_any(counters.suspended, ", left out for rules at a limit"),
            if_any(counters.unjudged, ", left out or ended early for all rules together"),
            counters.matches,
            counters.alerts,
            counters.held_back,
            counters.silent
        );
    }
}
