//! `fyke track`: follows protocols that negotiate ports and captures all of their connections.
//!
//! It runs the graph `source > filter > track > tofile`, or `… > calls` for a file per call. The node `track` edits
//! the filter node before it; the edit applies from the first frame after the announcement.

use super::Failure;
use super::dump::{announce, live, serve};
use super::graphs::{self, CALLS, Started, TRACK};
use super::privilege::{Doors, Privileges};
use super::signals::{report_on_signal, stop_on_signals};
use crate::cli::TrackArgs;

/// Runs the command.
pub fn run(mut args: TrackArgs) -> Result<(), Failure> {
    super::read_list(&mut args.source)?;
    super::enter_namespace(&args.source)?;
    let is_live = args.source.read.is_none();
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let graph = graphs::track(&args)?;
    let started = graphs::start(&graph, privileges, Doors::Filters, &args.source, args.stats)?;
    let Started { mut engine, handle, entered, unseen, kept } = started;
    let clients = entered.clients();
    if is_live {
        entered.say_missing();
    }
    let live = live(&engine, handle, is_live, kept)?;
    let server = serve(&live, entered.sockets, is_live);
    let stop = stop_on_signals()?;
    let counts = std::sync::Arc::clone(&live);
    let drops = unseen.clone();
    report_on_signal(move || counts.summary(args.stats) + &drops.lines(args.stats))?;
    if is_live {
        announce(engine.interfaces(), args.source.snaplen, server.is_some().then_some(&*clients));
    }
    let result = engine.run(&stop);
    let view = engine.view();
    let counters = view.node(TRACK).map(|node| node.counters.as_slice()).unwrap_or_default();
    let count = |name| counters.iter().find(|found| found.name == name).map_or(0.0, |c| c.value);
    note!("{} data connections announced, {} closed", count("announced"), count("closed"));
    if args.stats && count("edit_us_p99") > 0.0 {
        let (half, most) = (count("edit_us_p50"), count("edit_us_p99"));
        note!("filter edits took {half:.1} us (median), {most:.1} us (99th percentile)");
    }
    for (name, text) in fyke_track::NOTICES.iter().filter(|(name, _)| count(name) > 0.0) {
        note!("fyke: {} {text}", count(name));
    }
    let of_calls = view.node(CALLS).map(|node| node.counters.as_slice()).unwrap_or_default();
    if let Some(over) =
        of_calls.iter().find(|one| one.name == "audio_over_limit" && one.value > 0.0)
    {
        note!(
            "fyke: audio of {} packets was not written: too many streams, or too long",
            over.value
        );
    }
    if count("refused") > 0.0 {
        note!("fyke: the filter refused {} announced connections", count("refused"));
    }
    if count("announced") > 0.0 && count("data_frames") == 0.0 {
        let advice = match args.scoped {
            true => "is their traffic on this interface?",
            false => "is their traffic on this interface? if it is in tunnels, use --scoped",
        };
        note!("fyke: warning: no frame of a data connection arrived; {advice}");
    }
    note!("{}", live.summary(args.stats).trim_end());
    unseen.report(args.stats);
    graphs::say_clamped(&view, args.source.read.as_deref(), "fyke");
    graphs::say_unfit(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}
