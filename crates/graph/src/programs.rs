//! Programs of the pseudo machines as nodes receive them: files, with values for the names in them.
//!
//! The classes `mpf` and `cspf` use it. It reads files, so it runs when a graph is planned, made or edited, never for
//! a frame.

use crate::node::{MakeError, Settings};
use crate::texts::read;
use fyke_machine::AnyProgram;
use fyke_machine::cspf::ByteOrder;
use fyke_machine::load::{Isa, Loaded, Reading, Values, first_word, load, split};
use std::collections::HashSet;

/// Reads the programs of one node.
pub(crate) struct Loader {
    shared: Values,
    read: HashSet<String>,
    order: ByteOrder,
    /// Returns the machine of a program text.
    isa: fn(&str, &Settings) -> Result<Isa, MakeError>,
}

impl Loader {
    /// Creates a loader with the values of the parameter `define`.
    pub fn new(
        settings: &Settings,
        order: ByteOrder,
        isa: fn(&str, &Settings) -> Result<Isa, MakeError>,
    ) -> Result<Loader, MakeError> {
        let mut shared = Values::default();
        for (_, definition) in settings.pairs().iter().filter(|(name, _)| name == "define") {
            let added = shared.add(definition);
            added.map_err(|problem| MakeError::new("define", problem).of(definition))?;
        }
        Ok(Loader { shared, read: HashSet::new(), order, isa })
    }

    /// The program of an `expression`: `FILE` or `FILE:NAME=VALUE,…`.
    pub fn program(
        &mut self,
        settings: &Settings,
        expression: &str,
    ) -> Result<AnyProgram, MakeError> {
        let blame = |problem: String| MakeError::new("expression", problem).of(expression);
        let (path, own) = split(expression).map_err(blame)?;
        let text = read(path, fyke_machine::text::MAX_TEXT).map_err(|error| {
            MakeError::refused("expression", format!("{path}: {error}")).of(expression)
        })?;
        let isa = Some((self.isa)(&text, settings)?);
        let reading = Reading { isa, order: self.order, shared: &self.shared, own: &own };
        let loaded = load(&text, &reading).map_err(|error| blame(format!("{path}: {error}")))?;
        let Loaded { program, read, .. } = loaded;
        self.read.extend(read);
        Ok(program)
    }

    /// Refuses a value that none of the programs reads.
    pub fn finish(self) -> Result<(), MakeError> {
        let unused = self.shared.names().find(|name| !self.read.contains(*name));
        unused.map_or(Ok(()), |name| {
            let problem = format!("no program has a name `{name}` without a value of its own");
            Err(MakeError::new("define", problem))
        })
    }
}

/// The machine of a program for class `mpf`: the one that the parameter `isa` names, else the one that the first word
/// names. A program of the register machines without `begin` counts as MPF, whose instructions include those of BPF.
pub(crate) fn isa_of(text: &str, settings: &Settings) -> Result<Isa, MakeError> {
    let named = [None, Some(Isa::Mpf), Some(Isa::Bpf), Some(Isa::Cspf)];
    let named = named[settings.choice("isa", &["first", "mpf", "bpf", "cspf"])?];
    Ok(named.unwrap_or_else(|| match first_word(text) {
        Ok(Isa::Cspf) => Isa::Cspf,
        _ => Isa::Mpf,
    }))
}
