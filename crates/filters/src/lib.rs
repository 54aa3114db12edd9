//! Filter texts in force: one list with counts, edited from any thread while frames are evaluated.
//!
//! ```text
//! changes ─▶ compile, lower (no lock) ─▶ prepare in every link type ─▶ apply: one epoch
//!                 refused? ────────────────── refused? ──▶ nothing has changed
//! ```
//!
//! The texts are evaluated in one of two *spaces*. Both share the list and its numbers (`texts`), the groups of changes
//! and their errors, and the views for users (`view`). The kernel space needs the feature `kernel`.
//!
//! | space | owner | evaluated by | a text that fits only some link types |
//! |---|---|---|---|
//! | user | [`FilterSet`] | [`FilterReader`], one for each worker | rejects and counts frames of the others |
//! | kernel | `KernelFilters` | programs on packet sockets | is refused, because the kernel could not count |
//!
//! | module | what |
//! |---|---|
//! | `texts` | the list, and a group of changes checked against it |
//! | `lowered` | the slow part of an edit, done before any lock is taken |
//! | `user`, `kernel` | the spaces |
//! | `superset`, `stage`, `classic` | filters of user space in the kernel, too, which passes a superset |
//! | `chain` | filters one after the other in a lower space, with the counts of each |
//! | `journal` | the edits so far with their authors, and how each is taken back |
//! | `ledger` | the same for texts that are no [`FilterSet`], such as graphs |
//! | `inputs` | link types of the sources, and the check of texts against them |
//! | `clients` | requests of the control socket on a set (feature `control`) |
//! | [`received`] | frames as filters evaluate them: as the device delivered them, or without tags |
//!
//! ```
//! # mod fyke { pub(crate) use {fyke_filter as filter, fyke_filters as filters, fyke_frame as frame}; }
//! use fyke::filter::Options;
//! use fyke::filters::FilterSet;
//! use fyke::frame::{Batch, Frame, LinkType};
//!
//! let filters = FilterSet::new(Options::default());
//! filters.set("less 60")?;
//! let (mut reader, mut batch) = (filters.reader(), Batch::new());
//! batch.push(Frame::new(LinkType::EN10MB, &[0; 60])).expect("the first of 256");
//! reader.refresh();
//! let accepted = reader.evaluate(&batch, batch.all())?;
//! reader.count(accepted);
//! assert_eq!(filters.counts()[0].accepted, 1);
//! # Ok::<(), fyke::filters::FilterError>(())
//! ```
#![forbid(unsafe_code)]

mod chain;
mod classic;
#[cfg(feature = "control")]
pub mod clients;
mod error;
mod inputs;
mod journal;
#[cfg(feature = "kernel")]
mod kernel;
mod ledger;
mod lowered;
pub mod received;
#[cfg(feature = "kernel")]
mod stage;
mod superset;
mod texts;
mod union;
mod user;
mod view;

pub use chain::{Chain, ChainCounts, ChainLink, FilterRejects};
pub use classic::{ClassicError, ClassicSocket, ClassicStage, classic_program};
pub use error::{FilterError, GroupError};
pub use inputs::{Inputs, Refused};
pub use journal::{Author, InForce, Label, MAX_LIFETIME, MAX_NAME_CHARS, UndoError};
#[cfg(feature = "kernel")]
pub use kernel::{ByHand, ByHandError, KernelFilters, LoweredGroup, SocketError};
pub use ledger::{Edits, Ledger, Logged, Planned};
#[cfg(feature = "kernel")]
pub use stage::KernelStage;
pub use superset::{LATER, Listing, Superset};
pub use texts::Change;
pub use union::{Member, Union};
pub use user::{
    CallsRefused, CarryOut, Edit, EditLog, EditRecord, Edited, FilterCounts, FilterReader,
    FilterSet, HandCalls, HandEdit, HandError, RecordedChange, Row, Tags,
};
pub use view::{FilterCount, FilterView, PassDescription};
