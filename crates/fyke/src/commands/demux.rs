//! `fyke demux`: every frame goes to the endpoints whose expressions it matches.
//!
//! It runs the graph `source > demux -N-> endpoint`: the node `demux` holds all expressions as one pass set and gives a
//! frame the class value of every endpoint that wants it.

use super::Failure;
use super::graphs::{self, DEMUX};
use super::run::accounts;
use super::signals::{report_on_signal, stop_on_signals};
use crate::cli::DemuxArgs;
use fyke_graph::GraphView;
use std::io::Write;

/// Runs the command.
pub fn run(args: DemuxArgs) -> Result<(), Failure> {
    let (mut engine, handle) = graphs::start(&graphs::demux(&args)?)?;
    let stop = stop_on_signals()?;
    report_on_signal(move || accounts(&handle.view()))?;
    let result = engine.run(&stop);
    let view = engine.view();
    report(&args, &view)?;
    graphs::say_unfit(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}

/// How many frames each expression got, and what did not arrive.
fn report(args: &DemuxArgs, view: &GraphView) -> Result<(), Failure> {
    let (rules, names) = graphs::endpoints(&args.rules)?;
    let counters = view.node(DEMUX).map(|node| node.counters.as_slice()).unwrap_or_default();
    let texts = rules.iter().map(|(text, _)| *text).chain(["reject"]);
    let mut lines = String::new();
    for (text, counter) in texts.zip(counters) {
        lines.push_str(&format!("{}\t{text}\n", counter.value));
    }
    match names.contains(&"-") {
        true => note!("{}", lines.trim_end()),
        false => super::output().write_all(lines.as_bytes())?,
    }
    let count = |name: &str| {
        let found = counters.iter().find(|counter| counter.name == name);
        found.map_or(0.0, |counter| counter.value)
    };
    if args.scoped {
        note!(
            "fragments: {} first, {} followed, {} held; of these {} woken, {} without a first, \
             {} without room",
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
            note!("fyke: {}: {} frames were not taken", node.text, refused.value);
        }
    }
    Ok(())
}
