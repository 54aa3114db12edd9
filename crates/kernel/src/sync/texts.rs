//! How the texts of a pass set are judged in the kernel: by passes, or in their own order as code.

use crate::code::{self, Code};
use crate::error::KernelEditError;
use crate::passes::KernelPasses;
use fyke_frame::LinkType;
use fyke_pass::{Draft, FilterId, FilterView, Instruction, Opcode, PassSet};
use std::collections::HashMap;

/// Most texts that are in order for frames that end early: each takes a slot and a step of such a frame.
pub(crate) const MOST_TEXTS: usize = 256;
/// Passes of a text that is tried in its own order; each takes several instructions there.
const MOST_PASSES: usize = 512;
/// Characters of a text that an error quotes.
const SHOWN: usize = 80;
/// Frames on Ethernet have as many bytes.
const LEAST: u32 = 14;

/// How a text is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Text {
    /// In its own order: it computes, or looks where its passes cannot.
    Code(Code),
    /// By passes; frames with fewer bytes, or fewer behind the IPv4 header at 14, by the code, if there is one.
    Passes { least: (u32, u32), code: Option<Code> },
}

impl Text {
    pub fn code(&self) -> Option<Code> {
        match self {
            Text::Code(code) => Some(*code),
            Text::Passes { code, .. } => *code,
        }
    }
}

/// All texts of a set.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: HashMap<FilterId, Text>,
}

/// Whether frames begin with the header of cooked captures.
pub(crate) fn is_cooked(link: LinkType) -> bool {
    link == LinkType::LINUX_SLL2
}

/// Frames that need a text's own order; none when passes judge all that can come.
pub(crate) fn least(link: LinkType, texts: &[(FilterId, Text)]) -> (u32, u32) {
    if texts.len() > MOST_TEXTS {
        return (0, 0);
    }
    let mut all = (0, 0);
    for (_, text) in texts {
        if let Text::Passes { least, code: Some(_) } = text {
            all = (least.0.max(all.0), least.1.max(all.1));
        }
    }
    if link == LinkType::EN10MB && all.0 <= LEAST && all.1 == 0 { (0, 0) } else { all }
}

impl Texts {
    pub fn get(&self, filter: FilterId) -> Option<&Text> {
        self.known.get(&filter)
    }

    /// Writes the code of texts that are new.
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

    /// Writes the code of the texts that an edit has made.
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

    /// More frames run the short list from now on, never fewer.
    pub fn raise(&self, kernel: &mut KernelPasses, least: (u32, u32)) {
        let before = kernel.short();
        kernel.set_short(least.0.max(before.0), least.1.max(before.1));
    }

    /// What was made is in use; what belongs to texts that are gone is not.
    pub fn keep(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Texts,
        least: (u32, u32),
    ) {
        self.known.extend(made.known);
        self.known.retain(|&filter, text| {
            let used = set.filter(filter).is_some();
            if let Some(code) = text.code().filter(|_| !used) {
                kernel.retire_code(code);
            }
            used
        });
        kernel.set_short(least.0, least.1);
    }

    /// As [`Texts::keep`], for an edit that has taken these texts away.
    pub fn keep_few(
        &mut self,
        kernel: &mut KernelPasses,
        made: Texts,
        gone: &[FilterId],
        least: (u32, u32),
    ) {
        self.known.extend(made.known);
        let gone = gone.iter().filter_map(|filter| self.known.remove(filter)?.code());
        gone.for_each(|code| kernel.retire_code(code));
        kernel.set_short(least.0, least.1);
    }

    /// Nothing names it any more.
    pub fn drop_all(self, kernel: &mut KernelPasses) {
        let all = self.known.into_values().filter_map(|text| text.code());
        all.for_each(|code| kernel.retire_code(code));
    }
}

/// What a text needs, before anything is written.
enum Need {
    Passes { least: (u32, u32), program: Option<Vec<u64>> },
    Code(Vec<u64>),
}

/// Whether the kernel has no such instruction on passes: the text is run in its own order.
fn needs_order(one: &Instruction) -> bool {
    matches!(one.opcode(), Some(Opcode::Cond | Opcode::Passes))
}

fn need(filter: &FilterView<'_>, in_order: bool, cooked: bool) -> Result<Need, KernelEditError> {
    let refused = |why| {
        let text: String = filter.text().chars().take(SHOWN).collect();
        let more = if text.len() < filter.text().len() { " …" } else { "" };
        KernelEditError::Text { text: text + more, why }
    };
    let instructions = || filter.passes().flat_map(|pass| pass.instructions);
    if cooked && let Some(at) = instructions().find_map(code::unknown_to) {
        return Err(refused(code::not_known(at)));
    }
    // Its one pass accepts nothing: what is in order there is in order here.
    let computes = filter.is_in_order() || instructions().any(needs_order);
    let Some(ordered) = filter.ordered() else {
        return Ok(Need::Passes { least: (0, 0), program: None });
    };
    let least = ordered.complete(LEAST);
    let as_passes = least.filter(|_| !computes);
    if let Some(least) = as_passes.filter(|_| !in_order) {
        return Ok(Need::Passes { least, program: None });
    }
    // What is long as passes is longer in order; to find out how much takes its time.
    let program = match filter.passes().nth(MOST_PASSES) {
        None => code::program(&ordered, cooked),
        Some(_) => Err(format!("it computes, and has more than {MOST_PASSES} alternatives")),
    };
    match (program, as_passes) {
        (Ok(program), Some(least)) => Ok(Need::Passes { least, program: Some(program) }),
        (Ok(program), None) => Ok(Need::Code(program)),
        // Its passes are right for all frames that do not end early.
        (Err(_), _) if !computes => Ok(Need::Passes { least: (0, 0), program: None }),
        (Err(why), _) => Err(refused(why)),
    }
}

/// Whether a text can run in the kernel.
pub(crate) fn check(
    kernel: &KernelPasses,
    filter: &FilterView<'_>,
    cooked: bool,
) -> Result<(), KernelEditError> {
    match need(filter, false, cooked)? {
        Need::Passes { .. } => filter.passes().try_for_each(|pass| kernel.check(pass.instructions)),
        Need::Code(_) => Ok(()),
    }
}

fn judge(
    kernel: &mut KernelPasses,
    filter: &FilterView<'_>,
    in_order: bool,
    cooked: bool,
) -> Result<Text, KernelEditError> {
    Ok(match need(filter, in_order, cooked)? {
        Need::Passes { least, program } => {
            // Without room for it, frames that end early are judged by the passes.
            let code = program.and_then(|program| kernel.code(&program).ok());
            Text::Passes { least, code }
        }
        Need::Code(program) => Text::Code(kernel.code(&program)?),
    })
}
