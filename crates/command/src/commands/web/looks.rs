//! Capture files and graphs of a page: read by this program again, in a process with its sandbox.

use super::super::foreign;
use super::super::graphs::classes;
use super::super::mcp::explained;
use fyke_graph::node::{Class, Kind, Opens, Settings};
use fyke_graph::plan::{Plan, PlanNode};
use fyke_web::looks::{Drawing, DrawnClass, DrawnFeed, DrawnNode, FileFrame, Looks, Run};
use serde_json::Value;
use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time limit for a file.
const LIMIT: Duration = Duration::from_secs(30);
/// Frames that are shown.
const SHOWN: &str = "100";

/// Runs this program for a page.
#[derive(Debug)]
pub struct Again;

impl Looks for Again {
    fn explain(&self, filter: &str) -> Result<Value, String> {
        explained(Some(filter.to_owned()), None)
    }

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
        let known = foreign::check(graph)?;
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

    fn live(&self, graph: &str, sources: &[String]) -> Result<(), String> {
        foreign::check_live(graph, sources)
    }

    fn run(&self, file: File, graph: &str) -> Result<Run, String> {
        self.draw(graph)?;
        let ran = foreign::run(graph, file, LIMIT, &AtomicBool::new(false));
        match ran.failed {
            None => Ok(Run { nodes: ran.nodes, notes: ran.notes }),
            Some(why) => Err(why),
        }
    }

    fn frames(&self, file: File, filter: &str) -> Result<Vec<FileFrame>, String> {
        let words = ["dump", "--no-control", "-nn", "-xx", "-c", SHOWN, "-r", "-", "--", filter];
        let printed = foreign::again(&words, file, LIMIT, &AtomicBool::new(false));
        match printed.failed {
            None => Ok(frames(&printed.out)),
            Some(why) => Err(why),
        }
    }
}

fn opens(class: &Class, pairs: &[(&str, &str)]) -> Opens {
    let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    (class.opens)(&Settings::new(pairs))
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
    fn a_live_graph_of_a_page_has_running_sources_and_opens_nothing() {
        let sources = ["(device, expression=v1)".to_owned(), "(device, expression=v2)".to_owned()];
        let check = |text: &str| Again.live(text, &sources);
        for text in [
            "(device, v1) > (packetcount)",
            "{in}(device, expression=v2) > {n}(bpf, expression=udp) > (packetcount)",
            "(device, v1) > [{n}(bpf, expression=udp) | (packetcount)]",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, why) in [
            ("(device, lo) > (packetcount)", "one that runs: (device, expression=v1), (device"),
            ("(device, v1, buffer=1) > (packetcount)", "one that runs"),
            ("(pcapin, /etc/passwd) > (packetcount)", "one that runs"),
            ("(device, v1) > (tofile, /tmp/x)", "opens more than memory"),
            ("(device, v1) > (print)", "opens more than memory"),
            ("(device, v1) > {written}()", "a node of another text"),
            ("(device, v1", "^"),
        ] {
            let refused = check(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn lines_and_bytes_are_separated() {
        let printed = "1.0 ARP\n\t0x0000:  0102 03ff\n\t0x0010:  04\n2.0 IP\n\n\n";
        let found = frames(printed);
        assert_eq!(found[0], FileFrame { line: "1.0 ARP".into(), bytes: "010203ff04".into() });
        assert_eq!(found[1].line, "2.0 IP");
    }
}
