//! `fyke fleet take` and `fyke fleet sums`: workers that share the frames of a queue, and the sums of all of them.

use super::archive::counts_of;
use super::refusals;
use super::{Failure, connected, named, options_of, trusted, wait_for};
use crate::cli::{SumsArgs, TakeArgs};
use crate::commands::signals::stop_on_signals;
use crate::commands::{counts, foreign, one_line, output};
use anyhow::anyhow;
use fyke_capture::{Interface, LookBack, Next, ReadError, Source, SourceStats};
use fyke_fleet::archive::NodeCounts;
use fyke_fleet::exchange::{Batch, Exchange, Shipped};
use fyke_fleet::refused::Refuser;
use fyke_fleet::sums::{Sums, WorkerSum};
use fyke_fleet::taker::{Evaluate, Taker};
use fyke_frame::LinkType;
use fyke_graph::language::quoted;
use fyke_graph::{GraphHandle, GraphView, Made};
use fyke_remote::batch::Received;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The frames of a batch as a source.
struct OfBatch {
    interfaces: Vec<Interface>,
    received: Received,
    next: usize,
}

impl OfBatch {
    fn new(batch: &Batch) -> Result<OfBatch, String> {
        let interfaces = batch.head.interfaces.iter().map(|origin| Interface {
            snaplen: origin.snaplen.clamp(1, fyke_capture::DEFAULT_SNAPLEN),
            ..Interface::new(&origin.name, LinkType(origin.link))
        });
        let interfaces: Vec<Interface> = interfaces.collect();
        let received = Received::new(batch.frames.clone(), interfaces.len())?;
        match received.len() as u64 == batch.head.frames {
            true => Ok(OfBatch { interfaces, received, next: 0 }),
            false => Err(format!("{} frames, and {} are there", batch.head.frames, received.len())),
        }
    }
}

impl Source for OfBatch {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn next(&mut self) -> Result<Next<'_>, ReadError> {
        if self.next >= self.received.len() {
            return Ok(Next::End);
        }
        let mut batch = fyke_frame::Batch::new();
        batch.first_sequence = self.next as u64;
        while self.next < self.received.len() && batch.push(self.received.frame(self.next)).is_ok()
        {
            self.next += 1;
        }
        Ok(Next::Frames(batch, LookBack::none(&self.interfaces)))
    }

    fn stats(&mut self) -> SourceStats {
        let delivered = self.next as u64;
        SourceStats { received: delivered, delivered, ..SourceStats::default() }
    }
}

/// Runs the graph over each batch.
struct Graph(String);

impl Evaluate for Graph {
    fn evaluate(&self, batch: &Batch) -> Result<Vec<NodeCounts>, String> {
        let source = OfBatch::new(batch)?;
        let given = vec![("pcapin", Made::Source(Box::new(source)))];
        let known = crate::commands::graphs::classes();
        let started = GraphHandle::start_with(&[&self.0], known, given);
        let (mut engine, _handle) = started.map_err(|error| error.to_string())?;
        engine.end_at_first_failure();
        engine.run(&AtomicBool::new(false)).map_err(|error| error.to_string())?;
        let view = engine.view();
        let failed = view.nodes.iter().find_map(|node| node.failed.as_ref());
        failed.map_or(Ok(()), |why| Err(why.to_string()))?;
        Ok(outcome(&view))
    }
}

/// The frames by their outcome, then the nodes.
fn outcome(view: &GraphView) -> Vec<NodeCounts> {
    let sum = counts::accounting(view);
    let all = NodeCounts {
        node: "frames".to_owned(),
        arrived: sum.seen,
        passed: sum.delivered,
        rejected: sum.rejected,
        taken: sum.taken,
        lost: sum.lost.values().sum(),
        ..NodeCounts::default()
    };
    std::iter::once(all).chain(counts::nodes(view).into_iter().map(counts_of)).collect()
}

fn graph(args: &TakeArgs) -> Result<String, Failure> {
    let text = args.expression.join(" ");
    let graph = match &args.graph {
        Some(graph) => graph.clone(),
        None if text.trim().is_empty() => format!("{} > {{count}}(packetcount)", foreign::SOURCE),
        None => {
            let text = quoted(&text);
            format!("{} > {{filter}}(filter, expression={text}, live=y)", foreign::SOURCE)
        }
    };
    let known = foreign::check(&graph).map_err(Failure::Usage)?;
    fyke_graph::plan::Plan::new(&[&graph], &known)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(graph)
}

/// Runs `fyke fleet take`.
pub fn run(args: &TakeArgs) -> Result<(), Failure> {
    let (group, to) = (named("--group", &args.group.group)?, options_of(&args.group)?);
    let queue = named("--queue", &args.queue)?;
    let name = args.name.clone().unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}:{}", std::process::id())
    });
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = args.at_once.map_or_else(processors, usize::from);
    let taker = Taker {
        name: name.clone(),
        trusted: trusted(&args.group)?,
        evaluate: Arc::new(Graph(graph(args)?)),
        note: Box::new(|line| note!("fyke: {line}")),
        done: tokio::sync::Mutex::default(),
        refuser: Refuser::default(),
    };
    let stop = stop_on_signals()?;
    let sums = wait_for(async {
        let client = format!("fyke fleet take {name}");
        let connecting = Exchange::connect(&to, group.clone(), queue.clone(), &client);
        let exchange = connected(&stop, connecting).await?;
        note!(
            "fyke: worker {name} takes from the queue {queue} of {group}, {at_once} batches at a time; \
             Ctrl-C ends fyke fleet take"
        );
        let own = taker.run(&exchange, at_once, &stop).await?;
        note!(
            "fyke: {} batches with {} frames taken, {} failed",
            own.batches,
            own.frames,
            own.failed
        );
        Ok(exchange.sums().await?)
    })?;
    show(&sums, &queue.to_string(), args.json)
}

/// Runs `fyke fleet sums`.
pub fn sums(args: &SumsArgs) -> Result<(), Failure> {
    let read = &args.read;
    let (group, to) = (named("--group", &read.group.group)?, options_of(&read.group)?);
    let queue = named("--queue", &args.queue)?;
    let sums = wait_for(async {
        let exchange = Exchange::open(&to, group.clone(), queue, "fyke fleet sums").await?;
        let sums = exchange.sums().await?;
        match sums.is_empty() {
            true => Err(anyhow!("nothing was shipped to the queue {} of {group}", args.queue)),
            false => Ok(sums),
        }
    })?;
    show(&sums, &args.queue, read.json)
}

/// Prints the sums of a queue.
fn show(sums: &Sums, queue: &str, as_json: bool) -> Result<(), Failure> {
    let mut out = output();
    if as_json {
        let told = json!({
            "queue": queue,
            "shipped": sums.shipped.values().map(shipped).collect::<Vec<_>>(),
            "workers": sums.workers,
            "all": sums.all,
            "waiting": sums.waiting,
            "silent": sums.silent,
            "refused": sums.refused.iter().map(|(refusal, batches)| {
                let mut told = refusals::json(refusal);
                told["batches"] = (*batches).into();
                told["deliveries"] = refusal.deliveries.into();
                told
            }).collect::<Vec<_>>(),
            "removed": sums.removed,
            "closed": sums.is_closed(),
        });
        writeln!(out, "{told}")?;
        return Ok(out.flush()?);
    }
    for account in sums.shipped.values() {
        let is_silent = sums.silent.contains(&account.session);
        writeln!(out, "{}", one_line(&account_line(account, is_silent)))?;
    }
    for (name, worker) in &sums.workers {
        show_worker(&mut out, &format!("worker {name}"), worker)?;
    }
    show_worker(&mut out, "all workers", &sums.all)?;
    for (refusal, count) in &sums.refused {
        let what = format!("{count} batches");
        writeln!(out, "{}", refusals::line(refusal, &what, None))?;
    }
    if sums.removed > 0 {
        writeln!(out, "{} messages were no batches, and were removed", sums.removed)?;
    }
    let closed = match (sums.is_closed(), sums.silent.is_empty()) {
        (true, true) => "all shipped frames are in the sums",
        (true, false) => "all frames that are known to be shipped are in the sums",
        (false, _) => "still open",
    };
    writeln!(
        out,
        "{} frames shipped, {} taken, {} batches wait: {closed}",
        sums.frames_shipped(),
        sums.all.frames,
        sums.waiting
    )?;
    Ok(out.flush()?)
}

/// The account of a shipper as JSON: what only a last account tells is unknown before.
fn shipped(account: &Shipped) -> Value {
    let mut told = json!(account);
    if !account.ended {
        for unknown in ["seen", "rejected", "lost"] {
            told[unknown] = Value::Null;
        }
    }
    told
}

/// The line of a shipper.
fn account_line(account: &Shipped, is_silent: bool) -> String {
    let Shipped { sensor, session, batches, shipped, seen, rejected, lost, ended } = account;
    let lost: u64 = lost.values().sum();
    match (ended, is_silent) {
        (true, _) => {
            let shipped = seen.saturating_sub(rejected + lost);
            format!(
                "sensor {sensor}: {seen} seen = {shipped} shipped + {rejected} rejected + {lost} lost; \
                 {batches} batches"
            )
        }
        (false, true) => format!(
            "sensor {sensor}: {shipped} shipped in {batches} batches; session {session} gave no sign of life for 30 s, \
             and has no last account: frames that it saw and did not ship are unknown"
        ),
        (false, false) => format!("sensor {sensor}: {shipped} shipped in {batches} batches so far"),
    }
}

fn show_worker(out: &mut impl Write, name: &str, sum: &WorkerSum) -> Result<(), Failure> {
    let WorkerSum { batches, frames, failed, again, again_frames, nodes } = sum;
    let line = format!(
        "{name}: {batches} batches, {frames} frames; {failed} batches failed, {again} delivered again \
         ({again_frames} frames)"
    );
    writeln!(out, "{}", one_line(&line))?;
    for node in nodes {
        let NodeCounts { node, arrived, passed, rejected, taken, lost, .. } = node;
        let line = format!(
            "  {node:16} {arrived} arrived = {passed} passed + {rejected} rejected + {taken} taken + {lost} lost"
        );
        writeln!(out, "{}", one_line(&line))?;
    }
    Ok(())
}
