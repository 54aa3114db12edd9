//! Class `bloom`: passes frames that may match one of a set of rules, by Bloom arrays; never stops one that does.
//!
//! Directly after a device, its rules are in the kernel, too, before frames are copied ([`crate::placement`]). Without
//! rules in its text, they are then those of the interface, which another fyke may own, also where the kernel cannot
//! have them; of several interfaces, each has its own. With `own=y` they never are.
//!
//! Rules are Deri's (`ip=10.0.0.1,port=80`). Frames that the rules cannot decide pass. Rules can be changed while it
//! runs: by its parameters, and by `fyke rules`, which edits the node of this class of a running dump, track or
//! graph. Cost: a few bit tests per frame, whatever the number of rules; nothing while it is disabled. Source: Deri,
//! *High-Speed Dynamic Packet Filtering*.

use crate::node::{
    Arrival, Class, Counter, MakeError, Needs, Node, NodeError, Opens, Parameter, Settings,
};
use crate::rules::{REJECTED_IN_KERNEL, RuleSet, RulesPart};
use fyke_frame::Mask;
use fyke_table::prefilter::{
    Command, Decided, PrefilterOptions, PrefilterReader, PrefixLengths, RuleTextError, shared,
};

struct Bloom {
    reader: PrefilterReader,
    rules: RuleSet,
    /// Readers of the rules of each interface, if they are divided, and the frames of a batch that each judges.
    parts: Vec<(PrefilterReader, Mask)>,
    /// Frames of the last batch that passed undecided.
    open: Mask,
    undecided: u64,
}

impl Node for Bloom {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let decided = match self.rules.parts() {
            Some(_) => self.decide_by_interface(arrival),
            None => decide(&self.rules, &mut self.reader, arrival, arrival.mask()),
        };
        self.open = decided.undecided;
        Ok(decided.passed)
    }

    fn settle(&mut self, frames: Mask) {
        self.undecided += (self.open & frames).count() as u64;
    }

    fn counters(&self) -> Vec<Counter> {
        let parts = self.rules.parts().unwrap_or_default();
        let (mut count, mut largest) = (0, 0.0);
        for rules in parts.iter().map(|part| &part.rules).chain([&self.rules]) {
            let rules = rules.lock();
            let stats = rules.stats();
            count += rules.len() as u64;
            let expected = stats.iter().map(|space| space.expected_false_positives);
            largest = expected.fold(largest, f64::max);
        }
        let mut counters = vec![
            Counter::count("rules", count).state(),
            Counter::count("undecided", self.undecided),
            Counter::new("largest_false_positive_rate", largest).state(),
        ];
        let below = self.rules.rejected_below();
        counters.extend(below.map(|frames| Counter::count(REJECTED_IN_KERNEL, frames)));
        counters
    }

    fn rules(&self) -> Option<&RuleSet> {
        Some(&self.rules)
    }

    fn change(&mut self, settings: &Settings) -> bool {
        if self.rules.parts().is_some() {
            return false;
        }
        // Off until it is complete: the kernel may have the rules, too.
        self.rules.lock().set_enabled(false);
        let Ok(_) = self.rules.command("reset") else { return false };
        fill(&self.rules, settings).is_ok()
    }
}

impl Bloom {
    /// Judges each frame by the rules of its interface.
    fn decide_by_interface(&mut self, arrival: &Arrival<'_>) -> Decided {
        let parts = self.rules.parts().unwrap_or_default();
        if self.parts.len() != parts.len() {
            let reader = |part: &RulesPart| (part.rules.leaf().reader(), Mask::EMPTY);
            self.parts = parts.iter().map(reader).collect();
        }
        self.parts.iter_mut().for_each(|(_, frames)| *frames = Mask::EMPTY);
        // Most frames are of the interface of the frame before.
        let mut last = None;
        for (index, frame) in arrival.frames() {
            let of = (frame.interface, frame.meta.ifindex);
            let at = match last {
                Some((known, at)) if known == of => at,
                _ => part_of(parts, &arrival.interface(frame).name, of.1),
            };
            last = Some((of, at));
            if let Some((_, frames)) = at.and_then(|at| self.parts.get_mut(at)) {
                frames.set(index);
            }
        }
        let mut all = Decided { passed: arrival.mask(), undecided: Mask::EMPTY };
        for (part, (reader, frames)) in parts.iter().zip(&mut self.parts) {
            if !frames.is_empty() {
                let decided = decide(part.rules.leaf(), reader, arrival, *frames);
                all.passed = all.passed.without(frames.without(decided.passed));
                all.undecided = all.undecided | decided.undecided;
            }
        }
        all
    }
}

/// Index of the rules for a frame of a source's interface that came from the system's interface with a number.
fn part_of(parts: &[RulesPart], interface: &str, ifindex: u32) -> Option<usize> {
    parts.iter().position(|part| match part.ifindex {
        0 => part.interface == interface,
        number => number == ifindex,
    })
}

/// Judges frames by rules of this process or of another one. Those of a part may refer to the rules of another node.
fn decide(
    rules: &RuleSet,
    reader: &mut PrefilterReader,
    arrival: &Arrival<'_>,
    among: Mask,
) -> Decided {
    match rules.arrays_of_another() {
        Some(arrays) => shared::decide(arrays, arrival.batch(), among),
        None => reader.decide(arrival.batch(), among),
    }
}

/// Applies the rules and switches of the parameters.
fn fill(rules: &RuleSet, settings: &Settings) -> Result<(), MakeError> {
    let enabled = match settings.text("enable") {
        None => settings.text("expression").is_some(),
        Some(_) => settings.flag("enable")?,
    };
    settings.flag("own")?;
    let mut rules = rules.lock();
    rules.set_negative(settings.flag("negative")?);
    for (_, text) in settings.pairs().iter().filter(|(name, _)| name == "expression") {
        let blame = |error: &dyn std::fmt::Display| MakeError::new("expression", error).of(text);
        // The graph is shown with a caret below this text; a second one has no place.
        let wrong = |error: RuleTextError| blame(&format!("{text}: {}", error.message));
        let command = Command::parse(&format!("+{text}")).map_err(wrong)?;
        rules.apply(command).map_err(|error| blame(&error))?;
    }
    rules.set_enabled(enabled);
    Ok(())
}

/// Most KiB of all arrays of a node, as in the kernel.
const MAX_KIB: u64 = 64 << 10;

/// Returns the sizes of the arrays.
fn options(settings: &Settings) -> Result<PrefilterOptions, MakeError> {
    let default = PrefilterOptions::default();
    let prefixes: Option<PrefixLengths> = match settings.text("prefixes") {
        None => None,
        Some(text) => Some(text.parse().map_err(|error| MakeError::new("prefixes", error))?),
    };
    let needed = prefixes.map(|prefixes| prefixes.len() + 1);
    let unsaid = needed.unwrap_or(default.max_spaces) as u64;
    let max_spaces = settings.number_or("arrays", 1..=256, unsaid)? as usize;
    if needed.is_some_and(|needed| max_spaces < needed) {
        let why = "has to be one more than the lengths of `prefixes`, for rules without an address";
        return Err(MakeError::new("arrays", why));
    }
    let bits = settings.number_or("bits", 64..=1 << 29, default.bits)?;
    if bits.div_ceil(8192) * max_spaces as u64 > MAX_KIB {
        let why = format!("{max_spaces} arrays of {bits} bits take more than 64 MiB");
        return Err(MakeError::new("bits", why));
    }
    let hash_pairs = settings.number_or("pairs", 1..=2, default.hash_pairs.into())? as u8;
    Ok(PrefilterOptions { bits, hash_pairs, max_spaces, prefixes, ..default })
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let rules = RuleSet::with_options(options(settings)?, false);
    fill(&rules, settings)?;
    Ok(Box::new(Bloom {
        reader: rules.reader(),
        rules,
        parts: Vec::new(),
        open: Mask::EMPTY,
        undecided: 0,
    }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "bloom",
    aliases: &["prefilter"],
    summary: "passes frames that may match one of the rules `expression`, by Bloom arrays",
    parameters: &[
        Parameter { name: "expression", summary: "a rule, \"ip=…,port=…\"; may be repeated" },
        Parameter { name: "enable", summary: "n: every frame passes (y if there is a rule)" },
        Parameter { name: "negative", summary: "y: passes frames that certainly match no rule" },
        Parameter { name: "bits", summary: "bits of each array, 64 to 536870912 (2097152)" },
        Parameter { name: "pairs", summary: "pairs of hash functions, 1 or 2 (1)" },
        Parameter { name: "prefixes", summary: "prefix lengths of rules: ip/32,ip6/64 (any)" },
        Parameter { name: "arrays", summary: "most arrays, one for each prefix length (16)" },
        Parameter { name: "own", summary: "y: rules of this node alone, in user space only" },
    ],
    repeatable: true,
    needs: |_| Needs::ThoseAfter,
    live: &["expression", "enable", "negative"],
    make,
    opens: Opens::nothing,
    ..Class::NODE
};
