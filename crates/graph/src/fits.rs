//! The link types of the sources before a node, and the counters of frames whose link type takes no text.
//!
//! [`Inputs`] tells which of them take a text, before a node is made and when a new link type appears. Frames of the
//! other link types are rejected and counted.

use crate::node::Counter;
use fyke_capture::Interface;
use fyke_filters::Inputs;
use fyke_frame::LinkType;
use std::collections::BTreeMap;

/// Prefix of the counters of frames whose link type takes no filter of a node.
pub const UNFIT: &str = "unfit_";

/// Counter of file names that a rotation has skipped; shown if it is not 0. Commands report it too.
pub const PASSED_OVER: &str = "file names passed over";

/// Counter of the frames that filters of a demultiplexer accepted before edits removed them; shown if it is not 0. A
/// frame counts for each of them. Commands report it too.
pub const DEMUX_REMOVED: &str = "removed";

/// Counters of the frames that clients of `tofile` got, and of those that slow clients lost. Commands report them too.
pub const SENT_TO_CLIENTS: &str = "sent to clients";
/// See [`SENT_TO_CLIENTS`].
pub const LOST_BY_CLIENTS: &str = "lost by clients";

/// The link types of the interfaces of all sources before a node.
pub fn inputs(interfaces: &[Interface]) -> Inputs {
    let mut inputs = Inputs::default();
    for interface in interfaces {
        if !inputs.links.contains(&interface.link) {
            inputs.links.push(interface.link);
        }
    }
    inputs
}

/// Counters of frames that were rejected because their link type takes no filter of the node.
pub fn unfit(frames: &BTreeMap<LinkType, u64>) -> impl Iterator<Item = Counter> {
    frames.iter().map(|(link, count)| Counter::count(format!("{UNFIT}{link}"), *count))
}
