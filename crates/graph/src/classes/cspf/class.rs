//! Class `cspf`: passes frames that a program of the stack machine accepts. Cost: one run of the program per frame.
//!
//! Source: the CMU/Stanford packet filter, as the MPF paper describes it.

use crate::node::{Arrival, Class, MakeError, Node, NodeError, Parameter, Settings};
use fyke_frame::Mask;
use fyke_machine::bpf::numbers::is_numbers;
use fyke_machine::cspf::{ByteOrder, Program, assemble};
use fyke_machine::papers;

struct Stack(Program);

impl Node for Stack {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.select(|frame| self.0.run(frame)))
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Node>, MakeError> {
    let path = settings.required("expression")?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| MakeError::refused("expression", format!("{path}: {error}")))?;
    let order = if settings.flag("little")? { ByteOrder::Little } else { ByteOrder::Network };
    let mut symbols = papers::stack_machine(order);
    for (_, definition) in settings.pairs().iter().filter(|(name, _)| name == "define") {
        symbols.define_text(definition).map_err(|problem| MakeError::new("define", problem))?;
    }
    let words = match is_numbers(&text) {
        true => assemble::read_numbers(&text),
        false => assemble::assemble(&text, &symbols),
    };
    let blame = |error: String| MakeError::new("expression", format!("{path}: {error}"));
    let words = words.map_err(|error| blame(error.to_string()))?;
    let program = Program::new(words, order).map_err(|error| blame(error.to_string()))?;
    Ok(Box::new(Stack(program)))
}

/// The class.
pub const CLASS: Class = Class {
    name: "cspf",
    summary: "passes what the stack machine's program in the file `expression` accepts",
    parameters: &[
        Parameter { name: "expression", summary: "file of a program, as text or numbers" },
        Parameter { name: "define", summary: "NAME=VALUE for the program; may be repeated" },
        Parameter { name: "little", summary: "y: the program is for a little-endian machine" },
    ],
    repeatable: true,
    check: Some(|settings| settings.required("expression").map(drop)),
    make,
    parallel: true,
    ..Class::NODE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_come_from_files_and_errors_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.cspf");
        let settings = |path: &std::path::Path| {
            let path = path.to_str().unwrap().to_owned();
            Settings::new([("expression".to_owned(), path)])
        };
        assert!(make(&settings(&file)).err().unwrap().refused);
        std::fs::write(&file, "no such thing").unwrap();
        let error = make(&settings(&file)).err().unwrap();
        assert!(!error.refused && error.message.contains("p.cspf"), "{error}");
    }
}
