//! `fyke account`: counts the traffic of each interface and direction, by filters and classes, in intervals.
//!
//! It runs the graph `source > demux > account`. The control socket edits the filters; an edit replaces the text of the
//! graph, and both nodes take it between two batches, so filters that stay keep their counts.

use super::counts;
use super::dump::announce;
use super::graphs::{self, ACCOUNT, Accounted, DEMUX, Started, filter_of, wrong_change};
use super::privilege::{Doors, Privileges};
use super::run::{accounts, serve};
use super::served::{Served, Texts, final_counts_at_demux, removed_at_demux};
use super::signals::{report_on_signal, stop_on_signals};
use super::{Failure, description};
use crate::cli::AccountArgs;
use fyke_account::classes::BUILT_IN;
use fyke_capture::Interface;
use fyke_control::EntryKind;
use fyke_filters::{FilterError, GroupError, Planned};
use fyke_graph::{GraphHandle, GraphView, Kept};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Runs the command.
pub fn run(mut args: AccountArgs) -> Result<(), Failure> {
    if args.list_classes {
        return Ok(super::output().write_all(BUILT_IN.as_bytes())?);
    }
    super::read_list(&mut args.source)?;
    let accounted = Accounted::new(&args)?;
    super::enter_namespace(&args.source)?;
    // Edits repeat the source. An interface number may change its meaning until then; a name does not.
    let is_live = args.source.read.is_none();
    if is_live {
        args.source.interface = super::interfaces(&args.source)?;
    }
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let doors = if args.no_control { Doors::Closed } else { Doors::Graph };
    let graph = graphs::account(&args, &accounted)?;
    // Every frame is counted, so filters in the kernel would reject none.
    let is_plain =
        |name: &String| !graphs::is_shared(name) && !name.starts_with(super::xdp::PREFIX);
    let counts_all = is_live && args.source.interface.iter().all(is_plain);
    args.source.counts_all = counts_all.then_some("it counts every frame itself");
    let Started { mut engine, handle, entered, unseen, kept } =
        graphs::start(&graph, privileges, doors, &args.source, args.stats)?;
    let clients = entered.clients();
    if is_live {
        entered.say_missing();
    }
    let (stats, snaplen, duration) = (args.stats, args.source.snaplen, args.duration);
    let (files, no_control) = (args.source.read.clone(), args.no_control);
    let interfaces: Vec<_> = engine.interfaces().cloned().collect();
    let live = share(args, accounted, handle.clone(), &interfaces, kept);
    let server = if no_control { None } else { serve(&live, entered.sockets, is_live) };
    let stop = stop_on_signals()?;
    if let Some(duration) = duration {
        stop_after(duration, &stop)?;
    }
    let drops = unseen.clone();
    report_on_signal(move || accounts(&handle.view()) + &drops.lines(stats))?;
    if is_live {
        announce(engine.interfaces(), snaplen, server.is_some().then_some(&*clients));
    }
    let result = engine.run(&stop);
    let view = engine.view();
    report(&view, is_live, stats);
    unseen.report(stats);
    graphs::say_clamped(&view, files.as_deref(), "fyke");
    graphs::say_unfit(&view);
    graphs::node_failure(&view)?;
    Ok(result?)
}

/// Sets the flag after this time.
fn stop_after(duration: Duration, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let stop = Arc::clone(stop);
    std::thread::Builder::new().name("duration".to_owned()).spawn(move || {
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
    })?;
    Ok(())
}

/// Prints the sums at the end.
fn report(view: &GraphView, is_live: bool, stats: bool) {
    let counters = view.node(ACCOUNT).map(|node| node.counters.as_slice()).unwrap_or_default();
    let count = |name: &str| {
        let found = counters.iter().find(|counter| counter.name == name);
        found.map_or(0.0, |counter| counter.value)
    };
    let lost = match is_live {
        true => format!("; {} frames lost", count("lost")),
        false => String::new(),
    };
    note!("{} frames, {} bytes in {} rows{lost}", count("frames"), count("bytes"), count("rows"));
    for (name, text) in [
        (
            "late",
            "of the frames were older than the open intervals and count in the oldest of these",
        ),
        ("lost_writes", "of the rows (messages of IPFIX) could not be written"),
        ("refused_datagrams", "of the datagrams were refused by the system"),
    ] {
        if count(name) > 0.0 {
            note!("fyke: {} {text}", count(name));
        }
    }
    if stats {
        note!("{}", accounts(view).trim_end());
    } else if let Some(sum) = counts::closing(view, is_live) {
        note!("{sum}");
    }
}

/// The filters of one run, shared between the packet loop and the control socket.
struct Filters {
    args: AccountArgs,
    book: Mutex<Book>,
}

/// The filters in force.
struct Book {
    accounted: Accounted,
    /// Ids of the filters for `fyke ctl`, in the same order.
    ids: Vec<u64>,
}

/// Shares the filters of a graph over these interfaces.
fn share(
    args: AccountArgs,
    accounted: Accounted,
    handle: GraphHandle,
    interfaces: &[Interface],
    kept: Option<Kept>,
) -> Arc<Served<Filters>> {
    let description = description(interfaces, args.source.read.is_none());
    let texts: Vec<_> = accounted.filters.iter().map(graphs::AccountFilter::to_string).collect();
    let book = Mutex::new(Book { ids: (1..=texts.len() as u64).collect(), accounted });
    let list = texts.iter().map(String::as_str);
    Served::new(Filters { args, book }, list, handle, description, kept)
}

impl Filters {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns these filters; those that are in force keep their class values.
    fn book_of(&self, texts: &BTreeMap<u64, Arc<str>>) -> Result<Book, String> {
        let now = self.lock();
        let known: HashMap<_, _> = now.ids.iter().zip(&now.accounted.filters).collect();
        let mut accounted = now.accounted.clone();
        accounted.filters.clear();
        for (id, text) in texts {
            match known.get(id) {
                Some(&filter) => accounted.filters.push(filter.clone()),
                None => {
                    let (name, expression) = filter_of(text)?;
                    accounted.push(name, expression);
                }
            }
        }
        accounted.check()?;
        Ok(Book { accounted, ids: texts.keys().copied().collect() })
    }

    /// True if a text is no filter with a name.
    fn is_wrong(&self, text: &str) -> bool {
        let book = self.book_of(&BTreeMap::from([(u64::MAX, text.into())]));
        let graph = book.ok().and_then(|book| graphs::account(&self.args, &book.accounted).ok());
        graph.is_none_or(|graph| fyke_graph::Plan::new(&[&graph], &graphs::classes()).is_err())
    }
}

/// The text of a filter in the node `demux`.
fn name_of(filter: &graphs::AccountFilter) -> String {
    format!("{} => {}", filter.text, filter.value)
}

impl Texts for Filters {
    const KIND: EntryKind = EntryKind::Filter;
    const HAS_NODES: bool = false;

    /// Numbers and texts, in their order.
    type Removed = Vec<(u64, String)>;

    fn put(
        &self,
        served: &Served<Filters>,
        edit: &Planned<'_>,
    ) -> Result<Self::Removed, GroupError> {
        if self.args.scoped {
            let message = "with --scoped the filters cannot change while fyke runs, because fragments may be held for \
                           them; end this account and start another";
            let place = edit.changes.len().saturating_sub(1);
            return Err(GroupError { place, error: FilterError::Program(message.to_owned()) });
        }
        let wrong = |message| wrong_change(edit, message, |text| self.is_wrong(text));
        let after = edit.after();
        let book = self.book_of(&after).map_err(wrong)?;
        let graph = graphs::account(&self.args, &book.accounted);
        let graph = graph.map_err(|error| wrong(error.message()))?;
        served.handle.set(&graph).map_err(|error| wrong(graphs::refused(error).message()))?;
        let old = std::mem::replace(&mut *self.lock(), book);
        let texts = old.accounted.filters.iter().zip(&old.ids);
        let removed = texts.filter(|(_, id)| !after.contains_key(id));
        Ok(removed.map(|(filter, id)| (*id, name_of(filter))).collect())
    }

    fn final_counts(removed: Self::Removed, view: &GraphView) -> HashMap<u64, u64> {
        final_counts_at_demux(removed, view)
    }

    fn removed(&self, view: &GraphView) -> u64 {
        removed_at_demux(view)
    }

    fn counted(&self, view: &GraphView) -> Vec<(u64, String, u64)> {
        let book = self.lock();
        let counters = view.node(DEMUX).map(|node| node.counters.as_slice()).unwrap_or_default();
        let counted: HashMap<&str, f64> =
            counters.iter().map(|counter| (&*counter.name, counter.value)).collect();
        let count = |(filter, &id): (&graphs::AccountFilter, &u64)| {
            let accepted = counted.get(name_of(filter).as_str()).copied().unwrap_or(0.0) as u64;
            (id, filter.to_string(), accepted)
        };
        book.accounted.filters.iter().zip(&book.ids).map(count).collect()
    }
}
