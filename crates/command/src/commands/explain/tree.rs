//! Printed tree of a filter expression: a line for each primitive with its cost, followed by its instructions.
//! Alternatives that differ only in their last word share a line: `tcp port 22, 80 or 443`.
//!
//! The code uses an explicit stack, not recursion: an expression that alternates "and" and "or" is nested as deeply as
//! it is long.

use super::plural;
use fyke_filter::{Cost, Node, Predicate, Primitive, PrimitiveKind as Kind, Reading, cost};
use fyke_pass::PassSet;
use std::fmt::{self, Write};

/// Limit on printed lines of the tree.
pub const MAX_LINES: usize = 2_000;
/// Limit on printed operands of one node.
pub const MAX_SHOWN: usize = 40;
/// Limit on printed values of alternatives of one kind.
const MAX_VALUES: usize = 12;

/// Alternatives of one kind.
struct Alike<'n> {
    /// Text that they have in common; for a single alternative, its whole text.
    head: Option<String>,
    of: Vec<&'n Primitive>,
    /// True if each alternative has its own "not", and all must be true.
    negated: bool,
}

/// Items that are still to be printed, in reverse order.
enum Rest<'n> {
    Node(&'n Node, usize),
    Alike(Alike<'n>, usize),
    More(usize, usize),
}

/// Writes the tree.
pub fn write(out: &mut impl Write, predicate: &Predicate) -> fmt::Result {
    let mut rest = vec![Rest::Node(predicate.root(), 1)];
    for line in 0.. {
        let (node, depth) = match rest.pop() {
            None => break,
            Some(_) if line >= MAX_LINES => return writeln!(out, "        … and more"),
            Some(Rest::More(count, depth)) => {
                writeln!(out, "{:1$}… and {count} more", "", indent(depth))?;
                continue;
            }
            Some(Rest::Alike(alike, mut depth)) => {
                if alike.negated {
                    writeln!(out, "{:1$}not", "", indent(depth))?;
                    depth += 1;
                }
                alike.write(out, predicate, indent(depth), line < MAX_SHOWN)?;
                continue;
            }
            Some(Rest::Node(node, depth)) => (node, depth),
        };
        let mut below = operands(node);
        let word = match node {
            Node::Primitive(_) => {
                rest.extend(below.pop().map(|one| one.at(depth)));
                continue;
            }
            // A node with only alternatives of one kind.
            Node::All(_) | Node::Any(_) if below.len() == 1 => {
                rest.extend(below.pop().map(|one| one.at(depth)));
                continue;
            }
            Node::All(_) => "all of",
            Node::Any(_) => "any of",
            Node::Not(_) => "not",
            Node::Const(true) => "every frame",
            Node::Const(false) => "no frame",
        };
        writeln!(out, "{:1$}{word}", "", indent(depth))?;
        if below.len() > MAX_SHOWN {
            rest.push(Rest::More(below.len() - MAX_SHOWN, depth + 1));
        }
        below.truncate(MAX_SHOWN);
        rest.extend(below.into_iter().rev().map(|one| one.at(depth + 1)));
    }
    Ok(())
}

/// Groups the operands of a node by kind.
fn operands(node: &Node) -> Vec<Rest<'_>> {
    let mut operands: Vec<Rest> = Vec::new();
    let itself = std::slice::from_ref(node);
    let children = if matches!(node, Node::Primitive(_)) { itself } else { node.children() };
    for child in children {
        let (primitive, negated) = match (node, child) {
            (Node::All(_), Node::Not(inner)) => (&**inner, true),
            _ => (child, false),
        };
        let Node::Primitive(primitive) = primitive else {
            operands.push(Rest::Node(child, 0));
            continue;
        };
        let either = negated || matches!(node, Node::Any(_));
        let head = if either { head_of(primitive) } else { None };
        match operands.last_mut() {
            Some(Rest::Alike(alike, _))
                if head.is_some() && alike.head == head && alike.negated == negated =>
            {
                alike.of.push(primitive);
            }
            _ => operands.push(Rest::Alike(Alike { head, of: vec![primitive], negated }, 0)),
        }
    }
    operands
}

/// Splits the text of a primitive before its last word, if that is the value.
fn head_of(primitive: &Primitive) -> Option<String> {
    let valued = matches!(
        primitive.kind,
        Kind::Host { .. }
            | Kind::Net { .. }
            | Kind::Net6 { .. }
            | Kind::Port { .. }
            | Kind::PortRange { .. }
            | Kind::Protocol { .. }
            | Kind::EtherHost { .. }
            | Kind::WlanHost { .. }
    );
    let text = if valued { primitive.to_string() } else { String::new() };
    let (head, _) = text.rsplit_once(' ')?;
    (!head.ends_with(" mask")).then(|| head.to_owned())
}

impl<'n> Rest<'n> {
    fn at(self, depth: usize) -> Rest<'n> {
        match self {
            Rest::Node(node, _) => Rest::Node(node, depth),
            Rest::Alike(alike, _) => Rest::Alike(alike, depth),
            Rest::More(count, _) => Rest::More(count, depth),
        }
    }
}

impl Alike<'_> {
    fn write(
        &self,
        out: &mut impl Write,
        predicate: &Predicate,
        indent: usize,
        with_instructions: bool,
    ) -> fmt::Result {
        let shown = format!("{:indent$}{}", "", self.text());
        writeln!(out, "{shown:<44} {}", self.price())?;
        if !with_instructions {
            return Ok(());
        }
        // The first of several primitives represents them all.
        let (each, count) = if self.of.len() > MAX_SHOWN { ("each ", 1) } else { ("", usize::MAX) };
        let of = self.of.iter().take(count).map(|one| Node::Primitive((*one).clone())).collect();
        for (index, pass) in passes_of(predicate, Node::Any(of)).iter().enumerate() {
            let word = if index == 0 { "by" } else { "or" };
            writeln!(out, "{:indent$}  {each}{word} {}", "", pass.join(" and "))?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let texts: Vec<String> = self.of.iter().map(|one| one.to_string()).collect();
        let Some((first, more)) = texts.split_first().filter(|(_, more)| !more.is_empty()) else {
            return texts.concat();
        };
        let last_word = |text: &'_ String| text.rsplit(' ').next().unwrap_or_default().to_owned();
        let values: Vec<String> = more.iter().map(last_word).collect();
        match values.split_last() {
            Some((last, [])) => format!("{first} or {last}"),
            Some((last, between)) if texts.len() <= MAX_VALUES => {
                format!("{first}, {} or {last}", between.join(", "))
            }
            _ => {
                let shown = values[..MAX_VALUES - 1].join(", ");
                format!("{first}, {shown}, … ({} in all)", texts.len())
            }
        }
    }

    /// Formats the cost in brackets; empty in the scoped reading, which parses the headers instead.
    fn price(&self) -> String {
        let costs = self.of.iter().map(|one| cost(&one.condition));
        let Some(Cost { tests, bytes, varies }) = costs.max_by_key(|cost| cost.tests) else {
            return String::new();
        };
        if tests == 0 {
            return String::new();
        }
        let each = if self.of.len() > 1 { "each " } else { "" };
        let most = plural(tests, "test", "tests");
        match (bytes, varies) {
            (0, false) => format!("[{each}{tests} {most} of metadata]"),
            (_, false) => format!("[{each}at most {tests} {most}, {bytes} bytes]"),
            (_, true) => format!("[{each}at most {tests} {most}, {bytes} bytes and more]"),
        }
    }
}

/// Returns the instructions of a part on its own, in words, for each pass; none in the scoped reading. In the whole
/// expression a part may need fewer: equal instructions of a pass, and tests of neighbouring bytes, are merged.
pub fn passes_of(predicate: &Predicate, part: Node) -> Vec<Vec<String>> {
    if predicate.reading() == Reading::Scoped {
        return Vec::new();
    }
    let mut set = PassSet::new(predicate.link());
    let mut edit = set.edit();
    if edit.add_filter(&predicate.alone(part)).is_err() {
        return Vec::new();
    }
    edit.commit();
    set.passes().map(|pass| pass.describe().map(|one| one.to_string()).collect()).collect()
}

/// Indentation of a line, limited so that deep nesting stays readable.
fn indent(depth: usize) -> usize {
    depth.min(20) * 2 + 6
}
