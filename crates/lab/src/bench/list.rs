//! The benches with the files that each of them reads, and the refusal of options that would do nothing.

use super::live::share;
use super::report::Report;
use super::{BenchError, Options, Progress};
use super::{
    bloom, calls, demux, dynamic, generate, graph, ids, live, ruler, scan, statics, streams,
    update, workers,
};

/// A bench of `fyke bench`.
#[derive(Debug, Clone, Copy)]
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&Options, Progress<'_>) -> Result<Report, BenchError>,
    /// Its engines, in groups.
    pub engines: &'static [&'static [&'static str]],
    /// True when it reads [`Options::trace`].
    pub reads_trace: bool,
    /// True when it reads [`Options::real_filters`].
    pub reads_filters: bool,
    /// True when it reads [`Options::rounds`].
    pub takes_rounds: bool,
    /// True when it reads [`Options::live`].
    pub takes_live: bool,
}

/// Reads neither traces nor filter texts.
const fn plain(
    name: &'static str,
    run: fn(&Options, Progress<'_>) -> Result<Report, BenchError>,
    engines: &'static [&'static [&'static str]],
) -> Bench {
    Bench {
        name,
        run,
        engines,
        reads_trace: false,
        reads_filters: false,
        takes_rounds: false,
        takes_live: false,
    }
}

/// All benches, in the order in which `fyke bench all` runs them.
pub const BENCHES: [Bench; 15] = [
    Bench {
        reads_trace: true,
        reads_filters: true,
        ..plain("static", statics::run, &[&statics::ENGINES])
    },
    plain("update", update::run, &[&update::ENGINES]),
    Bench { takes_rounds: true, ..plain("dynamic", dynamic::run, &[&dynamic::ENGINES]) },
    plain("demux", demux::run, &demux::ENGINES),
    Bench {
        takes_live: true,
        ..plain("bloom", bloom::run, &[&bloom::ENGINES, &bloom::JUDGES, &bloom::LIVE_ENGINES])
    },
    Bench {
        reads_trace: true,
        reads_filters: true,
        ..plain("ruler", ruler::run, &[&ruler::ENGINES, &ruler::TAG_ENGINES])
    },
    Bench { reads_trace: true, reads_filters: true, ..plain("ids", ids::run, &[&ids::ENGINES]) },
    plain("graph", graph::run, &[&graph::ENGINES]),
    Bench { reads_trace: true, ..plain("workers", workers::run, &[&workers::ENGINES]) },
    Bench {
        reads_trace: true,
        takes_rounds: true,
        ..plain("streams", streams::run, &[&streams::ENGINES])
    },
    Bench { takes_rounds: true, ..plain("calls", calls::run, &[&calls::ENGINES]) },
    Bench { reads_trace: true, takes_rounds: true, ..plain("scan", scan::run, &[&scan::ENGINES]) },
    Bench { takes_rounds: true, ..plain("live", live::run, &[&live::ENGINES]) },
    Bench { takes_rounds: true, ..plain("share", share::run, &[&share::ENGINES]) },
    Bench { takes_rounds: true, ..plain("generate", generate::run, &[&generate::ENGINES]) },
];

/// A question to a bench.
type Reads = fn(&Bench) -> bool;

impl Bench {
    fn has(&self, engine: &str) -> bool {
        self.engines.iter().any(|group| group.contains(&engine))
    }
}

/// The reason why the options cannot be meant for these benches, with what to use instead.
pub fn refusal(benches: &[Bench], options: &Options) -> Option<String> {
    let names = |benches: &mut dyn Iterator<Item = &Bench>| {
        benches.map(|bench| bench.name).collect::<Vec<_>>().join(", ")
    };
    let which = match benches {
        [bench] => format!("`bench {}`", bench.name),
        _ => "any bench".to_owned(),
    };
    let reads: [(&str, bool, Reads); 4] = [
        ("--trace", options.trace.is_some(), |bench| bench.reads_trace),
        ("--real-filters", options.real_filters.is_some(), |bench| bench.reads_filters),
        ("--live", options.live, |bench| bench.takes_live),
        ("--rounds", options.rounds.is_some(), |bench| bench.takes_rounds),
    ];
    for (option, given, reads) in reads {
        if given && !benches.iter().any(reads) {
            let those = names(&mut BENCHES.iter().filter(|bench| reads(bench)));
            return Some(format!("{option}: {which} does not read it; these do: {those}"));
        }
    }
    let unknown = |engine: &&String| !benches.iter().any(|bench| bench.has(engine));
    let engine = options.engines.iter().find(unknown)?;
    let mut there: Vec<_> =
        benches.iter().flat_map(|bench| bench.engines.concat()).collect::<Vec<_>>();
    there.sort_unstable();
    there.dedup();
    Some(format!("--engine {engine}: no such engine in {which}; there are: {}", there.join(", ")))
}
