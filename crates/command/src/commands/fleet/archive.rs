//! `fyke worker` and `fyke fleet scan`: a filter or a graph over the capture files of an archive.

use super::alerts;
use super::refusals::Refusals;
use super::rows::Rows as RowFile;
use super::{Failure, connected, named, options_of, trusted, wait_for};
use crate::cli::{ScanArgs, WorkerArgs};
use crate::commands::signals::stop_on_signals;
use crate::commands::{foreign, one_line, output};
use anyhow::{Context, anyhow};
use fyke_control::NodeCount;
use fyke_fleet::archive::{MAX_FILES, MAX_PATH, NodeCounts, Queue, Row, ScanId};
use fyke_fleet::broker::BrokerError;
use fyke_fleet::keys::Author;
use fyke_fleet::refused::Refuser;
use fyke_fleet::rules::Rules;
use fyke_fleet::scan::{Scan, Sums};
use fyke_fleet::stopped;
use fyke_fleet::worker::{Judge, Judged, Worker};
use fyke_graph::language::quoted;
use serde_json::{Number, Value, json};
use std::collections::HashSet;
use std::fs::File;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// Most failed files that are named on standard output; `--rows` has all.
const NAMED: usize = 20;
/// Pause after a failure of the broker.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs `fyke worker`.
pub fn worker(args: &WorkerArgs) -> Result<(), Failure> {
    let (group, to) = (named("--group", &args.group.group)?, options_of(&args.group)?);
    let name = args.name.clone().unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}:{}", std::process::id())
    });
    let shown = args.root.display();
    let root = folder(&args.root)?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = args.at_once.map_or_else(processors, usize::from);
    let worker = Worker {
        name: name.clone(),
        trusted: trusted(&args.group)?,
        root,
        judge: Arc::new(Again { limit: Duration::from_secs(args.limit) }),
        note: Box::new(|line| note!("fyke: {line}")),
        rules: tokio::sync::Mutex::default(),
        refuser: Refuser::default(),
        sign: tokio::sync::Mutex::default(),
    };
    let stop = stop_on_signals()?;
    let done = wait_for(async {
        let client = format!("fyke worker {name}");
        let queue = connected(&stop, Queue::connect(&to, group.clone(), &client)).await?;
        note!(
            "fyke: worker {name} of the group {group} at {}, {at_once} files at a time below {shown}; \
             Ctrl-C ends fyke worker",
            to.server
        );
        Ok(worker.run(&queue, at_once, &stop).await?)
    })?;
    note!("fyke: {} files done, {} failed", done.files, done.failed);
    Ok(())
}

/// Opens the folder of a worker.
fn folder(path: &Path) -> Result<File, Failure> {
    let shown = path.display();
    let root = File::open(path).with_context(|| format!("--root {shown}"))?;
    match root.metadata().with_context(|| format!("--root {shown}"))?.is_dir() {
        true => Ok(root),
        false => Err(Failure::Usage(format!(
            "--root {shown}: it is a file; give the folder below which the capture files are"
        ))),
    }
}

/// Runs graphs by this program again, in a process with its sandbox.
struct Again {
    limit: Duration,
}

impl Judge for Again {
    fn judge(&self, graph: &str, rules: Option<&Rules>, file: File, stop: &AtomicBool) -> Judged {
        if let Err(why) = foreign::check(graph) {
            return Judged::failure(why);
        }
        if let Some(rules) = rules {
            return alerts::judge(graph, rules, file, self.limit, stop);
        }
        let ran = foreign::run(graph, file, self.limit, stop);
        match ran.nodes.into_iter().map(counts).collect() {
            Ok(nodes) => {
                let failed = ran.failed.map(|why| reason(&why));
                Judged { nodes, failed, ..Judged::default() }
            }
            Err(why) => Judged::failure(why),
        }
    }
}

/// The first line of a failure, without the name of the file, which is standard input there.
pub(super) fn reason(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.strip_prefix("standard input: ").unwrap_or(line).to_owned()
}

/// The counts of a node as `fyke run --json` prints it.
pub(super) fn counts(node: Value) -> Result<NodeCounts, String> {
    serde_json::from_value(node).map(counts_of).map_err(|error| error.to_string())
}

/// The counts of a node: those of its counters that can be added, and states.
pub(super) fn counts_of(node: NodeCount) -> NodeCounts {
    let NodeCount { counters, states, .. } = node;
    let value = |(name, value): (String, Number)| {
        let is_added = states.contains(&name) || value.is_u64();
        Some((name, value.as_f64().filter(|_| is_added)?))
    };
    NodeCounts {
        counters: counters.into_iter().filter_map(value).collect(),
        node: node.node,
        arrived: node.arrived,
        passed: node.passed,
        rejected: node.rejected,
        taken: node.taken,
        lost: node.lost,
        states,
    }
}

/// Runs `fyke fleet scan`.
pub fn scan(args: &ScanArgs) -> Result<(), Failure> {
    let (group, to) = (named("--group", &args.group.group)?, options_of(&args.group)?);
    let id = |text: &String| ScanId::new(text).map_err(Failure::Usage);
    if let Some(text) = &args.cancel {
        let id = id(text)?;
        return wait_for(cancel(Queue::open(&to, group, "fyke fleet scan"), id));
    }
    let resumed = args.resume.as_ref().map(id).transpose()?;
    let wanted = match &resumed {
        Some(_) => None,
        None => Some(wanted(args)?),
    };
    let key = wanted.as_ref().map(|wanted| wanted.author.public_line());
    let mut refusals = Refusals::new(args.patience, key);
    let mut rows = None;
    let stop = stop_on_signals()?;
    let ended = wait_for(async {
        let name = "fyke fleet scan";
        let mut scan = match (resumed, &wanted) {
            (Some(id), _) => {
                Scan::resume(connected(&stop, Queue::open(&to, group, name)).await?, id).await?
            }
            (None, Some(Wanted { author, graph, files, rules })) => {
                let queue = connected(&stop, Queue::connect(&to, group, name)).await?;
                Scan::start(queue, author, graph, rules.as_ref(), files).await?
            }
            (None, None) => return Err(anyhow!("nothing to do")),
        };
        if let Some(path) = &args.rows {
            rows = Some(RowFile::create(path, scan.has_rules())?);
        }
        let (id, files) = (scan.id().as_str().to_owned(), scan.files());
        note!("fyke: scan {id}: {files} files; Ctrl-C leaves it to the workers");
        let collected = collect(&mut scan, rows.as_mut(), stop, &mut refusals).await?;
        let removed = match collected.is_refused {
            true => Some(scan.cancel().await?),
            false => None,
        };
        Ok((scan, collected.failed, removed))
    });
    // After an error, too: the file has the rows that came before it.
    if let Some(rows) = rows {
        rows.finish()?;
    }
    let (scan, failed, removed) = ended?;
    let mut out = output();
    show(&mut out, &scan, &failed, &refusals, args)?;
    out.flush()?;
    if let Some(removed) = removed {
        return Err(Failure::Running(refusals.error(&scan, removed)));
    }
    check_end(&scan)
}

/// Fails if a file has no result, or could not be read.
fn check_end(scan: &Scan) -> Result<(), Failure> {
    let (sums, files, id) = (scan.sums(), scan.files(), scan.id().as_str());
    let done = sums.done;
    match (scan.is_complete(), scan.is_cancelled()) {
        (true, _) if sums.failed == 0 => Ok(()),
        (true, _) => Err(Failure::Running(anyhow!(
            "{} of {files} files could not be read to their end",
            sums.failed
        ))),
        (false, true) => Err(Failure::Running(anyhow!(
            "scan {id} was cancelled (--cancel): {done} of {files} files have a result; `fyke fleet scan --resume \
             {id}` also reads those of files that workers had begun"
        ))),
        (false, false) => Err(Failure::Running(anyhow!(
            "{done} of {files} files have a result; `fyke fleet scan --resume {id}` reads the others, and --cancel \
             {id} removes their jobs"
        ))),
    }
}

/// Removes the jobs of a scan.
async fn cancel(
    queue: impl Future<Output = Result<Queue, BrokerError>>,
    id: ScanId,
) -> anyhow::Result<()> {
    let mut scan = Scan::resume(queue.await?, id).await?;
    while !scan.is_complete() && !scan.read().await?.is_empty() {}
    let removed = scan.cancel().await?;
    let (id, done, files) = (scan.id().as_str(), scan.sums().done, scan.files());
    match scan.is_complete() {
        true => note!("fyke: scan {id} had ended: each of its {files} files has a result"),
        false => {
            note!("fyke: scan {id}: {removed} jobs removed; {done} of {files} files have a result")
        }
    }
    Ok(())
}

/// A new scan.
struct Wanted {
    author: Author,
    graph: String,
    files: Vec<String>,
    rules: Option<Rules>,
}

/// The new scan of the arguments.
fn wanted(args: &ScanArgs) -> Result<Wanted, Failure> {
    let key = args.key.as_ref().ok_or_else(|| Failure::Usage("--key FILE is missing".into()))?;
    let text = args.expression.join(" ");
    let graph = match &args.graph {
        Some(graph) => graph.clone(),
        None if text.trim().is_empty() && !args.rules.is_empty() => foreign::SOURCE.to_owned(),
        None if text.trim().is_empty() => {
            format!("{} > {{frames}}(bytecount, export=y)", foreign::SOURCE)
        }
        None => {
            let text = quoted(&text);
            format!(
                "{} > {{filter}}(filter, expression={text}) > {{accepted}}(bytecount, export=y)",
                foreign::SOURCE
            )
        }
    };
    let known = foreign::check(&graph).map_err(Failure::Usage)?;
    // The rules are the end of a graph that is only a source.
    let whole = match args.rules.is_empty() {
        true => graph.clone(),
        false => format!("{graph} > (packetcount)"),
    };
    fyke_graph::plan::Plan::new(&[&whole], &known)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let mut files = args.read.clone();
    if let Some(list) = &args.file_list {
        files.extend(listed(list)?);
    }
    if files.is_empty() {
        return Err(Failure::Usage("name the files: -r FILE, or -V LIST".to_owned()));
    }
    // As `find` prints them.
    let files = files.into_iter().map(|path| match path.strip_prefix("./") {
        Some(rest) => rest.to_owned(),
        None => path,
    });
    let files = each_once(files);
    let rules = if args.rules.is_empty() { None } else { Some(alerts::read(&args.rules)?) };
    Ok(Wanted { author: Author::read(key)?, graph, files, rules })
}

/// The files in their order, each once; tells of those that were named again, which would be counted again.
fn each_once(files: impl Iterator<Item = String>) -> Vec<String> {
    let mut known = HashSet::new();
    let mut again = Vec::new();
    let mut once = Vec::new();
    for path in files {
        match known.insert(path.clone()) {
            true => once.push(path),
            false => again.push(path),
        }
    }
    if let Some(first) = again.first() {
        let count = again.len();
        let line = format!(
            "{first} is named more than once ({count} repetitions in all): each file counts once"
        );
        note!("fyke: {}", one_line(&line));
    }
    once
}

/// The lines of a list of files.
fn listed(list: &Path) -> anyhow::Result<Vec<String>> {
    let shown = list.display();
    let from: Box<dyn Read> = match list.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(list).with_context(|| format!("{shown}"))?),
    };
    let longest = (MAX_FILES * 256) as u64;
    let mut files = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(from.take(longest)).lines()) {
        let line = line.with_context(|| format!("{shown}:{number}"))?;
        if line.len() > MAX_PATH {
            return Err(anyhow!("{shown}:{number}: longer than {MAX_PATH} bytes"));
        }
        if files.len() == MAX_FILES {
            return Err(anyhow!("{shown}:{number}: more than {MAX_FILES} files; divide the list"));
        }
        if !line.is_empty() {
            files.push(line);
        }
    }
    Ok(files)
}

/// The end of a scan.
#[derive(Default)]
struct Collected {
    /// The rows of failed files.
    failed: Vec<Row>,
    /// True if workers only refuse its jobs.
    is_refused: bool,
}

/// Reads rows until there is one of each file, a signal came, or workers only refuse.
async fn collect(
    scan: &mut Scan,
    mut rows: Option<&mut RowFile>,
    stop: Arc<AtomicBool>,
    refusals: &mut Refusals,
) -> anyhow::Result<Collected> {
    let (mut collected, mut told) = (Collected::default(), Instant::now());
    let mut stop_soon = std::pin::pin!(stopped(&stop));
    while !scan.is_complete() && !stop.load(Ordering::Relaxed) {
        let read = tokio::select! {
            () = &mut stop_soon => break,
            read = scan.read() => read,
        };
        let new = match read {
            Ok(new) => new,
            Err(error) => {
                note!("fyke: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let has_results = !new.is_empty();
        if scan.is_cancelled() && !has_results {
            break;
        }
        for row in new {
            if let Some(rows) = &mut rows {
                rows.add(&row)?;
            }
            if row.failed.is_some() && collected.failed.len() < NAMED {
                collected.failed.push(row);
            }
        }
        match refusals.look(scan, has_results).await {
            Ok(is_refused) => collected.is_refused = is_refused && !scan.is_complete(),
            Err(error) => note!("fyke: {error}"),
        }
        if collected.is_refused {
            break;
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let sums = scan.sums();
            note!(
                "fyke: {} of {} files, {} failed, {} workers",
                sums.done,
                scan.files(),
                sums.failed,
                sums.workers.len()
            );
        }
    }
    Ok(collected)
}

/// Prints the sums.
fn show(
    out: &mut impl Write,
    scan: &Scan,
    failed: &[Row],
    refusals: &Refusals,
    args: &ScanArgs,
) -> io::Result<()> {
    let Sums { done, failed: count, bytes, workers, nodes, alerts: found, more_alerts } =
        scan.sums();
    if args.json {
        let told = json!({
            "scan": scan.id(),
            "graph": scan.graph(),
            "files": scan.files(),
            "done": done,
            "failed": count,
            "bytes": bytes,
            "workers": workers,
            "nodes": nodes,
            "alerts": found.iter().map(|((gid, sid), (message, count))| {
                json!({"gid": gid, "sid": sid, "message": message, "alerts": count})
            }).collect::<Vec<_>>(),
            "more_alerts": more_alerts,
            "refused": refusals.json(),
        });
        writeln!(out, "{told}")?;
    } else {
        for node in nodes {
            let NodeCounts { node, arrived, passed, rejected, taken, lost, counters, .. } = node;
            let counters: Vec<_> =
                counters.iter().map(|(name, value)| format!("  {name} {value}")).collect();
            let line = format!(
                "{node:16} {arrived} arrived = {passed} passed + {rejected} rejected + {taken} taken + {lost} lost{}",
                counters.concat()
            );
            writeln!(out, "{}", one_line(&line))?;
        }
        for ((gid, sid), (message, count)) in found {
            writeln!(out, "{}", one_line(&format!("{count:>10} alerts [{gid}:{sid}] {message}")))?;
        }
        if *more_alerts > 0 {
            writeln!(
                out,
                "{more_alerts:>10} alerts of further rules: a file has room for {}",
                alerts::MOST
            )?;
        }
        writeln!(out, "{done} files, {bytes} bytes, {count} failed, {} workers", workers.len())?;
    }
    for row in failed {
        note!(
            "fyke: {}",
            one_line(&format!("{}: {}", row.path, row.failed.as_deref().unwrap_or("")))
        );
    }
    Ok(())
}
