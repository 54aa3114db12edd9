//! `fyke bench demux`: the MPF paper's Tables 4 and 5 and Figures 6 and 7, on today's machine and beyond 100 sessions.
//!
//! The programs are the paper's: Figure 3 (MPF), Appendix A (BPF), Appendix C (CSPF); `pass` is the same set of
//! sessions as filter texts in a pass set. All engines get the same TCP packets with 10 bytes of data; source
//! addresses and ports are consecutive; hits are uniform over the sessions, and one packet in four has one key
//! that is nobody's. Every engine must deliver the same number of packets before anything is timed. Unlike the
//! paper's, a run goes on to 100,000 sessions, and `among others` adds three programs of other protocols.
//!
//! *Cold* flushes the caches before every packet, as the paper does, by reading 64 MiB; the time of an empty
//! measurement is taken off.

use super::measure::{Samples, Turn, rounds};
use super::report::{Measurement, Report};
use super::{BenchError, Options, Progress};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_machine::bpf::run::Program;
use fyke_machine::bpf::{Dialect, assemble};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::{AnyProgram, Delivery, Demultiplexer, Hashing, papers};
use fyke_pass::{MatchMode, Matches, PassSet, Reader};
use std::hint::black_box;
use std::time::{Duration, Instant};

const FIGURE_3: &str = include_str!("../../../../testdata/machine/figure3.mpf");
const APPENDIX_A: &str = include_str!("../../../../testdata/machine/appendix_a.bpf");
const APPENDIX_C: &str = include_str!("../../../../testdata/machine/appendix_c.cspf");

/// The paper's numbers of sessions.
const PAPER_SESSIONS: &[usize] = &[1, 2, 6, 10, 20, 40, 60, 80, 100];
/// And those that it could not have.
const MORE_SESSIONS: &[usize] = &[1_000, 10_000, 100_000];
/// Table 4 of the paper, milliseconds: MPF, BPF, CSPF, warm and cold, in the order of [`PAPER_SESSIONS`].
const TABLE_4: &[(&str, &str, [f64; 9])] = &[
    ("mpf", "warm", [0.035, 0.035, 0.035, 0.035, 0.035, 0.036, 0.036, 0.036, 0.037]),
    ("bpf", "warm", [0.031, 0.042, 0.090, 0.149, 0.330, 0.559, 0.830, 1.188, 1.481]),
    ("cspf", "warm", [0.053, 0.081, 0.169, 0.266, 0.511, 0.998, 1.538, 2.103, 2.613]),
    ("mpf", "cold", [0.153, 0.154, 0.154, 0.155, 0.155, 0.157, 0.159, 0.160, 0.163]),
    ("bpf", "cold", [0.127, 0.144, 0.212, 0.280, 0.436, 0.787, 1.112, 1.429, 1.768]),
    ("cspf", "cold", [0.132, 0.160, 0.268, 0.382, 0.658, 1.205, 1.753, 2.293, 2.861]),
];
/// Table 5 of the paper, milliseconds, warm: all sessions in one bucket.
const TABLE_5: [f64; 9] = [0.035, 0.035, 0.038, 0.042, 0.051, 0.061, 0.106, 0.150, 0.173];

const HERE: [u8; 4] = [10, 0, 0, 1];
const FRAMES: usize = 4096;
/// More than any cache.
const FLUSH_BYTES: usize = 64 << 20;

/// Three programs that have nothing to do with TCP.
const OTHERS: [&str; 3] = [
    "ldh [12]\njeq #0x806, yes, no\nyes: ret #-1\nno: ret #0\n",
    "ldh [12]\njeq #0x86dd, yes, no\nyes: ret #-1\nno: ret #0\n",
    "ldh [12]\njeq #0x800, L, no\nL: ldb [23]\njeq #17, yes, no\nyes: ret #-1\nno: ret #0\n",
];

/// Source address and ports of a session.
#[derive(Debug, Clone, Copy)]
struct Session {
    source: u32,
    source_port: u16,
    destination_port: u16,
}

impl Session {
    /// Consecutive, as in the paper.
    fn uniform(number: usize) -> Session {
        Session {
            source: 0x0a01_0000 + number as u32,
            source_port: 1024 + (number % 60_000) as u16,
            destination_port: 5000 + (number % 50_000) as u16,
        }
    }

    /// All with the same sum of keys: the attack on a hash that adds.
    fn colliding(number: usize) -> Session {
        let number = number as u32;
        Session { source: 0x0a01_0000 + number * 256, source_port: 1024, destination_port: 5000 }
    }

    fn packet(self) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14..26].copy_from_slice(&[0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6, 0, 0]);
        bytes[26..30].copy_from_slice(&self.source.to_be_bytes());
        bytes[30..34].copy_from_slice(&HERE);
        bytes[34..36].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[46] = 0x50;
        bytes
    }

    fn program(self, engine: &str) -> Result<AnyProgram, BenchError> {
        let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
        if engine == "cspf" {
            let mut symbols = papers::stack_machine(ByteOrder::Little);
            let address = self.source.to_be_bytes();
            let half = |bytes: [u8; 4], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            for (name, value) in [
                ("dst_addr_hi", half(HERE, 0)),
                ("dst_addr_lo", half(HERE, 2)),
                ("src_addr_hi", half(address, 0)),
                ("src_addr_lo", half(address, 2)),
                ("src_port", self.source_port.swap_bytes()),
                ("dst_port", self.destination_port.swap_bytes()),
            ] {
                symbols.define(name, value.into());
            }
            let words = cspf::assemble::assemble(APPENDIX_C, &symbols).map_err(|e| other(&e))?;
            let program = cspf::Program::new(words, ByteOrder::Little).map_err(|e| other(&e))?;
            return Ok(AnyProgram::Cspf(program));
        }
        let mut symbols = papers::register_machine();
        symbols.define("dst_addr", u32::from_be_bytes(HERE));
        symbols.define("src_addr", self.source);
        symbols.define("src_port", self.source_port.into());
        symbols.define("dst_port", self.destination_port.into());
        let (text, dialect) = match engine.starts_with("mpf") {
            true => (FIGURE_3, Dialect::Mpf),
            false => (APPENDIX_A, Dialect::Bpf),
        };
        register(text, dialect, &symbols)
    }

    fn text(self) -> String {
        let [a, b, c, d] = self.source.to_be_bytes();
        let [e, f, g, h] = HERE;
        format!(
            "ip src host {a}.{b}.{c}.{d} and ip dst host {e}.{f}.{g}.{h} and tcp src port {} and \
             tcp dst port {}",
            self.source_port, self.destination_port
        )
    }
}

fn register(
    text: &str,
    dialect: Dialect,
    symbols: &fyke_machine::Symbols,
) -> Result<AnyProgram, BenchError> {
    let assembled = assemble::assemble(text, dialect, symbols)
        .map_err(|error| BenchError::Other(error.to_string()))?;
    let program = Program::new(assembled.program, dialect)
        .map_err(|error| BenchError::Other(error.to_string()))?;
    Ok(AnyProgram::Register(program))
}

/// An engine with its sessions installed.
enum Engine {
    Machine(Box<Demultiplexer>),
    Pass { reader: Box<Reader>, matches: Box<Matches>, _set: Box<PassSet> },
}

/// What an engine needs beyond its name.
fn options(engine: &str) -> fyke_machine::Options {
    fyke_machine::Options {
        hashing: if engine == "mpf-sum" { Hashing::Sum } else { Hashing::Seeded },
        translate: engine.ends_with("-jit"),
        ..fyke_machine::Options::default()
    }
}

impl Engine {
    fn new(name: &str, sessions: &[Session], others: bool) -> Result<Engine, BenchError> {
        let other = |error: &dyn std::fmt::Display| BenchError::Other(error.to_string());
        if name == "pass" {
            let mut set = PassSet::new(LinkType::EN10MB);
            let mut edit = set.edit();
            let texts = sessions.iter().map(|session| session.text());
            let more = ["arp", "ip6", "udp"].iter().filter(|_| others).map(|t| (*t).to_owned());
            for text in texts.chain(more) {
                let options = fyke_filter::Options::default();
                let predicate = fyke_filter::compile(&text, &options).map_err(|e| other(&e))?;
                edit.add_filter(&predicate).map_err(|e| other(&e))?;
            }
            edit.commit();
            let reader = Box::new(set.reader());
            let matches = Box::new(Matches::new(MatchMode::First));
            return Ok(Engine::Pass { reader, matches, _set: Box::new(set) });
        }
        let mut machine = Demultiplexer::new(options(name));
        let symbols = fyke_machine::Symbols::default();
        for text in OTHERS.iter().filter(|_| others) {
            let program = register(text, Dialect::Bpf, &symbols)?;
            machine.install(program).map_err(|e| other(&e))?;
        }
        for session in sessions {
            machine.install(session.program(name)?).map_err(|e| other(&e))?;
        }
        Ok(Engine::Machine(Box::new(machine)))
    }

    /// Judges all batches; gives the deliveries.
    fn run(&mut self, batches: &[Batch<'_>]) -> u64 {
        match self {
            Engine::Machine(machine) => {
                let mut delivered = 0u64;
                let mut count = |_: &Frame<'_>, delivery: Delivery| {
                    delivered += 1;
                    black_box(delivery.recipient);
                };
                for frame in batches.iter().flat_map(|batch| batch.frames()) {
                    machine.frame(frame, &mut count);
                }
                delivered
            }
            Engine::Pass { reader, matches, .. } => {
                let mut delivered = 0;
                for batch in batches {
                    let accepted = reader.evaluate_matches(batch, batch.all(), matches);
                    for index in accepted.iter() {
                        delivered += matches.of(index).count() as u64;
                    }
                }
                delivered
            }
        }
    }
}

/// Packets that hit the sessions uniformly, one in four with a key that nobody has.
struct Load {
    bytes: Vec<Vec<u8>>,
}

impl Load {
    fn new(sessions: &[Session], seed: u64, near_misses: bool) -> Load {
        let mut state = seed;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            (state >> 33) as usize
        };
        let bytes = (0..FRAMES).map(|_| {
            let mut session = sessions[random() % sessions.len()];
            if near_misses && random() % 4 == 0 {
                match random() % 3 {
                    0 => session.source ^= 0x0010_0000,
                    1 => session.source_port ^= 0x8000,
                    _ => session.destination_port ^= 0x8000,
                }
            }
            session.packet()
        });
        Load { bytes: bytes.collect() }
    }

    fn batches(&self) -> Vec<Batch<'_>> {
        let mut batches = vec![Batch::new()];
        for bytes in &self.bytes {
            let frame = Frame::new(LinkType::EN10MB, bytes);
            if let Some(batch) = batches.last_mut()
                && let Err(frame) = batch.push(frame)
            {
                let mut batch = Batch::new();
                if batch.push(frame).is_ok() {
                    batches.push(batch);
                }
            }
        }
        batches
    }
}

/// Runs the bench.
///
/// # Errors
/// When engines disagree, and when nothing is left of the choice.
pub fn run(options: &Options, progress: Progress<'_>) -> Result<Report, BenchError> {
    let cases: [(&str, Case); 4] =
        [("table4", table_4), ("table5", table_5), ("fig6", figure_6), ("fig7", figure_7)];
    let mut report = Report::default();
    let mut chosen = false;
    for (step, (name, case)) in cases.iter().enumerate() {
        if options.wants_case(name) {
            progress(name, step, cases.len());
            case(options, &mut report)?;
            chosen = true;
        }
    }
    if !chosen {
        let there = "table4, table5, fig6, fig7; cspf, bpf, bpf-jit, mpf, mpf-jit, mpf-sum, pass";
        return Err(BenchError::NothingChosen { there: there.to_owned() });
    }
    Ok(report)
}

type Case = fn(&Options, &mut Report) -> Result<(), BenchError>;

fn session_counts(options: &Options) -> Vec<usize> {
    match options.smoke {
        true => vec![1, 10, 100],
        false => PAPER_SESSIONS.iter().chain(MORE_SESSIONS).copied().collect(),
    }
}

/// Engines that are sensible for so many sessions: those without collapse take their time.
fn engines(options: &Options, count: usize, with: &[&'static str]) -> Vec<&'static str> {
    let slow = |name: &&str| name.starts_with("bpf") || name.starts_with("cspf");
    let sensible = with.iter().copied().filter(|name| count <= 1000 || !slow(name));
    sensible.filter(|name| options.wants_engine(name)).collect()
}

fn table_4(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    const ENGINES: &[&str] = &["cspf", "bpf", "bpf-jit", "mpf", "mpf-jit", "pass"];
    for count in session_counts(options) {
        let sessions: Vec<Session> = (0..count).map(Session::uniform).collect();
        let names = engines(options, count, ENGINES);
        let load = Load::new(&sessions, options.seed, true);
        let setting = format!("{count} sessions, warm");
        warm("table4", &setting, &names, &sessions, &load, false, options, report)?;
        if matches!(count, 10 | 100 | 1000 | 100_000) {
            let setting = format!("{count} sessions, warm, among others");
            warm("table4", &setting, &names, &sessions, &load, true, options, report)?;
        }
        if options.smoke || matches!(count, 1 | 10 | 100 | 100_000) {
            let setting = format!("{count} sessions, cold");
            cold(&setting, &names, &sessions, &load, options, report)?;
        }
    }
    for (engine, temperature, values) in TABLE_4 {
        for (count, ms) in PAPER_SESSIONS.iter().zip(values) {
            let setting = format!("{count} sessions, {temperature}");
            let engine = format!("{engine}-paper");
            report
                .measurements
                .push(Measurement::value("demux", "table4", &engine, &setting, *ms, "ms"));
        }
    }
    report.note("table4: figures of the paper are from a DECstation 5000/200 of 25 MHz".to_owned());
    Ok(())
}

/// All sessions in one bucket of a hash that adds; the seeded hash does not care.
fn table_5(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    for count in session_counts(options) {
        let sessions: Vec<Session> = (0..count.min(40_000)).map(Session::colliding).collect();
        // The matching session is the last of its list, as in the paper.
        let last = &sessions[sessions.len() - 1..];
        let load = Load::new(last, options.seed, false);
        let names = engines(options, 1, &["mpf-sum", "mpf"]);
        let setting = format!("{} sessions with equal sums, warm", sessions.len());
        if count > 10_000 {
            continue;
        }
        warm("table5", &setting, &names, &sessions, &load, false, options, report)?;
    }
    for (count, ms) in PAPER_SESSIONS.iter().zip(TABLE_5) {
        let setting = format!("{count} sessions with equal sums, warm");
        report.measurements.push(Measurement::value(
            "demux",
            "table5",
            "mpf-paper",
            &setting,
            ms,
            "ms",
        ));
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "a table's cell has that many coordinates")]
fn warm(
    case: &str,
    setting: &str,
    names: &[&str],
    sessions: &[Session],
    load: &Load,
    others: bool,
    options: &Options,
    report: &mut Report,
) -> Result<(), BenchError> {
    let batches = load.batches();
    let mut engines = Vec::new();
    for name in names {
        engines.push(Engine::new(name, sessions, others)?);
    }
    let counts: Vec<u64> = engines.iter_mut().map(|engine| engine.run(&batches)).collect();
    agree(case, setting, names, &counts)?;
    let rounds_wanted = if options.smoke { 1 } else { 7 };
    let samples = rounds(
        &mut engines,
        names.len(),
        rounds_wanted,
        |_| {},
        |engines, number| {
            // At least a few milliseconds a turn, so that the clock does not matter.
            let start = Instant::now();
            let mut units = 0;
            while units == 0 || (start.elapsed() < Duration::from_millis(4) && !options.smoke) {
                black_box(engines[number].run(&batches));
                units += FRAMES as u64;
            }
            Turn { time: start.elapsed(), units: units as _ }
        },
    );
    for ((name, samples), accepted) in names.iter().zip(&samples).zip(counts) {
        push(report, case, name, setting, samples, Some(accepted));
    }
    Ok(())
}

fn push(
    report: &mut Report,
    case: &str,
    engine: &str,
    setting: &str,
    samples: &Samples,
    accepted: Option<u64>,
) {
    let mut one = Measurement::per_packet("demux", case, engine, setting, samples.median());
    one.accepted = accepted;
    report.measurements.push(one.runs(samples.len()));
}

fn agree(case: &str, setting: &str, names: &[&str], counts: &[u64]) -> Result<(), BenchError> {
    for (name, count) in names.iter().zip(counts) {
        if *count != counts[0] {
            return Err(BenchError::Other(format!(
                "{case}, {setting}: {} delivered {} packets, {name} {count}",
                names[0], counts[0]
            )));
        }
    }
    Ok(())
}

/// One packet at a time, caches flushed before each.
fn cold(
    setting: &str,
    names: &[&str],
    sessions: &[Session],
    load: &Load,
    options: &Options,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut flush = vec![1u8; if options.smoke { 1 << 20 } else { FLUSH_BYTES }];
    let packets = if options.smoke { 4 } else { 60 };
    let mut engines = Vec::new();
    for name in names {
        engines.push(Engine::new(name, sessions, false)?);
    }
    let mut samples = vec![Samples::default(); names.len()];
    for bytes in load.bytes.iter().take(packets) {
        for (engine, samples) in engines.iter_mut().zip(&mut samples) {
            let mut batch = Batch::new();
            let _ = batch.push(Frame::new(LinkType::EN10MB, bytes));
            let batches = [batch];
            flush.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&flush);
            let empty = Instant::now();
            let empty = black_box(empty).elapsed();
            let start = Instant::now();
            black_box(engine.run(&batches));
            let time = start.elapsed().saturating_sub(empty);
            samples.push(time.as_nanos() as f64);
        }
    }
    for (name, samples) in names.iter().zip(&samples) {
        push(report, "table4", name, setting, samples, None);
    }
    Ok(())
}

/// Sessions of one protocol, installed one by one.
fn figure_6(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    installation(options, report, "fig6", |number, engine| Session::uniform(number).program(engine))
}

/// Programs that cannot be collapsed: each has a protocol number of its own.
fn figure_7(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    installation(options, report, "fig7", |number, engine| {
        let program = Session::uniform(0).program(engine)?;
        let AnyProgram::Register(program) = program else { return Ok(program) };
        let mut instructions = program.instructions().to_vec();
        // The EtherType is the first constant that is compared; a 16-bit protocol number would not do for 100,000.
        if let Some(test) = instructions.iter_mut().find(|one| one.code == 0x15) {
            test.k = number as u32;
        }
        let dialect = program.dialect();
        let program = Program::new(instructions, dialect)
            .map_err(|error| BenchError::Other(error.to_string()))?;
        Ok(AnyProgram::Register(program))
    })
}

fn installation(
    options: &Options,
    report: &mut Report,
    case: &str,
    make: impl Fn(usize, &str) -> Result<AnyProgram, BenchError>,
) -> Result<(), BenchError> {
    const WINDOW: usize = 32;
    let names = engines(options, 1, &["mpf", "bpf", "cspf"]);
    for count in session_counts(options) {
        if count > 10_000 {
            continue;
        }
        for name in &names {
            let mut samples = Samples::default();
            let mut machine = Demultiplexer::new(self::options(name));
            for number in 0..count + WINDOW {
                let program = make(number, name)?;
                let start = Instant::now();
                let installed = machine.install(program);
                let time = start.elapsed();
                installed.map_err(|error| BenchError::Other(error.to_string()))?;
                if number >= count {
                    samples.push(time.as_nanos() as f64);
                }
            }
            let setting = format!("{count} installed");
            let one =
                Measurement::value("demux", case, name, &setting, samples.median(), "ns/install");
            report.measurements.push(one.runs(samples.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_run_and_all_engines_agree() {
        let options = Options { smoke: true, seed: 1, ..Options::default() };
        let report = run(&options, &mut |_, _, _| {}).unwrap();
        for case in ["table4", "table5", "fig6", "fig7"] {
            let own = report.measurements.iter().filter(|one| one.case == case);
            let figures: Vec<f64> = own.map(|one| one.figure()).collect();
            assert!(figures.len() > 5 && figures.iter().all(|&figure| figure >= 0.0), "{case}");
        }
        let wrong = Options { cases: vec!["table9".to_owned()], ..options };
        assert!(matches!(run(&wrong, &mut |_, _, _| {}), Err(BenchError::NothingChosen { .. })));
    }
}
