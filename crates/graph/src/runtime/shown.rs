//! Values of nodes that other processes read: a ring shows the counts, the counters and the memory of the node before
//! it. Cost: some look-ups by name for each ring, ten times a second.

use super::nodes::Fresh;
use super::view::{GraphView, NodeView};
use fyke_ring::{Value, Values};
use std::collections::HashMap;
use std::sync::Arc;

/// Values of one ring, and their positions by name.
struct Board {
    values: Arc<Values>,
    places: HashMap<String, usize>,
}

/// The values of all rings, by the keys of their nodes.
#[derive(Default)]
pub(super) struct Boards(HashMap<u64, Board>);

impl Boards {
    /// Takes over the rings of a new plan: those that stay (new key to old key), and those that were made for it.
    pub fn rebuild(&mut self, fresh: &Fresh, stays: &HashMap<u64, u64>) {
        let mut before = std::mem::take(&mut self.0);
        let kept = stays.iter().filter_map(|(&key, old)| Some((key, before.remove(old)?)));
        self.0 = kept.collect();
        for (&key, node) in fresh {
            if let Some(values) = node.values() {
                self.0.insert(key, Board { values, places: HashMap::new() });
            }
        }
    }

    /// Shows the values of the nodes before the rings.
    pub fn show(&mut self, view: &GraphView) {
        if self.0.is_empty() {
            return;
        }
        for ring in &view.nodes {
            let shown = ring.feeds.first().and_then(|feed| view.nodes.get(feed.from));
            if let (Some(board), Some(shown)) = (self.0.get_mut(&ring.key), shown) {
                board.show(shown);
            }
        }
    }
}

impl Board {
    fn show(&mut self, node: &NodeView) {
        let counts = &node.counts;
        for (name, count) in [
            ("arrived", counts.arrived),
            ("passed", counts.passed),
            ("rejected", counts.rejected),
            ("taken", counts.taken),
            ("lost", counts.lost),
            ("emitted", counts.emitted),
            ("late", counts.late),
        ] {
            self.set(name, Value::Count(count));
        }
        for counter in &node.counters {
            self.set(&format!("counter {}", counter.name), Value::Number(counter.value));
        }
        for word in 0..node.memory.len().min(self.values.capacity()) {
            self.set(&format!("memory {word}"), Value::Count(node.memory.get(word)));
        }
    }

    /// Sets a value; the first values of a ring have room, later ones are left out.
    fn set(&mut self, name: &str, value: Value) {
        let next = self.places.len();
        match self.places.get(name) {
            Some(&at) => self.values.set(at, name, value),
            None if next < self.values.capacity() => {
                self.places.insert(name.to_owned(), next);
                self.values.set(next, name, value);
            }
            None => {}
        }
    }
}
