//! The default of `live`, which decides how a node reads its filter texts: `y` if all frames of the node come from
//! network interfaces, else `n`. So a filter after a device means what it means to `fyke dump -i`, and can run in the
//! kernel ([`placement`](crate::placement)). A value in the text is kept.
//!
//! The default is a parameter of the node like one in the text: if its sources change, the node is made anew. Cost:
//! O(nodes + edges).

use super::{Builder, Draft, Feed, blame};
use crate::language::TextError;
use crate::node::{Class, Kind};

/// Name of the parameter.
const LIVE: &str = "live";

/// True if nodes of a class read filter texts for a capture or for a file.
fn has_readings(class: &Class) -> bool {
    class.filters.is_some() && class.parameters.iter().any(|parameter| parameter.name == LIVE)
}

impl Draft {
    /// Selects the default for a node of which all frames come from interfaces (`live`), or not.
    pub(super) fn read_as(&mut self, live: bool) {
        self.captures = live;
        let is_given = |name: &str, value: &str| name == LIVE && !value.is_empty();
        let given = self.written.parameters.iter().any(|one| is_given(&one.name, &one.value));
        if has_readings(&self.class) && !given {
            self.settings.set_default(LIVE, live.then_some("y"));
        }
    }
}

impl Builder<'_> {
    /// True if all frames of a node with these feeds come from interfaces, as far as the text is read.
    pub(super) fn captures(&self, class: &Class, feeds: &[Feed]) -> bool {
        match class.kind {
            Kind::Source => class.name == "device",
            Kind::Node => {
                !feeds.is_empty() && feeds.iter().all(|feed| self.drafts[feed.from].captures)
            }
        }
    }

    /// Corrects the defaults of nodes that got more feeds in a later place of the texts.
    pub(super) fn settle_readings(&mut self, texts: &[&str]) -> Result<(), TextError> {
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.drafts.len()];
        for (at, draft) in self.drafts.iter().enumerate() {
            draft.feeds.iter().for_each(|feed| after[feed.from].push(at));
        }
        let is_other = |draft: &Draft| draft.class.kind == Kind::Source && !draft.captures;
        let others = self.drafts.iter().enumerate().filter(|(_, draft)| is_other(draft));
        let mut rest: Vec<usize> = others.map(|(at, _)| at).collect();
        let mut has_other = vec![false; self.drafts.len()];
        while let Some(at) = rest.pop() {
            if !std::mem::replace(&mut has_other[at], true) {
                rest.extend(&after[at]);
            }
        }
        for (draft, has_other) in self.drafts.iter_mut().zip(has_other) {
            if draft.captures != has_other {
                continue;
            }
            draft.read_as(!has_other);
            let check = draft.class.check.filter(|_| has_readings(&draft.class));
            match check.map_or(Ok(()), |check| check(&draft.settings)) {
                Err(error) if error.varies && self.opening => {}
                Err(error) => return Err(blame(texts[draft.text], &draft.written, &error)),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}
