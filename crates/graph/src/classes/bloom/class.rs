//! Class `bloom`: passes frames that may match one of a set of rules, by Bloom arrays; never stops one that does.
//!
//! Rules are Deri's (`ip=10.0.0.1,port=80`). Frames that nobody can judge pass. Cost: a few bit tests per frame,
//! whatever the number of rules. Source: Deri, *High-Speed Dynamic Packet Filtering*.

use crate::node::{Arrival, Class, Counter, MakeError, Node, NodeError, Parameter, Settings};
use fyke_frame::Mask;
use fyke_table::Seed;
use fyke_table::prefilter::{Command, Prefilter, PrefilterOptions, PrefilterReader};

struct Bloom {
    reader: PrefilterReader,
    // The rules live as long as their writer.
    rules: Prefilter,
}

impl Node for Bloom {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(self.reader.passing(arrival.batch(), arrival.mask()))
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = self.reader.counts();
        let stats = self.rules.stats();
        let expected = stats.iter().map(|space| space.expected_false_positives);
        vec![
            Counter::count("rules", self.rules.len() as u64),
            Counter::count("undecided", counts.undecided),
            Counter::new("largest_false_positive_rate", expected.fold(0.0, f64::max)),
        ]
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    settings.required("expression")?;
    let mut rules = Prefilter::new(PrefilterOptions::default(), Seed::random());
    rules.set_negative(settings.flag("negative")?);
    for (_, text) in settings.pairs().iter().filter(|(name, _)| name == "expression") {
        let command = Command::parse(&format!("+{text}"));
        let command = command.map_err(|error| MakeError::new("expression", error))?;
        rules.apply(command).map_err(|error| MakeError::new("expression", error))?;
    }
    Ok(Box::new(Bloom { reader: rules.reader(), rules }))
}

/// The class.
pub const CLASS: Class = Class {
    name: "bloom",
    aliases: &["prefilter"],
    summary: "passes what may match one of the rules `expression`, by Bloom arrays",
    parameters: &[
        Parameter { name: "expression", summary: "a rule, ip=…,port=…; may be repeated" },
        Parameter { name: "negative", summary: "y: passes what matches no rule for certain" },
    ],
    make,
    parallel: true,
    ..Class::NODE
};
