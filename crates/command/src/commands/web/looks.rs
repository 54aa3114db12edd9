//! Capture files and graphs of a page: read by this program again, in a process with its sandbox.

use super::super::graphs::classes;
use fyke_graph::Classes;
use fyke_graph::language::{NodeText, Tree, parse};
use fyke_graph::node::{Class, Kind, Opens, Settings};
use fyke_graph::plan::{Plan, PlanNode};
use fyke_web::looks::{Drawing, DrawnClass, DrawnFeed, DrawnNode, FileFrame, Looks, Run};
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for a file.
const LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of what the process prints.
const MAX_PRINTED: u64 = 4 << 20;
/// Frames that are shown.
const SHOWN: &str = "100";
/// Most nodes of a graph of a page.
const MAX_NODES: usize = 256;
/// The only source of a graph of a page: the file.
const SOURCE: &str = "(pcapin, expression=-)";

/// Runs this program for a page.
#[derive(Debug)]
pub struct Again;

impl Looks for Again {
    fn classes(&self) -> Vec<DrawnClass> {
        let known = classes();
        let mut fit: Vec<_> =
            known.all().filter(|class| opens(class, &[]) == Opens::Nothing).collect();
        fit.retain(|class| class.kind != Kind::Source && class.whole.is_none());
        let drawn = |class: &&Class| DrawnClass {
            name: class.name.to_owned(),
            summary: class.summary.to_owned(),
        };
        fit.iter().map(drawn).collect()
    }

    fn draw(&self, graph: &str) -> Result<Drawing, String> {
        // To plan a node may read its file, so each is checked before.
        let parsed = parse(graph).map_err(|error| error.to_string())?;
        let (known, mut nodes) = (classes(), Vec::new());
        nodes_of(&parsed.tree, &mut nodes);
        if nodes.len() > MAX_NODES {
            let given = nodes.len();
            return Err(format!(
                "{given} nodes are more than the {MAX_NODES} of a graph on a page"
            ));
        }
        nodes.iter().try_for_each(|node| permitted(node, &known))?;
        let plan = Plan::new(&[graph], &known).map_err(|error| error.to_string())?;
        let drawn = |(id, node): (usize, &PlanNode)| DrawnNode {
            id,
            node: node.name.clone(),
            text: format!("{}{}", if node.inverted { "!" } else { "" }, node.text),
            feeds: node
                .feeds
                .iter()
                .map(|feed| DrawnFeed { from: feed.from, class: feed.class })
                .collect(),
        };
        let notes = plan.warnings.iter().chain(&plan.left_out).cloned();
        Ok(Drawing {
            nodes: plan.nodes.iter().enumerate().map(drawn).collect(),
            notes: notes.collect(),
        })
    }

    fn run(&self, file: File, graph: &str) -> Result<Run, String> {
        self.draw(graph)?;
        let words = ["run", "--no-control", "--json", "--all", "--stats", "--", graph];
        let (printed, said) = again(&words, file)?;
        let nodes = printed.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
        let nodes = nodes.map_err(|error| format!("the counts cannot be read: {error}"))?;
        // The counts of the nodes are in `nodes`.
        let notes: Vec<_> = said.lines().filter(|line| !line.contains(" arrived = ")).collect();
        Ok(Run { nodes, notes: notes.join("\n") })
    }

    fn frames(&self, file: File, filter: &str) -> Result<Vec<FileFrame>, String> {
        let words = ["dump", "--no-control", "-nn", "-xx", "-c", SHOWN, "-r", "-", "--", filter];
        let (printed, _) = again(&words, file)?;
        Ok(frames(&printed))
    }
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

/// Refuses a node that opens something besides the file. The plan refuses unknown classes and tags.
fn permitted(node: &NodeText, known: &Classes) -> Result<(), String> {
    let Some(class) = known.find(&node.class) else { return Ok(()) };
    let pairs = node.parameters.iter().map(|one| (one.name.clone(), one.value.clone()));
    let (name, settings) = (class.name, Settings::new(pairs));
    if class.kind == Kind::Source {
        let is_file = name == "pcapin" && settings.text("expression") == Some("-");
        return match is_file && settings.pairs().len() == 1 {
            true => Ok(()),
            false => {
                Err(format!("{name}: the only source of a graph on a page is {SOURCE}, the file"))
            }
        };
    }
    match ((class.opens)(&settings), class.whole) {
        (Opens::Nothing, None) => Ok(()),
        (Opens::Nothing, Some(why)) => Err(format!("{name} {why}; a graph on a page has none")),
        (what, _) => Err(format!(
            "{name} opens more than memory ({}); run this graph with `fyke run`",
            what.word()
        )),
    }
}

fn opens(class: &Class, pairs: &[(&str, &str)]) -> Opens {
    let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    (class.opens)(&Settings::new(pairs))
}

/// Runs this program on a file; returns its standard output and standard error.
fn again(words: &[&str], file: File) -> Result<(String, String), String> {
    let failed = |error: std::io::Error| format!("cannot start fyke {}: {error}", words[0]);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(words).stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (out, err) = (child.stdout.take().map(collect), child.stderr.take().map(collect));
    let ended = wait(&mut child);
    let text = |reader: Option<JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (out, err) = (text(out), text(err));
    match ended {
        Ok(true) => Ok((out, err)),
        Ok(false) => {
            Err(err.trim_end().strip_prefix("fyke: ").unwrap_or(err.trim_end()).to_owned())
        }
        Err(message) => Err(message),
    }
}

/// Reads what a process prints, up to the limit; the process ends when it prints more.
fn collect(from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is shown.
        let _partial = from.take(MAX_PRINTED).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end of a process; true if it succeeded.
fn wait(child: &mut Child) -> Result<bool, String> {
    let limit = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => break,
            Err(error) => return Err(format!("cannot wait for it: {error}")),
        }
    }
    // It may have ended meanwhile.
    let _ended = child.kill();
    let _reaped = child.wait();
    Err(format!("it took more than {} s; use `fyke dump -r` or `fyke run`", LIMIT.as_secs()))
}

/// The frames of `fyke dump -xx`: a line, then lines of bytes after a tab.
fn frames(printed: &str) -> Vec<FileFrame> {
    let mut frames: Vec<FileFrame> = Vec::new();
    for line in printed.lines() {
        let bytes = line.strip_prefix("\t0x").and_then(|rest| rest.split_once(':'));
        match (bytes, frames.last_mut()) {
            (Some((_, bytes)), Some(frame)) => {
                frame.bytes.extend(bytes.chars().filter(char::is_ascii_hexdigit));
            }
            _ => frames.push(FileFrame { line: line.to_owned(), bytes: String::new() }),
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_of_a_page_opens_nothing() {
        let draw = |text: &str| Again.draw(text);
        let fits = draw(
            "(pcapin, expression=-) > [(bpf, expression=udp) | !(bpf, expression=tcp)] > \
             {n}(packetcount)",
        );
        let fits = fits.unwrap();
        assert_eq!(fits.nodes.len(), 4);
        assert_eq!(fits.nodes[2].text, "!(bpf, expression=tcp)");
        assert_eq!(fits.nodes[3].feeds.len(), 2);
        for (text, why) in [
            ("(pcapin, expression=/etc/passwd) > (packetcount)", "the only source"),
            ("(pcapin, expression=-, prefetch=y) > (packetcount)", "the only source"),
            ("(device, expression=lo) > (packetcount)", "the only source"),
            ("(pcapin, expression=-) > (tofile, expression=/tmp/x)", "opens more than memory"),
            ("(pcapin, expression=-) > (print)", "opens more than memory"),
            ("(pcapin, expression=-) > (cspf, expression=/etc/passwd)", "opens more than memory"),
            ("(pcapin, expression=-) > (cspf, /etc/passwd)", "opens more than memory"),
            ("(pcapin, expression=-) > (nothing, expression=/etc/passwd)", "no class"),
            ("(pcapin, expression=-) > (bpf, expression=\"tcp prot 1\")", "^"),
            ("(pcapin", "^"),
        ] {
            let refused = draw(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let known = Again.classes();
        assert!(known.iter().any(|class| class.name == "bpf"));
        assert!(!known.iter().any(|class| ["tofile", "device", "pcapin"].contains(&&*class.name)));
    }

    #[test]
    fn lines_and_bytes_are_separated() {
        let printed = "1.0 ARP\n\t0x0000:  0102 03ff\n\t0x0010:  04\n2.0 IP\n\n\n";
        let found = frames(printed);
        assert_eq!(found[0], FileFrame { line: "1.0 ARP".into(), bytes: "010203ff04".into() });
        assert_eq!(found[1].line, "2.0 IP");
    }
}
