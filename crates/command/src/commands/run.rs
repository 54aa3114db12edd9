//! `fyke run`: checks, draws and runs flow graphs.
//!
//! The packet loop owns the graph; the control socket edits its texts and reads its counts ([`Live`]). A graph on files
//! ends at the end of the files. Counters of exported nodes go to standard output, frame counts to standard error.

use super::Failure;
use super::counts;
use super::dump::edit_hint;
use super::graphs::{check_files, wrong_change, wrong_edit, wrong_graph};
use super::graphs::{
    classes, is_unfit, open_plan, report_passed_over, rotates, say_clamped, say_unfit,
};
use super::privilege::{Doors, Needs, Privileges, Sockets, is_denied};
use super::served::{Served, Texts};
use super::signals::{report_on_signal, stop_on_signals};
use super::space::{COUNT_ALL, Kernel, check_rules, owned_rules, say_rules};
use super::unseen::Unseen;
use crate::cli::RunArgs;
use anyhow::Context;
use fyke_control::{Controlled, Description, EntryKind, Server};
use fyke_filters::{FilterSet, GroupError, Planned};
use fyke_graph::node::{COMMON, Kind};
use fyke_graph::runtime::EditError;
use fyke_graph::{Classes, Engine, GraphHandle, GraphView, Kept, KeptLimits, Made, Plan};
use fyke_serve::ServeSpace;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Describes where the filters and rules of a graph would run.
fn places(args: &RunArgs, plan: &Plan) -> String {
    match args.count_all {
        true => "--count-all: filters and rules run in user space only, which counts each frame\n"
            .to_owned(),
        false => fyke_graph::placement::describe(plan),
    }
}

/// Runs the command.
pub fn run(args: RunArgs) -> Result<(), Failure> {
    check_output(&args)?;
    let classes = classes_of(&args)?;
    if args.classes {
        return list_classes(&classes, &args.graph);
    }
    let texts = texts(&args)?;
    let list: Vec<_> = texts.iter().map(String::as_str).collect();
    let plan = Plan::new(&list, &classes).map_err(wrong_graph)?;
    if let Some(reason) = plan.needs_one_worker().filter(|_| args.workers > 1) {
        return Err(Failure::Usage(reason));
    }
    if args.check {
        Made::check(&plan, &list).map_err(wrong_edit)?;
    }
    if args.check || args.dot {
        let text = if args.dot { plan.dot() } else { plan.describe() + &places(&args, &plan) };
        super::output().write_all(text.as_bytes())?;
        return Ok(());
    }
    warn(&args, &plan);
    if let Some(path) = args.svg.as_ref().filter(|_| !args.live_svg) {
        return draw(&plan, path);
    }
    let live = plan.nodes.iter().any(|node| node.class.name == "device");
    let workers = usize::from(args.workers);
    let privileges = Privileges::prepare(&args.privilege, true)?;
    let open = || GraphHandle::open(&list, classes, workers);
    let mut opened = open_plan(&plan, open).map_err(wrong_edit)?;
    opened.place(&ServeSpace(Kernel { count_all: args.count_all.then_some(COUNT_ALL) }));
    check_rules(&opened)?;
    let kept = Kept::new(KeptLimits::RECENT);
    if !args.no_control {
        opened.keep_at_filter(&kept);
    }
    let unseen = Unseen::start(opened.plan(), args.stats);
    let entered = privileges.enter(&needs(&args, opened.plan()))?;
    let (mut engine, handle) = opened.start().map_err(wrong_edit)?;
    say_rules(&handle);
    report_passed_over(rotates(&plan), &handle)?;
    let clients = entered.clients();
    if live {
        entered.say_missing();
    }
    let shared = Served::new(
        Graphs { limits: entered.limits() },
        list.iter().copied(),
        handle.clone(),
        description(&plan, &engine, &handle, live),
        (!args.no_control).then_some(kept),
    );
    let server = if args.no_control { None } else { serve(&shared, entered.sockets, live) };
    if live {
        note!("running{}", edit_hint(server.is_some().then_some(&*clients)));
    }
    let stop = stop_on_signals()?;
    count_on_signal(&handle, &unseen, args.stats)?;
    engine.on_notice(|notice| note!("fyke: {notice}"));
    let drawing = Drawing::start(&args, &handle);
    let result = engine.run(&stop);
    drawing.finish()?;
    let view = engine.view();
    report(&args, &view, live, &unseen)?;
    say_unfit(&view);
    result?;
    match view.nodes.iter().any(|node| node.failed.is_some()) {
        true => Err(Failure::Status(1)),
        false => Ok(()),
    }
}

/// Describes a run; `fyke rules` finds a live graph by the names of its interfaces.
fn description(plan: &Plan, engine: &Engine, handle: &GraphHandle, live: bool) -> Description {
    let interfaces: Vec<_> = engine.interfaces().cloned().collect();
    let sources = plan.nodes.iter().filter(|node| node.class.kind == Kind::Source);
    let names: Vec<_> = match live {
        true => interfaces.iter().map(|interface| interface.name.clone()).collect(),
        false => sources.map(|node| node.text.to_string()).collect(),
    };
    let description = Description::of_this_process(names.join(", "), String::new());
    Description { live, ..description }.with_rules(owned_rules(handle))
}

/// Prints the counts at a signal.
fn count_on_signal(handle: &GraphHandle, unseen: &Unseen, all: bool) -> Result<(), Failure> {
    let (handle, unseen) = (handle.clone(), unseen.clone());
    report_on_signal(move || accounts(&handle.view()) + &unseen.lines(all))
}

/// The classes, with the folder of exports, which must exist under a name in UTF-8.
fn classes_of(args: &RunArgs) -> Result<Classes, Failure> {
    let mut classes = classes();
    let Some(folder) = &args.exports else { return Ok(classes) };
    let refused =
        |why: &str| Err(Failure::Usage(format!("--exports {}: it is {why}", folder.display())));
    match folder.to_str() {
        None => refused("not a name in UTF-8"),
        Some(_) if !folder.is_dir() => refused("not a folder"),
        Some(_) => {
            classes.export_to(folder);
            Ok(classes)
        }
    }
}

/// Prints the warnings about a graph.
fn warn(args: &RunArgs, plan: &Plan) {
    for warning in &plan.warnings {
        note!("fyke: warning: {warning}");
    }
    for left_out in &plan.left_out {
        note!("fyke: {left_out}");
    }
    if args.exports.is_some() && !plan.nodes.iter().any(|node| node.exported) {
        note!("fyke: warning: --exports: no node has export=y");
    }
}

/// Writes the drawing of a graph to a file, or to standard output (`-`).
fn draw(plan: &Plan, path: &Path) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return Ok(super::output().write_all(plan.svg(None).as_bytes())?);
    }
    let drawn = fyke_privilege::place::create(path);
    let drawn = drawn.and_then(|mut file| file.write_all(plan.svg(None).as_bytes()));
    Ok(drawn.with_context(|| format!("cannot write {}", path.display()))?)
}

/// Refuses options for the counts of a run where nothing runs.
fn check_output(args: &RunArgs) -> Result<(), Failure> {
    let shown = [
        (args.check, "--check"),
        (args.dot, "--dot"),
        (args.classes, "--classes"),
        (args.svg.is_some() && !args.live_svg, "--svg without --live-svg"),
    ];
    let counts = [(args.json, "--json"), (args.all, "--all"), (args.stats, "--stats")];
    if args.live_svg && args.svg.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(Failure::Usage(
            "--live-svg: it replaces its file every second, so it needs one: --svg FILE".to_owned(),
        ));
    }
    if args.svg.is_some() && (args.check || args.dot) {
        let first = if args.dot { "--dot" } else { "--check" };
        return Err(Failure::Usage(format!(
            "{first} --svg: each shows the graph; omit one of them"
        )));
    }
    let first = |list: &[(bool, &'static str)]| list.iter().find(|one| one.0).map(|one| one.1);
    match (first(&shown), first(&counts)) {
        (Some(shown), Some(counts)) => Err(Failure::Usage(format!(
            "{counts}: it is for the counts of a run, and {shown} runs nothing; omit one of them"
        ))),
        _ => Ok(()),
    }
}

/// Returns the graphs of the command line or of a file. In a file, `;` at the end of a line separates two graphs.
fn texts(args: &RunArgs) -> Result<Vec<String>, Failure> {
    let Some(path) = &args.file else {
        if args.graph.is_empty() {
            return Err(Failure::Usage(
                "no graph given; give one, or -f FILE: fyke run '(pcapin, expression=in.pcap) > \
                 (packetcount, export=y)'"
                    .into(),
            ));
        }
        return Ok(args.graph.clone());
    };
    if !args.graph.is_empty() {
        return Err(Failure::Usage(format!(
            "the graph comes from {} (-f): remove `{}`, or -f",
            path.display(),
            args.graph.join(" ")
        )));
    }
    let text = match path.as_os_str().to_str() {
        Some("-") => super::read_limited(std::io::stdin().lock()),
        _ => super::read_text(path),
    };
    let text = text.with_context(|| format!("cannot read the graph from {}", path.display()))?;
    if path.extension().is_some_and(|ending| ending == "toml") {
        let graph = fyke_graph::language::from_toml(&text);
        return Ok(vec![graph.map_err(|error| Failure::Usage(error.to_string()))?]);
    }
    let graphs = text.split(";\n").map(|graph| graph.trim().trim_end_matches(';'));
    let graphs: Vec<_> = graphs.filter(|graph| !graph.is_empty()).map(str::to_owned).collect();
    match graphs.is_empty() {
        true => Err(Failure::Usage(format!("no graph given: {} is empty", path.display()))),
        false => Ok(graphs),
    }
}

/// Determines the access that the graph, its drawing and its edits need at run time.
fn needs(args: &RunArgs, plan: &Plan) -> Needs {
    let doors = if args.no_control { Doors::Closed } else { Doors::Graph };
    let mut needs = Needs::of(plan, doors);
    needs.makes_code = true;
    needs.rings = args.exports.clone();
    if let Some(path) = args.svg.as_deref().filter(|_| args.live_svg) {
        needs.replaces(path);
    }
    needs
}

/// Serves the control sockets. The graph works without them, so a failure is only reported.
pub fn serve<L: Controlled + 'static>(
    live: &Arc<L>,
    sockets: Sockets,
    say: bool,
) -> Option<Server> {
    match sockets.and_then(|sockets| Server::serve(sockets, Arc::clone(live) as _)) {
        Ok(server) => Some(server),
        Err(error) => {
            if say {
                note!("fyke: no control socket, so `fyke ctl` cannot reach it: {error}");
            }
            None
        }
    }
}

/// Lists the named classes, or all classes, with their parameters and the parameters that all classes have.
fn list_classes(classes: &Classes, names: &[String]) -> Result<(), Failure> {
    let mut named = Vec::new();
    for name in names {
        named.push(classes.find(name).ok_or_else(|| {
            let all: Vec<_> = classes.all().map(|class| class.name).collect();
            let all = all.join(", ");
            Failure::Usage(format!("--classes: there is no class {name:?}; there are: {all}"))
        })?);
    }
    let all = classes.all().copied().filter(|_| names.is_empty());
    let mut out = super::output();
    for class in named.into_iter().chain(all) {
        writeln!(out, "{:<14} {}", class.name, class.summary)?;
        let common = COMMON.iter().filter(|one| !names.is_empty() && class.takes(one.name));
        for parameter in class.parameters.iter().chain(common) {
            let live = if class.live.contains(&parameter.name) { " [live]" } else { "" };
            writeln!(out, "    {:<14} {}{live}", parameter.name, parameter.summary)?;
        }
        if !class.aliases.is_empty() {
            writeln!(out, "    also called: {}", class.aliases.join(", "))?;
        }
    }
    Ok(())
}

/// Prints the counters at the end.
fn report(args: &RunArgs, view: &GraphView, live: bool, unseen: &Unseen) -> Result<(), Failure> {
    say_clamped(view, None, "fyke");
    let mut out = super::output();
    let all = view.nodes.iter().zip(counts::nodes(view));
    let is_full = args.all || (args.json && args.stats);
    for (node, counted) in all.filter(|(node, _)| node.exported || is_full) {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&counted)?)?;
            continue;
        }
        if node.counters.iter().all(is_unfit) {
            writeln!(out, "{}\tpassed\t{}", node.name, node.counts.passed)?;
        }
        for counter in &node.counters {
            writeln!(out, "{}\t{}\t{}", node.name, counter.name, counter.value)?;
        }
    }
    out.flush()?;
    if args.stats {
        note!("{}", accounts(view).trim_end());
    } else if let Some(sum) = counts::closing(view, live) {
        note!("{sum}");
    }
    unseen.report(args.stats);
    for node in &view.nodes {
        if let Some(failed) = &node.failed {
            note!("fyke: {} has failed: {failed}", node.text);
        }
    }
    Ok(())
}

/// Formats the sum, and the counts of several interfaces and of all nodes, one line each; the counters of a node that
/// are not zero are on a line after it.
pub fn accounts(view: &GraphView) -> String {
    let nodes = view.nodes.iter().map(|node| {
        let counters = counts::counters(node);
        let counters = if counters.is_empty() { counters } else { format!("  {counters}\n") };
        counts::account(&counts::node(node)) + "\n" + &counters
    });
    let accounting = counts::accounting(view);
    let interfaces = counts::interface_lines(&accounting, "  ");
    let rings = counts::ring_lines(view, "  ");
    counts::sum(&accounting, 0, 0) + "\n" + &interfaces + &rings + &nodes.collect::<String>()
}

/// Drawing of the running graph, updated every second.
struct Drawing {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

impl Drawing {
    fn start(args: &RunArgs, handle: &GraphHandle) -> Drawing {
        let stop = Arc::new(AtomicBool::new(false));
        let path = args.svg.clone().filter(|_| args.live_svg);
        let (ended, handle) = (Arc::clone(&stop), handle.clone());
        let draw = move |path: std::path::PathBuf| -> std::io::Result<()> {
            let mut before = handle.view();
            loop {
                let stopping = ended.load(std::sync::atomic::Ordering::Relaxed);
                let view = handle.view();
                let drawn = fyke_graph::draw::running(&view, &before);
                if let Err(error) = fyke_privilege::place::replace(&path, drawn.as_bytes()) {
                    let message = format!("cannot write {}: {error}", path.display());
                    return Err(std::io::Error::new(error.kind(), message));
                }
                if stopping {
                    return Ok(());
                }
                before = view;
                std::thread::park_timeout(Duration::from_secs(1));
            }
        };
        let thread = path.map(|path| std::thread::spawn(move || draw(path)));
        Drawing { stop, thread }
    }

    fn finish(self) -> Result<(), Failure> {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let Some(thread) = self.thread else { return Ok(()) };
        thread.thread().unpark();
        thread.join().map_err(|_| anyhow::anyhow!("the drawing thread panicked"))??;
        Ok(())
    }
}

/// The graphs of one run.
struct Graphs {
    /// Limits on the files that edits may open, for errors.
    limits: Option<String>,
}

impl Graphs {
    /// The error of an edit, with the missing privilege where that is the cause.
    fn refusal(&self, error: &EditError) -> String {
        let message = error.to_string();
        match self.limits.as_ref().filter(|_| is_denied(&message)) {
            Some(_) if message.contains("serve:") => format!(
                "{message}\nthis fyke has given up the right to reach services: name the service in a graph when it \
                 starts: fyke run '(device, serve:NAME) > …'"
            ),
            Some(why) => format!("{message}\n{why}"),
            None => message,
        }
    }
}

impl Texts for Graphs {
    const KIND: EntryKind = EntryKind::Graph;
    const HAS_NODES: bool = true;

    type Removed = ();

    fn put(&self, served: &Served<Graphs>, edit: &Planned<'_>) -> Result<(), GroupError> {
        let after = edit.after();
        let alone = |text: &str| fyke_graph::Plan::new(&[text], &classes()).is_err();
        let wrong = |message| wrong_change(edit, message, alone);
        if edit.undoes {
            let (old, new) = (served.ledger.texts(), &after);
            check_files(old.values(), new.values()).map_err(wrong)?;
        }
        served.handle.put(after).map_err(|error| wrong(self.refusal(&error)))
    }

    fn final_counts((): (), view: &GraphView) -> HashMap<u64, u64> {
        view.last_removed.iter().map(|(&id, &accepted)| (id, accepted)).collect()
    }

    fn removed(&self, view: &GraphView) -> u64 {
        view.removed
    }

    fn by_hand(served: &Served<Graphs>, node: Option<&str>) -> Option<Result<FilterSet, String>> {
        Some(served.handle.filters_of(node))
    }

    fn counted(&self, view: &GraphView) -> Vec<(u64, String, u64)> {
        let texts = view.texts.iter();
        texts.map(|(&id, (text, accepted))| (id, text.to_string(), *accepted)).collect()
    }
}
