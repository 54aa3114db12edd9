//! Trackers of dynamic ports: they read control connections and edit the filter before them.
//!
//! ```
//! use fyke::frame::LinkType;
//! use fyke::pass::PassSet;
//! use fyke::track::{Ftp, PassKeeper, Tracker};
//!
//! let tracker = Ftp::default();
//! assert_eq!(tracker.name(), "ftp");
//! let filter = fyke::LiveFilter::compile(tracker.start_filter())?; // the control connections
//!
//! // tracker.frame(&frame, &mut events) reads each accepted frame; the keeper turns events into edits.
//! let mut keeper = PassKeeper::new(LinkType::EN10MB);
//! let mut passes = PassSet::new(LinkType::EN10MB);
//! assert!(keeper.apply(&[], &mut passes).failures.is_empty());
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! In a graph, the class [`CLASS`] does all of it. A tracker of your own implements [`Tracker`]:
//! `examples/own_tracker.rs`.

#[doc(inline)]
pub use fyke_track::{
    Applied, CLASS, Cause, Closed, Connection, Event, Ftp, KeepError, Limits, PassKeeper, Protocol,
    Reason, TRACKERS, Tracker, TrackerKind, class, ftp, registry,
};
