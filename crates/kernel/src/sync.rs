//! Copies a pass set to the kernel's lists: the passes of filter texts that `ctl` or a tracker edits.
//!
//! ```text
//! texts ─▶ passes, where order does not matter ─▶ many of one form ─▶ one pass and a table (`collapse.rs`)
//!    └──▶ code, in the text's order: byte expressions, and for short frames all texts once more (`texts.rs`)
//! ```
//!
//! There are two ways to apply an edit:
//!
//! | way | when | cost |
//! |---|---|---|
//! | `incremental` | the edit adds or removes few of many passes | O(change) |
//! | whole | all other cases: the first sync, a text that replaces all others, passes edited by hand | O(passes) |
//!
//! A whole edit compares the lists of both sides from both ends, replaces the differing middle by one splice, and
//! selects the passes that become rows anew. `incremental` adds a row for a new pass if a table has its form, and
//! otherwise lists the pass singly, until there are enough single passes to search for tables again. In both ways,
//! additions precede removals. A filter is an OR, so every frame gets the verdict from before or after the edit.
//!
//! Texts of a class [`later`](crate::later) come after all others and reject the frames that they match.
//!
//! Every text gives the verdict of its ordered evaluation, for frames of any length, if there are at most
//! `texts::MOST_TEXTS` texts and each fits into code. Otherwise a frame that ends within the headers that a text tests
//! is evaluated by the text's passes. Passes edited by hand are always evaluated as they are.

mod incremental;
mod texts;

use crate::collapse::{self, Candidate, Form, Group, Sharing};
use crate::error::KernelEditError;
use crate::passes::{self, KernelPassId, KernelPasses, List, NewPass, Splice};
use crate::rows::{Members, Rows, TableId};
use fyke_pass::{Draft, Epoch, FilterId, Instruction, Opcode, PassId, PassSet, PassView};
use incremental::Incremental;
use std::collections::{BTreeMap, HashMap, HashSet};
use texts::{Text, Texts};

/// Index of the parameter that holds the number of a set, and in the kernel of its table.
const SET_PARAM: usize = 2;

/// The kernel's copy of a pass set.
#[derive(Debug, Default)]
pub struct Mirror {
    /// The kernel's passes that represent the set, in both lists, with their keys.
    own: HashMap<KernelPassId, Key>,
    main: HashMap<Subject, KernelPassId>,
    short: HashMap<Subject, KernelPassId>,
    /// Frames that subjects of the main list have accepted in the short list, which they have left.
    short_before: HashMap<Subject, u64>,
    /// Passes that are rows: the number of their group, and the key.
    rowed: HashMap<PassId, (u32, u64)>,
    tables: HashMap<u32, (TableId, Members)>,
    groups: BTreeMap<u32, Rowed>,
    last_group: u32,
    texts: Texts,
    /// Classes of the frames that texts accept; 0 for all others.
    classes: HashMap<FilterId, u32>,
    /// The epoch of the set that the kernel has.
    epoch: Option<Epoch>,
    /// Number of passes that are not rows, now and at the last search for tables.
    unindexed: usize,
    unindexed_at_last_search: usize,
    sharing: Sharing,
    /// True if frames are rejected while there is no pass.
    rejects_if_empty: bool,
}

/// Part of the set that a pass in the kernel represents, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Pass(PassId, Epoch),
    Group(u32),
    Text(FilterId),
}

/// Part of the set that a pass in the kernel represents. A count belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Pass(PassId),
    Group(u32),
    Text(FilterId),
}

impl Key {
    fn group(self) -> Option<u32> {
        if let Key::Group(number) = self { Some(number) } else { None }
    }

    fn subject(self) -> Subject {
        match self {
            Key::Pass(pass, _) => Subject::Pass(pass),
            Key::Group(number) => Subject::Group(number),
            Key::Text(filter) => Subject::Text(filter),
        }
    }
}

/// A pass that a list is to have.
#[derive(Debug, Clone)]
struct Listed {
    key: Key,
    body: Vec<Instruction>,
    class: u32,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    key: Key,
    kernel: KernelPassId,
}

/// Passes that are rows of a table.
#[derive(Debug)]
struct Rowed {
    filter: Option<FilterId>,
    class: u32,
    form: Form,
    table: TableId,
    /// Each key, with the number of passes that have it.
    rows: HashMap<u64, u32>,
    /// Number of passes that are rows.
    passes: usize,
    /// Frames counted for an earlier text that had the same rows.
    before: u64,
}

/// The rows of one form, and the frames that they accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsView {
    /// The text to which they belong.
    pub filter: Option<FilterId>,
    /// Number of rows.
    pub rows: usize,
    /// Frames that any of them accepted.
    pub accepted: u64,
}

/// Resources that an edit has allocated so far; freed if it fails.
#[derive(Debug, Default)]
struct Made {
    tables: Vec<(u32, TableId, Members)>,
    groups: BTreeMap<u32, Rowed>,
    /// Rows added to existing groups, with the groups' numbers.
    rows: Vec<(u32, Vec<u64>)>,
    texts: Texts,
}

/// Contents of the lists after an edit.
#[derive(Debug, Default)]
struct Wanted {
    main: Vec<Listed>,
    short: Vec<Listed>,
    /// Groups that stay, with the text to which they belong now and their rows.
    staying: BTreeMap<u32, (Option<FilterId>, HashMap<u64, u32>)>,
    /// Passes that are rows: the number of their group, and the key.
    rowed: HashMap<PassId, (u32, u64)>,
    /// Number of passes that are not rows.
    unindexed: usize,
    /// Limits of the short list: minimum length of a frame, and minimum number of bytes after the IPv4 header.
    short_limits: (u32, u32),
    /// Passes made by hand that are removed.
    others: Vec<KernelPassId>,
}

/// Treatment of passes that were made by hand; they follow those of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByHand {
    /// They stay. While there are some, short frames are evaluated by all passes alone.
    Stay,
    /// They are removed with the edit.
    GiveWay,
}

/// An edit that has its room in the kernel and does not affect frames yet.
#[derive(Debug)]
#[must_use = "an edit that is neither applied nor cancelled keeps its memory for ever"]
pub struct Prepared {
    made: Made,
    plan: Plan,
}

/// Way to apply an edit.
#[derive(Debug)]
enum Plan {
    Whole(Wanted),
    Incremental(Incremental),
}

impl Mirror {
    /// Makes the kernel's passes equal to those of the set.
    ///
    /// # Errors
    /// A pass cannot run in the kernel, or does not fit; nothing has changed.
    pub fn sync(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
    ) -> Result<(), KernelEditError> {
        let prepared = self.prepare(kernel, &set.draft(), ByHand::Stay)?;
        self.apply(kernel, set, prepared)
    }

    /// Does every step of an edit that can fail: adds its code, tables and rows, and makes room for its passes. No
    /// frame is evaluated by any of it before [`Mirror::apply`]; [`Mirror::cancel`] frees it.
    ///
    /// # Errors
    /// A pass cannot run in the kernel, or does not fit; nothing has changed.
    pub fn prepare(
        &mut self,
        kernel: &mut KernelPasses,
        draft: &Draft<'_>,
        by_hand: ByHand,
    ) -> Result<Prepared, KernelEditError> {
        if texts::is_cooked(draft.link()) {
            kernel.set_cooked();
        }
        if by_hand == ByHand::Stay {
            let mut made = Made::default();
            match self.want_incremental(kernel, draft, &mut made) {
                Ok(Some(incremental)) => {
                    return Ok(Prepared { made, plan: Plan::Incremental(incremental) });
                }
                // The whole edit may have room where the edit pass by pass has none.
                Ok(None) | Err(_) => self.undo(kernel, made),
            }
        }
        let others: Vec<KernelPassId> = match by_hand {
            ByHand::Stay => Vec::new(),
            ByHand::GiveWay => kernel.ids().skip(self.main.len()).collect(),
        };
        let mut made = Made::default();
        let done = self.want(kernel, draft, &mut made).and_then(|mut wanted| {
            if kernel.pass_count() > self.own.len() + others.len() {
                // Passes made by hand evaluate frames of any length, and are in the main list.
                wanted.short_limits = (0, 0);
                wanted.short.clear();
            }
            wanted.others = others;
            let lists = [List::Main, List::Short].map(|list| self.change(kernel, list, &wanted));
            kernel.make_room(&lists.each_ref().map(|change| &change.splice))?;
            drop(lists);
            Ok(wanted)
        });
        match done {
            Ok(wanted) => Ok(Prepared { made, plan: Plan::Whole(wanted) }),
            Err(error) => {
                self.undo(kernel, made);
                Err(error)
            }
        }
    }

    /// Puts the prepared edit in force; `set` is the set for which it was prepared, committed.
    ///
    /// # Errors
    /// The kernel's passes were edited after the preparation.
    pub fn apply(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        prepared: Prepared,
    ) -> Result<(), KernelEditError> {
        // If applying fails, the next edit compares everything.
        self.epoch = None;
        let Prepared { made, plan } = prepared;
        match plan {
            Plan::Incremental(incremental) => {
                self.apply_incremental(kernel, set, made, incremental)?
            }
            Plan::Whole(wanted) => self.apply_whole(kernel, set, made, wanted)?,
        }
        self.epoch = Some(set.epoch());
        Ok(())
    }

    fn apply_whole(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Made,
        wanted: Wanted,
    ) -> Result<(), KernelEditError> {
        let main = self.change(kernel, List::Main, &wanted);
        let short = self.change(kernel, List::Short, &wanted);
        if wanted.main.is_empty() {
            kernel.set_empty_accepts(set.is_empty() && !self.rejects_if_empty);
        }
        let (main_ids, short_ids) = if wanted.short_limits == (0, 0) {
            // No frame may look for the short list when it becomes empty.
            let main_ids = main.apply(kernel)?;
            kernel.set_short(0, 0);
            self.keep_counts(kernel, &short, &wanted);
            (main_ids, short.apply(kernel)?)
        } else {
            self.keep_counts(kernel, &short, &wanted);
            let short_ids = short.apply(kernel)?;
            self.texts.raise(kernel, wanted.short_limits);
            (main.apply(kernel)?, short_ids)
        };
        let replaced = [main.replaced(), short.replaced()];
        self.keep(kernel, set, made, replaced, [main_ids, short_ids], wanted);
        Ok(())
    }

    /// Keeps the counts of what leaves the short list and stays in the main one.
    fn keep_counts(&mut self, kernel: &KernelPasses, short: &Change<'_>, wanted: &Wanted) {
        let stay: HashSet<Subject> = short.keys.iter().map(|key| key.subject()).collect();
        let main: HashSet<Subject> = wanted.main.iter().map(|one| one.key.subject()).collect();
        self.short_before.retain(|subject, _| main.contains(subject));
        for item in &short.replaced {
            let subject = item.key.subject();
            if main.contains(&subject) && !stay.contains(&subject) {
                let accepted = kernel.accepted(item.kernel).unwrap_or(0);
                *self.short_before.entry(subject).or_default() += accepted;
            }
        }
    }

    /// Frames that a subject accepted by its pass `id` of a list. A list that it has left counts to the main one.
    fn counted_once(&self, kernel: &KernelPasses, id: KernelPassId, subject: Subject) -> u64 {
        let is_main = self.main.get(&subject) == Some(&id);
        let before = self.short_before.get(&subject).filter(|_| is_main).copied();
        kernel.accepted(id).unwrap_or(0) + before.unwrap_or(0)
    }

    /// Frees what was prepared.
    pub fn cancel(&mut self, kernel: &mut KernelPasses, prepared: Prepared) {
        self.undo(kernel, prepared.made);
    }

    /// Checks that the kernel can run a set, without regard to room; changes nothing.
    ///
    /// # Errors
    /// The first text, or pass, that it cannot run.
    pub fn check(kernel: &KernelPasses, set: &PassSet) -> Result<(), KernelEditError> {
        let cooked = texts::is_cooked(set.link());
        set.filters().try_for_each(|filter| texts::check(kernel, &filter, cooked))
    }

    /// Accepts frames while the set has no pass (the default), or rejects them.
    pub fn set_rejects_if_empty(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        rejects: bool,
    ) {
        self.rejects_if_empty = rejects;
        kernel.set_empty_accepts(set.is_empty() && !rejects);
    }

    /// Sets when texts share tables, from the next edit on.
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    /// True if a generated program evaluates a pass.
    fn is_generated(&self, kernel: &KernelPasses, pass: PassId) -> bool {
        self.main.get(&Subject::Pass(pass)).is_some_and(|&id| kernel.covers(id))
    }

    /// Sets the class of the frames that a text of the next edit accepts; 0, as without it: none.
    pub fn set_class(&mut self, filter: FilterId, class: u32) {
        if class > 0 {
            self.classes.insert(filter, class);
        }
    }

    /// Forgets the classes of texts.
    pub fn forget_classes(&mut self, filters: &[FilterId]) {
        self.classes.retain(|filter, _| !filters.contains(filter));
    }

    /// True if a text of the set, or of the next edit, rejects the frames that it matches.
    fn has_later(&self) -> bool {
        self.classes.values().any(|&class| passes::is_later(class))
    }

    fn class_of(&self, filter: Option<FilterId>) -> u32 {
        filter.and_then(|filter| self.classes.get(&filter)).copied().unwrap_or(0)
    }

    /// Returns true if a pass of the kernel represents a part of the set.
    pub fn owns(&self, pass: KernelPassId) -> bool {
        self.own.contains_key(&pass)
    }

    /// Returns true if the kernel has passes that were made by hand.
    pub fn has_others(&self, kernel: &KernelPasses) -> bool {
        kernel.pass_count() > self.own.len()
    }

    /// Frames that each pass accepted in the kernel, without rows of tables and texts that run as code.
    pub fn accepted(&self, kernel: &KernelPasses) -> HashMap<PassId, u64> {
        let mut counts = HashMap::new();
        for (&id, key) in &self.own {
            if let Key::Pass(pass, _) = *key {
                *counts.entry(pass).or_default() += self.counted_once(kernel, id, key.subject());
            }
        }
        counts
    }

    /// Frames that each text accepted as code: byte expressions, and short frames.
    pub fn accepted_in_order(&self, kernel: &KernelPasses) -> HashMap<FilterId, u64> {
        let mut counts = HashMap::new();
        for (&id, key) in &self.own {
            if let Key::Text(filter) = *key {
                *counts.entry(filter).or_default() += self.counted_once(kernel, id, key.subject());
            }
        }
        counts
    }

    /// The passes that are rows of tables.
    pub fn rows(&self, kernel: &KernelPasses) -> Vec<RowsView> {
        let view = |(&number, group): (&u32, &Rowed)| {
            let accepted = self.counted(kernel, number).saturating_sub(group.before);
            RowsView { filter: group.filter, rows: group.rows.len(), accepted }
        };
        self.groups.iter().map(view).collect()
    }

    /// Frames that the rows of a group accepted, for all texts that had the group.
    fn counted(&self, kernel: &KernelPasses, number: u32) -> u64 {
        let subject = Subject::Group(number);
        let own = [self.main.get(&subject), self.short.get(&subject)].into_iter().flatten();
        own.map(|&id| self.counted_once(kernel, id, subject)).sum()
    }

    /// Computes the contents of the lists, and makes the code, tables and rows that they need.
    fn want(
        &mut self,
        kernel: &mut KernelPasses,
        set: &Draft<'_>,
        made: &mut Made,
    ) -> Result<Wanted, KernelEditError> {
        self.texts.make(kernel, set, &mut made.texts)?;
        let known = |filter| self.texts.get(filter).or_else(|| made.texts.get(filter)).copied();
        let texts: Vec<(FilterId, Text)> =
            set.filters().filter_map(|one| Some((one.id, known(one.id)?))).collect();
        let by_filter: HashMap<FilterId, Text> = texts.iter().copied().collect();
        let is_code = |text: Option<&Text>| matches!(text, Some(Text::Code(_)));
        let text = |filter: Option<FilterId>| by_filter.get(&filter?);
        let has_code = |pass: &Candidate<'_>| text(pass.filter).and_then(Text::code).is_some();
        let declared: Vec<(PassId, Vec<Instruction>)> = set
            .set()
            .shapes()
            .flat_map(|shape| shape.rows().map(move |row| (row.pass, shape.instructions_of(&row))))
            .collect();
        let declared = declared.iter().map(|(id, instructions)| Candidate {
            id: *id,
            changed: Epoch(0),
            filter: None,
            class: 0,
            instructions,
            is_generated: false,
        });
        let unindexed = set.passes().filter(|pass| !is_code(text(pass.filter)));
        let unindexed = unindexed.map(|PassView { id, changed, filter, instructions, .. }| {
            let (class, is_generated) = (self.class_of(filter), self.is_generated(kernel, id));
            Candidate { id, changed, filter, class, instructions, is_generated }
        });
        let candidates: Vec<Candidate<'_>> = unindexed.chain(declared).collect();
        let mut wanted = Wanted::default();
        self.want_passes(kernel, set, &candidates, has_code, &mut wanted, made)?;
        wanted.short_limits = texts::short_limits(set.link(), &texts);
        if wanted.short_limits == (0, 0) {
            wanted.short.clear();
        }
        for (filter, text) in texts {
            let Some(code) = text.code() else { continue };
            let (key, body) = (Key::Text(filter), vec![code.instruction()]);
            let item = Listed { key, body, class: self.class_of(Some(filter)) };
            if wanted.short_limits != (0, 0) {
                wanted.short.push(item.clone());
            }
            if is_code(Some(&text)) {
                wanted.main.push(item);
            }
        }
        // Passes that reject come last, by their ranks; the order of the others does not matter.
        let rank = |one: &Listed| if passes::is_later(one.class) { one.class } else { 0 };
        wanted.main.sort_by_key(rank);
        wanted.short.sort_by_key(rank);
        Ok(wanted)
    }

    /// Adds the passes, singly and in groups. A text without code for short frames has its passes in both lists.
    fn want_passes(
        &mut self,
        kernel: &mut KernelPasses,
        set: &Draft<'_>,
        passes: &[Candidate<'_>],
        has_code: impl Fn(&Candidate<'_>) -> bool,
        wanted: &mut Wanted,
        made: &mut Made,
    ) -> Result<(), KernelEditError> {
        let mut grouped = vec![false; passes.len()];
        for group in collapse::collapse(passes, self.sharing) {
            group.members.iter().for_each(|&member| grouped[member] = true);
            let in_short = group.members.iter().any(|&member| !has_code(&passes[member]));
            let item = self.add_group(kernel, group, passes, wanted, made)?;
            wanted.short.extend(in_short.then(|| item.clone()));
            wanted.main.push(item);
        }
        let unindexed = passes.iter().zip(grouped).filter(|(_, grouped)| !grouped);
        for (pass, _) in unindexed {
            wanted.unindexed += 1;
            let body = self.translate(kernel, set, pass, made)?;
            let item = Listed { key: Key::Pass(pass.id, pass.changed), body, class: pass.class };
            wanted.short.extend((!has_code(pass)).then(|| item.clone()));
            wanted.main.push(item);
        }
        Ok(())
    }

    /// Makes a table for a group, or reuses the group's table. Returns the pass that looks the rows up.
    fn add_group(
        &mut self,
        kernel: &mut KernelPasses,
        group: Group,
        passes: &[Candidate<'_>],
        wanted: &mut Wanted,
        made: &mut Made,
    ) -> Result<Listed, KernelEditError> {
        let class = group.class;
        let free = |(number, one): &(&u32, &Rowed)| {
            one.form == group.form && one.class == class && !wanted.staying.contains_key(number)
        };
        let mut known = self.groups.iter().filter(free);
        // The table of the same text, or of a text that this one replaces.
        let own = known.clone().find(|(_, one)| one.filter == group.filter);
        let Some((&number, there)) = own.or_else(|| known.next()) else {
            let (number, body) = self.new_group(kernel, &group, made)?;
            let members = group.members.iter().zip(&group.rows);
            wanted.rowed.extend(members.map(|(&at, &key)| (passes[at].id, (number, key))));
            return Ok(Listed { key: Key::Group(number), body, class });
        };
        let rows = counted_keys(&group.rows);
        made.rows.push((number, Vec::new()));
        for &key in rows.keys().filter(|&key| !there.rows.contains_key(key)) {
            kernel.rows().insert(there.table, key)?;
            if let Some((_, added)) = made.rows.last_mut() {
                added.push(key);
            }
        }
        let members = group.members.iter().zip(&group.rows);
        wanted.rowed.extend(members.map(|(&at, &key)| (passes[at].id, (number, key))));
        wanted.staying.insert(number, (group.filter, rows));
        let body = there.form.instructions(there.table);
        Ok(Listed { key: Key::Group(number), body, class })
    }

    /// Makes a table for a group. Returns its number and the pass that looks rows up.
    fn new_group(
        &mut self,
        kernel: &mut KernelPasses,
        group: &Group,
        made: &mut Made,
    ) -> Result<(u32, Vec<Instruction>), KernelEditError> {
        let rows = counted_keys(&group.rows);
        let table = kernel.table(&Members::Keys(rows.keys().copied().collect()))?;
        self.last_group += 1;
        let (filter, class, form) = (group.filter, group.class, group.form.clone());
        let body = form.instructions(table);
        made.groups.insert(
            self.last_group,
            Rowed { filter, class, form, table, rows, passes: group.rows.len(), before: 0 },
        );
        Ok((self.last_group, body))
    }

    /// The mirror's passes of a list, in their order; those made by hand follow them.
    fn items(&self, kernel: &KernelPasses, list: List) -> Vec<Item> {
        let item = |id| self.own.get(&id).map(|&key| Item { key, kernel: id });
        kernel.ids_of(list).map_while(item).collect()
    }

    /// Computes the range of a list to replace, and its replacement.
    fn change<'w>(&self, kernel: &KernelPasses, list: List, wanted: &'w Wanted) -> Change<'w> {
        let have = self.items(kernel, list);
        let want = match list {
            List::Main => &wanted.main,
            List::Short => &wanted.short,
        };
        let same = |(have, want): &(&Item, &Listed)| have.key == want.key;
        let front = have.iter().zip(want).take_while(same).count();
        let (old, new) = (&have[front..], &want[front..]);
        let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        // Passes made by hand follow all others.
        let others = if list == List::Main { &wanted.others[..] } else { &[] };
        let back = if others.is_empty() { back } else { 0 };
        let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);
        let removed = old.iter().map(|have| have.kernel).chain(others.iter().copied()).collect();
        let counts: HashMap<Subject, KernelPassId> =
            old.iter().map(|have| (have.key.subject(), have.kernel)).collect();
        let added = new.iter().map(|one| NewPass {
            instructions: &one.body,
            counts_for: counts.get(&one.key.subject()).copied(),
            class: one.class,
        });
        let after = front.checked_sub(1).map(|last| have[last].kernel);
        let keys = new.iter().map(|one| one.key).collect();
        let replaced = old.to_vec();
        let splice = Splice { list, after, removed, added: added.collect() };
        Change { replaced, splice, keys }
    }

    /// Records the new contents after they were put in force.
    fn keep(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Made,
        replaced: [Replaced; 2],
        ids: [Vec<KernelPassId>; 2],
        wanted: Wanted,
    ) {
        for ((map, (gone, keys)), ids) in
            [&mut self.main, &mut self.short].into_iter().zip(replaced).zip(ids)
        {
            for Item { key, kernel } in gone {
                self.own.remove(&kernel);
                map.remove(&key.subject());
            }
            for (key, id) in keys.into_iter().zip(ids) {
                self.own.insert(id, key);
                map.insert(key.subject(), id);
            }
        }
        self.tables.extend(made.tables.into_iter().map(|(set, table, all)| (set, (table, all))));
        let mut before = std::mem::take(&mut self.groups);
        for (number, (filter, rows)) in wanted.staying {
            let Some(mut group) = before.remove(&number) else { continue };
            if group.filter != filter {
                group.before = self.counted(kernel, number);
                group.filter = filter;
            }
            for &key in group.rows.keys().filter(|&key| !rows.contains_key(key)) {
                kernel.rows().remove(group.table, key);
            }
            group.passes = rows.values().map(|&count| count as usize).sum();
            group.rows = rows;
            self.groups.insert(number, group);
        }
        for (_, group) in before {
            retire_group(kernel, group);
        }
        self.groups.extend(made.groups);
        self.rowed = wanted.rowed;
        (self.unindexed, self.unindexed_at_last_search) = (wanted.unindexed, wanted.unindexed);
        self.tables.retain(|&number, (table, members)| {
            let used = set.value_set(number).is_some();
            if !used {
                kernel.retire_table(*table, std::mem::replace(members, Members::Keys(Vec::new())));
            }
            used
        });
        self.texts.keep(kernel, set, made.texts, wanted.short_limits);
    }

    /// Frees the resources of a failed edit.
    fn undo(&mut self, kernel: &mut KernelPasses, made: Made) {
        for (_, table, members) in made.tables {
            kernel.retire_table(table, members);
        }
        made.groups.into_values().for_each(|group| retire_group(kernel, group));
        for (number, keys) in made.rows {
            let Some(group) = self.groups.get(&number) else { continue };
            keys.into_iter().for_each(|key| {
                kernel.rows().remove(group.table, key);
            });
        }
        made.texts.drop_all(kernel);
    }

    /// The instructions of a pass, with tables in place of sets.
    fn translate(
        &self,
        kernel: &mut KernelPasses,
        set: &Draft<'_>,
        pass: &Candidate<'_>,
        made: &mut Made,
    ) -> Result<Vec<Instruction>, KernelEditError> {
        let mut instructions = pass.instructions.to_vec();
        for instruction in &mut instructions {
            if !matches!(instruction.opcode(), Some(Opcode::DSet | Opcode::L1Set | Opcode::DSet6)) {
                continue;
            }
            let number = instruction.params[SET_PARAM];
            let known = self.tables.get(&number).map(|(table, _)| *table);
            let mut new = made.tables.iter();
            let known = known.or(new.find(|(set, ..)| *set == number).map(|made| made.1));
            let table = match known {
                Some(table) => table,
                None => {
                    let own = set.value_set(number);
                    let members = own.map(|own| own.members()).unwrap_or_default();
                    let members = match own.is_some_and(|own| own.holds_addresses()) {
                        true => Members::Addresses(members),
                        false => Members::Keys(
                            members.iter().map(|&value| Rows::value_key(value as u32)).collect(),
                        ),
                    };
                    let table = kernel.table(&members)?;
                    made.tables.push((number, table, members));
                    table
                }
            };
            instruction.params[SET_PARAM] = table.0.into();
        }
        Ok(instructions)
    }
}

/// Each key with the number of its occurrences.
fn counted_keys(keys: &[u64]) -> HashMap<u64, u32> {
    let mut counted = HashMap::with_capacity(keys.len());
    keys.iter().for_each(|&key| *counted.entry(key).or_insert(0) += 1);
    counted
}

/// Retires the table of a group that no pass in force looks up.
fn retire_group(kernel: &mut KernelPasses, group: Rowed) {
    kernel.retire_table(group.table, Members::Keys(group.rows.into_keys().collect()));
}

/// Items of a list, and the keys that replace them.
type Replaced = (Vec<Item>, Vec<Key>);

/// A splice of a list, with the keys of the new passes.
struct Change<'w> {
    /// The mirror's own items that are replaced.
    replaced: Vec<Item>,
    splice: Splice<'w>,
    keys: Vec<Key>,
}

impl Change<'_> {
    fn replaced(&self) -> Replaced {
        (self.replaced.clone(), self.keys.clone())
    }

    fn apply(&self, kernel: &mut KernelPasses) -> Result<Vec<KernelPassId>, KernelEditError> {
        let Splice { list, after, removed, added } = &self.splice;
        if removed.is_empty() && added.is_empty() {
            return Ok(Vec::new());
        }
        kernel.splice_list(*list, *after, removed, added)
    }
}
