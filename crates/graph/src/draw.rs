//! Drawings of a graph, planned or running with its rates: text, Graphviz's language, SVG.
//!
//! The layout of the SVG is by depth: a node is one column to the right of the last node that feeds it. Viewing it
//! needs no other program. Cost: O(nodes + edges).
//!
//! ```
//! # mod fyke { pub(crate) use fyke_graph as graph; }
//! use fyke::graph::{Classes, Plan};
//!
//! let plan = Plan::new(&["(pcapin, expression=a.pcap) > (bpf, expression=tcp)"], &Classes::new())?;
//! assert!(plan.dot().starts_with("digraph"));
//! assert!(plan.svg(None).contains("<svg"));
//! # Ok::<(), fyke::graph::language::TextError>(())
//! ```

use crate::node::Kind;
use crate::plan::{Feed, Join, Plan, PlanNode};
use crate::runtime::{GraphView, NodeView};
use std::fmt::Write;

/// A node as a box.
struct Shape<'a> {
    title: String,
    lines: Vec<String>,
    feeds: &'a [Feed],
    marked: bool,
}

const WIDTH: usize = 260;
const LINE: usize = 16;
const GAP: usize = 60;

impl Plan {
    /// Describes the graph as it will run: readings, warnings, nodes in order with their feeds.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for reading in &self.readings {
            let _infallible = writeln!(out, "{reading}");
        }
        for warning in &self.warnings {
            let _infallible = writeln!(out, "warning: {warning}");
        }
        for left_out in &self.left_out {
            let _infallible = writeln!(out, "{left_out}");
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let _infallible =
                writeln!(out, "{:>3}  {}{}", index + 1, node.sign(), node.notes(self));
        }
        out
    }

    /// Writes the graph in Graphviz's language.
    pub fn dot(&self) -> String {
        let mut out = "digraph fyke {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
        for (index, node) in self.nodes.iter().enumerate() {
            let label = format!("{}{}", node.name, node.sign());
            let label = label.replace('\\', "\\\\").replace('"', "\\\"");
            let shape = if node.class.kind == Kind::Source { ", shape=oval" } else { "" };
            let _infallible = writeln!(out, "  n{index} [label=\"{label}\"{shape}];");
            for feed in &node.feeds {
                let class = feed.class.map(|class| format!(" [label=\"{class}\"]"));
                let class = class.unwrap_or_default();
                let _infallible = writeln!(out, "  n{} -> n{index}{class};", feed.from);
            }
        }
        out.push_str("}\n");
        out
    }

    /// Draws the graph as SVG; with the counts of `view` if it runs.
    pub fn svg(&self, view: Option<&GraphView>) -> String {
        let boxes = self.nodes.iter().map(|node| {
            let counts = view.and_then(|view| view.nodes.iter().find(|n| n.key == node.key));
            let passed = counts.map(|node| format!("{} passed", node.counts.passed));
            Shape {
                title: node.name.clone(),
                lines: std::iter::once(node.sign()).chain(passed).collect(),
                feeds: &node.feeds,
                marked: node.exported,
            }
        });
        picture(&boxes.collect::<Vec<_>>())
    }
}

impl PlanNode {
    /// The node as written, with `!` if it is inverted.
    fn sign(&self) -> String {
        format!("{}{}", if self.inverted { "!" } else { "" }, self.text)
    }

    fn notes(&self, plan: &Plan) -> String {
        let mut notes = String::new();
        if !self.tags.is_empty() {
            let tags: Vec<_> = self.tags.iter().map(|tag| format!("{{{tag}}}")).collect();
            notes += &format!("  {}", tags.join(" "));
        }
        let name = |feed: &Feed| match feed.class {
            Some(class) => format!("{} -{class}->", plan.nodes[feed.from].name),
            None => plan.nodes[feed.from].name.clone(),
        };
        let list = |feeds: &[Feed], between: &str| {
            feeds.iter().map(name).collect::<Vec<_>>().join(between)
        };
        let from = match self.join {
            Join::Any => list(&self.feeds, " | "),
            Join::Each => format!("each of {}", list(&self.feeds, ", ")),
            Join::All => list(&self.feeds, " & "),
            Join::Except(base) => {
                format!(
                    "{} without {}",
                    list(&self.feeds[..base], " | "),
                    list(&self.feeds[base..], " | ")
                )
            }
        };
        if !from.is_empty() {
            notes += &format!("  from {from}");
        }
        if self.exported {
            notes += "  exported";
        }
        if self.texts.len() > 1 {
            notes += &format!("  shared by {} graphs", self.texts.len());
        }
        notes
    }
}

/// Draws a running graph as SVG: counts, and rates since `before`.
pub fn running(view: &GraphView, before: &GraphView) -> String {
    let seconds = view.elapsed.saturating_sub(before.elapsed).as_secs_f64();
    let boxes: Vec<_> = view.nodes.iter().map(|node| running_box(node, before, seconds)).collect();
    picture(&boxes)
}

fn running_box<'a>(node: &'a NodeView, before: &GraphView, seconds: f64) -> Shape<'a> {
    let old = before.nodes.iter().find(|old| old.key == node.key);
    let since = old.map_or(0, |old| old.counts.arrived);
    let arrived = node.counts.arrived.saturating_sub(since) as f64;
    let rate = if seconds > 0.0 { arrived / seconds } else { 0.0 };
    let mut lines = vec![
        node.text.to_string(),
        format!("{} arrived, {rate:.0}/s", node.counts.arrived),
        format!("{} passed, {} lost", node.counts.passed, node.counts.lost),
    ];
    let counters = node.counters.iter().take(4);
    lines.extend(counters.map(|counter| format!("{} {}", counter.name, counter.value)));
    lines.extend(node.failed.as_ref().map(|failed| format!("failed: {failed}")));
    Shape { title: node.name.clone(), lines, feeds: &node.feeds, marked: node.exported }
}

fn picture(boxes: &[Shape<'_>]) -> String {
    let mut depth = vec![0; boxes.len()];
    let mut bottom: Vec<usize> = Vec::new();
    let mut place = Vec::new();
    for (index, node) in boxes.iter().enumerate() {
        depth[index] = node.feeds.iter().map(|feed| depth[feed.from] + 1).max().unwrap_or(0);
        bottom.resize(bottom.len().max(depth[index] + 1), 20);
        let height = (node.lines.len() + 1) * LINE + 12;
        let y = bottom[depth[index]];
        bottom[depth[index]] += height + 24;
        place.push((20 + depth[index] * (WIDTH + GAP), y, height));
    }
    let width = 40 + bottom.len() * (WIDTH + GAP);
    let height = bottom.iter().max().unwrap_or(&20) + 20;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, node) in boxes.iter().enumerate() {
        let (x, y, height) = place[index];
        for feed in node.feeds {
            let (from_x, from_y, from_height) = place[feed.from];
            let (x1, y1) = (from_x + WIDTH, from_y + from_height / 2);
            let (y2, middle) = (y + height / 2, (x1 + x) / 2);
            let _infallible = writeln!(
                out,
                "<path d=\"M{x1} {y1} C{middle} {y1} {middle} {y2} {x} {y2}\" fill=\"none\" \
                 stroke=\"black\"/>"
            );
            if let Some(class) = feed.class {
                let label = (y1 + y2) / 2;
                let _infallible =
                    writeln!(out, "<text x=\"{middle}\" y=\"{label}\">{class}</text>");
            }
        }
        let fill = if node.marked { "#e8f0ff" } else { "#f4f4f4" };
        let _infallible = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" \
             fill=\"{fill}\" stroke=\"black\"/>\n<text x=\"{}\" y=\"{}\" \
             font-weight=\"bold\">{}</text>",
            x + 8,
            y + LINE,
            escaped(&node.title)
        );
        for (number, line) in node.lines.iter().enumerate() {
            let (x, y) = (x + 8, y + (number + 2) * LINE);
            let _infallible = writeln!(out, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(line));
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Text cut to the width of a box, with XML's special characters escaped.
fn escaped(text: &str) -> String {
    let mut line: String = text.chars().take(38).filter(|c| !c.is_control()).collect();
    if text.chars().nth(38).is_some() {
        line.pop();
        line.push('…');
    }
    line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
