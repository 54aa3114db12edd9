//! Filter of `fyke exec` for the sockets of one link type: its passes and the kernel's copy of them.

use fyke_control::{EntryKind, FilterPasses, PassCount};
use fyke_filter::{Options, Predicate};
use fyke_frame::LinkType;
use fyke_kernel::{AttachError, Mirror, PacketSocket, Space, Tallies, Tuner};
use fyke_pass::{FilterId, PassSet, PassView};
use std::os::fd::AsFd;

/// A filter text and its number, the same for all link types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Number of the filter; never reused in one `fyke exec`.
    pub id: u64,
    /// Text as given by the user.
    pub text: String,
}

/// The filters for one link type.
#[derive(Debug)]
pub struct LinkFilter {
    space: Space,
    /// Compiler of passes that have been stable for a while to their own program.
    tuner: Tuner,
    mirror: Mirror,
    passes: PassSet,
    /// Our numbers of the texts, with the numbers of the pass set.
    ids: Vec<(u64, FilterId)>,
}

impl LinkFilter {
    /// Loads a program for the texts.
    pub fn new(space: Space, link: LinkType, texts: &[Text]) -> Result<LinkFilter, String> {
        let (tuner, mirror, passes) = (Tuner::default(), Mirror::default(), PassSet::new(link));
        let mut made = LinkFilter { space, tuner, mirror, passes, ids: Vec::new() };
        made.change_to(texts)?;
        Ok(made)
    }

    /// The link type.
    pub fn link(&self) -> LinkType {
        self.passes.link()
    }

    /// Replaces the filter of a socket by this one.
    pub fn attach(&self, socket: &PacketSocket) -> Result<(), AttachError> {
        self.space.attach(socket.as_fd())
    }

    /// Sets the number of bytes to keep of an accepted frame.
    pub fn set_accept(&mut self, bytes: u32) {
        self.space.passes().set_accept(bytes);
    }

    /// Returns the frame counts.
    pub fn tallies(&self) -> Tallies {
        self.space.tallies()
    }

    /// Compiles passes that have been stable for a while; `attach_all` calls its argument with every socket.
    pub fn tune(
        &mut self,
        attach_all: impl Fn(&mut dyn FnMut(&PacketSocket)),
    ) -> Result<(), AttachError> {
        let link = self.passes.link();
        let attach = |space: &Space| {
            let mut result = Ok(());
            attach_all(&mut |socket| {
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

    /// Replaces the texts of the filter in one edit; texts that remain keep their counts. Without a text, every frame
    /// is accepted. If the kernel refuses, it keeps the old program; call [`LinkFilter::change_to`] with the old texts
    /// to undo the rest.
    pub fn change_to(&mut self, texts: &[Text]) -> Result<(), String> {
        let netmask = Some(0);
        let options =
            Options { link: self.passes.link(), live: true, netmask, ..Options::default() };
        let is_new = |text: &&Text| !self.ids.iter().any(|(id, _)| *id == text.id);
        let added: Result<Vec<(u64, Predicate)>, String> = texts
            .iter()
            .filter(is_new)
            .map(|text| match fyke_filter::compile(&text.text, &options) {
                Ok(predicate) => Ok((text.id, predicate)),
                Err(error) => Err(error.to_string()),
            })
            .collect();
        let (added, before) = (added?, self.ids.clone());
        let mut edit = self.passes.edit();
        let mut ids = Vec::with_capacity(texts.len());
        for (id, filter) in before {
            match texts.iter().any(|text| text.id == id) {
                true => ids.push((id, filter)),
                false => edit.remove_filter(filter).map_err(|error| error.to_string())?,
            }
        }
        for (id, predicate) in added {
            ids.push((id, edit.add_filter(&predicate).map_err(|error| error.to_string())?));
        }
        edit.commit();
        self.ids = ids;
        let synced = self.mirror.sync(self.space.passes(), &self.passes);
        synced.map_err(|error| error.to_string())
    }

    /// Returns the passes of a text with their counts.
    pub fn shown(&self, of: u64) -> Option<FilterPasses> {
        let id = self.ids.iter().find(|(id, _)| *id == of)?.1;
        let filter = self.passes.filters().find(|filter| filter.id == id)?;
        let (counts, in_order, rows) = (
            self.mirror.accepted(self.space.view()),
            self.mirror.accepted_in_order(self.space.view()),
            self.mirror.rows(self.space.view()),
        );
        let describe = |pass: &PassView<'_>| {
            let tests: Vec<_> = pass.describe().map(|test| test.to_string()).collect();
            tests.join(" and ")
        };
        let own = filter.passes().filter_map(|pass| {
            let accepted = *counts.get(&pass.id)?;
            Some(PassCount { id: pass.id.0, text: describe(&pass), accepted })
        });
        let mut passes: Vec<PassCount> = own.collect();
        let own = rows.iter().filter(|rows| rows.filter == Some(filter.id));
        for (rows, first) in own.zip(filter.passes().filter(|pass| !counts.contains_key(&pass.id)))
        {
            let text = format!("{} passes in a table, as {}", rows.rows, describe(&first));
            passes.push(PassCount { id: first.id.0, text, accepted: rows.accepted });
        }
        if passes.is_empty() && !in_order.contains_key(&filter.id) {
            let shared = rows.iter().filter(|rows| rows.filter.is_none());
            let together: u64 = shared.map(|rows| rows.accepted).sum();
            if let Some(first) = filter.passes().next() {
                let text = format!(
                    "{}: in a table shared with other filters; its rows accepted {together} in all",
                    describe(&first)
                );
                passes.push(PassCount { id: first.id.0, text, accepted: 0 });
            }
        }
        if let Some(&accepted) = in_order.get(&filter.id) {
            let text = "in the text's own order".to_owned();
            passes.push(PassCount { id: 0, text, accepted });
        }
        let accepted = passes.iter().map(|pass| pass.accepted).sum();
        let text = filter.text().to_owned();
        Some(FilterPasses { id: of, text, kind: EntryKind::Filter, accepted, passes })
    }
}
