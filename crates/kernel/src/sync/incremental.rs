//! Edits that touch few of many passes: O(change), whatever the size of the set.
//!
//! ```text
//! new passes ─▶ at least sixteen of one form in one text: a table of their own
//!          └──▶ a table that several texts share has their form: a row of it
//!          └──▶ otherwise singly, after the others
//! ```
//!
//! All other cases are left to the whole comparison: passes edited by hand, declared shapes, tables that are almost
//! empty, and single passes in such numbers that tables may pay. The last is checked whenever their number has grown
//! by a quarter, so an edit costs O(change) on average.

use super::texts::{self, Text, Texts};
use super::{Key, Listed, Made, Mirror, Rowed, SET_PARAM, Subject, retire_group};
use crate::collapse::{self, Candidate, SHARED_FROM, Sharing, THRESHOLD};
use crate::error::KernelEditError;
use crate::passes::{KernelPassId, KernelPasses, List, NewPass, Splice};
use fyke_pass::{Draft, FilterId, Instruction, Opcode, PassId, PassSet};
use std::collections::{HashMap, HashSet};

/// Most passes of an edit that is applied in this way.
const MOST_TOUCHED: usize = 1_024;

/// An edit of few passes, with its resources allocated.
#[derive(Debug, Default)]
pub(super) struct Incremental {
    main: Vec<Listed>,
    short: Vec<Listed>,
    /// New rows: pass, number of the group, key.
    rows: Vec<(PassId, u32, u64)>,
    /// Passes to remove.
    gone: Vec<PassId>,
    gone_texts: Vec<FilterId>,
    /// Sets to which the new passes refer.
    sets: Vec<u32>,
    /// Limits of the short list.
    short_limits: (u32, u32),
}

impl Mirror {
    /// Prepares an edit of few passes; `None` if the sets must be compared as a whole.
    pub(super) fn want_incremental(
        &mut self,
        kernel: &mut KernelPasses,
        draft: &Draft<'_>,
        made: &mut Made,
    ) -> Result<Option<Incremental>, KernelEditError> {
        let (Some(gone_texts), true) =
            (draft.removed_filters(), self.is_incremental(kernel, draft))
        else {
            return Ok(None);
        };
        let mut incremental =
            Incremental { gone_texts: gone_texts.to_vec(), ..Incremental::default() };
        let classes = |filter| self.class_of(filter);
        let Some(fresh) = incremental.sort_out(draft, classes) else { return Ok(None) };
        self.texts.make_new(kernel, draft, &mut made.texts)?;
        incremental.short_limits = self.short_limits(draft, &made.texts);
        if (incremental.short_limits == (0, 0)) != (kernel.short() == (0, 0)) {
            return Ok(None);
        }
        let unindexed = self.want_fresh(kernel, draft, &fresh, &mut incremental, made)?;
        if unindexed.is_none_or(|unindexed| self.is_to_regroup(&incremental, unindexed)) {
            return Ok(None);
        }
        let changes = [(List::Main, &incremental.main), (List::Short, &incremental.short)];
        let splices = changes.map(|(list, items)| {
            let (after, removed) = (kernel.last_of(list), Vec::new());
            Splice { list, after, removed, added: new_passes(items) }
        });
        kernel.make_room(&splices.each_ref())?;
        drop(splices);
        Ok(Some(incremental))
    }

    /// Returns true if an edit touches few of many passes of the set that the kernel has.
    fn is_incremental(&self, kernel: &KernelPasses, draft: &Draft<'_>) -> bool {
        let touched = draft.touched().len();
        self.epoch == Some(draft.set().epoch())
            && touched <= MOST_TOUCHED
            && 2 * touched <= self.main.len() + self.rowed.len()
            && !self.main.is_empty()
            && !draft.is_empty()
            && !self.has_others(kernel)
            // New passes come before those that reject, so the lists are compared as a whole.
            && !self.has_later()
            && draft.set().shapes().next().is_none()
    }

    /// Limits of the short list after the edit.
    fn short_limits(&self, draft: &Draft<'_>, made: &Texts) -> (u32, u32) {
        if draft.filter_count() > texts::MOST_TEXTS {
            return (0, 0);
        }
        let known = |id| self.texts.get(id).or_else(|| made.get(id)).copied();
        let all: Vec<(FilterId, Text)> =
            draft.filters().filter_map(|one| Some((one.id, known(one.id)?))).collect();
        texts::short_limits(draft.link(), &all)
    }

    /// Distributes the new passes. Returns the number of single passes; `None` if a whole comparison is needed.
    fn want_fresh(
        &mut self,
        kernel: &mut KernelPasses,
        draft: &Draft<'_>,
        fresh: &[Candidate<'_>],
        incremental: &mut Incremental,
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
        // If a text has no code, its passes evaluate short frames.
        let is_short = incremental.short_limits != (0, 0);
        let in_short = |at: usize| is_short && text(&fresh[at]).and_then(Text::code).is_none();
        let mut grouped = vec![false; fresh.len()];
        for group in collapse::collapse(&fresh, Sharing::Late) {
            if group.filter.is_none() {
                continue;
            }
            let (number, body) = self.new_group(kernel, &group, made)?;
            let item = Listed { key: Key::Group(number), body, class: group.class };
            incremental
                .short
                .extend(group.members.iter().any(|&at| in_short(at)).then(|| item.clone()));
            incremental.main.push(item);
            for (&at, &key) in group.members.iter().zip(&group.rows) {
                grouped[at] = true;
                incremental.rows.push((fresh[at].id, number, key));
            }
        }
        let mut unindexed = 0;
        for (at, pass) in fresh.iter().enumerate().filter(|(at, _)| !grouped[*at]) {
            if let Some((number, key)) = self.shared_row(pass) {
                if in_short(at) && !self.short.contains_key(&Subject::Group(number)) {
                    return Ok(None);
                }
                self.want_row(kernel, number, key, made)?;
                incremental.rows.push((pass.id, number, key));
                continue;
            }
            let body = self.translate(kernel, draft, pass, made)?;
            let item = Listed { key: Key::Pass(pass.id, pass.changed), body, class: pass.class };
            incremental.short.extend(in_short(at).then(|| item.clone()));
            incremental.main.push(item);
            unindexed += 1;
        }
        for (filter, text) in texts {
            let Some(code) = text.code() else { continue };
            let (key, body) = (Key::Text(filter), vec![code.instruction()]);
            let item = Listed { key, body, class: self.class_of(Some(filter)) };
            incremental.short.extend(is_short.then(|| item.clone()));
            incremental.main.extend(matches!(text, Text::Code(_)).then_some(item));
        }
        Ok(Some(unindexed))
    }

    /// The row that a pass would have in a table shared by several texts.
    fn shared_row(&self, pass: &Candidate<'_>) -> Option<(u32, u64)> {
        let fits = |group: &Rowed| group.filter.is_none() && group.class == pass.class;
        let shared = self.groups.iter().filter(|(_, group)| fits(group));
        let mut fitting = shared
            .filter_map(|(&number, group)| Some((number, group.form.key_of(pass.instructions)?)));
        fitting.next()
    }

    /// Adds a row unless it exists.
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

    /// Returns true if an edit with `unindexed` more single passes must search for tables again.
    fn is_to_regroup(&self, incremental: &Incremental, unindexed: usize) -> bool {
        let mut rows: HashMap<u32, i64> = HashMap::new();
        incremental.rows.iter().for_each(|(_, number, _)| *rows.entry(*number).or_default() += 1);
        let mut gone = 0;
        for pass in &incremental.gone {
            match self.rowed.get(pass) {
                Some((number, _)) => *rows.entry(*number).or_default() -= 1,
                None => gone += usize::from(self.main.contains_key(&Subject::Pass(*pass))),
            }
        }
        let unindexed = self.unindexed + unindexed - gone;
        let left = |(number, change): (&u32, &i64)| {
            let group = self.groups.get(number);
            let is_shared = group.is_some_and(|group| group.filter.is_none());
            let least = if is_shared { self.sharing.least() } else { THRESHOLD };
            (group.map_or(0, |group| group.passes) as i64 + change, least / 2)
        };
        let left: Vec<(i64, usize)> = rows.iter().map(left).collect();
        gone += left.iter().filter(|(left, _)| *left == 0).count();
        let texts = incremental.gone_texts.iter().map(|&filter| Subject::Text(filter));
        gone += texts.filter(|text| self.main.contains_key(text)).count();
        let last = self.unindexed_at_last_search;
        unindexed > last + self.sharing.step().max(last / 4)
            || (unindexed > SHARED_FROM && last <= SHARED_FROM)
            || left.iter().any(|(left, fewest)| (1..*fewest as i64).contains(left))
            // A list that becomes empty must do so in one step.
            || gone == self.main.len() + incremental.main.len()
    }

    /// Puts an edit of few passes in force.
    pub(super) fn apply_incremental(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Made,
        incremental: Incremental,
    ) -> Result<(), KernelEditError> {
        self.list(kernel, List::Short, &incremental.short)?;
        self.texts.raise(kernel, incremental.short_limits);
        self.list(kernel, List::Main, &incremental.main)?;
        self.tables.extend(made.tables.into_iter().map(|(set, table, all)| (set, (table, all))));
        self.groups.extend(made.groups);
        let of_new: HashSet<u32> =
            incremental.main.iter().filter_map(|item| item.key.group()).collect();
        for (pass, number, key) in incremental.rows {
            self.rowed.insert(pass, (number, key));
            if let Some(group) = self.groups.get_mut(&number).filter(|_| !of_new.contains(&number))
            {
                *group.rows.entry(key).or_insert(0) += 1;
                group.passes += 1;
            }
        }
        for pass in incremental.gone {
            self.drop_pass(kernel, pass)?;
        }
        for &filter in &incremental.gone_texts {
            self.unlist(kernel, Subject::Text(filter))?;
        }
        for number in incremental.sets {
            if set.value_set(number).is_none()
                && let Some((table, members)) = self.tables.remove(&number)
            {
                kernel.retire_table(table, members);
            }
        }
        self.texts.keep_incremental(
            kernel,
            made.texts,
            &incremental.gone_texts,
            incremental.short_limits,
        );
        Ok(())
    }

    /// Appends passes to a list.
    fn list(
        &mut self,
        kernel: &mut KernelPasses,
        list: List,
        items: &[Listed],
    ) -> Result<(), KernelEditError> {
        if items.is_empty() {
            return Ok(());
        }
        let ids = kernel.splice_list(list, kernel.last_of(list), &[], &new_passes(items))?;
        let map = match list {
            List::Main => &mut self.main,
            List::Short => &mut self.short,
        };
        for (Listed { key, .. }, id) in items.iter().zip(ids) {
            self.own.insert(id, *key);
            map.insert(key.subject(), id);
            let is_unindexed = list == List::Main && matches!(key, Key::Pass(..));
            self.unindexed += usize::from(is_unindexed);
        }
        Ok(())
    }

    /// Removes a part of the set from both lists; returns true if it was in the main list.
    fn unlist(
        &mut self,
        kernel: &mut KernelPasses,
        subject: Subject,
    ) -> Result<bool, KernelEditError> {
        let found: [Option<KernelPassId>; 2] =
            [self.main.remove(&subject), self.short.remove(&subject)];
        for id in found.into_iter().flatten() {
            self.own.remove(&id);
            kernel.remove_from_list(id)?;
        }
        Ok(found[0].is_some())
    }

    /// Removes the row of a removed pass, or removes the pass from the lists.
    fn drop_pass(
        &mut self,
        kernel: &mut KernelPasses,
        pass: PassId,
    ) -> Result<(), KernelEditError> {
        let Some((number, key)) = self.rowed.remove(&pass) else {
            self.unindexed -= usize::from(self.unlist(kernel, Subject::Pass(pass))?);
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

impl Incremental {
    /// Divides the touched passes into new and removed ones; `None` if a pass was edited in place.
    fn sort_out<'a>(
        &mut self,
        draft: &Draft<'a>,
        class_of: impl Fn(Option<FilterId>) -> u32,
    ) -> Option<Vec<Candidate<'a>>> {
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
                    class: class_of(new.filter),
                    instructions: new.instructions,
                    is_generated: false,
                }),
                (None, None) => {}
            }
        }
        Some(fresh)
    }
}

/// The number of the set to which an instruction refers.
fn set_of(one: &Instruction) -> Option<u32> {
    let names = matches!(one.opcode(), Some(Opcode::DSet | Opcode::L1Set | Opcode::DSet6));
    names.then(|| one.params[SET_PARAM])
}

fn new_passes(items: &[Listed]) -> Vec<NewPass<'_>> {
    items
        .iter()
        .map(|item| NewPass { instructions: &item.body, counts_for: None, class: item.class })
        .collect()
}
