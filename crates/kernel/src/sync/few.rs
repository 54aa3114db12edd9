//! Edits of few of many passes: O(change), whatever the size of the set.
//!
//! ```text
//! new passes ─▶ sixteen of one form in one text: a table of their own
//!          └──▶ a table that texts share has their form: a row of it
//!          └──▶ else one by one, after the others
//! ```
//!
//! What does not fit this is left to the comparison as a whole: passes edited by hand, declared shapes, tables that
//! have become nearly empty, and enough passes one by one that tables may pay. That is looked for again whenever these
//! have grown by a quarter, so that an edit costs O(change) on average.

use super::texts::{self, Text, Texts};
use super::{Key, Made, Mirror, SET_PARAM, Subject, retire_group};
use crate::collapse::{self, Candidate, SHARED_FROM, THRESHOLD};
use crate::error::KernelEditError;
use crate::passes::{KernelPassId, KernelPasses, List, NewPass, Splice};
use fyke_pass::{Draft, FilterId, Instruction, Opcode, PassId, PassSet};
use std::collections::{HashMap, HashSet};

/// Most passes of an edit that is brought over like this.
const MOST_TOUCHED: usize = 1_024;
/// A table with fewer rows costs more than it saves.
const FEWEST_ROWS: usize = THRESHOLD / 2;

/// An edit of few passes; what it needs is there.
#[derive(Debug, Default)]
pub(super) struct Few {
    main: Vec<(Key, Vec<Instruction>)>,
    short: Vec<(Key, Vec<Instruction>)>,
    /// New rows: pass, number of the group, key.
    rows: Vec<(PassId, u32, u64)>,
    /// Passes that go.
    gone: Vec<PassId>,
    gone_texts: Vec<FilterId>,
    /// Sets that they name.
    sets: Vec<u32>,
    /// Frames that run the short list.
    least: (u32, u32),
}

impl Mirror {
    /// Prepares an edit of few passes; `None` when the sets are to be compared as a whole.
    pub(super) fn want_few(
        &mut self,
        kernel: &mut KernelPasses,
        draft: &Draft<'_>,
        made: &mut Made,
    ) -> Result<Option<Few>, KernelEditError> {
        let (Some(gone_texts), true) = (draft.removed_filters(), self.is_few(kernel, draft)) else {
            return Ok(None);
        };
        let mut few = Few { gone_texts: gone_texts.to_vec(), ..Few::default() };
        let Some(fresh) = few.sort_out(draft) else { return Ok(None) };
        self.texts.make_new(kernel, draft, &mut made.texts)?;
        few.least = self.least(draft, &made.texts);
        if (few.least == (0, 0)) != (kernel.short() == (0, 0)) {
            return Ok(None);
        }
        let apart = self.want_fresh(kernel, draft, &fresh, &mut few, made)?;
        if apart.is_none_or(|apart| self.is_to_regroup(&few, apart)) {
            return Ok(None);
        }
        let changes = [(List::Main, &few.main), (List::Short, &few.short)];
        let splices = changes.map(|(list, items)| {
            let (after, removed) = (kernel.last_of(list), Vec::new());
            Splice { list, after, removed, added: new_passes(items) }
        });
        kernel.make_room(&splices.each_ref())?;
        drop(splices);
        Ok(Some(few))
    }

    /// Returns true if an edit touches few of many passes of the set that the kernel has.
    fn is_few(&self, kernel: &KernelPasses, draft: &Draft<'_>) -> bool {
        let touched = draft.touched().len();
        self.epoch == Some(draft.set().epoch())
            && touched <= MOST_TOUCHED
            && 2 * touched <= self.main.len() + self.rowed.len()
            && !self.main.is_empty()
            && !draft.is_empty()
            && !self.has_others(kernel)
            && draft.set().shapes().next().is_none()
    }

    /// Frames that run the short list after the edit.
    fn least(&self, draft: &Draft<'_>, made: &Texts) -> (u32, u32) {
        if draft.filter_count() > texts::MOST_TEXTS {
            return (0, 0);
        }
        let known = |id| self.texts.get(id).or_else(|| made.get(id)).copied();
        let all: Vec<(FilterId, Text)> =
            draft.filters().filter_map(|one| Some((one.id, known(one.id)?))).collect();
        texts::least(draft.link(), &all)
    }

    /// Finds places for the new passes. Returns the number listed one by one; `None` if a comparison is needed.
    fn want_fresh(
        &mut self,
        kernel: &mut KernelPasses,
        draft: &Draft<'_>,
        fresh: &[Candidate<'_>],
        few: &mut Few,
        made: &mut Made,
    ) -> Result<Option<usize>, KernelEditError> {
        let texts: HashMap<FilterId, Text> = draft
            .new_filters()
            .filter_map(|one| Some((one.id, *made.texts.get(one.id)?)))
            .collect();
        let text = |pass: &Candidate<'_>| texts.get(&pass.filter?);
        let is_code = |pass: &&Candidate<'_>| matches!(text(pass), Some(Text::Code(_)));
        let fresh: Vec<Candidate<'_>> =
            fresh.iter().filter(|pass| !is_code(pass)).copied().collect();
        // Without code of their text, short frames are judged by the passes.
        let is_short = few.least != (0, 0);
        let in_short = |at: usize| is_short && text(&fresh[at]).and_then(Text::code).is_none();
        let mut grouped = vec![false; fresh.len()];
        for group in collapse::collapse(&fresh) {
            if group.filter.is_none() {
                continue;
            }
            let (number, body) = self.new_group(kernel, &group, made)?;
            let item = (Key::Group(number), body);
            few.short.extend(group.members.iter().any(|&at| in_short(at)).then(|| item.clone()));
            few.main.push(item);
            for (&at, &key) in group.members.iter().zip(&group.rows) {
                grouped[at] = true;
                few.rows.push((fresh[at].id, number, key));
            }
        }
        let mut apart = 0;
        for (at, pass) in fresh.iter().enumerate().filter(|(at, _)| !grouped[*at]) {
            if let Some((number, key)) = self.shared_row(pass.instructions) {
                if in_short(at) && !self.short.contains_key(&Subject::Group(number)) {
                    return Ok(None);
                }
                self.want_row(kernel, number, key, made)?;
                few.rows.push((pass.id, number, key));
                continue;
            }
            let item =
                (Key::Pass(pass.id, pass.changed), self.translate(kernel, draft, pass, made)?);
            few.short.extend(in_short(at).then(|| item.clone()));
            few.main.push(item);
            apart += 1;
        }
        for (filter, text) in texts {
            let Some(code) = text.code() else { continue };
            let item = (Key::Text(filter), vec![code.instruction()]);
            few.short.extend(is_short.then(|| item.clone()));
            few.main.extend(matches!(text, Text::Code(_)).then_some(item));
        }
        Ok(Some(apart))
    }

    /// The row that a pass would be of a table that texts share.
    fn shared_row(&self, pass: &[Instruction]) -> Option<(u32, u64)> {
        let shared = self.groups.iter().filter(|(_, group)| group.filter.is_none());
        let mut fitting =
            shared.filter_map(|(&number, group)| Some((number, group.form.key_of(pass)?)));
        fitting.next()
    }

    /// Makes sure that a row is there.
    fn want_row(
        &self,
        kernel: &mut KernelPasses,
        number: u32,
        key: u64,
        made: &mut Made,
    ) -> Result<(), KernelEditError> {
        let Some(group) = self.groups.get(&number) else { return Ok(()) };
        let is_new = |(at, keys): &(u32, Vec<u64>)| *at == number && keys.contains(&key);
        if !group.rows.contains_key(&key) && !made.rows.iter().any(is_new) {
            kernel.rows().insert(group.table, key)?;
            match made.rows.iter_mut().find(|(at, _)| *at == number) {
                Some((_, keys)) => keys.push(key),
                None => made.rows.push((number, vec![key])),
            }
        }
        Ok(())
    }

    /// Returns true if tables are to be looked for again after an edit that lists `apart` more passes singly.
    fn is_to_regroup(&self, few: &Few, apart: usize) -> bool {
        let mut rows: HashMap<u32, i64> = HashMap::new();
        few.rows.iter().for_each(|(_, number, _)| *rows.entry(*number).or_default() += 1);
        let mut gone = 0;
        for pass in &few.gone {
            match self.rowed.get(pass) {
                Some((number, _)) => *rows.entry(*number).or_default() -= 1,
                None => gone += usize::from(self.main.contains_key(&Subject::Pass(*pass))),
            }
        }
        let apart = self.apart + apart - gone;
        let left = |(number, change): (&u32, &i64)| {
            self.groups.get(number).map_or(0, |group| group.passes) as i64 + change
        };
        let left: Vec<i64> = rows.iter().map(left).collect();
        gone += left.iter().filter(|&&left| left == 0).count();
        let texts = few.gone_texts.iter().map(|&filter| Subject::Text(filter));
        gone += texts.filter(|text| self.main.contains_key(text)).count();
        apart > self.apart_at_last + THRESHOLD.max(self.apart_at_last / 4)
            || (apart > SHARED_FROM && self.apart_at_last <= SHARED_FROM)
            || left.iter().any(|left| (1..FEWEST_ROWS as i64).contains(left))
            // A list becomes empty in one step.
            || gone == self.main.len() + few.main.len()
    }

    /// Lets frames be judged by an edit of few passes.
    pub(super) fn apply_few(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Made,
        few: Few,
    ) -> Result<(), KernelEditError> {
        self.list(kernel, List::Short, &few.short)?;
        self.texts.raise(kernel, few.least);
        self.list(kernel, List::Main, &few.main)?;
        self.tables.extend(made.tables.into_iter().map(|(set, table, all)| (set, (table, all))));
        self.groups.extend(made.groups);
        let of_new: HashSet<u32> = few.main.iter().filter_map(|(key, _)| key.group()).collect();
        for (pass, number, key) in few.rows {
            self.rowed.insert(pass, (number, key));
            if let Some(group) = self.groups.get_mut(&number).filter(|_| !of_new.contains(&number))
            {
                *group.rows.entry(key).or_insert(0) += 1;
                group.passes += 1;
            }
        }
        for pass in few.gone {
            self.drop_pass(kernel, pass)?;
        }
        for &filter in &few.gone_texts {
            self.unlist(kernel, Subject::Text(filter))?;
        }
        for number in few.sets {
            if set.value_set(number).is_none()
                && let Some((table, members)) = self.tables.remove(&number)
            {
                kernel.retire_table(table, members);
            }
        }
        self.texts.keep_few(kernel, made.texts, &few.gone_texts, few.least);
        Ok(())
    }

    /// Lists passes after the others.
    fn list(
        &mut self,
        kernel: &mut KernelPasses,
        list: List,
        items: &[(Key, Vec<Instruction>)],
    ) -> Result<(), KernelEditError> {
        if items.is_empty() {
            return Ok(());
        }
        let ids = kernel.splice_list(list, kernel.last_of(list), &[], &new_passes(items))?;
        let map = match list {
            List::Main => &mut self.main,
            List::Short => &mut self.short,
        };
        for ((key, _), id) in items.iter().zip(ids) {
            self.own.insert(id, *key);
            map.insert(key.subject(), id);
            let is_apart = list == List::Main && matches!(key, Key::Pass(..));
            self.apart += usize::from(is_apart);
        }
        Ok(())
    }

    /// Takes a part of the set out of both lists; returns true if it was in the main one.
    fn unlist(
        &mut self,
        kernel: &mut KernelPasses,
        subject: Subject,
    ) -> Result<bool, KernelEditError> {
        let found: [Option<KernelPassId>; 2] =
            [self.main.remove(&subject), self.short.remove(&subject)];
        for id in found.into_iter().flatten() {
            self.own.remove(&id);
            kernel.take_out(id)?;
        }
        Ok(found[0].is_some())
    }

    /// A pass of the set is gone: so is its row, or its place in the lists.
    fn drop_pass(
        &mut self,
        kernel: &mut KernelPasses,
        pass: PassId,
    ) -> Result<(), KernelEditError> {
        let Some((number, key)) = self.rowed.remove(&pass) else {
            self.apart -= usize::from(self.unlist(kernel, Subject::Pass(pass))?);
            return Ok(());
        };
        let Some(group) = self.groups.get_mut(&number) else { return Ok(()) };
        group.passes -= 1;
        if group.passes == 0 {
            self.unlist(kernel, Subject::Group(number))?;
            if let Some(group) = self.groups.remove(&number) {
                retire_group(kernel, group);
            }
            return Ok(());
        }
        let Some(count) = group.rows.get_mut(&key) else { return Ok(()) };
        *count -= 1;
        if *count == 0 {
            group.rows.remove(&key);
            kernel.rows().remove(group.table, key);
        }
        Ok(())
    }
}

impl Few {
    /// Tells new passes from those that go; `None` when a pass is edited in its place.
    fn sort_out<'a>(&mut self, draft: &Draft<'a>) -> Option<Vec<Candidate<'a>>> {
        let mut fresh = Vec::new();
        for id in draft.touched() {
            match (draft.set().pass(id), draft.pass(id)) {
                (Some(_), Some(_)) => return None,
                (Some(old), None) => {
                    self.gone.push(id);
                    self.sets.extend(old.instructions.iter().filter_map(set_of));
                }
                (None, Some(new)) => fresh.push(Candidate {
                    id,
                    changed: new.changed,
                    filter: new.filter,
                    instructions: new.instructions,
                }),
                (None, None) => {}
            }
        }
        Some(fresh)
    }
}

/// The set of values that an instruction names.
fn set_of(one: &Instruction) -> Option<u32> {
    let names = matches!(one.opcode(), Some(Opcode::DSet | Opcode::L1Set | Opcode::DSet6));
    names.then(|| one.params[SET_PARAM])
}

fn new_passes(items: &[(Key, Vec<Instruction>)]) -> Vec<NewPass<'_>> {
    items.iter().map(|(_, body)| NewPass { instructions: body, counts_for: None }).collect()
}
