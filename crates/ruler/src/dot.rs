//! Output of an automaton as a graph for Graphviz: circles inspect a byte, boxes jump, pentagons show the action of
//! a rule.

use crate::byte_set::ByteSet;
use crate::dense::{Dense, Kind};
use crate::registers::POSITION;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of states drawn.
pub const MAX_DRAWN: usize = 2000;

/// Draws `dense`; `rule` describes the action of a rule. States over [`MAX_DRAWN`] are left out, and a comment in
/// the output gives their number.
pub fn dot(name: &str, dense: &Dense, rule: &dyn Fn(u32) -> String) -> String {
    let mut out =
        format!("digraph \"{name}\" {{\n  rankdir=LR;\n  start [shape=none label=\"\"];\n");
    out.push_str("  start -> s1;\n");
    let states = dense.states().min(MAX_DRAWN);
    for state in 1..states {
        let _ = match dense.kind(state) {
            Kind::Jump(len, _) => writeln!(out, "  s{state} [shape=box label=\"jump {len}\"];"),
            _ => writeln!(out, "  s{state} [shape=circle label=\"{state}\"];"),
        };
        for accept in dense.accepts(state) {
            let text = escape(&rule(accept.rule));
            let _ = writeln!(out, "  m{state} [shape=pentagon label=\"{text}\"];");
            let _ = writeln!(out, "  s{state} -> m{state} [style=dashed label=\"end\"];");
        }
        edges(dense, state, states, &mut out);
    }
    if states < dense.states() {
        let _ = writeln!(out, "  // {} more states are not drawn", dense.states() - states);
    }
    out.push_str("}\n");
    out
}

fn edges(dense: &Dense, state: usize, drawn: usize, out: &mut String) {
    let mut edges: BTreeMap<(usize, String), ByteSet> = BTreeMap::new();
    for byte in 0..=255 {
        let (next, steps) = dense.next(state, byte);
        let mut text = String::new();
        for (to, from) in steps {
            let _ = match *from {
                POSITION => write!(text, " r{to}:=pos"),
                from => write!(text, " r{to}:=r{from}"),
            };
        }
        if next != 0 && next < drawn {
            edges.entry((next, text)).or_default().insert(byte);
        }
    }
    for ((next, steps), set) in edges {
        let label = format!("{set}{steps}");
        let _ = writeln!(out, "  s{state} -> s{next} [label=\"{}\"];", escape(&label));
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
