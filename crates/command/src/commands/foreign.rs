//! Graphs and capture files of others: checked, then run by this program again, in a process with its sandbox.

use super::graphs::classes;
use fyke_graph::Classes;
use fyke_graph::language::{NodeText, Tree, parse};
use fyke_graph::node::{Kind, Opens, Settings};
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Most bytes of what the process prints.
const MAX_PRINTED: u64 = 4 << 20;
/// Most nodes of a graph.
const MAX_NODES: usize = 256;
/// The only source of a graph: the file.
pub const SOURCE: &str = "(pcapin, expression=-)";
/// Time between two looks at the reason to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Checks that the nodes of a graph open nothing besides the file. To plan a node may read its file, so check before.
///
/// # Errors
/// The problem, with the line and a caret if it is one of the text.
pub fn check(graph: &str) -> Result<Classes, String> {
    let parsed = parse(graph).map_err(|error| error.to_string())?;
    let (known, mut nodes) = (classes(), Vec::new());
    nodes_of(&parsed.tree, &mut nodes);
    if nodes.len() > MAX_NODES {
        return Err(format!("{} nodes are more than the {MAX_NODES} of a graph", nodes.len()));
    }
    nodes.iter().try_for_each(|node| permitted(node, &known, is_file))?;
    Ok(known)
}

/// The nodes of a text.
fn nodes_of<'t>(tree: &'t Tree, into: &mut Vec<&'t NodeText>) {
    match tree {
        Tree::Node(node) => into.push(node),
        Tree::Chain(left, _, right) => {
            nodes_of(left, into);
            nodes_of(right, into);
        }
        Tree::Parallel(members) | Tree::Both(members) => {
            members.iter().for_each(|member| nodes_of(member, into));
        }
        Tree::Not(inner, _) => nodes_of(inner, into),
    }
}

/// Checks that the nodes of a graph which joins a running one open nothing: its sources are those that run (`sources`,
/// texts of nodes), and it refers to no node of another text.
///
/// # Errors
/// As for [`check`].
pub fn check_live(graph: &str, sources: &[String]) -> Result<(), String> {
    let parsed = parse(graph).map_err(|error| error.to_string())?;
    let (known, mut nodes) = (classes(), Vec::new());
    nodes_of(&parsed.tree, &mut nodes);
    if nodes.len() > MAX_NODES {
        return Err(format!("{} nodes are more than the {MAX_NODES} of a graph", nodes.len()));
    }
    let running: Vec<_> = sources.iter().filter_map(|source| parse(source).ok()).collect();
    let runs = |name: &str, settings: &Settings| {
        running.iter().any(|one| match &one.tree {
            Tree::Node(node) => {
                known.find(&node.class).is_some_and(|class| class.name == name)
                    && settings_of(node).pairs() == settings.pairs()
            }
            _ => false,
        })
    };
    let is_own = |tag: &str| {
        nodes.iter().any(|one| !one.class.is_empty() && one.tag.as_deref() == Some(tag))
    };
    for node in &nodes {
        if let (true, Some(tag)) = (node.class.is_empty(), &node.tag)
            && !is_own(tag)
        {
            return Err(format!("{{{tag}}} is a node of another text; this graph may not use it"));
        }
        permitted(node, &known, |name, settings| match runs(name, settings) {
            true => Ok(()),
            false => Err(format!(
                "{name}: a source of this graph is one that runs: {}",
                sources.join(", ")
            )),
        })?;
    }
    Ok(())
}

fn settings_of(node: &NodeText) -> Settings {
    Settings::new(node.parameters.iter().map(|one| (one.name.clone(), one.value.clone())))
}

/// Permits the file as the source.
fn is_file(name: &str, settings: &Settings) -> Result<(), String> {
    let is_file = name == "pcapin" && settings.text("expression") == Some("-");
    match is_file && settings.pairs().len() == 1 {
        true => Ok(()),
        false => Err(format!("{name}: the only source of this graph is {SOURCE}, the file")),
    }
}

/// Refuses a node that opens something, and a source that `source` does not permit by its class and settings. The plan
/// refuses unknown classes and tags.
fn permitted(
    node: &NodeText,
    known: &Classes,
    source: impl Fn(&str, &Settings) -> Result<(), String>,
) -> Result<(), String> {
    let Some(class) = known.find(&node.class) else { return Ok(()) };
    let (name, settings) = (class.name, settings_of(node));
    if class.kind == Kind::Source {
        return source(name, &settings);
    }
    match ((class.opens)(&settings), class.whole) {
        (Opens::Nothing, None) => Ok(()),
        (Opens::Nothing, Some(why)) => Err(format!("{name} {why}; this graph has none")),
        (what, _) => Err(format!(
            "{name} opens more than memory ({}); run this graph with `fyke run`",
            what.word()
        )),
    }
}

/// The outcome of a graph over a file.
pub struct Ran {
    /// The JSON objects of its nodes; of a damaged file, over the frames before the damage.
    pub nodes: Vec<serde_json::Value>,
    /// Other lines.
    pub notes: String,
    /// The reason if it failed.
    pub failed: Option<String>,
}

/// Runs a checked graph over a file.
pub fn run(graph: &str, file: File, limit: Duration, stop: &AtomicBool) -> Ran {
    let words = ["run", "--no-control", "--json", "--all", "--stats", "--", graph];
    let Printed { out, err, failed } = again(&words, file, limit, stop);
    let nodes = out.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
    let (nodes, unread) = match nodes {
        Ok(nodes) => (nodes, None),
        Err(error) => (Vec::new(), Some(format!("the counts cannot be read: {error}"))),
    };
    // The counts of the nodes are in `nodes`.
    let notes: Vec<_> = err.lines().filter(|line| !line.contains(" arrived = ")).collect();
    Ran { nodes, notes: notes.join("\n"), failed: failed.or(unread) }
}

/// The output of a process.
#[derive(Default)]
pub struct Printed {
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// The reason if it failed, took too long or could not be started.
    pub failed: Option<String>,
}

/// Runs this program on a file, at most for `limit` and until `stop`.
pub fn again(words: &[&str], file: File, limit: Duration, stop: &AtomicBool) -> Printed {
    let mut command = match std::env::current_exe() {
        Ok(program) => Command::new(program),
        Err(error) => return Printed::cannot_start(&error),
    };
    command.args(words).stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Printed::cannot_start(&error),
    };
    let [out, err] = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let mut printed = Printed::default();
    let ended = wait(&mut child, out.as_ref(), limit, stop, &mut printed.out);
    printed.err = err.and_then(|err| err.recv().ok()).unwrap_or_default();
    printed.failed = match ended {
        Ok(true) => None,
        Ok(false) => Some(last_message(&printed.err)),
        Err(message) => Some(message),
    };
    printed
}

impl Printed {
    fn cannot_start(error: &std::io::Error) -> Printed {
        Printed { failed: Some(format!("cannot start fyke: {error}")), ..Printed::default() }
    }
}

/// The last message of standard error.
fn last_message(err: &str) -> String {
    let message = err.trim_end();
    let start = message.rfind("\nfyke: ").map_or(0, |at| at + 1);
    message[start..].strip_prefix("fyke: ").unwrap_or(&message[start..]).to_owned()
}

/// Reads the output of a process, up to the limit; the process ends when it prints more.
fn collect(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is shown.
        let _partial = from.take(MAX_PRINTED).read_to_end(&mut bytes);
        // The receiver is gone if the process took too long.
        let _ignored = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Waits for the end of a process; returns whether it succeeded, and takes its standard output.
fn wait(
    child: &mut Child,
    out: Option<&Receiver<String>>,
    limit: Duration,
    stop: &AtomicBool,
    printed: &mut String,
) -> Result<bool, String> {
    let end = Instant::now() + limit;
    // Its output ends when it ends.
    let ended = loop {
        match out.map_or(Err(RecvTimeoutError::Disconnected), |out| out.recv_timeout(LOOK)) {
            Ok(all) => {
                *printed = all;
                break Ok(());
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                break Err("stopped".to_owned());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(RecvTimeoutError::Timeout) => {
                break Err(format!("it took more than {} s", limit.as_secs()));
            }
        }
    };
    if ended.is_err() {
        // It may have ended meanwhile.
        let _ended = child.kill();
    }
    let status = child.wait().map_err(|error| format!("cannot wait for it: {error}"));
    ended.and(Ok(status?.success()))
}

#[cfg(test)]
mod tests {
    use super::last_message;

    #[test]
    fn the_last_message_is_the_failure() {
        let err =
            "1 seen = 0 accepted + 1 rejected + 0 lost\nfyke: a note\nfyke: x.pcap: wrong\n  ^\n";
        assert_eq!(last_message(err), "x.pcap: wrong\n  ^");
        assert_eq!((last_message("fyke: no"), last_message("no")), ("no".into(), "no".into()));
    }
}
