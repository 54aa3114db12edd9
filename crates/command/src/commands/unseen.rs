//! Frames that a capture could not see: what its interfaces dropped, and offloads that merge frames.
//!
//! The counters are opened before the process drops its rights. They are no part of the sum, which has the frames that
//! the capture's socket received. At `xdp:IF` they overlap with it: some drivers count a frame for which AF_XDP has no
//! room as dropped, and the sum has it as lost.

use fyke_capture::{InterfaceDrops, InterfaceWatch, SoftnetDrops};
use fyke_graph::Plan;
use fyke_graph::plan::PlanNode;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

/// The counters of the interfaces of a run; nothing for files.
#[derive(Clone)]
pub struct Unseen(Option<Arc<Watched>>);

struct Watched {
    watch: InterfaceWatch,
    /// Interfaces of which frames are taken at the driver.
    at_driver: BTreeSet<String>,
}

impl Unseen {
    /// Starts to count on the devices of a graph. With `warn` it warns of those that merge frames. A system that does
    /// not show its counters is no reason not to capture.
    pub fn start(plan: &Plan, warn: bool) -> Unseen {
        let names = plan.nodes.iter().flat_map(PlanNode::interface_names);
        let mut at_driver = BTreeSet::new();
        // Of xdp:IF:QUEUE, the interface.
        let interface = |name| match super::xdp::parse(name) {
            Some(Ok((interface, _))) => {
                at_driver.insert(interface.to_owned());
                interface
            }
            _ => name,
        };
        let names: Vec<_> = names.map(interface).collect();
        if names.is_empty() {
            return Unseen(None);
        }
        let watch = InterfaceWatch::start(names.iter().copied());
        if let Err(error) = &watch {
            note!("fyke: the drops of interfaces are not known: {error}");
        }
        let watch = watch.ok();
        for (name, offloads) in watch.iter().filter(|_| warn).flat_map(InterfaceWatch::merging) {
            note!(
                "fyke: warning: {name} merges frames ({}): their number and lengths are not those on \
                 the wire; `ethtool -K {name} {} off` switches it off",
                offloads.join(", "),
                offloads.join(" off ")
            );
        }
        Unseen(watch.map(|watch| Arc::new(Watched { watch, at_driver })))
    }

    /// Formats the drops so far, one line each; without `all` only those that are not zero.
    pub fn lines(&self, all: bool) -> String {
        let Some(Watched { watch, at_driver }) = self.0.as_deref() else { return String::new() };
        lines(&watch.interfaces(), watch.softnet(), at_driver, all)
    }

    /// Prints the drops at the end; `as_tcpdump` as tcpdump does.
    pub fn report_as(&self, as_tcpdump: bool, all: bool) {
        if as_tcpdump { self.report_as_tcpdump() } else { self.report(all) }
    }

    /// Prints what tcpdump prints at the end: frames for which a device had no buffer, if there are any.
    fn report_as_tcpdump(&self) {
        let Some(watched) = &self.0 else { return };
        let missed: u64 = watched.watch.interfaces().iter().map(|one| one.missed).sum();
        if missed > 0 {
            note!("{missed} packet{} dropped by interface", if missed == 1 { "" } else { "s" });
        }
    }

    /// Prints the drops at the end.
    pub fn report(&self, all: bool) {
        let lines = self.lines(all);
        if !lines.is_empty() {
            note!("{}", lines.trim_end());
        }
    }
}

fn lines(
    interfaces: &[InterfaceDrops],
    softnet: Option<SoftnetDrops>,
    at_driver: &BTreeSet<String>,
    all: bool,
) -> String {
    let mut text = String::new();
    for one in interfaces.iter().filter(|one| all || one.all() > 0) {
        let relation = match at_driver.contains(&one.name) {
            true => "not in the sum but for those without room at AF_XDP, which it has as lost",
            false => "not in the sum",
        };
        let _infallible = writeln!(
            text,
            "{} packets dropped by interface {}, {relation} ({} rx_dropped + {} rx_missed_errors)",
            one.all(),
            one.name,
            one.dropped,
            one.missed
        );
    }
    if let Some(SoftnetDrops { dropped, squeezed }) = softnet.filter(|s| all || s.dropped > 0) {
        let _infallible = writeln!(
            text,
            "{dropped} packets dropped by the backlog of this machine, all interfaces, not in the \
             sum (softnet; squeezed {squeezed} times)"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_shows_only_on_request() {
        let one = |dropped, missed| InterfaceDrops { name: "v1".to_owned(), dropped, missed };
        let softnet = SoftnetDrops { dropped: 0, squeezed: 3 };
        let lines =
            |drops: &[InterfaceDrops], softnet, all| lines(drops, softnet, &BTreeSet::new(), all);
        assert_eq!(lines(&[one(0, 0)], Some(softnet), false), "");
        let shown = lines(&[one(0, 0)], Some(softnet), true);
        assert!(shown.contains("0 packets dropped by interface v1"), "{shown}");
        assert!(shown.contains("squeezed 3 times"), "{shown}");
        let lost = lines(&[one(4, 1)], Some(SoftnetDrops { dropped: 2, squeezed: 0 }), false);
        assert!(lost.starts_with("5 packets dropped by interface v1"), "{lost}");
        assert!(lost.contains("\n2 packets dropped by the backlog"), "{lost}");
    }

    #[test]
    fn drops_at_the_driver_may_be_in_the_sum() {
        let drops = InterfaceDrops { name: "v1".to_owned(), dropped: 4, missed: 0 };
        let shown = lines(&[drops], None, &BTreeSet::from(["v1".to_owned()]), false);
        assert!(shown.contains("without room at AF_XDP, which it has as lost (4 rx"), "{shown}");
    }
}
