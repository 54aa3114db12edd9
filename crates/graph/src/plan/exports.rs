//! Exports: a node with `export=y` feeds a ring, if the graph has a folder for rings ([`Classes::export_to`]).
//!
//! The ring is a node of class `toring` after the exported one, named after its tag, or after its class if it has
//! none. So an edit, several workers, emitted frames and the sum treat it as any other output, and a plan shows it.
//! Cost: that of the node.
//!
//! [`Classes::export_to`]: crate::Classes::export_to

use super::{Builder, Draft, Feed, Join};
use crate::language::{NodeText, ParameterText, TextError};
use crate::node::Settings;
use std::collections::{BTreeMap, BTreeSet};

/// Class of the nodes that are added.
const CLASS: &str = "toring";
/// Most exports of a graph: each has a socket and a thread.
const MAX_EXPORTS: usize = 256;

/// An added node: its draft, the exported draft, and the name of the ring.
pub(super) struct Added {
    draft: usize,
    exported: usize,
    name: String,
}

impl Builder<'_> {
    /// Adds a ring after each exported node.
    pub(super) fn add_exports(&mut self, texts: &[&str]) -> Result<Vec<Added>, TextError> {
        let Some(folder) = self.classes.exports() else { return Ok(Vec::new()) };
        let Some((class, makers)) = self.classes.entry(CLASS).cloned() else {
            return Ok(Vec::new());
        };
        let mut added: Vec<Added> = Vec::new();
        for exported in 0..self.drafts.len() {
            let node = &self.drafts[exported];
            if !node.exported || node.class.name == CLASS {
                continue;
            }
            let at = |message: String| {
                TextError::new(texts[node.text], node.written.span.clone(), message)
            };
            let name = node.tags.first().map_or(node.class.name, String::as_str).to_owned();
            if added.len() == MAX_EXPORTS {
                return Err(at(format!("more than {MAX_EXPORTS} exported nodes")));
            }
            let path = folder.join(&name).display().to_string();
            let (text, span) = (node.text, node.written.span.clone());
            let parameter = ParameterText {
                name: "expression".to_owned(),
                value: path.clone(),
                name_span: span.clone(),
                value_span: span.clone(),
            };
            let parameters = vec![parameter];
            let class_span = span.clone();
            let written =
                NodeText { tag: None, class: CLASS.to_owned(), parameters, span, class_span };
            let (draft, tags) = (self.drafts.len(), BTreeSet::new());
            self.drafts.push(Draft {
                class,
                makers: makers.clone(),
                settings: Settings::new([("expression".to_owned(), path)]),
                written,
                text,
                tags,
                exported: false,
                inverted: false,
                join: Join::Any,
                feeds: vec![Feed { from: exported, class: None }],
                captures: false,
            });
            added.push(Added { draft, exported, name });
        }
        Ok(added)
    }

    /// Refuses two exported nodes of one name; `place` tells which drafts have become one node.
    pub(super) fn check_exports(
        &self,
        texts: &[&str],
        place: &[usize],
        added: &[Added],
    ) -> Result<(), TextError> {
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        for Added { draft, exported, name } in added {
            if *named.entry(name).or_insert(place[*draft]) != place[*draft] {
                let node = &self.drafts[*exported];
                let message = format!("two nodes would be exported as {name}");
                let error = TextError::new(texts[node.text], node.written.span.clone(), message);
                return Err(error.expected("a tag of its own: `{name}(class, …, export=y)`"));
            }
        }
        Ok(())
    }
}
