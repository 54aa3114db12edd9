//! Class `bpf`: passes the frames that a pcap filter text accepts, judged by the pass engine.
//!
//! One text, any link type: the text is lowered for each link type that turns up. Cost: the pass engine's, about 1 ns
//! a frame for small filters.

use crate::filters::{FilterReader, FilterSet};
use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError, Settings};
use fyke_filter::Options;
use fyke_frame::Mask;

struct Filter {
    reader: FilterReader,
    filters: FilterSet,
}

impl Node for Filter {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        self.reader.refresh();
        let passed = self.reader.evaluate(arrival.batch(), arrival.mask());
        let passed = passed.map_err(NodeError::new)?;
        self.reader.count(arrival.mask());
        Ok(passed)
    }

    fn counters(&self) -> Vec<Counter> {
        let views = self.filters.view();
        vec![Counter::count("accepted", views.iter().map(|view| view.accepted).sum())]
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let filters = FilterSet::new(Options::default());
    let text = settings.text("expression").unwrap_or_default();
    filters.set(text).map_err(|error| MakeError::new("expression", error))?;
    Ok(Box::new(Filter { reader: filters.reader(), filters }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "bpf",
    aliases: &["filter", "bpf_filter"],
    summary: "passes what the pcap filter text `expression` accepts; all when there is none",
    make,
    ..Class::NODE
};
