//! The lower filter of a device with several interfaces: one for each, because their link types may differ. All have
//! the same texts. An edit widens all of them before it takes effect.

use super::LowerFilter;
use fyke_capture::{FilterSocket, Interface, LATER, SocketFilter};
use fyke_filters::{Listing, Superset};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The filters of several interfaces as one; the interfaces get theirs by
/// [`Source::set_filters`](fyke_capture::Source::set_filters).
pub(super) struct Several(Vec<(String, Arc<dyn LowerFilter>)>);

impl Several {
    /// Joins the filters of the interfaces, in the same order.
    pub fn new(interfaces: &[Interface], filters: &[Arc<dyn LowerFilter>]) -> Several {
        let names = interfaces.iter().map(|interface| interface.name.clone());
        Several(names.zip(filters.iter().cloned()).collect())
    }

    fn each(&self) -> impl Iterator<Item = &Arc<dyn LowerFilter>> {
        self.0.iter().map(|(_, filter)| filter)
    }

    /// Joins what there is to say about each interface; an interface is named where they differ.
    fn in_words(&self, say: impl Fn(&dyn LowerFilter) -> String) -> String {
        let said: Vec<_> = self.0.iter().map(|(name, filter)| (name, say(&**filter))).collect();
        let different: BTreeSet<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
        match said.first() {
            Some((_, text)) if different.len() == 1 => text.clone(),
            _ => {
                let named = said.iter().map(|(name, text)| format!("{name}: {text}"));
                named.collect::<Vec<_>>().join("; ")
            }
        }
    }
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Several").field(&self.0).finish()
    }
}

impl Superset for Several {
    fn begin(&self) {
        self.each().for_each(|filter| filter.begin());
    }

    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        self.each().for_each(|filter| filter.widen(added, unfiltered));
    }

    fn refusal(&self) -> Option<String> {
        self.each().find_map(|filter| filter.refusal())
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        self.each().for_each(|filter| filter.narrow(texts, removed));
    }

    fn why_not_later(&self) -> Option<String> {
        self.each().find_map(|filter| filter.why_not_later())
    }

    fn count_later(&self, texts: &[(String, usize)]) -> Result<(), String> {
        let counted = self.each().try_for_each(|filter| filter.count_later(texts));
        if counted.is_err() {
            // Removing is not refused.
            self.each().for_each(|filter| drop(filter.count_later(&[])));
        }
        counted
    }

    fn open_for_good(&self, reason: &'static str) {
        self.each().for_each(|filter| filter.open_for_good(reason));
    }
}

impl SocketFilter for Several {
    fn take_socket(&self, _socket: Arc<FilterSocket>) -> io::Result<()> {
        Err(io::Error::other("each interface has a filter of its own"))
    }

    fn rejected(&self) -> Option<u64> {
        self.each().map(|filter| filter.rejected()).sum()
    }

    fn later(&self) -> [u64; LATER] {
        let mut sum = [0; LATER];
        for filter in self.each() {
            sum.iter_mut().zip(filter.later()).for_each(|(sum, one)| *sum += one);
        }
        sum
    }
}

impl LowerFilter for Several {
    /// Frames are rejected if one of the interfaces has its filter.
    fn passes_all(&self) -> Option<String> {
        let reasons: Option<Vec<_>> = self.each().map(|filter| filter.passes_all()).collect();
        reasons?;
        Some(self.in_words(|filter| filter.passes_all().unwrap_or_default()))
    }

    fn form(&self) -> String {
        self.in_words(|filter| match filter.passes_all() {
            Some(why) if self.passes_all().is_none() => {
                format!("{}, passes every frame: {why}", filter.form())
            }
            _ => filter.form(),
        })
    }

    fn program(&self) -> Option<String> {
        let text = self.in_words(|filter| filter.program().unwrap_or_default());
        (!text.is_empty()).then_some(text)
    }

    fn rejected_at(&self) -> Vec<(&str, Option<u64>)> {
        self.0.iter().map(|(name, filter)| (name.as_str(), filter.rejected())).collect()
    }

    fn place(&self) -> &'static str {
        self.0.first().map_or("the kernel", |(_, filter)| filter.place())
    }
}
