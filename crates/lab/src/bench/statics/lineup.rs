//! The engines of a case; a note is added for each that cannot take part.

use super::super::BenchError;
use super::super::engine::{Engine, Floor, Fyke, Interpreter, Jit, OptC, reader_of};
use super::super::filters::pair_text;
use super::super::hash::Hash;
use super::{Bench, Case, Kind};
use crate::peers::jit::Code;
use fyke_filter::Predicate;
use fyke_frame::LinkType;

pub(super) const SNAPLEN: u32 = 262_144;
/// Maximum number of (host, port) pairs for libpcap's compiler: more would take minutes.
const MAX_COMPILED_PAIRS: usize = 1_000;
/// Maximum number for engines without tables: more would take microseconds per frame.
const MAX_PASSES: usize = 1_000;

/// Engines of this bench.
pub const ENGINES: [&str; 17] = [
    "floor",
    "libpcap",
    "jit",
    "opt-c",
    "opt-c-prefetch",
    "opt-c-branchfree",
    "hash",
    "fyke",
    "fyke-text",
    "fyke-avx512",
    "fyke-avx2",
    "fyke-portable",
    "no-hierarchy",
    "no-simd",
    "no-tables",
    "no-batch",
    "reference",
];

type Engines = Vec<Box<dyn Engine>>;

pub(super) fn compiled(case: &str, text: &str) -> Result<Predicate, BenchError> {
    fyke_filter::compile(text, &fyke_filter::Options::default())
        .map_err(|error| BenchError::Text { case: case.to_owned(), message: error.to_string() })
}

impl Bench<'_> {
    /// Returns the engines of a case.
    pub(super) fn engines(&mut self, case: &Case) -> Result<Engines, BenchError> {
        let mut engines: Engines = vec![Box::new(Floor)];
        self.libpcap_engines(case, &mut engines);
        match case.kind {
            Kind::Static => self.static_engines(case, &mut engines)?,
            Kind::Set => self.set_engines(case, &mut engines)?,
            Kind::Real => self.text_engines(case, &mut engines),
        }
        Ok(engines)
    }

    fn libpcap_engines(&mut self, case: &Case, engines: &mut Engines) {
        let Some(libpcap) = &self.libpcap else { return };
        if case.pairs.len() > MAX_COMPILED_PAIRS {
            self.report.note(format!(
                "{}: libpcap and its JIT end at {MAX_COMPILED_PAIRS} pairs, beyond which compiling \
                 takes seconds, then minutes (fyke bench update)",
                case.name
            ));
            return;
        }
        match libpcap.compile(LinkType::EN10MB, SNAPLEN, &case.text, true) {
            Ok(program) => {
                match Code::new(program.instructions()) {
                    Ok(code) => engines.push(Box::new(Jit(code))),
                    Err(error) => self.report.note(format!("{}: without JIT: {error}", case.name)),
                }
                engines.push(Box::new(Interpreter(program)));
            }
            Err(error) => self.report.note(format!("{}: without libpcap: {error}", case.name)),
        }
    }

    /// Adds the engines of F1–F6.
    fn static_engines(&mut self, case: &Case, engines: &mut Engines) -> Result<(), BenchError> {
        match self.object.as_ref().map(|object| OptC::forms(object, &case.name)) {
            Some(Ok(forms)) => forms.into_iter().for_each(|one| engines.push(Box::new(one))),
            Some(Err(error)) => self.report.note(format!("{}: without C: {error}", case.name)),
            None => {}
        }
        let reader = reader_of(LinkType::EN10MB, &[compiled(&case.name, &case.text)?])?;
        engines.push(Box::new(Fyke::new("fyke", reader.clone())));
        let others = Fyke::levels(&reader).chain(Fyke::ablations(&reader));
        others.for_each(|one| engines.push(Box::new(one)));
        Ok(())
    }

    /// Adds the engines of D10–D100000: our table used frame by frame, and one filter per pair, as users add them;
    /// `fyke-text` has all pairs in one text.
    fn set_engines(&mut self, case: &Case, engines: &mut Engines) -> Result<(), BenchError> {
        match Hash::new(&case.pairs) {
            Ok(hash) => engines.push(Box::new(hash)),
            Err(error) => self.report.note(format!("{}: without hash: {error}", case.name)),
        }
        let texts = case.pairs.iter().map(|&pair| pair_text(pair));
        let filters: Result<Vec<Predicate>, BenchError> = std::iter::once("tcp port 21".to_owned())
            .chain(texts)
            .map(|text| compiled(&case.name, &text))
            .collect();
        let reader = reader_of(LinkType::EN10MB, &filters?)?;
        engines.push(Box::new(Fyke::new("fyke", reader.clone())));
        Fyke::levels(&reader).for_each(|one| engines.push(Box::new(one)));
        if case.pairs.len() > MAX_PASSES {
            self.report.note(format!(
                "{}: without ablations and the linear peers, which end at {MAX_PASSES} pairs",
                case.name
            ));
            return Ok(());
        }
        // With many passes, the evaluator that takes them one by one would only show that it is slow.
        let bearable = Fyke::ablations(&reader).into_iter().filter(|one| one.name() != "reference");
        bearable.for_each(|one| engines.push(Box::new(one)));
        match compiled(&case.name, &case.text).and_then(|text| reader_of(text.link(), &[text])) {
            Ok(reader) => engines.push(Box::new(Fyke::new("fyke-text", reader))),
            Err(error) => self.report.note(format!("{}: without fyke-text: {error}", case.name)),
        }
        Ok(())
    }

    /// Adds the engines of a text from the file: generated C, and fyke with its fastest path.
    fn text_engines(&mut self, case: &Case, engines: &mut Engines) {
        let ours = compiled(&case.name, &case.text).and_then(|text| {
            let reader = reader_of(text.link(), std::slice::from_ref(&text))?;
            Ok((text, reader))
        });
        let (text, reader) = match ours {
            Ok(ours) => ours,
            Err(error) => return self.report.note(format!("{}: without fyke: {error}", case.name)),
        };
        if self.object.is_some() {
            match OptC::of_text(&text) {
                Ok(Some(one)) => engines.push(Box::new(one)),
                Ok(None) => {
                    self.report.note(format!("{}: too deep for the C compiler", case.name));
                }
                Err(error) => self.report.note(format!("{}: without C: {error}", case.name)),
            }
        }
        engines.push(Box::new(Fyke::new("fyke", reader)));
    }
}
