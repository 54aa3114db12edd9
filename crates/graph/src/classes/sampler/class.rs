//! Class `sampler`: passes a part of the frames.
//!
//! `periodic` passes the first of every N frames; `probabilistic` passes each frame with probability 1/N,
//! reproducible by its seed; `flow` passes all frames of one in N conversations. It hashes addresses and ports of the
//! innermost packet, the same in both directions, so sampled conversations are complete. Cost: a counter or one
//! multiplication per frame; `flow` walks the headers. Source: FFPF, Fig. 2.9; MAPI's SAMPLE and HASHSAMP.

use crate::node::{Arrival, Class, MakeError, Node, NodeError, Opens, Parameter, Settings};
use fyke_frame::{Mask, walk};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;

struct Sampler {
    every: u64,
    mode: usize,
    state: u64,
}

const EVERY: RangeInclusive<u64> = 1..=1_000_000_000;
const MODES: [&str; 3] = ["periodic", "probabilistic", "flow"];

impl Sampler {
    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Hash of a conversation, equal for both directions; frames without IP share one.
fn conversation(frame: &fyke_frame::Frame<'_>, seed: u64) -> u64 {
    let layers = walk(frame);
    let Some(ip) = layers.innermost_ip() else { return 0 };
    let ports = layers.ports();
    let ends = [
        (ip.source(), ports.map(|ports| ports.source)),
        (ip.destination(), ports.map(|ports| ports.destination)),
    ];
    let (low, high) = if ends[0] <= ends[1] { (0, 1) } else { (1, 0) };
    let mut hasher = DefaultHasher::new();
    (seed, ends[low], ends[high]).hash(&mut hasher);
    hasher.finish()
}

impl Node for Sampler {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let (every, seed) = (self.every, self.state);
        if self.mode == 2 {
            return Ok(arrival.select(|frame| conversation(frame, seed).is_multiple_of(every)));
        }
        let mut passed = Mask::EMPTY;
        for index in arrival.mask().iter() {
            let take = match self.mode {
                0 => {
                    let first = self.state == 0;
                    self.state = (self.state + 1) % every;
                    first
                }
                _ => self.random().is_multiple_of(every),
            };
            if take {
                passed.set(index);
            }
        }
        Ok(passed)
    }

    fn change(&mut self, settings: &Settings) -> bool {
        let Ok(every) = settings.number("expression", EVERY) else { return false };
        self.every = every;
        if self.mode == 0 {
            self.state %= every;
        }
        true
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let every = settings.number("expression", EVERY)?;
    let mode = settings.choice("mode", &MODES)?;
    let seed = settings.number_or("seed", 0..=u64::MAX, 1)?;
    Ok(Box::new(Sampler { every, mode, state: if mode == 0 { 0 } else { seed } }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "sampler",
    aliases: &["sample"],
    summary: "passes one in `expression` frames",
    parameters: &[
        Parameter { name: "expression", summary: "N: one in N" },
        Parameter { name: "mode", summary: "periodic (default), probabilistic, or flow" },
        Parameter { name: "seed", summary: "for probabilistic and flow (1)" },
    ],
    make,
    live: &["expression"],
    // `flow` decides per conversation; the other modes depend on the order of all frames.
    ordered: |settings| !matches!(settings.choice("mode", &MODES), Ok(2)),
    opens: Opens::nothing,
    ..Class::NODE
};
