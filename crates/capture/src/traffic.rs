//! Frames and bytes that interfaces have sent and received, as the kernel counts them beside every capture.
//!
//! The socket is opened at the start; later reads work in a sandbox. A device counts what it moves: segments that the
//! kernel merges or splits, and tags that the device removes, make its counts differ from those of a capture.

use crate::sys::devices;
use crate::sys::drops::{Counting, Traffic};
use std::collections::BTreeMap;
use std::io;

/// The counters of some interfaces.
#[derive(Debug)]
pub struct TrafficWatch {
    counting: Counting,
    /// Names by index.
    names: BTreeMap<u32, String>,
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
        let names = watched.map(|device| (device.index, device.name)).collect();
        Ok(TrafficWatch { counting, names })
    }

    /// The counters now, by the names of the interfaces at the start. Interfaces that do not exist any more are left
    /// out.
    #[must_use]
    pub fn read(&self) -> Vec<(String, Traffic)> {
        let now = |(&index, name): (&u32, &String)| {
            let found = self.counting.ask(index).ok()?.into_iter().next()?;
            Some((name.clone(), found.traffic))
        };
        self.names.iter().filter_map(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_sends_what_it_receives() {
        let watch = TrafficWatch::open(["lo", "no such device"]).unwrap();
        let read = watch.read();
        let [(name, before)] = &read[..] else { panic!("{read:?}") };
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[7; 100], socket.local_addr().unwrap()).unwrap();
        let (_, after) = &watch.read()[0];
        assert_eq!(name, "lo");
        assert!(after.sent_frames > before.sent_frames, "{before:?} {after:?}");
        assert!(after.received_bytes >= before.received_bytes + 128, "{before:?} {after:?}");
    }
}
