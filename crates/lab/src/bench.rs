//! Benches: compare engines on the same case, in one run, with the same frames.
//!
//! | module | purpose |
//! |---|---|
//! | `printed` | numbers that `fyke` prints at the end of a capture |
//! | [`measure`] | rounds in which every engine has a turn; medians |
//! | [`report`] | a measurement, its JSON line, the table for readers, plots |
//! | `curves` | charts of curves |
//! | [`traffic`] | the seeded generator of frames |
//! | [`frames`] | frames in memory, cache- or DRAM-resident, in the form that each engine needs |
//! | [`engine`] | the trait of a filter engine, and our engines |
//! | [`hash`](mod@hash) | our hash table used frame by frame |
//! | [`filters`] | the papers' filters F1–F6 and the sets D10–D100000 |
//! | [`demux`] | `fyke bench demux` |
//! | [`statics`] | `fyke bench static` |
//! | [`update`] | `fyke bench update` |
//! | [`dynamic`] | `fyke bench dynamic` |
//! | [`bloom`] | `fyke bench bloom` |
//! | [`ruler`] | `fyke bench ruler` |
//! | [`graph`] | `fyke bench graph` |
//! | [`generate`] | `fyke bench generate` |
//! | [`list`] | all benches, and what each of them reads |
//! | [`workers`] | `fyke bench workers` |
//! | [`live`] | `fyke bench live` |
//! | [`live::share`] | `fyke bench share` |
//! | [`scan`] | `fyke bench scan` |
//! | [`streams`] | `fyke bench streams` |
//! | [`ids`] | `fyke bench ids` |
//!
//! A new bench is a function from [`Options`] and a [`Progress`] to a [`report::Report`]. It checks that all
//! engines give the same answers ([`BenchError::Mismatch`] otherwise), measures with [`measure::rounds`], and
//! pushes [`report::Measurement`]s. It must finish within seconds if [`Options::smoke`] is set, because the tests
//! run it so. Figures are medians; only ratios within one run are meaningful.

pub mod bloom;
pub mod calls;
mod curves;
pub mod demux;
pub mod dynamic;
pub mod engine;
pub mod filters;
pub mod frames;
pub mod generate;
pub mod graph;
pub mod hash;
pub mod ids;
pub mod list;
pub mod live;
pub mod measure;
mod printed;
pub mod report;
pub mod ruler;
pub mod scan;
pub mod statics;
pub mod streams;
pub mod traffic;
pub mod update;
pub mod workers;

use std::path::PathBuf;
use std::time::Duration;

/// Options of a bench.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Runs seconds instead of minutes, with few frames and rounds: shows that everything works, not how fast it
    /// is.
    pub smoke: bool,
    /// Only cases with a name that begins with one of these; all if empty.
    pub cases: Vec<String>,
    /// Only these engines; all if empty.
    pub engines: Vec<String>,
    /// Capture file for the real-trace setting.
    pub trace: Option<PathBuf>,
    /// File of filter texts, one per line, to run as cases.
    pub real_filters: Option<PathBuf>,
    /// Seed of the generated frames.
    pub seed: u64,
    /// Packets of background traffic per second that `dynamic` tries to send; its own rates if empty.
    pub rates: Vec<u64>,
    /// Duration of the traffic of `dynamic`; its own by default.
    pub duration: Option<Duration>,
    /// FTP servers of `dynamic`, and data connections of each; its own by default.
    pub sessions: Option<(usize, usize)>,
    /// Number of rounds; the bench's own number by default.
    pub rounds: Option<usize>,
    /// The command `fyke` to run as a process; this process's own file by default.
    pub command: Option<PathBuf>,
    /// Measures the part of a bench that runs in the kernel, instead of the rest.
    pub live: bool,
    /// Callback for each measurement.
    pub listener: report::Listener,
}

impl Options {
    /// Returns true if a case is selected.
    pub fn wants_case(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|name| name.eq_ignore_ascii_case(case))
    }

    /// Returns true if an engine is selected.
    pub fn wants_engine(&self, engine: &str) -> bool {
        self.engines.is_empty() || self.engines.iter().any(|name| name == engine)
    }
}

/// Reason why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Two engines disagree, so their figures are not valid.
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
        /// The first frame with different verdicts.
        frame: usize,
        /// Frames compared.
        frames: usize,
        /// The verdict of `engine`.
        accepted: bool,
    },
    /// No engine accepts a filter text.
    #[error("{case}: {message}")]
    Text {
        /// The case.
        case: String,
        /// The compiler's message.
        message: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// The selection of cases and engines is empty.
    #[error("no case or engine of this bench has that name; known: {there}")]
    NothingChosen {
        /// Names of the cases and engines.
        there: String,
    },
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

/// Callback for progress: current step, number of steps done, number of steps in total.
pub type Progress<'p> = &'p mut dyn FnMut(&str, usize, usize);
