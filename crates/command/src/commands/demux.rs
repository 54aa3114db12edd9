//! `fyke demux`: sends each frame to every endpoint with an expression that matches it.
//!
//! It runs the graph `source > demux -N-> endpoint`. The node `demux` holds all expressions as one pass set and assigns
//! to a frame the class value of every endpoint that must receive it.

mod live;

use super::Failure;
use super::counts;
use super::dump::announce;
use super::graphs::{self, DEMUX, Started};
use super::privilege::{Doors, Privileges};
use super::run::{accounts, serve};
use super::signals::{report_on_signal, stop_on_signals};
use crate::cli::DemuxArgs;
use fyke_graph::{DEMUX_REMOVED, GraphView};
use live::{Live, share};
use std::io::Write;
use std::sync::Arc;

/// Runs the command.
pub fn run(mut args: DemuxArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    let rules = graphs::endpoints(&args.rules)?;
    graphs::by_endpoint(&mut args, rules.endpoints.len())?;
    super::enter_namespace(&args.source)?;
    // Edits repeat the source. An interface number may change its meaning until then; a name does not.
    if args.source.read.is_none() {
        args.source.interface = super::interfaces(&args.source)?;
    }
    let privileges = Privileges::prepare(&args.privilege, true)?;
    // An edit may add an endpoint.
    let doors = if args.no_control { Doors::Closed } else { Doors::Graph };
    let graph = graphs::demux_of(&args, &rules)?;
    let Started { mut engine, handle, entered, unseen, kept } =
        graphs::start(&graph, privileges, doors, &args.source, args.stats)?;
    let (scoped, no_control, is_live) = (args.scoped, args.no_control, args.source.read.is_none());
    let clients = entered.clients();
    if is_live {
        entered.say_missing();
    }
    let (snaplen, stats) = (args.source.snaplen, args.stats);
    let interfaces: Vec<_> = engine.interfaces().cloned().collect();
    let files = args.source.read.clone();
    let live = share(args, rules, handle.clone(), &interfaces, kept, entered.limits());
    let server = if no_control { None } else { serve(&live, entered.sockets, is_live) };
    let stop = stop_on_signals()?;
    let drops = unseen.clone();
    report_on_signal(move || accounts(&handle.view()) + &drops.lines(stats))?;
    if is_live {
        announce(engine.interfaces(), snaplen, server.is_some().then_some(&*clients));
    }
    let result = engine.run(&stop);
    let view = engine.view();
    report(&live, scoped, &view)?;
    if stats {
        note!("{}", accounts(&view).trim_end());
    } else if let Some(sum) = counts::closing(&view, is_live) {
        note!("{sum}");
    }
    unseen.report(stats);
    graphs::say_clamped(&view, files.as_deref(), "fyke");
    graphs::say_unfit(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}

/// Prints the frame counts of each expression, and the frames that endpoints refused.
fn report(live: &Arc<Live>, scoped: bool, view: &GraphView) -> Result<(), Failure> {
    let counters = view.node(DEMUX).map(|node| node.counters.as_slice()).unwrap_or_default();
    let count = |name: &str| {
        let found = counters.iter().find(|counter| counter.name == name);
        found.map_or(0.0, |counter| counter.value)
    };
    let (mut lines, mut to_stdout) = (String::new(), true);
    for rule in live.counted(view) {
        let (text, endpoint) = rule.text.rsplit_once(" => ").unwrap_or((&rule.text, ""));
        lines.push_str(&format!("{}\t{text}\n", rule.accepted));
        to_stdout &= endpoint != "-";
    }
    // Frames that the kernel rejected did not reach the node.
    let in_kernel: u64 = view.sources.iter().map(|source| source.stats.filtered).sum();
    let removed = count(DEMUX_REMOVED);
    if removed > 0.0 {
        lines.push_str(&format!("{removed}\tremoved\n"));
    }
    lines.push_str(&format!("{}\treject\n", count("reject") as u64 + in_kernel));
    match to_stdout {
        false => note!("{}", lines.trim_end()),
        true => super::output().write_all(lines.as_bytes())?,
    }
    if scoped {
        note!(
            "fragments: {} first, {} after their first, {} held; of the held, {} delivered, {} without \
             a first fragment, {} dropped (no space)",
            count("fragments_first"),
            count("fragments_followed"),
            count("fragments_held"),
            count("fragments_woken"),
            count("fragments_without_first"),
            count("fragments_without_room")
        );
    }
    for node in &view.nodes {
        let refused = node.counters.iter().find(|counter| counter.name == "refused");
        if let Some(refused) = refused.filter(|counter| counter.value > 0.0) {
            note!("fyke: {} refused {} frames", node.text, refused.value);
        }
    }
    Ok(())
}
