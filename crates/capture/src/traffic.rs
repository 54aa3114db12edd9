//! Frames and bytes that interfaces have sent and received, as the kernel counts them beside every capture.
//!
//! The socket is opened at the start; later reads work in a sandbox. A device counts what it moves: segments that the
//! kernel merges or splits, and tags that the device removes, make its counts differ from those of a capture.

use crate::sys::devices;
use crate::sys::drops::{Counting, Traffic};
use std::io;

/// The counters of some interfaces.
#[derive(Debug)]
pub struct TrafficWatch {
    counting: Counting,
    /// Names at the start, and the present index of each.
    watched: Vec<(String, u32)>,
}

/// The counters of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Its name at the start.
    pub name: String,
    /// Its index. One that was made again under the name has another, and counts from zero.
    pub index: u32,
    /// Its counters.
    pub traffic: Traffic,
}

impl TrafficWatch {
    /// Opens the counters of these interfaces of this thread's namespace. Unknown names are ignored.
    ///
    /// # Errors
    /// If the system does not list its interfaces.
    pub fn open<'n>(names: impl IntoIterator<Item = &'n str>) -> io::Result<TrafficWatch> {
        let names: Vec<&str> = names.into_iter().collect();
        let counting = Counting::open()?;
        let all = devices::devices()?.into_iter();
        let watched = all.filter(|device| names.contains(&device.name.as_str()));
        let watched = watched.map(|device| (device.name, device.index)).collect();
        Ok(TrafficWatch { counting, watched })
    }

    /// The counters now. An interface keeps its name of the start when it is renamed; one that was deleted is left out
    /// until there is one of its name again.
    #[must_use]
    pub fn read(&mut self) -> Vec<Reading> {
        let mut there = None;
        let mut found = Vec::new();
        for (name, index) in &mut self.watched {
            let ask = |index: u32| self.counting.ask(index).ok()?.into_iter().next();
            let now = ask(*index).or_else(|| {
                let there =
                    there.get_or_insert_with(|| self.counting.indices().unwrap_or_default());
                *index = there.iter().find(|(known, _)| known == name)?.1;
                ask(*index)
            });
            if let Some(now) = now {
                found.push(Reading { name: name.clone(), index: *index, traffic: now.traffic });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_sends_what_it_receives() {
        let mut watch = TrafficWatch::open(["lo", "no such device"]).unwrap();
        let read = watch.read();
        let [Reading { name, traffic: before, .. }] = &read[..] else { panic!("{read:?}") };
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[7; 100], socket.local_addr().unwrap()).unwrap();
        let after = watch.read()[0].traffic;
        assert_eq!(name, "lo");
        assert!(after.sent_frames > before.sent_frames, "{before:?} {after:?}");
        assert!(after.received_bytes >= before.received_bytes + 128, "{before:?} {after:?}");
    }
}
