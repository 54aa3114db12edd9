//! Benches: engines of one case measured side by side, in one run, on the same frames.
//!
//! | module | what |
//! |---|---|
//! | [`measure`] | rounds in which every engine has its turn; medians |
//! | [`report`] | a measurement, its JSON line, the table for people, plots |
//! | [`traffic`] | the seeded generator of frames |
//! | [`frames`] | frames in memory, cache- or DRAM-resident, as each engine likes them |
//! | [`engine`] | what a filter engine is, and ours |
//! | [`hash`](mod@hash) | our hash table used frame by frame |
//! | [`filters`] | the papers' filters F1–F6 and the sets D10–D100000 |
//! | [`demux`] | `fyke bench demux` |
//! | [`statics`] | `fyke bench static` |
//! | [`update`] | `fyke bench update` |
//! | [`dynamic`] | `fyke bench dynamic` |
//! | [`bloom`] | `fyke bench bloom` |
//! | [`ruler`] | `fyke bench ruler` |
//! | [`graph`] | `fyke bench graph` |
//! | [`list`] | all benches, and what each of them reads |
//! | [`workers`] | `fyke bench workers` |
//!
//! A new bench is a function from [`Options`] and a [`Progress`] to a [`report::Report`]: it checks that all engines
//! give the same answers ([`BenchError::Mismatch`] otherwise), measures with [`measure::rounds`], pushes
//! [`report::Measurement`]s. It must run to the end within seconds when [`Options::smoke`] is set, because the tests
//! do that. Figures are medians; what counts are ratios within one run.

pub mod bloom;
pub mod demux;
pub mod dynamic;
pub mod engine;
pub mod filters;
pub mod frames;
pub mod graph;
pub mod hash;
pub mod list;
pub mod measure;
pub mod report;
pub mod ruler;
pub mod statics;
pub mod traffic;
pub mod update;
pub mod workers;

use std::path::PathBuf;

/// How a bench runs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Seconds instead of minutes: few frames, few rounds. Shows that everything works, not how fast it is.
    pub smoke: bool,
    /// Only cases whose name begins with one of these; all when empty.
    pub cases: Vec<String>,
    /// Only these engines; all when empty.
    pub engines: Vec<String>,
    /// Capture file for the real-trace setting.
    pub trace: Option<PathBuf>,
    /// File of filter texts, one a line, to run as cases.
    pub real_filters: Option<PathBuf>,
    /// Seed of the generated frames.
    pub seed: u64,
    /// Who is told of each measurement.
    pub listener: report::Listener,
}

impl Options {
    /// Whether a case was asked for.
    pub fn wants_case(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|name| name.eq_ignore_ascii_case(case))
    }

    /// Whether an engine was asked for.
    pub fn wants_engine(&self, engine: &str) -> bool {
        self.engines.is_empty() || self.engines.iter().any(|name| name == engine)
    }
}

/// Why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Two engines disagree: no figure of either is worth anything.
    #[error(
        "{case}, {setting}: {engine} and {reference} disagree on frame {frame} of {frames} \
         ({engine} {}s it)", if *accepted { "accept" } else { "reject" }
    )]
    Mismatch {
        /// The case.
        case: String,
        /// The setting.
        setting: String,
        /// The engine that differs.
        engine: String,
        /// The engine it was compared with.
        reference: String,
        /// The first frame that they judge differently.
        frame: usize,
        /// Frames compared.
        frames: usize,
        /// Whether `engine` accepts it.
        accepted: bool,
    },
    /// A filter text that no engine takes.
    #[error("{case}: {message}")]
    Text {
        /// The case.
        case: String,
        /// What the compiler says.
        message: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// Nothing is left after the choice of cases and engines.
    #[error("no case or engine of this bench has that name; there are {there}")]
    NothingChosen {
        /// What there is.
        there: String,
    },
    /// Something else stood in the way.
    #[error("{0}")]
    Other(String),
}

/// Who is told how far a bench has come: what is measured, how many steps of how many are done.
pub type Progress<'p> = &'p mut dyn FnMut(&str, usize, usize);
