//! The pass engine below [`fyke::Filter`](crate::Filter): passes made by hand, rows of declared shapes, matches by
//! pass.
//!
//! Use it to edit single passes (a tracker does), to add millions of rows without texts, or to learn which pass
//! matched.
//!
//! ```
//! use fyke::filter::{Options, compile};
//! use fyke::frame::{Batch, Frame, LinkType};
//! use fyke::pass::{MatchMode, Matches, PassSet};
//!
//! let mut set = PassSet::new(LinkType::EN10MB);
//! let mut edit = set.edit();
//! let small = edit.add_filter(&compile("less 100", &Options::default())?)?;
//! edit.add_filter(&compile("ip", &Options::default())?)?;
//! edit.commit(); // readers see both or none
//!
//! let mut reader = set.reader();
//! let mut batch = Batch::new();
//! batch.push(Frame::new(LinkType::EN10MB, &[0; 60])).expect("the first of 256");
//! let mut matches = Matches::new(MatchMode::All);
//! reader.evaluate_matches(&batch, batch.all(), &mut matches);
//! assert!(matches.of(0).all(|found| found.filter == Some(small)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(inline)]
pub use fyke_pass::{
    Capacity, Edit, EditError, Epoch, FilterId, FilterView, Instruction, InstructionError,
    InstructionView, Layout, Level, LowerError, LoweredFilter, Match, MatchMode, Matches, Opcode,
    PassId, PassSet, PassSnapshot, PassView, Reader, RowId, RowView, SetId, ShapeId, ShapeView,
    Sharing, ValueSet, Verdict, Viewer, Work, primitive,
};
