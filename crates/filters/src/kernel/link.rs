//! The texts for sockets of one link type: their passes and the kernel's copy of them.

use crate::error::{FilterError, GroupError};
use crate::lowered::Fit;
use crate::superset::AND;
use crate::texts::Resolved;
use crate::user::{HandEdit, HandError, IN_ORDER, in_words};
use crate::view::PassDescription;
use fyke_filter::Options;
use fyke_frame::LinkType;
use fyke_kernel::{
    AttachError, ByHand, KernelEditError, KernelPassId, Mirror, PacketSocket, Prepared, RowsView,
    Sharing, Space, Tuner,
};
use fyke_pass::{Edit, FilterId, LoweredFilter, PassId, PassSet, PassView};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Compiles and lowers a text, or several that must all hold ([`AND`]).
pub(super) fn lower(text: &str, options: &Options) -> Result<Fit, FilterError> {
    match fyke_filter::compile_all(text.split(AND), options) {
        Ok(predicate) => Ok(Ok(LoweredFilter::new(&predicate)?)),
        Err(unfit) => Ok(Err(unfit)),
    }
}

/// The texts, for one link type.
#[derive(Debug)]
pub(super) struct LinkFilters {
    pub space: Space,
    /// Specialises passes that have been stable for a while.
    tuner: Tuner,
    mirror: Mirror,
    passes: PassSet,
    /// The set's filter for each text, by number.
    ids: BTreeMap<u64, FilterId>,
    /// Passes of the set that were made by hand.
    by_hand: BTreeSet<PassId>,
    /// Takes the program that sockets get, for a place other than sockets.
    taker: Option<Taker>,
}

/// Takes a program.
pub(super) struct Taker(pub Box<TakeProgram>);

pub(super) type TakeProgram = dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send;

impl std::fmt::Debug for Taker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Taker").finish_non_exhaustive()
    }
}

/// A prepared group of changes, which is then committed and applied, or cancelled.
pub(super) struct Pending<'a> {
    space: &'a mut Space,
    mirror: &'a mut Mirror,
    edit: Edit<'a>,
    change: Committed,
}

/// A group of changes that is committed in the pass set, for the kernel.
pub(super) struct Committed {
    prepared: Prepared,
    added: Vec<(u64, FilterId)>,
}

/// Frames that the kernel's passes had accepted at one moment.
#[derive(Debug)]
pub(super) struct LinkCounts {
    passes: HashMap<PassId, u64>,
    in_order: HashMap<FilterId, u64>,
    rows: Vec<RowsView>,
    /// Sum over the rows of each text.
    of_rows: HashMap<FilterId, u64>,
}

impl LinkCounts {
    /// Frames that all passes accepted which are there.
    pub fn sum(&self) -> u64 {
        let rows = self.rows.iter().map(|rows| rows.accepted);
        self.passes.values().chain(self.in_order.values()).copied().chain(rows).sum()
    }
}

/// Forgets the classes of texts that are not added after all.
fn forget(mirror: &mut Mirror, added: &[(u64, FilterId)]) {
    let filters: Vec<_> = added.iter().map(|(_, filter)| *filter).collect();
    mirror.forget_classes(&filters);
}

fn give(space: &Space, taker: Option<&Taker>) -> io::Result<()> {
    taker.map_or(Ok(()), |taker| space.with_socket_program(|program| taker.0(program))?)
}

impl LinkFilters {
    /// Makes filters without a text.
    pub fn new(space: Space, link: LinkType) -> LinkFilters {
        let (tuner, mirror, passes) = (Tuner::default(), Mirror::default(), PassSet::new(link));
        let (ids, by_hand) = (BTreeMap::new(), BTreeSet::new());
        LinkFilters { space, tuner, mirror, passes, ids, by_hand, taker: None }
    }

    pub fn link(&self) -> LinkType {
        self.passes.link()
    }

    /// Sets when texts share tables, from the next edit on.
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.mirror.set_sharing(sharing);
    }

    /// Adds the texts that are in force on other link types.
    pub fn fill(
        &mut self,
        texts: &BTreeMap<u64, Arc<str>>,
        reading: &Options,
    ) -> Result<(), FilterError> {
        let options = Options { link: self.link(), ..*reading };
        let mut edit = self.passes.edit();
        for (&id, text) in texts {
            let lowered = lower(text, &options)??;
            self.ids.insert(id, edit.add_lowered(lowered)?);
        }
        edit.commit();
        Ok(self.mirror.sync(self.space.passes(), &self.passes)?)
    }

    /// Does every step of a group of changes that can be refused; `take` returns the lowered text of a change.
    pub fn prepare(
        &mut self,
        resolved: &Resolved,
        mut take: impl FnMut(usize) -> Option<LoweredFilter>,
        class_of: impl Fn(usize) -> u32,
        by_hand: ByHand,
    ) -> Result<Pending<'_>, GroupError> {
        let LinkFilters { space, mirror, passes, ids, .. } = self;
        let mut edit = passes.edit();
        for filter in resolved.removed.of(ids) {
            edit.remove_filter(filter).map_err(GroupError::at(0))?;
        }
        let mut added = Vec::new();
        for &(id, place) in &resolved.added {
            let Some(lowered) = take(place) else { continue };
            let filter = edit.add_lowered(lowered).map_err(GroupError::at(place))?;
            mirror.set_class(filter, class_of(place));
            added.push((id, filter));
        }
        // An error for lack of room is reported for the newest text, or else for the removal.
        let place = resolved.added.last().map_or(0, |(_, place)| *place);
        let prepared =
            mirror.prepare(space.passes(), &edit.draft(), by_hand).map_err(|refused| {
                forget(mirror, &added);
                GroupError::at(place)(refused)
            })?;
        Ok(Pending { space, mirror, edit, change: Committed { prepared, added } })
    }

    /// Puts the prepared and committed group in force.
    pub fn apply(&mut self, resolved: &Resolved, change: Committed) -> Result<(), KernelEditError> {
        let gone = resolved.removed.of(&self.ids);
        resolved.removed.take_from(&mut self.ids);
        self.ids.extend(change.added);
        let applied = self.mirror.apply(self.space.passes(), &self.passes, change.prepared);
        self.mirror.forget_classes(&gone);
        applied
    }

    /// Edits passes by hand, all of it or nothing.
    pub fn edit_by_hand<T, E: From<HandError>>(
        &mut self,
        edit: impl FnOnce(&mut HandEdit<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let LinkFilters { space, mirror, passes, by_hand, .. } = self;
        let link = passes.link();
        let mut hand = HandEdit::new(passes.edit(), by_hand.clone(), link);
        let result = edit(&mut hand)?;
        let (edit, own) = hand.into_parts();
        let refused = |error: KernelEditError| HandError::from(FilterError::from(error));
        let prepared = mirror.prepare(space.passes(), &edit.draft(), ByHand::Stay);
        let prepared = prepared.map_err(refused)?;
        edit.commit();
        *by_hand = own;
        mirror.apply(space.passes(), passes, prepared).map_err(refused)?;
        Ok(result)
    }

    /// True if there are passes that were made by hand.
    pub fn has_by_hand(&self) -> bool {
        !self.by_hand.is_empty()
    }

    /// Rejects frames while there is no pass, or accepts them (the default).
    pub fn set_rejects_if_empty(&mut self, rejects: bool) {
        let LinkFilters { space, mirror, passes, .. } = self;
        mirror.set_rejects_if_empty(space.passes(), passes, rejects);
    }

    /// The passes that were made by hand, with their counts. Those that are rows of a table are counted together.
    pub fn described_by_hand(&self, counts: &LinkCounts) -> Vec<PassDescription> {
        let link = self.link();
        let own = |pass: &PassView<'_>| self.by_hand.contains(&pass.id);
        let in_rows: u64 =
            counts.rows.iter().filter(|it| it.filter.is_none()).map(|it| it.accepted).sum();
        let mut is_first = true;
        let describe = |pass: PassView<'_>| {
            let (mut text, accepted) = (in_words(&pass), counts.passes.get(&pass.id).copied());
            let accepted = accepted.unwrap_or_else(|| {
                text += ": a row of a table, which counts its frames together";
                if std::mem::take(&mut is_first) { in_rows } else { 0 }
            });
            PassDescription { link, id: pass.id.0, text, accepted }
        };
        self.passes.passes().filter(own).map(describe).collect()
    }

    /// True if the kernel has passes that belong to no text.
    pub fn has_others(&self) -> bool {
        self.has_by_hand() || self.mirror.has_others(self.space.view())
    }

    /// True if a pass of the kernel belongs to a text.
    pub fn owns(&self, pass: KernelPassId) -> bool {
        self.mirror.owns(pass)
    }

    /// Does the work that is due for passes that have been stable for a while.
    pub fn tune(
        &mut self,
        sockets: &impl Fn(&mut dyn FnMut(&PacketSocket)),
    ) -> Result<(), AttachError> {
        let link = self.passes.link();
        let taker = &self.taker;
        let attach = |space: &Space| {
            let mut result = give(space, taker.as_ref()).map_err(AttachError::from);
            sockets(&mut |socket| {
                if socket.link().is_ok_and(|own| own == link)
                    && let Err(error) = space.attach(socket.as_fd())
                {
                    result = Err(error);
                }
            });
            result
        };
        self.tuner.step_with(&mut self.space, attach).map(|_| ())
    }

    /// Gives the program that sockets get to `take`, now and whenever another takes its place.
    pub fn give_program(&mut self, take: Box<TakeProgram>) -> io::Result<()> {
        self.taker = Some(Taker(take));
        give(&self.space, self.taker.as_ref())
    }

    /// Reads the counters.
    pub fn counts(&self) -> LinkCounts {
        let kernel = self.space.view();
        let rows = self.mirror.rows(kernel);
        let mut of_rows = HashMap::new();
        for (filter, accepted) in rows.iter().filter_map(|rows| Some((rows.filter?, rows.accepted)))
        {
            *of_rows.entry(filter).or_default() += accepted;
        }
        let (passes, in_order) =
            (self.mirror.accepted(kernel), self.mirror.accepted_in_order(kernel));
        LinkCounts { passes, in_order, rows, of_rows }
    }

    /// Frames that a text accepted.
    pub fn accepted(&self, id: u64, counts: &LinkCounts) -> u64 {
        let Some(&id) = self.ids.get(&id) else { return 0 };
        let passes = self.passes.filter(id).into_iter().flat_map(|filter| filter.passes());
        let passes: u64 = passes.filter_map(|pass| counts.passes.get(&pass.id)).sum();
        let of = |counts: &HashMap<FilterId, u64>| counts.get(&id).copied().unwrap_or(0);
        passes + of(&counts.of_rows) + of(&counts.in_order)
    }

    /// The passes of a text with their counts.
    pub fn described(&self, id: u64, counts: &LinkCounts) -> Vec<PassDescription> {
        let Some(filter) = self.ids.get(&id).and_then(|&id| self.passes.filter(id)) else {
            return Vec::new();
        };
        let link = self.link();
        let own = filter.passes().filter_map(|pass| {
            let accepted = *counts.passes.get(&pass.id)?;
            Some(PassDescription { link, id: pass.id.0, text: in_words(&pass), accepted })
        });
        let mut passes: Vec<PassDescription> = own.collect();
        let in_rows = || filter.passes().filter(|pass| !counts.passes.contains_key(&pass.id));
        let own = counts.rows.iter().filter(|rows| rows.filter == Some(filter.id));
        for (rows, first) in own.zip(in_rows()) {
            let text = format!("{} passes in a table, as {}", rows.rows, in_words(&first));
            let accepted = rows.accepted;
            passes.push(PassDescription { link, id: first.id.0, text, accepted });
        }
        let in_order = counts.in_order.get(&filter.id);
        if passes.is_empty()
            && in_order.is_none()
            && let Some(first) = filter.passes().next()
        {
            let shared = counts.rows.iter().filter(|rows| rows.filter.is_none());
            let together: u64 = shared.map(|rows| rows.accepted).sum();
            let text = format!(
                "{}: shares a table with other filters; all rows of the table accepted {together}",
                in_words(&first)
            );
            passes.push(PassDescription { link, id: first.id.0, text, accepted: 0 });
        }
        if let Some(&accepted) = in_order {
            passes.push(PassDescription { link, id: 0, text: IN_ORDER.to_owned(), accepted });
        }
        passes
    }
}

impl Pending<'_> {
    /// Commits the group in the pass set; the kernel follows in [`LinkFilters::apply`].
    pub fn commit(self) -> Committed {
        self.edit.commit();
        self.change
    }

    /// Cancels the group.
    pub fn cancel(self) {
        forget(self.mirror, &self.change.added);
        self.mirror.cancel(self.space.passes(), self.change.prepared);
    }
}
