//! Graphs of readers: nodes that run in the service, in place of texts.
//!
//! ```text
//!  {capture} ─┬─▶ (serve)                       texts of readers
//!             ├─▶ (meter, 7)                    counts the frames that reader 7 could have
//!             └─▶ (gate, group, filter) ─▶ the nodes of reader 7 ─▶ (toreader, 7)
//! ```
//!
//! A reader's graph is a text of the service's own graph. The runtime merges equal nodes at equal positions, and all
//! nodes of a reader come after the gate of its group: so equal beginnings of graphs exist once within a group, and
//! groups share no node. The gate also has the filter of the policy. Frames that nodes change are copies, stored in the
//! packet buffer of the group. Source: FFPF, section 2.5 (equal position in equal graphs), 2.4 (groups).
//!
//! A text of a reader may name only classes that open nothing, or what its rule permits ([`Opens`]); no node that
//! concerns the whole process ([`Class::whole`]), cuts batches or edits the filters of others; and no tag that it has
//! not given itself. It is planned and made in the thread of the reader.

use crate::policy::Terms;
use crate::service::Service;
use fyke_filters::{FilterReader, FilterSet, Inputs, Tags};
use fyke_frame::Mask;
use fyke_graph::language::{NodeText, TextError, Tree, parse, quoted};
use fyke_graph::node::{
    Arrival, Class, Emitted, Kind, MakeError, Needs, Node, NodeError, Opens, Parameter, Settings,
};
use fyke_graph::{Classes, GraphHandle};
use fyke_ring::Mark;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tag of the source in the graph of a service.
pub const CAPTURE: &str = "capture";
/// Tags that no node of a reader may have: texts of other readers refer to the first, the service to the second.
const RESERVED: [&str; 2] = [CAPTURE, crate::class::NAME];

/// A problem of a text, with the line and a caret.
fn at(text: &str, node: &NodeText, message: String) -> String {
    TextError::new(text, node.class_span.clone(), message).to_string()
}

/// Checks that a reader under these terms may have a graph; `find` returns the class of a name.
///
/// # Errors
/// The problem, with the line and a caret.
pub fn check(
    text: &str,
    find: &dyn Fn(&str) -> Option<Class>,
    terms: &Terms,
) -> Result<(), String> {
    let (given, limit) = (text.len(), terms.limits.text_bytes);
    if given > limit {
        let message =
            format!("the graph has {given} bytes, and this service takes at most {limit}");
        return Err(TextError::new(text, 0..0, message).to_string());
    }
    let tree = parse(text).map_err(|error| error.to_string())?.tree;
    let mut nodes = Vec::new();
    collect(&tree, &mut nodes);
    if terms.group.snaplen < fyke_capture::DEFAULT_SNAPLEN {
        let message = "a rule with a snap length takes texts only, because nodes see whole frames";
        return Err(TextError::new(text, 0..0, message.to_owned()).to_string());
    }
    let limit = terms.limits.texts;
    if let Some(node) = nodes.get(limit) {
        let given = nodes.len();
        let message = format!("{given} nodes are more than the {limit} that this reader may have");
        return Err(TextError::new(text, node.span.clone(), message).to_string());
    }
    let mut tags = BTreeSet::new();
    for node in nodes {
        let refused = |message| Err(at(text, node, message));
        if node.class.is_empty() {
            let tag = node.tag.as_deref().unwrap_or_default();
            if !tags.contains(tag) {
                let message = format!("no node before this place has the tag {{{tag}}}");
                return Err(TextError::new(text, node.span.clone(), message).to_string());
            }
            continue;
        }
        if let Some(tag) = node.tag.as_deref().filter(|tag| RESERVED.contains(tag)) {
            return refused(format!("the tag {{{tag}}} is one of the service"));
        }
        tags.extend(node.tag.as_deref());
        let Some(class) = find(&node.class) else {
            return refused(format!("there is no class {:?}", node.class));
        };
        if let Err(message) = permitted(&class, node, &terms.opens) {
            return refused(message);
        }
    }
    Ok(())
}

/// The nodes, in the order in which a plan reads them.
fn collect<'t>(tree: &'t Tree, into: &mut Vec<&'t NodeText>) {
    match tree {
        Tree::Node(node) => into.push(node),
        Tree::Chain(left, _, right) => {
            collect(left, into);
            collect(right, into);
        }
        Tree::Parallel(members) | Tree::Both(members) => {
            members.iter().for_each(|member| collect(member, into));
        }
        Tree::Not(inner, _) => collect(inner, into),
    }
}

/// Checks a node of a reader.
fn permitted(class: &Class, node: &NodeText, opens: &[Opens]) -> Result<(), String> {
    let name = class.name;
    let pairs = node.parameters.iter().map(|one| (one.name.clone(), one.value.clone()));
    let settings = Settings::new(pairs);
    let what = (class.opens)(&settings);
    if class.kind == Kind::Source {
        return Err(format!("{name} is a source; the frames of a reader come from the service"));
    }
    if what != Opens::Nothing && !opens.contains(&what) {
        let word = what.word();
        return Err(format!(
            "{name} opens more than memory ({word}), which this service does not permit: put this node into the \
             graph of the reader (fyke run '(device, serve:NAME) > …', or fyke dump -w FILE), or have the service \
             permit it: opens = [\"{word}\"] in the policy (fyke serve --config)"
        ));
    }
    if let Some(why) = class.whole {
        return Err(format!("{name} {why}; a reader has none"));
    }
    if (class.cuts)(&settings) || class.edits {
        return Err(format!("{name} edits filters between two frames; run it in the reader"));
    }
    match settings.text("mbufsize") {
        Some(_) => {
            Err(format!("mbufsize: the memory of {name} cannot be read from outside the service"))
        }
        None => Ok(()),
    }
}

/// The text of the service's graph for a reader's graph, and the number of bytes before the latter.
fn whole(reader: u64, terms: &Terms, text: &str) -> (String, usize) {
    let (group, filter) = (quoted(&terms.group.to_string()), quoted(&terms.group.filter));
    let gate = format!("({GATE}, group={group}, live=y, expression={filter})");
    let before = format!("{{{CAPTURE}}}() > [({METER}, {reader}) | [{gate} > [");
    // On a line of its own, because the text may end with a comment.
    let all = format!("{before}{text}\n] > ({TO_READER}, {reader})]]");
    (all, before.len())
}

/// Puts a reader's graph into the graph of the service, in place of text `old` if it is given. Returns its number.
///
/// # Errors
/// The problem, with the line and a caret. Nothing has changed then.
pub(crate) fn put(
    handle: &GraphHandle,
    reader: u64,
    terms: &Terms,
    text: &str,
    old: Option<u64>,
) -> Result<u64, String> {
    check(text, &|name| handle.class(name), terms)?;
    let (all, before) = whole(reader, terms, text);
    let put = match old {
        None => handle.add(&all),
        Some(id) => handle.replace(id, &all).map(|()| id),
    };
    put.map_err(|error| match error {
        fyke_graph::runtime::EditError::Text(error) => within(error, text, before).to_string(),
        other => other.to_string(),
    })
}

/// An error in the whole text as one in the reader's part.
fn within(error: TextError, text: &str, before: usize) -> TextError {
    let span = error.span.start.saturating_sub(before)..error.span.end.saturating_sub(before);
    let mut ours = TextError::new(text, span, error.message);
    (ours.expected, ours.hint, ours.value) = (error.expected, error.hint, error.value);
    ours
}

const METER: &str = "meter";
const GATE: &str = "gate";
const TO_READER: &str = "toreader";

/// A parameter with the number of a reader.
const READER: &[Parameter] = &[Parameter { name: "expression", summary: "number of the reader" }];

/// Adds the classes of readers' graphs to those of a service.
pub fn register(classes: &mut Classes, service: &Arc<Service>) {
    let (meters, readers) = (Arc::clone(service), Arc::clone(service));
    classes.register_with(METER_CLASS, move |settings| {
        let reader = settings.number("expression", 1..=u64::MAX)?;
        Ok(Box::new(Meter { service: Arc::clone(&meters), reader }))
    });
    classes.register_with(TO_READER_CLASS, move |settings| {
        let reader = settings.number("expression", 1..=u64::MAX)?;
        Ok(Box::new(ToReader { service: Arc::clone(&readers), reader }))
    });
    classes.register(GATE_CLASS);
    crate::files::register(classes, service.files());
}

/// Counts the frames of the capture for one reader.
struct Meter {
    service: Arc<Service>,
    reader: u64,
}

const METER_CLASS: Class = Class {
    name: METER,
    summary: "counts the frames that a reader of the service could have",
    parameters: READER,
    needs: |_| Needs::Texts(vec![crate::class::NOTHING.to_owned()]),
    check: Some(|_| Ok(())),
    ..Class::NODE
};

impl Meter {
    fn begin(&self, serial: Option<u64>, count: usize) {
        let now = self.service.elsewhere();
        if let Some(mut table) = self.service.table() {
            table.begin_own(self.reader, serial, count, now);
        }
    }
}

impl Node for Meter {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.begin(Some(arrival.serial()), arrival.mask().count());
        Ok(Mask::EMPTY)
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.begin(None, 0);
        Ok(())
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.begin(None, 0);
        Ok(())
    }
}

/// Passes the frames that a group may see.
struct Gate(Option<FilterReader>);

const GATE_CLASS: Class = Class {
    name: GATE,
    summary: "passes the frames that a group of readers may see",
    parameters: &[
        Parameter { name: "expression", summary: "the filter of the policy" },
        Parameter { name: "group", summary: "the group" },
        Parameter { name: "live", summary: "y: read as for a capture" },
    ],
    needs: |settings| match settings.text("expression") {
        None => Needs::ThoseAfter,
        Some(filter) => Needs::Texts(vec![filter.to_owned()]),
    },
    make: |settings| {
        let Some(filter) = settings.text("expression") else { return Ok(Box::new(Gate(None))) };
        let links = settings.interfaces().iter().map(|interface| interface.link).collect();
        let options = crate::class::options(settings);
        let set = FilterSet::over(Inputs { links }, options, Tags::Read);
        set.set(filter).map_err(|error| MakeError::new("expression", error))?;
        Ok(Box::new(Gate(Some(set.reader()))))
    },
    ..Class::NODE
};

impl Node for Gate {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let Some(reader) = &mut self.0 else { return Ok(arrival.mask()) };
        reader.refresh();
        reader.evaluate(arrival.batch(), arrival.mask()).map_err(NodeError::new)
    }
}

/// Stores the frames that the graph of a reader passes.
struct ToReader {
    service: Arc<Service>,
    reader: u64,
}

const TO_READER_CLASS: Class = Class {
    name: TO_READER,
    summary: "stores frames for a reader of the service",
    parameters: READER,
    check: Some(|_| Ok(())),
    needs: |_| Needs::All("gives its reader all frames"),
    ..Class::NODE
};

impl Node for ToReader {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let Some(mut table) = self.service.table() else { return Ok(Mask::EMPTY) };
        let (mask, is_made) = (arrival.mask(), arrival.held().is_none());
        let mark = |index| Mark { class: arrival.class(index), ..Mark::default() };
        Ok(table.store_own(self.reader, arrival.batch(), arrival.serial(), mask, is_made, mark))
    }
}
