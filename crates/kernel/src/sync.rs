//! Makes the kernel's lists equal to a pass set's: what filter texts became, edited by `ctl` or by a tracker.
//!
//! ```text
//! texts ─▶ passes, where order makes no difference ─▶ many of one form ─▶ one pass and a table (`collapse.rs`)
//!    └──▶ code, in the text's order: byte expressions, and all texts once more for frames that end early (`texts.rs`)
//! ```
//!
//! The lists of both sides are compared from both ends; what differs in the middle is replaced by one splice, and
//! passes outside of the middle are not touched. Rows that come are there before the splice, rows that go are taken
//! away behind it: a filter is an OR, so every frame gets the verdict of before the edit or of after. O(passes) an
//! edit; whoever wants an edit in a microsecond at any size calls [`KernelPasses`] itself.
//!
//! Every text has the verdict of its ordered evaluation, for frames of any length, as long as there are no more than
//! `texts::MOST_TEXTS` and each fits into code; beyond that frames that end within the headers a text looks at are
//! judged by its passes as they stand. Passes edited by hand always are.

mod texts;

use crate::collapse::{self, Candidate, Form, Group};
use crate::error::KernelEditError;
use crate::passes::{KernelPassId, KernelPasses, List, NewPass, Splice};
use crate::rows::{Members, Rows, TableId};
use fyke_pass::{Epoch, FilterId, Instruction, Opcode, PassId, PassSet, PassView};
use std::collections::{HashMap, HashSet};
use texts::{Text, Texts};

/// The parameter that names a set, and in the kernel its table.
const SET_PARAM: usize = 2;

/// What of a pass set is in the kernel.
#[derive(Debug, Default)]
pub struct Mirror {
    main: Vec<Item>,
    short: Vec<Item>,
    tables: HashMap<u32, (TableId, Members)>,
    groups: Vec<Rowed>,
    last_group: u32,
    texts: Texts,
}

/// What a pass in the kernel stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Pass(PassId, Epoch),
    Group(u32),
    Text(FilterId),
}

impl Key {
    /// Whether counts go on.
    fn is_same(self, other: Key) -> bool {
        match (self, other) {
            (Key::Pass(one, _), Key::Pass(other, _)) => one == other,
            _ => self == other,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Item {
    key: Key,
    kernel: KernelPassId,
}

/// Passes that are rows of a table.
#[derive(Debug)]
struct Rowed {
    number: u32,
    filter: Option<FilterId>,
    form: Form,
    table: TableId,
    rows: HashSet<u64>,
    /// What was counted for an earlier text that had the same rows.
    before: u64,
}

/// Rows of one form, and the frames that they accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsView {
    /// The text that they belong to.
    pub filter: Option<FilterId>,
    /// How many there are.
    pub rows: usize,
    /// Frames that any of them accepted.
    pub accepted: u64,
}

/// What an edit has made so far; taken back when it fails.
#[derive(Debug, Default)]
struct Made {
    tables: Vec<(u32, TableId, Members)>,
    groups: Vec<Rowed>,
    /// Rows of groups that there were, by the groups' place.
    rows: Vec<(usize, Vec<u64>)>,
    texts: Texts,
}

/// What the lists are to be.
#[derive(Debug, Default)]
struct Wanted {
    main: Vec<(Key, Vec<Instruction>)>,
    short: Vec<(Key, Vec<Instruction>)>,
    /// Places of groups that stay, the text they belong to now and their rows.
    staying: Vec<(usize, Option<FilterId>, HashSet<u64>)>,
    /// Frames that run the short list: below how many bytes, and below how many behind the IPv4 header.
    least: (u32, u32),
}

impl Mirror {
    /// Makes the kernel's passes equal to the set's.
    ///
    /// # Errors
    /// A pass cannot run in the kernel, or does not fit; nothing has changed then.
    pub fn sync(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
    ) -> Result<(), KernelEditError> {
        if texts::is_cooked(set.link()) {
            kernel.set_cooked();
        }
        let mut made = Made::default();
        let done = self.want(kernel, set, &mut made).and_then(|wanted| {
            let (main, short) =
                (self.change(List::Main, &wanted), self.change(List::Short, &wanted));
            kernel.make_room(&[&main.splice, &short.splice])?;
            if wanted.main.is_empty() {
                kernel.set_empty_accepts(set.is_empty());
            }
            let short_ids = short.apply(kernel)?;
            self.texts.raise(kernel, wanted.least);
            let main_ids = main.apply(kernel)?;
            Ok(([main.range(), short.range()], [main_ids, short_ids], wanted))
        });
        match done {
            Ok((ranges, ids, wanted)) => {
                self.keep(kernel, set, made, ranges, ids, wanted);
                Ok(())
            }
            Err(error) => {
                self.undo(kernel, made);
                Err(error)
            }
        }
    }

    /// Whether the kernel could run a set, room aside; nothing is changed.
    ///
    /// # Errors
    /// The first text, or pass, that it cannot run.
    pub fn check(kernel: &KernelPasses, set: &PassSet) -> Result<(), KernelEditError> {
        let cooked = texts::is_cooked(set.link());
        set.filters().try_for_each(|filter| texts::check(kernel, &filter, cooked))
    }

    /// Adds the passes of a set behind the others, or, in one step, in the place of the given ones, which must be all
    /// there are. The set is not followed afterwards; tables and code that it needs stay. Frames that end within what
    /// is looked at are judged by the passes as they stand.
    ///
    /// # Errors
    /// A pass cannot run in the kernel, or does not fit; nothing has changed then.
    pub fn append(
        kernel: &mut KernelPasses,
        set: &PassSet,
        instead_of: Option<&[KernelPassId]>,
    ) -> Result<Vec<KernelPassId>, KernelEditError> {
        let (mut mirror, mut made) = (Mirror::default(), Made::default());
        let result = mirror.want(kernel, set, &mut made).and_then(|wanted| {
            let added: Vec<NewPass<'_>> = wanted.main.iter().map(new_pass).collect();
            let after = if instead_of.is_some() { None } else { kernel.last() };
            kernel.set_short(0, 0);
            kernel.splice(after, instead_of.unwrap_or_default(), &added)
        });
        if result.is_err() {
            mirror.undo(kernel, made);
        }
        result
    }

    /// Frames that each pass accepted in the kernel, but for rows of tables and texts that run as code.
    pub fn accepted(&self, kernel: &KernelPasses) -> HashMap<PassId, u64> {
        let mut counts = HashMap::new();
        for item in self.main.iter().chain(&self.short) {
            if let Key::Pass(pass, _) = item.key {
                *counts.entry(pass).or_default() += kernel.accepted(item.kernel).unwrap_or(0);
            }
        }
        counts
    }

    /// Frames that each text accepted as code: what passes cannot say, and frames that end early.
    pub fn accepted_in_order(&self, kernel: &KernelPasses) -> HashMap<FilterId, u64> {
        let mut counts = HashMap::new();
        for item in self.main.iter().chain(&self.short) {
            if let Key::Text(filter) = item.key {
                *counts.entry(filter).or_default() += kernel.accepted(item.kernel).unwrap_or(0);
            }
        }
        counts
    }

    /// The passes that are rows of tables.
    pub fn rows(&self, kernel: &KernelPasses) -> Vec<RowsView> {
        let view = |group: &Rowed| {
            let accepted = self.counted(kernel, group).saturating_sub(group.before);
            RowsView { filter: group.filter, rows: group.rows.len(), accepted }
        };
        self.groups.iter().map(view).collect()
    }

    fn counted(&self, kernel: &KernelPasses, group: &Rowed) -> u64 {
        let own = self.main.iter().chain(&self.short);
        let own = own.filter(|item| item.key == Key::Group(group.number));
        own.filter_map(|item| kernel.accepted(item.kernel)).sum()
    }

    /// What the lists are to be; code, tables and rows that they need are made.
    fn want(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
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
            .shapes()
            .flat_map(|shape| shape.rows().map(move |row| (row.pass, shape.instructions_of(&row))))
            .collect();
        let declared = declared.iter().map(|(id, instructions)| Candidate {
            id: *id,
            changed: Epoch(0),
            filter: None,
            instructions,
        });
        let apart = set.passes().filter(|pass| !is_code(text(pass.filter)));
        let apart = apart.map(|PassView { id, changed, filter, instructions, .. }| Candidate {
            id,
            changed,
            filter,
            instructions,
        });
        let loose: Vec<Candidate<'_>> = apart.chain(declared).collect();
        let mut wanted = Wanted::default();
        self.want_passes(kernel, set, &loose, has_code, &mut wanted, made)?;
        wanted.least = texts::least(set.link(), &texts);
        if wanted.least == (0, 0) {
            wanted.short.clear();
        }
        for (filter, text) in texts {
            let Some(code) = text.code() else { continue };
            let item = (Key::Text(filter), vec![code.instruction()]);
            if wanted.least != (0, 0) {
                wanted.short.push(item.clone());
            }
            if is_code(Some(&text)) {
                wanted.main.push(item);
            }
        }
        Ok(wanted)
    }

    /// The passes one by one and in groups; what has no code to judge frames that end early is in both lists.
    fn want_passes(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        passes: &[Candidate<'_>],
        has_code: impl Fn(&Candidate<'_>) -> bool,
        wanted: &mut Wanted,
        made: &mut Made,
    ) -> Result<(), KernelEditError> {
        let mut grouped = vec![false; passes.len()];
        for group in collapse::collapse(passes) {
            group.members.iter().for_each(|&member| grouped[member] = true);
            let in_short = group.members.iter().any(|&member| !has_code(&passes[member]));
            let item = self.enter(kernel, group, wanted, made)?;
            wanted.short.extend(in_short.then(|| item.clone()));
            wanted.main.push(item);
        }
        let apart = passes.iter().zip(grouped).filter(|(_, grouped)| !grouped);
        for (pass, _) in apart {
            let body = self.translate(kernel, set, pass, made)?;
            let item = (Key::Pass(pass.id, pass.changed), body);
            wanted.short.extend((!has_code(pass)).then(|| item.clone()));
            wanted.main.push(item);
        }
        Ok(())
    }

    /// A group becomes a table, or goes on with the one that it has. Returns the pass that looks rows up.
    fn enter(
        &mut self,
        kernel: &mut KernelPasses,
        group: Group,
        wanted: &mut Wanted,
        made: &mut Made,
    ) -> Result<(Key, Vec<Instruction>), KernelEditError> {
        let rows: HashSet<u64> = group.rows.into_iter().collect();
        let free = |at: &usize| !wanted.staying.iter().any(|(taken, ..)| taken == at);
        let alike = |at: &usize| self.groups[*at].form == group.form;
        let own = |at: &usize| self.groups[*at].filter == group.filter;
        let mut known = (0..self.groups.len()).filter(alike).filter(free);
        // Its own, or that of a text that it takes the place of.
        let known = known.clone().find(own).or_else(|| known.next());
        let Some(at) = known else {
            let keys = Members::Keys(rows.iter().copied().collect());
            let table = kernel.table(&keys)?;
            self.last_group += 1;
            let Group { filter, form, .. } = group;
            let body = form.instructions(table);
            let number = self.last_group;
            made.groups.push(Rowed { number, filter, form, table, rows, before: 0 });
            return Ok((Key::Group(number), body));
        };
        let there = &self.groups[at];
        made.rows.push((at, Vec::new()));
        for &key in rows.difference(&there.rows) {
            kernel.rows().insert(there.table, key)?;
            if let Some((_, added)) = made.rows.last_mut() {
                added.push(key);
            }
        }
        wanted.staying.push((at, group.filter, rows));
        Ok((Key::Group(there.number), there.form.instructions(there.table)))
    }

    /// What of a list is to be replaced by what.
    fn change<'w>(&self, list: List, wanted: &'w Wanted) -> Change<'w> {
        let (have, want) = match list {
            List::Main => (&self.main, &wanted.main),
            List::Short => (&self.short, &wanted.short),
        };
        let same = |(have, want): &(&Item, &(Key, Vec<Instruction>))| have.key == want.0;
        let front = have.iter().zip(want).take_while(same).count();
        let (old, new) = (&have[front..], &want[front..]);
        let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);
        let removed: Vec<KernelPassId> = old.iter().map(|have| have.kernel).collect();
        let counts: HashMap<PassId, KernelPassId> = old
            .iter()
            .filter_map(|have| match have.key {
                Key::Pass(pass, _) => Some((pass, have.kernel)),
                _ => None,
            })
            .collect();
        let added = new.iter().map(|one| NewPass {
            instructions: &one.1,
            counts_for: match one.0 {
                Key::Pass(pass, _) => counts.get(&pass).copied(),
                key => old.iter().find(|have| have.key.is_same(key)).map(|have| have.kernel),
            },
        });
        let after = front.checked_sub(1).map(|last| have[last].kernel);
        let keys = new.iter().map(|one| one.0).collect();
        let splice = Splice { list, after, removed, added: added.collect() };
        Change { front, splice, keys }
    }

    /// What was made is in use.
    fn keep(
        &mut self,
        kernel: &mut KernelPasses,
        set: &PassSet,
        made: Made,
        ranges: [Replaced; 2],
        ids: [Vec<KernelPassId>; 2],
        wanted: Wanted,
    ) {
        for ((list, (range, keys)), ids) in
            [&mut self.main, &mut self.short].into_iter().zip(ranges).zip(ids)
        {
            let items = keys.into_iter().zip(ids).map(|(key, kernel)| Item { key, kernel });
            list.splice(range, items.collect::<Vec<_>>());
        }
        self.tables.extend(made.tables.into_iter().map(|(set, table, all)| (set, (table, all))));
        let mut stays = vec![false; self.groups.len()];
        for (at, filter, rows) in wanted.staying {
            stays[at] = true;
            if self.groups[at].filter != filter {
                self.groups[at].before = self.counted(kernel, &self.groups[at]);
                self.groups[at].filter = filter;
            }
            let group = &mut self.groups[at];
            for &key in group.rows.difference(&rows) {
                kernel.rows().remove(group.table, key);
            }
            group.rows = rows;
        }
        let (staying, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.groups).into_iter().zip(stays).partition(|(_, stays)| *stays);
        self.groups = staying.into_iter().map(|(group, _)| group).chain(made.groups).collect();
        for (group, _) in gone {
            kernel.retire_table(group.table, Members::Keys(group.rows.into_iter().collect()));
        }
        self.tables.retain(|&number, (table, members)| {
            let used = set.value_set(number).is_some();
            if !used {
                kernel.retire_table(*table, std::mem::replace(members, Members::Keys(Vec::new())));
            }
            used
        });
        self.texts.keep(kernel, set, made.texts, wanted.least);
    }

    /// Takes back what a failed edit has made.
    fn undo(&mut self, kernel: &mut KernelPasses, made: Made) {
        for (_, table, members) in made.tables {
            kernel.retire_table(table, members);
        }
        for group in made.groups {
            kernel.retire_table(group.table, Members::Keys(group.rows.into_iter().collect()));
        }
        for (at, keys) in made.rows {
            let table = self.groups[at].table;
            keys.into_iter().for_each(|key| {
                kernel.rows().remove(table, key);
            });
        }
        made.texts.drop_all(kernel);
    }

    /// The instructions of a pass with sets replaced by tables.
    fn translate(
        &self,
        kernel: &mut KernelPasses,
        set: &PassSet,
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

fn new_pass(item: &(Key, Vec<Instruction>)) -> NewPass<'_> {
    NewPass { instructions: &item.1, counts_for: None }
}

/// Which items of a list give way to which keys.
type Replaced = (std::ops::Range<usize>, Vec<Key>);

/// A splice of a list, and what it makes of it.
struct Change<'w> {
    front: usize,
    splice: Splice<'w>,
    keys: Vec<Key>,
}

impl Change<'_> {
    fn range(&self) -> Replaced {
        (self.front..self.front + self.splice.removed.len(), self.keys.clone())
    }

    fn apply(&self, kernel: &mut KernelPasses) -> Result<Vec<KernelPassId>, KernelEditError> {
        let Splice { list, after, removed, added } = &self.splice;
        if removed.is_empty() && added.is_empty() {
            return Ok(Vec::new());
        }
        kernel.splice_list(*list, *after, removed, added)
    }
}
