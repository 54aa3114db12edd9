//! Class `topk`: the most frequent addresses or ports, in bounded memory; passes every frame.
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi 2005) with 16 counters per place asked for: a value whose share is above
//! 1/(16 K) is never missing, and a count is too high by at most frames/(16 K); `error` says by how much at most. Cost:
//! a header walk and a look-up per frame; a scan of the counters when a new value comes. Source: MAPI's TOP.

use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError, Parameter, Settings};
use fyke_frame::{Frame, Mask, walk};
use std::collections::HashMap;
use std::fmt::Display;

const PER_PLACE: usize = 16;
const FIELDS: [&str; 6] = ["src", "dst", "host", "srcport", "dstport", "port"];

struct TopK {
    places: usize,
    field: usize,
    counts: HashMap<u128, Entry>,
}

#[derive(Clone)]
struct Entry {
    name: String,
    count: u64,
    error: u64,
}

impl TopK {
    fn add(&mut self, key: u128, name: &dyn Display) {
        if let Some(entry) = self.counts.get_mut(&key) {
            entry.count += 1;
            return;
        }
        let mut error = 0;
        if self.counts.len() >= self.places * PER_PLACE {
            let lowest = self.counts.iter().min_by_key(|(key, entry)| (entry.count, **key));
            if let Some((&lowest, entry)) = lowest {
                error = entry.count;
                self.counts.remove(&lowest);
            }
        }
        let entry = Entry { name: name.to_string(), count: error + 1, error };
        self.counts.insert(key, entry);
    }

    fn look(&mut self, frame: &Frame<'_>) {
        let layers = walk(frame);
        let field = FIELDS[self.field];
        if field.ends_with("port") {
            let Some(ports) = layers.ports() else { return };
            if field != "dstport" {
                self.add(u128::from(ports.source), &ports.source);
            }
            if field != "srcport" {
                self.add(u128::from(ports.destination), &ports.destination);
            }
            return;
        }
        let Some(ip) = layers.innermost_ip() else { return };
        for (address, other) in [(ip.source(), "dst"), (ip.destination(), "src")] {
            if field == other {
                continue;
            }
            let key = match address {
                std::net::IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
                std::net::IpAddr::V6(address) => u128::from(address),
            };
            self.add(key, &address);
        }
    }
}

impl Node for TopK {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        for (_, frame) in arrival.frames() {
            self.look(frame);
        }
        Ok(arrival.mask())
    }

    fn counters(&self) -> Vec<Counter> {
        let mut entries: Vec<_> = self.counts.values().cloned().collect();
        entries.sort_by(|a, b| b.count.cmp(&a.count).then(a.name.cmp(&b.name)));
        entries.truncate(self.places);
        let error = entries.iter().map(|entry| entry.error).max().unwrap_or(0);
        let counts = entries.into_iter().map(|entry| Counter::count(entry.name, entry.count));
        counts.chain([Counter::count("error", error)]).collect()
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok(places) = places(settings) else { return false };
        self.places = places;
        // Fewer places: the rarest go.
        while self.counts.len() > places * PER_PLACE {
            let rarest = self.counts.iter().min_by_key(|(key, entry)| (entry.count, **key));
            let Some((&rarest, _)) = rarest else { break };
            self.counts.remove(&rarest);
        }
        true
    }
}

fn places(settings: &Settings) -> Result<usize, MakeError> {
    Ok(settings.number_or("expression", 1..=1_000, 10)? as usize)
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let places = places(settings)?;
    let field = settings.choice("field", &FIELDS)?;
    Ok(Box::new(TopK { places, field, counts: HashMap::new() }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "topk",
    aliases: &["top"],
    summary: "the `expression` most frequent values of a field; passes every frame",
    parameters: &[
        Parameter { name: "expression", summary: "how many (10)" },
        Parameter { name: "field", summary: "src (default), dst, host, srcport, dstport, port" },
    ],
    make,
    live: &["expression"],
    ..Class::NODE
};
