//! Filters in a lower space: they let a superset of the accepted frames pass, and the filters of user space decide.
//!
//! An edit has two steps there. Before readers see it, the lower space *widens*: what the edit adds passes, too. After
//! readers have seen it, the space *narrows*: what the edit removed passes no longer. So at every moment a frame that
//! the filters accept under the old or the new state gets through. If the space cannot take a text it passes
//! everything; nothing is lost, only time. A space that cannot be reached refuses the edit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// First number of rows: texts that a tracker's edits accept. They are no filters: a set with rows and no filter still
/// accepts every frame.
pub const FIRST_ROW: u64 = 1 << 63;

/// Joins texts of which each is read on its own, and all must hold: a place in a text would change the reading of
/// those after it (qualifiers, `vlan`). No text of a user has this character.
pub(crate) const AND: char = '\u{1}';

/// Number of counters for frames that only a later filter of a chain rejects.
pub const LATER: usize = 16;

/// Texts by number.
pub type Listing = BTreeMap<u64, Arc<str>>;

/// A space that filters before user space does. Edits call it one at a time.
pub trait Superset: Send + Sync + fmt::Debug {
    /// Allows the space to start threads. Called once, after the process has given up its rights.
    fn begin(&self) {}

    /// Lets through what the added texts accept, before an edit takes effect. `unfiltered` if the edit leaves no text,
    /// so that every frame is accepted.
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool);

    /// Reason why the last [`widen`](Self::widen) has not reached the space, so that the edit must be refused: frames
    /// that it accepts would be lost. `None` if it has; a space that passes everything in place of a text has it, too.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Consequence of the texts in force that the author of an edit should know; `None` if there is none.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Rejects what only removed texts accepted, after the edit has taken effect; `texts` are those in force.
    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]);

    /// Reason why the space cannot count the frames that only a later filter of a chain rejects, or `None`.
    fn why_not_later(&self) -> Option<String> {
        Some("the space below does not count for several filters".to_owned())
    }

    /// Replaces the texts that only select a counter: a frame that the other texts reject counts for the first of these
    /// that matches it, each with a number below [`LATER`]. While they change, another text must accept the frames that
    /// they match.
    ///
    /// # Errors
    /// The reason why the space cannot have them; then it has none.
    fn count_later(&self, texts: &[(String, usize)]) -> Result<(), String> {
        match texts {
            [] => Ok(()),
            _ => Err(self.why_not_later().unwrap_or_default()),
        }
    }

    /// Passes every frame from now on, because something else than texts accepts frames; `reason` is for people.
    fn open_for_good(&self, reason: &'static str);
}
