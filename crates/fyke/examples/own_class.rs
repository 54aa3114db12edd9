//! A step of your own in a graph: a class that passes each conversation's first frames only.

use fyke::Error;
use fyke::frame::{Mask, walk};
use fyke::graph::node::{Arrival, Class, Counter, Node, NodeError, Parameter};
use fyke::graph::{Classes, GraphHandle};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Both addresses of a conversation, the smaller one first.
type Ends = [IpAddr; 2];

/// Most conversations that are known at a time; later ones pass whole.
const CONVERSATIONS: usize = 100_000;

struct First {
    limit: u64,
    seen: HashMap<Ends, u64>,
}

impl Node for First {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let First { limit, seen } = self;
        Ok(arrival.select(|frame| {
            let Some(ip) = walk(frame).outermost_ip() else { return true };
            let mut ends: Ends = [ip.source(), ip.destination()];
            ends.sort();
            if seen.len() >= CONVERSATIONS && !seen.contains_key(&ends) {
                return true;
            }
            let count = seen.entry(ends).or_default();
            *count += 1;
            *count <= *limit
        }))
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("conversations", self.seen.len() as u64)]
    }
}

const CLASS: Class = Class {
    name: "first",
    summary: "passes the first `expression` frames between two hosts",
    parameters: &[Parameter { name: "expression", summary: "how many frames (10)" }],
    // Not `parallel`: workers share frames by the innermost addresses and ports, and the counts here belong to the
    // outermost addresses, so two workers could have frames of one count.
    make: |settings| {
        let limit = settings.number_or("expression", 1..=u64::MAX, 10)?;
        Ok(Box::new(First { limit, seen: HashMap::new() }))
    },
    ..Class::NODE
};

fn main() -> Result<(), Error> {
    let mut classes = Classes::new();
    classes.register(CLASS);
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/readme/ftp.pcapng");
    let text = format!("(pcapin, expression=\"{trace}\") > {{first}}(first, expression=4)");
    let (mut engine, handle) = GraphHandle::start(&[&text], classes)?;
    engine.run(&AtomicBool::new(false))?;

    let view = handle.view();
    let first = view.node("first").expect("the tag of the node");
    let conversations = first.counters[0].value as u64;
    println!(
        "{conversations} conversations, {} of {} frames",
        first.counts.passed, first.counts.arrived
    );
    assert!(conversations > 0 && first.counts.passed <= 4 * conversations);
    assert!(first.counts.is_exact() && first.counts.rejected > 0);
    Ok(())
}
