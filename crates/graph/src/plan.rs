//! From texts to a graph that can run: resolves names, draws edges, merges equal prefixes, checks parameters.
//!
//! Several texts make one graph. Nodes of equal class, parameters and predecessors become one node, so the common
//! beginning of two texts exists once. Such a node has the same key in a later plan; from the keys, a running graph
//! recognises the nodes that stay. Planning opens nothing. Cost: O(nodes + edges), once per edit.
//! Source: FFPF, sections 2.3 (tags, populate) and 2.5 (equal position in equal graphs gives an equal identity).
//!
//! ```
//! # mod fyke { pub(crate) use fyke_graph as graph; }
//! use fyke::graph::{Classes, Plan};
//!
//! let plan = Plan::new(&["(pcapin, expression=a.pcap) > (bpf, expression=tcp)"], &Classes::new())?;
//! assert_eq!(plan.nodes.len(), 2);
//! let error = Plan::new(&["(pcapn, expression=a.pcap)"], &Classes::new()).unwrap_err();
//! assert!(error.to_string().contains("pcapn"));
//! # Ok::<(), fyke::graph::language::TextError>(())
//! ```

use crate::classes::Classes;
use crate::language::{NodeText, Span, TextError, Tree, parse};
use crate::node::{COMMON, Class, Kind, MakeError, Makers, Settings};
use fyke_capture::Interface;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

mod exports;
mod incoming;
mod left_out;
mod names;
mod pieces;
mod reading;
mod stays;

/// Most edges of a graph.
pub const MAX_EDGES: usize = 1 << 16;
/// Most bytes of memory buffers of a graph.
pub const MAX_ALL_MEMORY_BYTES: u64 = 1 << 26;

/// An edge to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feed {
    /// Index of the node at the start of the edge.
    pub from: usize,
    /// Class value that a frame needs to pass this edge; `None` = every frame passes.
    pub class: Option<u32>,
}

/// Rule that combines the frames of several feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Join {
    /// Frames that any feed passes, once.
    Any,
    /// Frames that any feed passes, once per feed.
    Each,
    /// Frames that all feeds pass.
    All,
    /// Frames that one of the first feeds (as many as this number) passes and none of the other feeds passes.
    Except(usize),
}

impl Join {
    /// Sorts the feeds where their order has no meaning, so that equal joins compare equal.
    fn order(self, feeds: &mut [Feed]) {
        let base = if let Join::Except(base) = self { base } else { feeds.len() };
        let (base, minus) = feeds.split_at_mut(base);
        base.sort_unstable();
        minus.sort_unstable();
    }
}

/// A node of the graph as it will run.
#[derive(Debug, Clone)]
pub struct PlanNode {
    /// Key of the node: equal for equal nodes at equal positions, in all plans.
    pub key: u64,
    /// Name: the tag, or else the class, with a number if several nodes have the class.
    pub name: String,
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Class.
    pub class: Class,
    pub(crate) makers: Makers,
    /// Parameters.
    pub settings: Settings,
    /// Text of the node as it was written, without tag.
    pub text: Arc<str>,
    /// Index of the text that contains the node, and the node with its positions in that text.
    pub written: (usize, NodeText),
    /// True if its counters are shown.
    pub exported: bool,
    /// True if it passes the frames that its class rejects.
    pub inverted: bool,
    /// Rule that combines its feeds.
    pub join: Join,
    /// Edges to this node.
    pub feeds: Vec<Feed>,
    /// Numbers ([`Plan::number`], from 1) of the texts that contain it.
    pub texts: BTreeSet<u64>,
    /// Numbers of the texts in which no other node comes after it.
    pub ends: Vec<u64>,
}

impl PlanNode {
    /// True if its source can be opened once for each worker; a program that opens it itself opens one.
    pub(crate) fn shares(&self) -> bool {
        self.makers.open.is_none() && (self.class.shares)(&self.settings)
    }

    /// Names of the interfaces of a device.
    pub fn interface_names(&self) -> impl Iterator<Item = &str> {
        let pairs = self.settings.pairs().iter().filter(|_| self.class.name == "device");
        pairs.filter(|(name, _)| name == "expression").map(|(_, name)| name.as_str())
    }
}

/// A graph that can run.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Nodes; each comes after those that feed it.
    pub nodes: Vec<PlanNode>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Nodes of the texts that change nothing: left out, or not, each with the reason.
    pub left_out: Vec<String>,
    /// Texts as they were read, with all brackets.
    pub readings: Vec<String>,
}

/// Nodes of AND and NOT: each passes the frames that its join lets arrive.
const AND: Class = Class { name: "and", ..GATE };
const NOT: Class = Class { name: "not", ..GATE };
const GATE: Class = Class {
    summary: "passes every frame that arrives",
    parameters: &[],
    repeatable: true,
    parallel: true,
    make: |_| Ok(Box::new(Gate)),
    ..Class::NODE
};

struct Gate;

impl crate::node::Node for Gate {
    fn process(
        &mut self,
        arrival: &mut crate::node::Arrival<'_>,
    ) -> Result<fyke_frame::Mask, crate::node::NodeError> {
        Ok(arrival.mask())
    }
}

impl Plan {
    /// Plans the texts together.
    ///
    /// # Errors
    /// With the position of the first error in its text.
    pub fn new(texts: &[&str], classes: &Classes) -> Result<Plan, TextError> {
        Plan::build(texts, Builder::new(classes))
    }

    /// Plans a graph whose sources are opened next. Errors that depend on link types are reported when the nodes are
    /// made, not here.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn to_open(texts: &[&str], classes: &Classes) -> Result<Plan, TextError> {
        Plan::build(texts, Builder { opening: true, ..Builder::new(classes) })
    }

    fn build(texts: &[&str], mut builder: Builder<'_>) -> Result<Plan, TextError> {
        for (index, text) in texts.iter().enumerate() {
            builder.text(index, text)?;
        }
        builder.finish(texts)
    }

    /// The only node that filters by texts, if there is only one: questions about frames of the past are about it.
    pub fn only_filter(&self) -> Option<&PlanNode> {
        let mut nodes = self.nodes.iter().filter(|node| node.class.filters.is_some());
        nodes.next().filter(|_| nodes.next().is_none())
    }

    /// Reason why several workers cannot run this graph, and advice; `None` if they can.
    pub fn needs_one_worker(&self) -> Option<String> {
        let find = |test: &dyn Fn(&PlanNode) -> bool| self.nodes.iter().find(|node| test(node));
        let is_source = |node: &PlanNode| node.class.kind == Kind::Source;
        let shares = PlanNode::shares;
        if let Some(merged) = find(&|node| node.interface_names().count() > 1) {
            let each: Vec<_> =
                merged.interface_names().map(|name| format!("(device, {name})")).collect();
            return Some(format!(
                "{} does not run with several workers: one thread merges the frames of its interfaces; write a node \
                 for each of them: [{}]",
                merged.text,
                each.join(" | ")
            ));
        }
        let rings = self.has_rings();
        if let (false, Some(shared)) = (rings, find(&|node| is_source(node) && shares(node))) {
            let other = find(&|node| is_source(node) && !shares(node))?;
            return Some(format!(
                "{} and {} do not run together with several workers: each worker has a ring of the first, and one \
                 thread reads the second; run two graphs, or one with one worker",
                shared.text, other.text
            ));
        }
        let cuts = find(&|node| !rings && (node.class.cuts)(&node.settings));
        let ordered = find(&|node| {
            (node.class.ordered)(&node.settings) && !(rings && node.class.in_time_order)
        });
        let (node, why) = match (cuts, ordered) {
            (Some(node), _) => (node, "it stops frames that other workers have already evaluated"),
            (None, Some(node)) => (
                node,
                "its answer depends on the order of all frames, and workers keep the order within \
                 a conversation only",
            ),
            (None, None) => return None,
        };
        let text = &node.text;
        Some(format!("{text} does not run with several workers: {why}; run the graph with one"))
    }

    /// True if each of several workers can have its share of every source.
    pub(crate) fn has_rings(&self) -> bool {
        self.nodes.iter().filter(|node| node.class.kind == Kind::Source).all(PlanNode::shares)
    }

    /// Renumbers the texts, in their order.
    pub fn number(&mut self, numbers: &[u64]) {
        let number = |&text: &u64| numbers.get(text as usize - 1).copied();
        for node in &mut self.nodes {
            node.texts = node.texts.iter().filter_map(number).collect();
            node.ends = node.ends.iter().filter_map(number).collect();
        }
    }

    /// All interfaces that the sources before a node will ever have, as far as they can be determined.
    pub(crate) fn all_interfaces(&self, node: &PlanNode) -> Vec<Interface> {
        let mut before = BTreeSet::new();
        let mut rest: Vec<usize> = node.feeds.iter().map(|feed| feed.from).collect();
        while let Some(at) = rest.pop() {
            if before.insert(at) {
                rest.extend(self.nodes[at].feeds.iter().map(|feed| feed.from));
            }
        }
        let nodes = before.into_iter().map(|at| &self.nodes[at]);
        nodes.flat_map(|node| (node.class.all_interfaces)(&node.settings)).collect()
    }

    /// Finds a node by its key.
    pub fn find(&self, key: u64) -> Option<&PlanNode> {
        self.nodes.iter().find(|node| node.key == key)
    }
}

/// A node that becomes a [`PlanNode`], with its position for errors.
struct Draft {
    class: Class,
    makers: Makers,
    settings: Settings,
    written: NodeText,
    text: usize,
    tags: BTreeSet<String>,
    exported: bool,
    inverted: bool,
    join: Join,
    feeds: Vec<Feed>,
    /// True if all its frames come from network interfaces.
    captures: bool,
}

struct Builder<'c> {
    classes: &'c Classes,
    drafts: Vec<Draft>,
    tags: BTreeMap<String, usize>,
    warnings: Vec<String>,
    readings: Vec<String>,
    text: usize,
    /// True if the text has `|` and `>` in one group, so that `|` may bind tighter than was meant.
    mixed: bool,
    edges: usize,
    memory_bytes: u64,
    /// True if sources are opened next.
    opening: bool,
}

impl<'c> Builder<'c> {
    fn new(classes: &'c Classes) -> Self {
        Builder {
            classes,
            drafts: Vec::new(),
            tags: BTreeMap::new(),
            warnings: Vec::new(),
            readings: Vec::new(),
            text: 0,
            mixed: false,
            edges: 0,
            memory_bytes: 0,
            opening: false,
        }
    }

    fn text(&mut self, index: usize, text: &str) -> Result<(), TextError> {
        self.text = index;
        let parsed = parse(text)?;
        let reading = parsed.tree.to_string();
        self.mixed = parsed.mixed;
        if parsed.mixed {
            self.warnings.push(format!("`|` binds tighter than `>`; this is read as {reading}"));
        }
        self.readings.push(reading);
        self.tree(text, &parsed.tree, Vec::new()).map(drop)
    }

    /// Adds a part of a text with `feeds` as input; returns its output.
    fn tree(&mut self, text: &str, tree: &Tree, feeds: Vec<Feed>) -> Result<Vec<Feed>, TextError> {
        match tree {
            Tree::Node(node) => self.node(text, node, feeds),
            Tree::Chain(left, class, right) => {
                let mut passed = self.tree(text, left, feeds)?;
                for feed in &mut passed {
                    feed.class = *class;
                }
                self.tree(text, right, passed)
            }
            Tree::Parallel(members) => {
                let mut passed = Vec::new();
                for member in members {
                    passed.extend(self.tree(text, member, feeds.clone())?);
                }
                Ok(passed)
            }
            Tree::Both(members) => {
                let mut passed = Vec::new();
                for member in members {
                    let outs = self.tree(text, member, feeds.clone())?;
                    let one = match outs.as_slice() {
                        [one] => *one,
                        _ => self.gate(AND, Join::Any, outs, 0..0),
                    };
                    passed.push(one);
                }
                Ok(vec![self.gate(AND, Join::All, passed, 0..0)])
            }
            Tree::Not(inner, span) => self.not(text, inner, span, feeds),
        }
    }

    fn not(
        &mut self,
        text: &str,
        inner: &Tree,
        span: &Span,
        feeds: Vec<Feed>,
    ) -> Result<Vec<Feed>, TextError> {
        if feeds.is_empty() {
            let error = TextError::new(text, span.clone(), "`!` has no input here");
            return Err(error.expected("something that feeds it, `… > !(…)`"));
        }
        if let Tree::Node(node) = inner
            && !node.class.is_empty()
        {
            let passed = self.node(text, node, feeds)?;
            let draft = &mut self.drafts[passed[0].from];
            if (draft.class.cuts)(&draft.settings) {
                let message = "NOT of a node that cuts batches";
                return Err(TextError::new(text, span.clone(), message));
            }
            draft.inverted = true;
            return Ok(passed);
        }
        let base = feeds.len();
        let reference = matches!(inner, Tree::Node(_));
        let inner_feeds = if reference { Vec::new() } else { feeds.clone() };
        let minus = self.tree(text, inner, inner_feeds)?;
        let all = feeds.into_iter().chain(minus).collect();
        Ok(vec![self.gate(NOT, Join::Except(base), all, span.clone())])
    }

    fn gate(&mut self, class: Class, join: Join, feeds: Vec<Feed>, span: Span) -> Feed {
        let written = NodeText { class: class.name.into(), span, ..NodeText::default() };
        let captures = self.captures(&class, &feeds);
        self.drafts.push(Draft {
            class,
            makers: Makers::default(),
            settings: Settings::default(),
            written,
            text: self.text,
            tags: BTreeSet::new(),
            exported: false,
            inverted: false,
            join,
            feeds,
            captures,
        });
        Feed { from: self.drafts.len() - 1, class: None }
    }

    fn node(
        &mut self,
        text: &str,
        node: &NodeText,
        feeds: Vec<Feed>,
    ) -> Result<Vec<Feed>, TextError> {
        let from = if node.class.is_empty() {
            self.reference(text, node)?
        } else {
            let draft = self.draft(text, node, &feeds)?;
            self.drafts.push(draft);
            let from = self.drafts.len() - 1;
            if let Some(tag) = &node.tag {
                self.tag(text, tag, from)?;
            }
            from
        };
        self.edges += feeds.len();
        if self.edges > MAX_EDGES {
            let message = format!("more than {MAX_EDGES} edges");
            return Err(TextError::new(text, node.span.clone(), message));
        }
        let draft = &mut self.drafts[from];
        if draft.class.kind == Kind::Source && !feeds.is_empty() {
            let message = format!("{node} is a source of frames and takes no input");
            let error = TextError::new(text, node.span.clone(), message);
            let error = error.expected("sources first: `[(pcapin, a) | (pcapin, b)] > …`");
            return Err(match self.mixed {
                true => error.hint("`|` binds tighter than `>`; put `[…]` around each branch"),
                false => error,
            });
        }
        for feed in feeds {
            if !draft.feeds.contains(&feed) {
                draft.feeds.push(feed);
            }
        }
        Ok(vec![Feed { from, class: None }])
    }

    fn reference(&self, text: &str, node: &NodeText) -> Result<usize, TextError> {
        let tag = node.tag.as_deref().unwrap_or_default();
        self.tags.get(tag).copied().ok_or_else(|| {
            let known: Vec<_> = self.tags.keys().map(String::as_str).collect();
            let message = format!("no node before this place has the tag {{{tag}}}");
            let expected = match known.as_slice() {
                [] => "a class; there are no tags yet".to_owned(),
                known => format!("one of: {}", known.join(", ")),
            };
            let error = TextError::new(text, node.span.clone(), message).expected(expected);
            error.nearest(tag, known)
        })
    }

    fn tag(&mut self, text: &str, tag: &str, from: usize) -> Result<(), TextError> {
        let known = self.tags.insert(tag.to_owned(), from);
        if let Some(known) = known.filter(|&known| self.drafts[known].text == self.text) {
            let span = self.drafts[from].written.span.clone();
            let other = &self.drafts[known].written;
            let message = format!("the tag {{{tag}}} is taken by {other}");
            return Err(
                TextError::new(text, span, message).hint(format!("`{{{tag}}}()` refers to it"))
            );
        }
        self.drafts[from].tags.insert(tag.to_owned());
        Ok(())
    }

    fn draft(&mut self, text: &str, node: &NodeText, feeds: &[Feed]) -> Result<Draft, TextError> {
        let Some((class, makers)) = self.classes.entry(&node.class).cloned() else {
            let message = format!("there is no class \"{}\"", node.class);
            let error = TextError::new(text, node.class_span.clone(), message);
            let names: Vec<_> = self.classes.all().map(|class| class.name).collect();
            let error = error.expected(format!("one of: {}", names.join(", ")));
            return Err(match node.class.as_str() {
                "track" => error.hint("register it: classes.register(fyke::track::CLASS)"),
                _ => error.nearest(&node.class, self.classes.names()),
            });
        };
        self.check_parameters(text, node, &class)?;
        let sizes = node.parameters.iter().filter(|p| p.name == "mbufsize");
        let bytes = sizes.filter_map(|size| size.value.parse::<u64>().ok()).max().unwrap_or(0);
        self.memory_bytes = self.memory_bytes.saturating_add(bytes);
        if self.memory_bytes > MAX_ALL_MEMORY_BYTES {
            let message = format!("memory of more than {MAX_ALL_MEMORY_BYTES} bytes in all");
            return Err(TextError::new(text, node.span.clone(), message));
        }
        let pairs = node.parameters.iter().map(|p| (p.name.clone(), p.value.clone()));
        let settings = Settings::new(pairs);
        let blame = |error: MakeError| blame(text, node, &error);
        let exported =
            settings.flag("export").map_err(blame)? || settings.flag("exported").map_err(blame)?;
        settings.number_or("mbufsize", 0..=crate::node::MAX_MEMORY_BYTES, 0).map_err(blame)?;
        let each = settings.flag("duplicates").map_err(blame)?;
        let mut draft = Draft {
            class,
            makers,
            settings,
            written: NodeText { tag: None, ..node.clone() },
            text: self.text,
            tags: BTreeSet::new(),
            exported,
            inverted: false,
            join: if each { Join::Each } else { Join::Any },
            feeds: Vec::new(),
            captures: false,
        };
        draft.read_as(self.captures(&class, feeds));
        match (class.check, class.kind) {
            (Some(check), _) => match check(&draft.settings) {
                Err(error) if error.varies && self.opening => {}
                checked => checked.map_err(blame)?,
            },
            (None, Kind::Source) => {}
            (None, Kind::Node) => {
                drop(draft.makers.make(&class, &draft.settings).map_err(blame)?);
            }
        }
        Ok(draft)
    }

    /// Refuses parameters that the class does not have.
    fn check_parameters(
        &self,
        text: &str,
        node: &NodeText,
        class: &Class,
    ) -> Result<(), TextError> {
        for parameter in &node.parameters {
            // The form of 2004 leaves a position empty: `(bytecount,,8)`.
            let place_only = parameter.name == "expression" && parameter.value.is_empty();
            if place_only || class.takes(&parameter.name) {
                continue;
            }
            let place =
                parameter.name_span.start..parameter.name_span.end.max(parameter.value_span.end);
            if parameter.name == "mbufsize" {
                let message = format!("{} has no memory buffer", class.name);
                let with = self.classes.all().filter(|class| class.memory);
                let with: Vec<_> = with.map(|class| class.name).collect();
                let expected = format!("no mbufsize; classes that take it: {}", with.join(", "));
                return Err(TextError::new(text, place, message).expected(expected));
            }
            let message = format!("{} has no parameter \"{}\"", class.name, parameter.name);
            let names = class.parameters.iter().chain(&COMMON).map(|known| known.name);
            let names: Vec<_> = names.filter(|name| class.takes(name)).collect();
            let error = TextError::new(text, place, message);
            let value = match class.takes("expression") {
                true => format!("; a value with `=` is quoted: \"{}=…\"", parameter.name),
                false => String::new(),
            };
            let error = error.expected(format!("one of: {}{value}", names.join(", ")));
            return Err(error.nearest(&parameter.name, names));
        }
        Ok(())
    }

    fn finish(mut self, texts: &[&str]) -> Result<Plan, TextError> {
        self.settle_readings(texts)?;
        let mut plan = Plan { left_out: self.leave_out(), ..Plan::default() };
        let exports = self.add_exports(texts)?;
        let order = self.order(texts)?;
        let mut by_key: HashMap<u64, usize> = HashMap::new();
        let mut place = vec![0; self.drafts.len()];
        for draft_index in order {
            let draft = &self.drafts[draft_index];
            let feeds = translate(draft, &place);
            let key = key(draft, &feeds, &plan.nodes);
            let at = *by_key.entry(key).or_insert_with(|| {
                plan.nodes.push(PlanNode {
                    key,
                    name: String::new(),
                    tags: BTreeSet::new(),
                    class: draft.class,
                    makers: draft.makers.clone(),
                    settings: draft.settings.clone(),
                    text: draft.written.to_string().into(),
                    written: (draft.text, draft.written.clone()),
                    exported: false,
                    inverted: draft.inverted,
                    join: draft.join,
                    feeds,
                    texts: BTreeSet::new(),
                    ends: Vec::new(),
                });
                plan.nodes.len() - 1
            });
            place[draft_index] = at;
            let node = &mut plan.nodes[at];
            node.texts.insert(draft.text as u64 + 1);
            node.tags.extend(draft.tags.iter().cloned());
            node.exported |= draft.exported;
        }
        self.check_exports(texts, &place, &exports)?;
        self.check_tags(texts, &place)?;
        self.check_front(texts, &plan, &place)?;
        self.check_pieces(texts, &plan, &place)?;
        self.check_incoming(texts, &plan, &place)?;
        plan.readings = std::mem::take(&mut self.readings);
        plan.warnings = std::mem::take(&mut self.warnings);
        plan.warn();
        plan.name();
        plan.end();
        Ok(plan)
    }

    /// Leaves out the pre-filters that change nothing: the nodes after them get their frames. Returns the reasons.
    fn leave_out(&mut self) -> Vec<String> {
        let found = left_out::find(&self.drafts);
        for (at, ..) in found.iter().rev().filter(|(_, can_go, _)| *can_go) {
            let feeds = self.drafts[*at].feeds.clone();
            let after = |draft: &&mut Draft| draft.feeds.iter().any(|feed| feed.from == *at);
            self.drafts.iter_mut().filter(after).for_each(|draft| draft.feeds.clone_from(&feeds));
            self.drafts.remove(*at);
            let feeds = self.drafts.iter_mut().flat_map(|draft| &mut draft.feeds);
            let places = feeds.map(|feed| &mut feed.from).chain(self.tags.values_mut());
            places.for_each(|place| *place -= usize::from(*place > *at));
        }
        found.into_iter().map(|(.., why)| why).collect()
    }

    /// Refuses a tag that names different nodes in two texts.
    fn check_tags(&self, texts: &[&str], place: &[usize]) -> Result<(), TextError> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, draft) in self.drafts.iter().enumerate() {
            for tag in &draft.tags {
                if *seen.entry(tag).or_insert(place[index]) != place[index] {
                    let message = format!("the tag {{{tag}}} means another node in another text");
                    let span = draft.written.span.clone();
                    return Err(TextError::new(texts[draft.text], span, message));
                }
            }
        }
        Ok(())
    }

    /// Refuses a node before a cut that cannot evaluate a frame twice, and a node that edits filters without an
    /// editable node before it.
    fn check_front(&self, texts: &[&str], plan: &Plan, place: &[usize]) -> Result<(), TextError> {
        let mut front = vec![false; plan.nodes.len()];
        let mut editable = vec![false; plan.nodes.len()];
        for (index, node) in plan.nodes.iter().enumerate() {
            editable[index] =
                node.class.editable || node.feeds.iter().any(|feed| editable[feed.from]);
        }
        let refuse = |index: usize, message: String, expected: &str| {
            Err(self.at_node(texts, place, index, message).expected(expected))
        };
        for (index, node) in plan.nodes.iter().enumerate().rev() {
            let cuts = (node.class.cuts)(&node.settings);
            if node.class.edits && !node.feeds.iter().any(|feed| editable[feed.from]) {
                let message =
                    format!("no node before {} has a filter that it could edit", node.text);
                return refuse(index, message, "a filter before it: `… > (filter, …) > …`");
            }
            if node.class.kind == Kind::Node && front[index] && !node.class.repeatable {
                let message = format!(
                    "{} cannot evaluate a frame twice, so no node after it may edit a filter, \
                     look back or set a limit",
                    node.text
                );
                return refuse(index, message, "such a node before it, or beside it");
            }
            if (front[index] || cuts) && node.join == Join::Each {
                let message =
                    format!("{} gets frames twice, and a later node cuts batches", node.text);
                return refuse(index, message, "no `duplicates` there");
            }
            if front[index] || cuts {
                node.feeds.iter().for_each(|feed| front[feed.from] = true);
            }
        }
        Ok(())
    }

    /// Makes an error at the first position of a node of the plan.
    fn at_node(&self, texts: &[&str], place: &[usize], index: usize, message: String) -> TextError {
        let draft = place.iter().position(|&at| at == index).map_or(0, |draft| draft);
        let (text, span) = (texts[self.drafts[draft].text], &self.drafts[draft].written.span);
        TextError::new(text, span.clone(), message)
    }

    /// Returns the nodes in an order in which each comes after those that feed it.
    fn order(&self, texts: &[&str]) -> Result<Vec<usize>, TextError> {
        let mut missing: Vec<usize> = self.drafts.iter().map(|draft| draft.feeds.len()).collect();
        let mut fed: Vec<Vec<usize>> = vec![Vec::new(); self.drafts.len()];
        for (index, draft) in self.drafts.iter().enumerate() {
            for feed in &draft.feeds {
                fed[feed.from].push(index);
            }
            if draft.feeds.is_empty() && draft.class.kind != Kind::Source {
                let message = format!("nothing feeds {}", draft.written);
                let span = draft.written.span.clone();
                let error = TextError::new(texts[draft.text], span, message);
                return Err(error.expected("a source first: `(device, expression=eth0) > …`"));
            }
        }
        let mut ready: BTreeSet<usize> = (0..missing.len()).filter(|&i| missing[i] == 0).collect();
        let mut order = Vec::new();
        while let Some(index) = ready.pop_first() {
            order.push(index);
            for &next in &fed[index] {
                missing[next] -= 1;
                if missing[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        match (0..missing.len()).find(|&index| missing[index] > 0) {
            None => Ok(order),
            Some(index) => {
                let draft = &self.drafts[self.on_cycle(index, &missing)];
                let message = format!("{} feeds itself: a graph has no cycles", draft.written);
                Err(TextError::new(texts[draft.text], draft.written.span.clone(), message))
            }
        }
    }

    /// Finds a node on a cycle. Starts at a node that is never ready, and moves to a predecessor that is never ready
    /// until a node is repeated: each of these nodes has such a predecessor, and their number is finite.
    fn on_cycle(&self, mut at: usize, missing: &[usize]) -> usize {
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            let feeds = self.drafts[at].feeds.iter().map(|feed| feed.from);
            at = feeds.into_iter().find(|&from| missing[from] > 0).unwrap_or(at);
        }
        at
    }
}

/// Turns the error of a class into an error at the parameter that caused it.
pub(crate) fn blame(text: &str, node: &NodeText, error: &MakeError) -> TextError {
    let named = || node.parameters.iter().rev().filter(|p| p.name == error.parameter);
    let parameter = named().find(|p| p.value == error.value).or_else(|| named().next());
    let span = parameter.map_or(node.span.clone(), |parameter| parameter.value_span.clone());
    let message = error.message.lines().next().unwrap_or_default();
    let mut text_error = TextError::new(text, span, message);
    text_error.value = Some(error.message.as_str().into());
    let more: Vec<_> = error.message.lines().skip(1).collect();
    if !more.is_empty() {
        text_error = text_error.hint(format!("in the value:\n{}", more.join("\n")));
    }
    text_error
}

fn translate(draft: &Draft, place: &[usize]) -> Vec<Feed> {
    let move_feed = |feed: &Feed| Feed { from: place[feed.from], ..*feed };
    let mut feeds: Vec<_> = draft.feeds.iter().map(move_feed).collect();
    draft.join.order(&mut feeds);
    if matches!(draft.join, Join::Except(_)) {
        return feeds;
    }
    if draft.join != Join::Each {
        feeds.dedup();
    }
    feeds
}

fn key(draft: &Draft, feeds: &[Feed], nodes: &[PlanNode]) -> u64 {
    let mut hasher = DefaultHasher::new();
    draft.class.name.hash(&mut hasher);
    for pair in draft.settings.pairs() {
        if !["export", "exported"].contains(&pair.0.as_str()) {
            pair.hash(&mut hasher);
        }
    }
    (draft.inverted, draft.join, feeds.len()).hash(&mut hasher);
    for feed in feeds {
        (nodes[feed.from].key, feed.class).hash(&mut hasher);
    }
    hasher.finish()
}
