//! `fyke ids`: judges traffic by rules of Snort and Suricata.
//!
//! Alerts go to standard output as text, or to a file as JSON (`--eve`); the summary goes to standard error. Exit
//! status 0 with alerts or without.

mod live;

use super::privilege::{Doors, Needs, Privileges};
use super::run::serve;
use super::signals::stop_on_signals;
use super::snort2ruler::{dialect, read, variables};
use super::{Failure, graphs, one_line, open, output};
use crate::cli::IdsArgs;
use anyhow::Context;
use fyke_capture::{Next, ReadError, Source};
use fyke_ids::eve::{self, Options};
use fyke_ids::{Alert, Engine, Index, Limits, Translation};
use live::Live;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait for frames, after which an edit is made.
const PATIENCE: Duration = Duration::from_millis(10);

/// Runs the command.
pub fn run(mut args: IdsArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    super::enter_namespace(&args.source)?;
    graphs::check_source(&args.source)?;
    if args.source.workers > 1 {
        return Err(Failure::Usage(
            "--workers: rules are judged by one thread; omit this option".to_owned(),
        ));
    }
    let rules = rules(&args)?;
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let mut source = open(&args.source, false)?;
    let is_live = args.source.read.is_none();
    let mut run = Run {
        engine: Engine::new(rules, Limits { midstream: args.midstream, ..Limits::default() }),
        out: Alerts::open(&args)?,
        after: 0,
        limit: args.count_limit.unwrap_or(u64::MAX),
    };
    let live = Live::new(source.interfaces(), is_live, &args.rules)?;
    live.publish(&run.engine, &source.stats());
    let doors = if args.no_control { Doors::Closed } else { Doors::Filters };
    let entered = privileges.enter(&Needs::with(doors))?;
    let _server = if args.no_control { None } else { serve(&live, entered.sockets, is_live) };
    if is_live {
        source.set_patience(PATIENCE);
    }
    let stop = stop_on_signals()?;
    let failure = run.run(&mut *source, &live, &stop, is_live);
    live.end();
    run.engine.finish(&mut |alert| run.out.write(alert));
    let written = run.out.end();
    run.report(&mut *source);
    written.context("cannot write the alerts")?;
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Reads and translates the files of rules.
fn rules(args: &IdsArgs) -> Result<Index, Failure> {
    let (variables, dialect) = (variables(&args.rules)?, dialect(&args.rules));
    let mut rules: BTreeMap<(u32, u32), fyke_ids::Rule> = BTreeMap::new();
    let (mut total, mut refused) = (0, 0);
    for file in &args.files {
        let translation = Translation::new(&read(file)?, dialect, &variables);
        total += translation.total();
        refused += translation.refused.len();
        for rule in translation.rules {
            let id = (rule.gid, rule.sid);
            if rules.get(&id).is_none_or(|old| old.rev < rule.rev) {
                refused += usize::from(rules.insert(id, rule).is_some());
            } else {
                refused += 1;
            }
        }
    }
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
    Ok(Index::new(rules.into_values().collect()))
}

/// Receiver of the alerts.
struct Alerts {
    out: Box<dyn Write>,
    json: Option<Options>,
    failed: std::io::Result<()>,
}

impl Alerts {
    fn open(args: &IdsArgs) -> Result<Alerts, Failure> {
        let json = args.eve.as_ref().map(|_| Options { payload: args.payload });
        let out: Box<dyn Write> = match args.eve.as_deref().filter(|path| path.as_os_str() != "-") {
            None => Box::new(BufWriter::new(output())),
            Some(path) => {
                let file = std::fs::File::create(path);
                Box::new(BufWriter::new(
                    file.with_context(|| format!("cannot create {}", path.display()))?,
                ))
            }
        };
        Ok(Alerts { out, json, failed: Ok(()) })
    }

    fn write(&mut self, alert: &Alert<'_>) {
        if self.failed.is_err() {
            return;
        }
        self.failed = match self.json {
            Some(options) => writeln!(self.out, "{}", eve::line(alert, options)),
            None => writeln!(self.out, "{}", one_line(&eve::text(alert))),
        };
    }

    fn flush(&mut self) {
        if self.failed.is_ok() {
            self.failed = self.out.flush();
        }
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.flush();
        std::mem::replace(&mut self.failed, Ok(()))
    }
}

/// A run over a source.
struct Run {
    engine: Engine,
    out: Alerts,
    /// Frames that arrived after the limit.
    after: u64,
    limit: u64,
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
            live.publish(&self.engine, &source.stats());
            let over = stop.load(Ordering::Relaxed) || self.is_over();
            if over && !std::mem::replace(&mut stopping, true) && !source.stop() {
                return None;
            }
            let batch = match source.next() {
                Ok(Next::Frames(batch, _)) => batch,
                Ok(Next::Idle) => continue,
                Ok(Next::End) => return None,
                Err(error) => return Some(error),
            };
            for frame in batch.frames() {
                match self.is_over() {
                    true => self.after += 1,
                    false => self.engine.frame(frame, &mut |alert| self.out.write(alert)),
                }
            }
            if is_live {
                self.out.flush();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.engine.counters().frames >= self.limit || self.out.failed.is_err()
    }

    fn report(&self, source: &mut dyn Source) {
        let (counters, streams, stats) =
            (self.engine.counters(), self.engine.stream_counters(), source.stats());
        let lost = stats.dropped + stats.unreadable;
        note!(
            "{} frames: {} judged, {} fragments not judged, {} without IP{}{}",
            counters.frames,
            counters.judged,
            counters.fragments,
            counters.other,
            if lost > 0 { format!("; {lost} lost before") } else { String::new() },
            if self.after > 0 {
                format!("; {} after the limit", self.after)
            } else {
                String::new()
            },
        );
        note!(
            "{} flows ({} forgotten for lack of room), {} messages, {} bytes of streams, {} bytes missing",
            counters.flows,
            counters.forgotten,
            counters.messages,
            streams.delivered_bytes,
            streams.missing_bytes
        );
        note!(
            "{} rules, {} verifications ({} at a limit): {} matches = {} alerts + {} held back + {} silent",
            self.engine.rules().len(),
            counters.verified,
            counters.limited,
            counters.matches,
            counters.alerts,
            counters.held_back,
            counters.silent
        );
    }
}
