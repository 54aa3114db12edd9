//! The frames of a device that the nodes after it need.

use super::devices;
use crate::node::Needs;
use crate::plan::{Plan, PlanNode};
use fyke_capture::Interface;
use fyke_filter::needs_netmask;
use fyke_filters::FilterSet;
use std::collections::{BTreeSet, HashMap};

/// The frames of a device that the nodes after it need.
#[derive(Default)]
pub(super) struct Wanted {
    pub consumers: Vec<WantedBy>,
    /// Reason why every frame is needed.
    pub all: Option<String>,
}

/// The frames that a node needs.
pub(super) struct WantedBy {
    /// Index of the node in the plan.
    pub at: usize,
    /// True for a node with editable filters, which add to the texts.
    pub has_filters: bool,
    pub texts: BTreeSet<String>,
    /// Classes of the texts, if they have some.
    pub classes: Vec<(String, u32)>,
    /// True if the texts accept what trackers expect.
    pub rows_covered: bool,
    /// Netmask that the texts are read with.
    pub netmask: u32,
}

impl WantedBy {
    /// True if a lower filter that reads texts with this netmask accepts what the node needs, beside its filters.
    pub fn fits(&self, netmask: u32) -> bool {
        self.netmask == netmask || !self.needs_netmask()
    }

    fn needs_netmask(&self) -> bool {
        self.texts.iter().any(|text| needs_netmask(text))
    }
}

/// Reason for which one lower filter does not do for all consumers.
pub(super) const NETMASKS: &str = "the filters are read with different netmasks";

/// The netmask with which a set reads its texts.
pub(super) fn netmask_of(set: &FilterSet) -> u32 {
    set.reading().0.netmask.unwrap_or(0)
}

/// The frames that must be held for each node that edits filters ([`Node::held`]), by key.
pub(crate) type Held = HashMap<u64, Option<String>>;

impl Wanted {
    /// `interfaces` are those of the device; none before it is open.
    pub fn of(plan: &Plan, device: usize, interfaces: &[Interface], held: &Held) -> Wanted {
        let mut wanted = Wanted::default();
        let mut rest = vec![device];
        while let Some(from) = rest.pop() {
            let fed = |node: &PlanNode| node.feeds.iter().any(|feed| feed.from == from);
            let after: Vec<_> = (0..plan.nodes.len()).filter(|&at| fed(&plan.nodes[at])).collect();
            if after.is_empty() {
                wanted.needs_all(format!("no filter follows {}", plan.nodes[from].name));
            }
            for at in after {
                if wanted.add(plan, at, from, interfaces, held) {
                    rest.push(at);
                }
            }
        }
        wanted
    }

    fn needs_all(&mut self, why: String) {
        self.all.get_or_insert(why);
    }

    /// Adds what a node needs; returns true if its successors decide.
    fn add(
        &mut self,
        plan: &Plan,
        at: usize,
        from: usize,
        interfaces: &[Interface],
        held: &Held,
    ) -> bool {
        let node = &plan.nodes[at];
        let mut from_here = node.feeds.iter().filter(|feed| feed.from == from);
        if node.inverted || from_here.any(|feed| feed.class.is_some()) {
            self.needs_all(format!("{} needs frames that a filter rejects", node.name));
            return false;
        }
        if self.consumers.iter().any(|one| one.at == at) {
            return false;
        }
        let settings = node.settings.after(interfaces.to_vec());
        let mut classes = Vec::new();
        let (texts, has_filters) = match (node.class.needs)(&settings) {
            Needs::All(why) => {
                self.needs_all(format!("{} {why}", node.name));
                return false;
            }
            Needs::ThoseAfter if node.exported => {
                self.needs_all(format!("{} counts all frames", node.name));
                return false;
            }
            Needs::ThoseAfter => return true,
            Needs::Texts(texts) => (texts.into_iter().collect(), false),
            Needs::Classes(texts) => {
                classes.clone_from(&texts);
                (texts.into_iter().map(|(text, _)| text).collect(), false)
            }
            Needs::Filters { also } => (also.into_iter().collect(), true),
        };
        let rows_covered = has_filters && settings.flag("lookback").unwrap_or(true);
        let netmask = settings.netmask();
        let mut one = WantedBy { at, has_filters, texts, classes, rows_covered, netmask };
        if has_filters {
            self.add_held(plan, &mut one, held);
        } else if one.needs_netmask() && devices(plan).count() > 1 {
            // The node reads with the netmask of the first interface before it, whatever this device's is.
            self.needs_all(NETMASKS.to_owned());
        }
        self.consumers.push(one);
        false
    }

    /// Adds what the nodes that edit the filters of a node need beside these.
    fn add_held(&mut self, plan: &Plan, one: &mut WantedBy, held: &Held) {
        let name = &plan.nodes[one.at].name;
        let all = plan.nodes.iter().enumerate();
        let editors =
            all.filter(|(at, node)| node.class.edits && edited(plan, *at) == Some(one.at));
        let mut known = false;
        for (_, editor) in editors {
            known = true;
            match held.get(&editor.key).and_then(Option::as_ref) {
                None => self.needs_all(format!(
                    "{} edits {name} and does not declare which frames must be held",
                    editor.name
                )),
                Some(text) if one.rows_covered => {
                    one.texts.insert(text.clone());
                }
                Some(_) => {}
            }
        }
        if one.rows_covered && !known {
            self.needs_all(format!("{name} looks back at frames that it rejected"));
        }
    }
}

/// Index of the node with the filters that a node edits: the nearest editable one before it.
pub(super) fn edited(plan: &Plan, editor: usize) -> Option<usize> {
    let mut level = vec![editor];
    // Each level is nearer to the sources, and the graph has no cycles.
    while !level.is_empty() {
        let feeds = level.iter().flat_map(|&at| &plan.nodes[at].feeds);
        level = feeds.map(|feed| feed.from).collect();
        level.sort_unstable();
        level.dedup();
        let found = level.iter().copied().find(|&at| plan.nodes[at].class.editable);
        if found.is_some() {
            return found;
        }
    }
    None
}
