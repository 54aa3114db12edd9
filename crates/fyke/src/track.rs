//! Trackers of dynamic ports: they read control connections and edit the filter before them.
//!
//! ```
//! use fyke::frame::LinkType;
//! use fyke::track::{Ftp, PassKeeper, Tracker};
//!
//! let tracker = Ftp::default();
//! assert_eq!(tracker.name(), "ftp");
//! let link = LinkType::EN10MB;
//! let filter = fyke::LiveFilter::compile(tracker.start_filter())?; // the control connections
//! let mut keeper = PassKeeper::new(link);
//!
//! let events = Vec::new(); // tracker.frame(&frame, &mut events) reads each accepted frame
//! // The keeper turns events into passes of the filter; the next frame is evaluated under them.
//! let applied = filter.filters().edit_passes(link, |passes| keeper.apply(&events, passes))?;
//! assert!(applied.failures.is_empty());
//! # Ok::<(), fyke::Error>(())
//! ```
//!
//! In a graph, the class [`CLASS`] does all of it; `classes.register(fyke::track::CLASS)` adds it to the
//! [classes](crate::graph::Classes); [`CALLS`] writes a file for each call. A tracker of your own implements
//! [`Tracker`]: `examples/own_tracker.rs`.

#[doc(inline)]
pub use fyke_track::{
    Applied, CALLS, CLASS, CallFrame, Cause, Closed, Connection, DceRpc, Event, Expectations,
    Expected, FRAGMENTS, Ftp, H323, Irc, KeepError, Limits, Mgcp, NOTICES, P2p, PassKeeper, Pptp,
    Protocol, Reason, Rtsp, Several, Sip, Skinny, TRACKERS, Tftp, Tracker, TrackerKind, calls,
    class, dcerpc, expectations, ftp, h323, irc, mgcp, p2p, pptp, registry, rtsp, sip, skinny,
    tftp,
};
