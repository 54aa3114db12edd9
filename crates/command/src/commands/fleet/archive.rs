//! `fyke worker` and `fyke fleet scan`: a filter or a graph over the capture files of an archive.

use super::{Failure, named, options_of, stopped, trusted, wait_for};
use crate::cli::{ScanArgs, WorkerArgs};
use crate::commands::signals::stop_on_signals;
use crate::commands::{foreign, one_line, output};
use anyhow::{Context, anyhow};
use fyke_fleet::archive::{MAX_FILES, MAX_PATH, NodeCounts, Queue, Row, ScanId};
use fyke_fleet::keys::Author;
use fyke_fleet::scan::{Scan, Sums};
use fyke_fleet::worker::{Judge, Judged, Worker};
use fyke_graph::language::quoted;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
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
    let root = File::open(&args.root).with_context(|| format!("--root {shown}"))?;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = args.at_once.map_or_else(processors, usize::from);
    let worker = Worker {
        name: name.clone(),
        trusted: trusted(&args.group)?,
        root,
        judge: Arc::new(Again { limit: Duration::from_secs(args.limit) }),
        note: Box::new(|line| note!("fyke: {line}")),
    };
    let stop = stop_on_signals()?;
    let done = wait_for(async {
        let queue = Queue::connect(&to, group.clone(), &format!("fyke worker {name}")).await?;
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

/// Runs graphs by this program again, in a process with its sandbox.
struct Again {
    limit: Duration,
}

/// A node as `fyke run --json` prints it.
#[derive(Deserialize)]
struct Printed {
    node: String,
    arrived: u64,
    passed: u64,
    rejected: u64,
    taken: u64,
    lost: u64,
    counters: BTreeMap<String, Value>,
}

impl Judge for Again {
    fn judge(&self, graph: &str, file: File, stop: &AtomicBool) -> Judged {
        if let Err(why) = foreign::check(graph) {
            return Judged::failure(why);
        }
        let ran = foreign::run(graph, file, self.limit, stop);
        match ran.nodes.into_iter().map(counts).collect() {
            Ok(nodes) => Judged { nodes, failed: ran.failed.map(|why| reason(&why)) },
            Err(why) => Judged::failure(why),
        }
    }
}

/// The first line of a failure, without the name of the file, which is standard input there.
fn reason(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.strip_prefix("standard input: ").unwrap_or(line).to_owned()
}

/// The counts of a node; its counters without texts and rates, which cannot be added.
fn counts(node: Value) -> Result<NodeCounts, String> {
    let node: Printed = serde_json::from_value(node).map_err(|error| error.to_string())?;
    let whole = |(name, value): (String, Value)| Some((name, value.as_u64()? as f64));
    Ok(NodeCounts {
        node: node.node,
        arrived: node.arrived,
        passed: node.passed,
        rejected: node.rejected,
        taken: node.taken,
        lost: node.lost,
        counters: node.counters.into_iter().filter_map(whole).collect(),
    })
}

/// Runs `fyke fleet scan`.
pub fn scan(args: &ScanArgs) -> Result<(), Failure> {
    let (group, to) = (named("--group", &args.group.group)?, options_of(&args.group)?);
    let id = |text: &String| ScanId::new(text).map_err(Failure::Usage);
    if let Some(text) = &args.cancel {
        let id = id(text)?;
        let removed = wait_for(async {
            let queue = Queue::connect(&to, group, "fyke fleet scan").await?;
            Ok(queue.cancel(&id).await?)
        })?;
        note!("fyke: {removed} jobs removed");
        return Ok(());
    }
    let resumed = args.resume.as_ref().map(id).transpose()?;
    let wanted = match &resumed {
        Some(_) => None,
        None => Some(wanted(args)?),
    };
    let mut rows = args.rows.as_deref().map(Rows::create).transpose()?;
    let stop = stop_on_signals()?;
    let ended = wait_for(async {
        let queue = Queue::connect(&to, group, "fyke fleet scan").await?;
        let mut scan = match (resumed, &wanted) {
            (Some(id), _) => Scan::resume(queue, id).await?,
            (None, Some((author, graph, files))) => {
                Scan::start(queue, author, graph, files).await?
            }
            (None, None) => return Err(anyhow!("nothing to do")),
        };
        let (id, files) = (scan.id().as_str().to_owned(), scan.files());
        note!("fyke: scan {id}: {files} files; Ctrl-C leaves it to the workers");
        let failed = collect(&mut scan, rows.as_mut(), stop).await?;
        Ok((scan, failed))
    });
    let (scan, failed) = ended?;
    if let Some(rows) = rows {
        rows.finish()?;
    }
    let mut out = output();
    show(&mut out, &scan, &failed, args)?;
    out.flush()?;
    let (sums, files) = (scan.sums(), scan.files());
    if !scan.is_complete() {
        let id = scan.id().as_str();
        return Err(Failure::Running(anyhow!(
            "{} of {files} files have a result; `fyke fleet scan --resume {id}` reads the others, and --cancel {id} \
             removes their jobs",
            sums.done
        )));
    }
    match sums.failed {
        0 => Ok(()),
        count => Err(Failure::Running(anyhow!(
            "{count} of {files} files could not be read to their end"
        ))),
    }
}

/// The author, the graph and the files of the arguments.
fn wanted(args: &ScanArgs) -> Result<(Author, String, Vec<String>), Failure> {
    let key = args.key.as_ref().ok_or_else(|| Failure::Usage("--key FILE is missing".into()))?;
    let text = args.expression.join(" ");
    let graph = match &args.graph {
        Some(graph) => graph.clone(),
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
    fyke_graph::plan::Plan::new(&[&graph], &known)
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
    Ok((Author::read(key)?, graph, files.collect()))
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

/// Reads rows until there is one of each file, or a signal came; returns those of failed files.
async fn collect(
    scan: &mut Scan,
    mut rows: Option<&mut Rows>,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Vec<Row>> {
    let (mut failed, mut told) = (Vec::new(), Instant::now());
    let mut stop_soon = std::pin::pin!(stopped(Arc::clone(&stop)));
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
        for row in new {
            if let Some(rows) = &mut rows {
                rows.add(&row)?;
            }
            if row.failed.is_some() && failed.len() < NAMED {
                failed.push(row);
            }
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
    Ok(failed)
}

/// Prints the sums.
fn show(out: &mut impl Write, scan: &Scan, failed: &[Row], args: &ScanArgs) -> io::Result<()> {
    let Sums { done, failed: count, bytes, workers, nodes } = scan.sums();
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
        });
        writeln!(out, "{told}")?;
    } else {
        for node in nodes {
            let NodeCounts { node, arrived, passed, rejected, taken, lost, counters } = node;
            let counters: Vec<_> =
                counters.iter().map(|(name, value)| format!("  {name} {value}")).collect();
            let line = format!(
                "{node:16} {arrived} arrived = {passed} passed + {rejected} rejected + {taken} taken + {lost} lost{}",
                counters.concat()
            );
            writeln!(out, "{}", one_line(&line))?;
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

/// The file of `--rows`.
struct Rows {
    out: BufWriter<File>,
    csv: bool,
}

impl Rows {
    fn create(path: &Path) -> anyhow::Result<Rows> {
        let file = File::create_new(path).with_context(|| format!("--rows {}", path.display()))?;
        let mut out = BufWriter::new(file);
        let csv = path.extension().is_some_and(|extension| extension == "csv");
        if csv {
            writeln!(
                out,
                "path,worker,attempt,seconds,bytes,failed,node,arrived,passed,rejected,taken,lost,counters"
            )?;
        }
        Ok(Rows { out, csv })
    }

    fn add(&mut self, row: &Row) -> anyhow::Result<()> {
        if !self.csv {
            serde_json::to_writer(&mut self.out, row)?;
            return Ok(writeln!(self.out)?);
        }
        let Row { path, worker, attempt, seconds, bytes, nodes, failed, .. } = row;
        let failure = failed.as_deref().unwrap_or("");
        let head = format!(
            "{},{},{attempt},{seconds:.6},{bytes},{}",
            field(path),
            field(worker),
            field(failure)
        );
        if nodes.is_empty() {
            writeln!(self.out, "{head},,,,,,,")?;
        }
        for node in nodes {
            let counters: Vec<_> =
                node.counters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            writeln!(
                self.out,
                "{head},{},{},{},{},{},{},{}",
                field(&node.node),
                node.arrived,
                node.passed,
                node.rejected,
                node.taken,
                node.lost,
                field(&counters.join(" "))
            )?;
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }
}

/// A text as a field of CSV (RFC 4180), on one line.
fn field(text: &str) -> String {
    let text = one_line(text);
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}
