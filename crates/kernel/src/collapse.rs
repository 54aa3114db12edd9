//! Selection of passes that become rows of tables in the kernel: passes that differ only in one word or two.
//!
//! ```text
//! pass ─▶ skeleton: its tests, with the value of each one-value test removed ─▶ groups of equal skeletons
//!   ─▶ words that differ in a group: one or two of them are the key (32 + 16 bits); tests of equal words precede
//!      the look-up
//! ```
//!
//! The rows of one text have one count. Texts with few passes of a form share a table, and its count, only if there are
//! more than [`SHARED_FROM`] such passes, because evaluating these one by one would cost too much per frame; or as soon
//! as there are a few, if the counts of texts are not needed ([`Sharing`]). O(passes) hashes of their instructions.
//! Source: MPF, section 3 (collapse), with the key of [`crate::shape`].

use crate::facts::{distance, is_wide};
use crate::layout::ROW_VALUE_SHIFT;
use crate::rows::TableId;
use crate::shape::{self, Part};
use fyke_pass::layout::{Addressing, NEG, PARAMS};
pub(crate) use fyke_pass::lower::THRESHOLD;
use fyke_pass::{Epoch, FilterId, Instruction, Opcode, PassId};
use std::collections::HashMap;

/// Up to this number, passes of texts that have few passes of a form are evaluated and counted one by one.
pub(crate) const SHARED_FROM: usize = 512;
/// Fewest passes of a form that share a table if the counts of texts are not needed.
const SHARED_SOON: usize = 4;

/// Tables that several texts share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Only from many passes on: each text has its own count before.
    #[default]
    Late,
    /// From a few passes on: a reader after the kernel counts the frames of each text itself. Passes in a generated
    /// program stay there, because they cost less than a look-up of the interpreter.
    Soon,
}

impl Sharing {
    /// Fewest passes of a shared table.
    pub(crate) fn least(self) -> usize {
        match self {
            Sharing::Late => THRESHOLD,
            Sharing::Soon => SHARED_SOON,
        }
    }

    /// Least number of new single passes after which tables may pay.
    pub(crate) fn step(self) -> usize {
        self.least() / if self == Sharing::Soon { 2 } else { 1 }
    }
}

/// Passes with more instructions do not become rows.
const MOST_INSTRUCTIONS: usize = 8;

/// A word of the key: its position in the pass, and in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Word {
    instruction: usize,
    part: Part,
    wide: bool,
    /// Frame offset of the IPv4 header to which the word's offset is relative.
    header: u16,
}

/// The common part of the rows of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    common: Vec<Instruction>,
    first: Word,
    second: Option<Word>,
}

impl Form {
    /// The pass that evaluates all rows.
    pub fn instructions(&self, table: TableId) -> Vec<Instruction> {
        let words = [Some(self.first), self.second];
        let header = words.into_iter().flatten().find(|word| word.part.behind_ipv4);
        let header = header.map_or(0, |word| word.header);
        let second = self.second.map(|word| word.part);
        let look_up = shape::look_up(table, self.first.part, self.first.wide, second, header);
        self.common.iter().copied().chain([look_up]).collect()
    }

    /// The row of a pass, if the pass has this form.
    pub fn key_of(&self, pass: &[Instruction]) -> Option<u64> {
        let (mut common, mut first, mut second) = (self.common.iter(), None, None);
        for (at, one) in pass.iter().enumerate() {
            let value =
                |of: Word| word(at, one).and_then(|(own, value)| (own == of).then_some(value));
            match self.second {
                _ if at == self.first.instruction => first = Some(value(self.first)?),
                Some(of) if at == of.instruction => second = Some(value(of)?),
                _ if common.next() == Some(one) => {}
                _ => return None,
            }
        }
        let is_whole = common.next().is_none() && second.is_some() == self.second.is_some();
        first.filter(|_| is_whole).map(|first| row_key(first, second))
    }
}

/// The key of a row, of one word or two.
fn row_key(first: u32, second: Option<u32>) -> u64 {
    u64::from(first) << ROW_VALUE_SHIFT | u64::from(second.unwrap_or(0))
}

/// A pass that may become a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub id: PassId,
    pub changed: Epoch,
    pub filter: Option<FilterId>,
    /// Class of the frames that it accepts.
    pub class: u32,
    pub instructions: &'a [Instruction],
    /// True if a generated program evaluates it.
    pub is_generated: bool,
}

/// Passes that are rows of one table.
#[derive(Debug)]
pub(crate) struct Group {
    /// The text that all of them belong to; `None` for passes of several, or of none.
    pub filter: Option<FilterId>,
    /// Class of the frames that they accept.
    pub class: u32,
    pub form: Form,
    pub rows: Vec<u64>,
    /// Index of the pass of each row, in the order of `rows`.
    pub members: Vec<usize>,
}

/// A test of one value that a table could answer.
fn word(instruction: usize, one: &Instruction) -> Option<(Word, u32)> {
    let opcode = one.opcode()?;
    let form = opcode.form();
    if !compares_values(opcode) || one.command & NEG != 0 || one.count() != 1 {
        return None;
    }
    let wide = is_wide(one, opcode);
    let (width, full) = if wide { (4, u32::MAX) } else { (2, 0xffff) };
    let either = match distance(one, opcode) {
        0 => false,
        distance if distance == width => true,
        _ => return None,
    };
    let mask = if form.first_operand > 0 { one.params[0] & full } else { full };
    let behind_ipv4 = form.addressing == Addressing::L1;
    let header = if behind_ipv4 { one.params[PARAMS - 1] as u16 } else { 0 };
    let part = Part { offset: one.offset(), behind_ipv4, either, mask };
    let value = one.params[usize::from(form.first_operand)] & mask;
    Some((Word { instruction, part, wide, header }, value))
}

/// True if an instruction compares a word with values. The match names every opcode, so that adding one requires a
/// decision here.
fn compares_values(opcode: Opcode) -> bool {
    use Opcode as P;
    match opcode {
        P::DEq | P::DMeq | P::DDmeq | P::DSeq | P::DSmeq | P::DPmeq => true,
        P::L1Eq | P::L1Meq | P::L1Seq | P::L1Smeq | P::L1Eseq => true,
        P::Nop | P::DRng | P::DSrng | P::DMrng | P::DLeqM | P::DBmeq => false,
        P::L1Rng | P::L1Srng | P::L1Mrng | P::L1LeqM | P::L1Sseq => false,
        P::L2Seq | P::L2Srng | P::L2Leq | P::L2LeqM => false,
        P::DSet | P::L1Set | P::DSet6 | P::DAddr6 => false,
        P::LenRng | P::MetaMeq | P::Cond | P::Passes => false,
    }
}

/// The passes of one skeleton.
struct Alike {
    filter: Option<FilterId>,
    class: u32,
    words: Vec<Word>,
    /// Index of the pass, and its values.
    members: Vec<(usize, Vec<u32>)>,
}

/// Groups the passes: at least [`THRESHOLD`] of one text, or the least number of shared passes.
pub(crate) fn collapse(passes: &[Candidate<'_>], sharing: Sharing) -> Vec<Group> {
    let mut known: HashMap<(Option<FilterId>, Vec<Instruction>), usize> = HashMap::new();
    let mut alike: Vec<Alike> = Vec::new();
    let mut key = (None, Vec::new());
    for (index, pass) in passes.iter().enumerate() {
        if pass.instructions.len() > MOST_INSTRUCTIONS {
            continue;
        }
        key.0 = pass.filter;
        key.1.clear();
        let (mut words, mut values) = (Vec::new(), Vec::new());
        for (number, one) in pass.instructions.iter().enumerate() {
            let mut blank = *one;
            if let Some((word, value)) = word(number, one) {
                let operand = one.opcode().map_or(0, |opcode| opcode.form().first_operand);
                blank.params[usize::from(operand)] = 0;
                words.push(word);
                values.push(value);
            }
            key.1.push(blank);
        }
        if words.is_empty() {
            continue;
        }
        let at = match known.get(&key) {
            Some(&at) => at,
            None => {
                known.insert(key.clone(), alike.len());
                let (filter, class) = (pass.filter, pass.class);
                alike.push(Alike { filter, class, words, members: Vec::new() });
                alike.len() - 1
            }
        };
        alike[at].members.push((index, values));
    }
    let mut groups = Vec::new();
    let few = |one: &&Alike| one.members.len() < THRESHOLD;
    let ungrouped: usize = alike.iter().filter(few).map(|one| one.members.len()).sum();
    let pooled = match sharing {
        _ if ungrouped > SHARED_FROM => pool(known, &alike, |_| true),
        Sharing::Soon => pool(known, &alike, |at| !passes[at].is_generated),
        Sharing::Late => Vec::new(),
    };
    let leasts = [(&alike, THRESHOLD), (&pooled, sharing.least())];
    for (all, least) in leasts {
        for one in all.iter().filter(|one| one.members.len() >= least) {
            divide(passes, one, &one.members, least, &mut groups);
        }
    }
    groups
}

/// Merges passes of equal skeleton and class from texts that have few of them.
fn pool(
    known: HashMap<(Option<FilterId>, Vec<Instruction>), usize>,
    alike: &[Alike],
    may_share: impl Fn(usize) -> bool,
) -> Vec<Alike> {
    let mut pooled: HashMap<(u32, Vec<Instruction>), Alike> = HashMap::new();
    for ((_, skeleton), at) in known {
        let one = &alike[at];
        if one.members.len() < THRESHOLD {
            let empty = || Alike {
                filter: None,
                class: one.class,
                words: one.words.clone(),
                members: Vec::new(),
            };
            let all = pooled.entry((one.class, skeleton)).or_insert_with(empty);
            all.members.extend(one.members.iter().filter(|(at, _)| may_share(*at)).cloned());
        }
    }
    let mut pooled: Vec<Alike> = pooled.into_values().collect();
    pooled.iter_mut().for_each(|one| one.members.sort_by_key(|(index, _)| *index));
    pooled.sort_by_key(|one| one.members.first().map(|(index, _)| *index));
    pooled
}

/// Makes one group if the differences fit into a key. Otherwise divides the passes by the value of a word and tries
/// again with each part.
fn divide(
    passes: &[Candidate<'_>],
    alike: &Alike,
    members: &[(usize, Vec<u32>)],
    least: usize,
    groups: &mut Vec<Group>,
) {
    let words = &alike.words[..];
    let differs = |word: &usize| members.iter().any(|(_, own)| own[*word] != members[0].1[*word]);
    let mut differing: Vec<usize> = (0..words.len()).filter(differs).collect();
    if let Some(too_many) = too_many(words, &differing) {
        let mut by_value: HashMap<u32, Vec<(usize, Vec<u32>)>> = HashMap::new();
        for member in members {
            by_value.entry(member.1[too_many]).or_default().push(member.clone());
        }
        let mut parts: Vec<_> = by_value.into_iter().collect();
        parts.retain(|(_, members)| members.len() >= least);
        parts.sort_by_key(|(_, members)| members[0].0);
        parts.iter().for_each(|(_, members)| divide(passes, alike, members, least, groups));
        return;
    }
    // The wide word comes first. If all passes are equal, no word differs, and any word can be the key.
    differing.sort_by_key(|&word| !words[word].wide);
    let first = differing.first().copied().unwrap_or(0);
    let second = differing.get(1).copied();
    let keys = [Some(words[first].instruction), second.map(|word| words[word].instruction)];
    let common = passes[members[0].0].instructions.iter().enumerate();
    let common = common.filter(|(at, _)| !keys.contains(&Some(*at))).map(|(_, one)| *one);
    let form = Form {
        common: common.collect(),
        first: words[first],
        second: second.map(|word| words[word]),
    };
    let key = |values: &[u32]| row_key(values[first], second.map(|word| values[word]));
    groups.push(Group {
        filter: alike.filter,
        class: alike.class,
        form,
        rows: members.iter().map(|(_, values)| key(values)).collect(),
        members: members.iter().map(|(index, _)| *index).collect(),
    });
}

/// The word by which to divide, if the differing words do not fit into a key.
fn too_many(words: &[Word], differing: &[usize]) -> Option<usize> {
    let (first, rest) = differing.split_first()?;
    let wide = differing.iter().filter(|&&word| words[word].wide).count();
    let headers = differing.iter().filter(|&&word| words[word].part.behind_ipv4);
    let headers: Vec<u16> = headers.map(|&word| words[word].header).collect();
    let one_header = headers.windows(2).all(|two| two[0] == two[1]);
    (rest.len() > 1 || wide > 1 || !one_header).then_some(*first)
}
