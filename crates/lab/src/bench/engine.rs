//! The trait of a filter engine, and our engines.

use super::BenchError;
use super::frames::Load;
use crate::peers::jit::Code;
use crate::peers::libpcap::Program;
use crate::peers::opt_c::{CompileError, Function, Object, generate};
use fyke_filter::Predicate;
use fyke_frame::{BATCH_CAPACITY, Batch, LinkType};
use fyke_pass::{Level, PassSet, Reader, Sharing};

/// An engine that evaluates the frames of a load.
pub trait Engine {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Evaluates the first `count` frames (a multiple of [`BATCH_CAPACITY`], or all): bit *n* of word *n / 64* is
    /// the verdict on frame *n*. Bits after the last frame, up to the end of its batch, are zero.
    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]);

    /// Returns true if the verdicts are meaningful; the memory floor has none.
    fn has_verdicts(&self) -> bool {
        true
    }
}

/// Number of words for the verdicts on `count` frames.
pub fn words(count: usize) -> usize {
    count.div_ceil(BATCH_CAPACITY) * (BATCH_CAPACITY / 64)
}

/// Memory floor: reads one word of each frame. No engine can be faster from DRAM.
#[derive(Debug)]
pub struct Floor;

impl Engine for Floor {
    fn name(&self) -> &str {
        "floor"
    }

    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]) {
        let mut sum = 0u64;
        for batch in &load.batches()[..count.div_ceil(BATCH_CAPACITY)] {
            for frame in batch.frames() {
                let word = frame.data.get(12..16).and_then(|bytes| bytes.try_into().ok());
                sum = sum.wrapping_add(u64::from(u32::from_ne_bytes(word.unwrap_or_default())));
            }
        }
        verdicts[0] = sum;
    }

    fn has_verdicts(&self) -> bool {
        false
    }
}

/// libpcap's interpreter.
#[derive(Debug)]
pub struct Interpreter(pub Program);

impl Engine for Interpreter {
    fn name(&self) -> &str {
        "libpcap"
    }

    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]) {
        let batches = &load.batches()[..count.div_ceil(BATCH_CAPACITY)];
        for (batch, words) in batches.iter().zip(verdicts.chunks_mut(BATCH_CAPACITY / 64)) {
            words.fill(0);
            for (chunk, word) in batch.frames().chunks(64).zip(words) {
                for (index, frame) in chunk.iter().enumerate() {
                    *word |= u64::from(self.0.matches(frame.data, frame.wire_len)) << index;
                }
            }
        }
    }
}

/// libpcap's program as machine code.
#[derive(Debug)]
pub struct Jit(pub Code);

impl Engine for Jit {
    fn name(&self) -> &str {
        "jit"
    }

    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]) {
        let end = words(count).min(verdicts.len());
        verdicts[count.div_ceil(64).min(end)..end].fill(0);
        self.0.judge(load.descriptors(), count, verdicts);
    }
}

/// A filter in compiled C.
#[derive(Debug)]
pub struct OptC {
    name: &'static str,
    function: Function,
}

impl OptC {
    /// Returns one of the hand-written filters, `F1` to `F6`, in its three forms.
    ///
    /// # Errors
    /// If there is none with that name.
    pub fn forms(object: &Object, case: &str) -> Result<[OptC; 3], CompileError> {
        let number = case.trim_start_matches('F');
        let form = |name, prefix: &str| {
            let function = object.function(&format!("{prefix}_{number}"))?;
            Ok::<OptC, CompileError>(OptC { name, function })
        };
        let (plain, prefetch) = (form("opt-c", "plain"), form("opt-c-prefetch", "prefetch"));
        Ok([plain?, prefetch?, form("opt-c-branchfree", "branchfree")?])
    }

    /// Compiles C generated from a text; `None` if it is nested too deeply.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn of_text(predicate: &Predicate) -> Result<Option<OptC>, CompileError> {
        let Some(source) = generate::source(predicate) else { return Ok(None) };
        let function = Object::compile(&source)?.function("plain")?;
        Ok(Some(OptC { name: "opt-c", function }))
    }
}

impl Engine for OptC {
    fn name(&self) -> &str {
        self.name
    }

    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]) {
        let end = words(count).min(verdicts.len());
        verdicts[count.div_ceil(64).min(end)..end].fill(0);
        self.function.judge(load.descriptors(), count, verdicts);
    }
}

/// The pass engine.
#[derive(Debug)]
pub struct Fyke {
    name: &'static str,
    reader: Reader,
    /// Path of frames to the engine.
    way: Way,
}

/// Path of frames to the pass engine.
#[derive(Debug)]
enum Way {
    /// In existing batches.
    Batches,
    /// As a batch of one frame, filled for each frame.
    Single,
    /// To the reference evaluator, which does not use batches.
    Reference,
}

impl Fyke {
    /// Creates the engine with its fastest path.
    pub fn new(name: &'static str, reader: Reader) -> Fyke {
        Fyke { name, reader, way: Way::Batches }
    }

    /// Creates the evaluator that interprets frame by frame.
    pub fn reference(reader: Reader) -> Fyke {
        Fyke { name: "reference", reader, way: Way::Reference }
    }

    /// Returns the engine once for each SIMD path of the processor.
    pub fn levels(reader: &Reader) -> impl Iterator<Item = Fyke> {
        Level::all().into_iter().map(|level| {
            let name = match level.name() {
                "avx512" => "fyke-avx512",
                "avx2" => "fyke-avx2",
                _ => "fyke-portable",
            };
            let mut reader = reader.clone();
            reader.set_level(level);
            Fyke::new(name, reader)
        })
    }

    /// Returns the engine without one of its features each (Swift, table 7):
    ///
    /// - `no-hierarchy`: every pass evaluates its own instructions.
    /// - `no-simd`: adjacent operands of an instruction are compared one by one (`fyke-portable` is the engine
    ///   without the processor's vector instructions).
    /// - `no-tables`: every row is a pass of its own, as in the two above.
    /// - `no-batch`: frames come one by one.
    /// - `reference`: the evaluator that interprets frame by frame, with the papers' marks; much slower with many
    ///   passes.
    pub fn ablations(reader: &Reader) -> Vec<Fyke> {
        let without = |name, sharing| {
            let mut reader = reader.clone();
            reader.set_sharing(sharing);
            Fyke::new(name, reader)
        };
        let single = |name, way| Fyke { name, reader: reader.clone(), way };
        vec![
            without("no-hierarchy", Sharing::Nothing),
            without("no-simd", Sharing::SingleOperands),
            without("no-tables", Sharing::Instructions),
            single("no-batch", Way::Single),
            Fyke::reference(reader.clone()),
        ]
    }
}

/// Creates a reader of a set of these filters.
///
/// # Errors
/// If a text becomes too many passes.
pub fn reader_of(link: LinkType, filters: &[Predicate]) -> Result<Reader, BenchError> {
    let mut set = PassSet::new(link);
    let mut edit = set.edit();
    for filter in filters {
        edit.add_filter(filter)
            .map_err(|error| BenchError::Other(format!("fyke cannot compile the text: {error}")))?;
    }
    edit.commit();
    let mut reader = set.reader();
    reader.refresh();
    Ok(reader)
}

impl Engine for Fyke {
    fn name(&self) -> &str {
        self.name
    }

    fn judge(&mut self, load: &Load, count: usize, verdicts: &mut [u64]) {
        let batches = &load.batches()[..count.div_ceil(BATCH_CAPACITY)];
        let mut one = Batch::new();
        for (batch, words) in batches.iter().zip(verdicts.chunks_mut(BATCH_CAPACITY / 64)) {
            if matches!(self.way, Way::Batches) {
                words.copy_from_slice(&self.reader.evaluate(batch, batch.all()).0);
                continue;
            }
            words.fill(0);
            for (index, frame) in batch.frames().iter().enumerate() {
                let accepted = if matches!(self.way, Way::Single) {
                    one.clear();
                    // The batch has room for one frame.
                    let _ = one.push(*frame);
                    !self.reader.evaluate(&one, one.all()).is_empty()
                } else {
                    self.reader.judge_one(frame).accepted
                };
                words[index / 64] |= u64::from(accepted) << (index % 64);
            }
        }
    }
}
