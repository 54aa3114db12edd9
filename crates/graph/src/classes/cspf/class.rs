//! Class `cspf`: passes frames that a program of the stack machine accepts. Cost: one run of the program per frame.
//!
//! Source: the CMU/Stanford packet filter, as the MPF paper describes it.

use crate::node::{Arrival, Class, MakeError, Node, NodeError, Opens, Parameter, Settings};
use crate::programs::Loader;
use fyke_frame::Mask;
use fyke_machine::AnyProgram;
use fyke_machine::cspf::{ByteOrder, Program};
use fyke_machine::load::Isa;

struct Stack(Program);

impl Node for Stack {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        Ok(arrival.select(|frame| self.0.run(frame)))
    }
}

fn program(settings: &Settings) -> Result<Program, MakeError> {
    let path = settings.required("expression")?;
    let order = if settings.flag("little")? { ByteOrder::Little } else { ByteOrder::Network };
    let mut loader = Loader::new(settings, order, |_, _| Ok(Isa::Cspf))?;
    let AnyProgram::Cspf(program) = loader.program(settings, path)? else {
        return Err(MakeError::new("expression", format!("{path}: not a program of CSPF")));
    };
    loader.finish()?;
    Ok(program)
}

/// The class.
pub const CLASS: Class = Class {
    name: "cspf",
    summary: "passes frames that the stack machine's program in the file `expression` accepts",
    parameters: &[
        Parameter { name: "expression", summary: "FILE or FILE:NAME=VALUE,… of a program" },
        Parameter { name: "define", summary: "NAME=VALUE for the program; may be repeated" },
        Parameter { name: "little", summary: "y: the program is for a little-endian machine" },
    ],
    repeatable: true,
    check: Some(|settings| program(settings).map(drop)),
    make: |settings| Ok(Box::new(Stack(program(settings)?))),
    parallel: true,
    opens: |_| Opens::File,
    ..Class::NODE
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_come_from_files_and_errors_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.cspf");
        let path = file.to_str().unwrap();
        let settings = |path: &str| Settings::new([("expression".to_owned(), path.to_owned())]);
        assert!(program(&settings(path)).unwrap_err().refused);
        std::fs::write(&file, "no such thing").unwrap();
        let error = program(&settings(path)).unwrap_err();
        assert!(!error.refused && error.message.contains("p.cspf"), "{error}");
        std::fs::write(&file, "pushword + 1\npushlit | eq #port\n").unwrap();
        assert!(program(&settings(&format!("{path}:port=3"))).is_ok());
        let error = program(&settings(&format!("{path}:port=3,prot=3"))).unwrap_err();
        assert!(error.message.contains("`prot`"), "{error}");
    }
}
