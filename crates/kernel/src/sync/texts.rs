//! Evaluation of a pass set's texts in the kernel: by passes, or in their own order as code.

use crate::code::{self, Code};
use crate::error::KernelEditError;
use crate::passes::KernelPasses;
use fyke_frame::LinkType;
use fyke_pass::{Draft, FilterId, FilterView, Instruction, Opcode, PassSet};
use std::collections::HashMap;

/// Most texts with code for short frames: each takes a slot, and a step for each such frame.
pub(crate) const MOST_TEXTS: usize = 256;
/// Most passes of a text for which code is generated; each takes several instructions there.
const MOST_PASSES: usize = 512;
/// Most characters of a text that an error quotes.
const SHOWN: usize = 80;
/// Every Ethernet frame has this number of bytes.
const ETHERNET_BYTES: u32 = 14;

/// Evaluation of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Text {
    /// In its own order, because it computes, or tests what passes cannot.
    Code(Code),
    /// By passes. Shorter frames, or frames with fewer bytes after the IPv4 header at 14, use the code if there is any.
    Passes { short_limits: (u32, u32), code: Option<Code> },
}

impl Text {
    pub fn code(&self) -> Option<Code> {
        match self {
            Text::Code(code) => Some(*code),
            Text::Passes { code, .. } => *code,
        }
    }
}

/// Evaluation of all texts of a set.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: HashMap<FilterId, Text>,
}

/// True if frames begin with the header of cooked captures.
pub(crate) fn is_cooked(link: LinkType) -> bool {
    link == LinkType::LINUX_SLL2
}

/// Limits of the short list for these texts; 0 if passes evaluate every possible frame.
pub(crate) fn short_limits(link: LinkType, texts: &[(FilterId, Text)]) -> (u32, u32) {
    if texts.len() > MOST_TEXTS {
        return (0, 0);
    }
    let mut all = (0, 0);
    for (_, text) in texts {
        if let Text::Passes { short_limits, code: Some(_) } = text {
            all = (short_limits.0.max(all.0), short_limits.1.max(all.1));
        }
    }
    if link == LinkType::EN10MB && all.0 <= ETHERNET_BYTES && all.1 == 0 { (0, 0) } else { all }
}

impl Texts {
    pub fn get(&self, filter: FilterId) -> Option<&Text> {
        self.known.get(&filter)
    }

    /// Writes the code of new texts.
    pub fn make(
        &self,
        kernel: &mut KernelPasses,
        set: &Draft<'_>,
        made: &mut Texts,
    ) -> Result<(), KernelEditError> {
        let in_order = set.filters().take(MOST_TEXTS + 1).count() <= MOST_TEXTS;
        let cooked = is_cooked(set.link());
        for filter in set.filters().filter(|filter| !self.known.contains_key(&filter.id)) {
            let text = judge(kernel, &filter, in_order, cooked)?;
            made.known.insert(filter.id, text);
        }
        Ok(())
    }

    /// Writes the code of texts that an edit has added.
    pub fn make_new(
        &self,
        kernel: &mut KernelPasses,
        draft: &Draft<'_>,
        made: &mut Texts,
    ) -> Result<(), KernelEditError> {
        let in_order = draft.filter_count() <= MOST_TEXTS;
        for filter in draft.new_filters() {
            let text = judge(kernel, &filter, in_order, is_cooked(draft.link()))?;
            made.known.insert(filter.id, text);
        }
        Ok(())
    }

    /// Raises the limits of the short list, never lowers them.
    pub fn raise(&self, kernel: &mut KernelPasses, short_limits: (u32, u32)) {
        let before = kernel.short();
        kernel.set_short(short_limits.0.max(before.0), short_limits.1.max(before.1));
    }

    /// Records the new texts as in force, and retires the code of texts that no longer exist.
    pub fn keep(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Texts,
        short_limits: (u32, u32),
    ) {
        self.known.extend(made.known);
        self.known.retain(|&filter, text| {
            let used = set.filter(filter).is_some();
            if let Some(code) = text.code().filter(|_| !used) {
                kernel.retire_code(code);
            }
            used
        });
        kernel.set_short(short_limits.0, short_limits.1);
    }

    /// As [`Texts::keep`], for an edit that has removed the texts `gone`.
    pub fn keep_incremental(
        &mut self,
        kernel: &mut KernelPasses,
        made: Texts,
        gone: &[FilterId],
        short_limits: (u32, u32),
    ) {
        self.known.extend(made.known);
        let gone = gone.iter().filter_map(|filter| self.known.remove(filter)?.code());
        gone.for_each(|code| kernel.retire_code(code));
        kernel.set_short(short_limits.0, short_limits.1);
    }

    /// Retires all code, to which no pass in force refers.
    pub fn drop_all(self, kernel: &mut KernelPasses) {
        let all = self.known.into_values().filter_map(|text| text.code());
        all.for_each(|code| kernel.retire_code(code));
    }
}

/// A lowered text, before it is written to the kernel.
enum Lowered {
    Passes { short_limits: (u32, u32), program: Option<Vec<u64>> },
    Code(Vec<u64>),
}

/// True if the kernel cannot run the instruction in a pass, so that the text must run in its own order.
fn needs_order(one: &Instruction) -> bool {
    matches!(one.opcode(), Some(Opcode::Cond | Opcode::Passes))
}

fn lower(
    filter: &FilterView<'_>,
    in_order: bool,
    cooked: bool,
) -> Result<Lowered, KernelEditError> {
    let refused = |why| {
        let text: String = filter.text().chars().take(SHOWN).collect();
        let more = if text.len() < filter.text().len() { " …" } else { "" };
        KernelEditError::Text { text: text + more, why }
    };
    let instructions = || filter.passes().flat_map(|pass| pass.instructions);
    if cooked && let Some(at) = instructions().find_map(code::unknown_to) {
        return Err(refused(code::not_known(at)));
    }
    // A text that is evaluated in order has one pass that accepts nothing, so it is evaluated in order here, too.
    let computes = filter.is_in_order() || instructions().any(needs_order);
    let Some(ordered) = filter.ordered() else {
        return Ok(Lowered::Passes { short_limits: (0, 0), program: None });
    };
    let short_limits = ordered.complete(ETHERNET_BYTES);
    let as_passes = short_limits.filter(|_| !computes);
    if let Some(short_limits) = as_passes.filter(|_| !in_order) {
        return Ok(Lowered::Passes { short_limits, program: None });
    }
    // A text with many passes is even longer in order, and finding out how long takes time.
    let program = match filter.passes().nth(MOST_PASSES) {
        None => code::program(&ordered, cooked),
        Some(_) => Err(format!("it computes values and has more than {MOST_PASSES} alternatives")),
    };
    match (program, as_passes) {
        (Ok(program), Some(short_limits)) => {
            Ok(Lowered::Passes { short_limits, program: Some(program) })
        }
        (Ok(program), None) => Ok(Lowered::Code(program)),
        // Its passes are correct for all frames that are long enough.
        (Err(_), _) if !computes => Ok(Lowered::Passes { short_limits: (0, 0), program: None }),
        (Err(why), _) => Err(refused(why)),
    }
}

/// Checks that a text can run in the kernel.
pub(crate) fn check(
    kernel: &KernelPasses,
    filter: &FilterView<'_>,
    cooked: bool,
) -> Result<(), KernelEditError> {
    match lower(filter, false, cooked)? {
        Lowered::Passes { .. } => {
            filter.passes().try_for_each(|pass| kernel.check(pass.instructions))
        }
        Lowered::Code(_) => Ok(()),
    }
}

fn judge(
    kernel: &mut KernelPasses,
    filter: &FilterView<'_>,
    in_order: bool,
    cooked: bool,
) -> Result<Text, KernelEditError> {
    Ok(match lower(filter, in_order, cooked)? {
        Lowered::Passes { short_limits, program } => {
            // If there is no room for the code, the passes evaluate short frames.
            let code = program.and_then(|program| kernel.code(&program).ok());
            Text::Passes { short_limits, code }
        }
        Lowered::Code(program) => Text::Code(kernel.code(&program)?),
    })
}
