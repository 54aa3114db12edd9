//! Frames that no capture saw: what interfaces and the machine's backlog dropped while capturing.
//!
//! The kernel counts these before any packet socket, so they are no part of a capture's sum. Counters are compared with
//! their values at the start. The sockets and files are opened at the start, too; later reads work in a sandbox.
//!
//! | counter | dropped by | of |
//! |---|---|---|
//! | `rx_missed_errors` | the device, without a buffer | the interface |
//! | `rx_dropped` | the kernel, before or instead of a protocol | the interface |
//! | `dropped` of `softnet_stat` | the kernel, its queue being full | the machine |
//! | `time_squeeze` of `softnet_stat` | nothing yet: the kernel ran out of time with frames left | the machine |

use crate::interfaces::ANY;
use crate::sys::devices;
use crate::sys::drops::{Counters, Counting, merging};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Longest text of `/proc/net/softnet_stat`: 400 processors and more.
const SOFTNET_LEN: usize = 64 * 1024;

/// Frames that an interface dropped since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceDrops {
    /// Name of the interface at the start.
    pub name: String,
    /// Frames that the kernel dropped.
    pub dropped: u64,
    /// Frames for which the device had no buffer.
    pub missed: u64,
}

impl InterfaceDrops {
    /// All frames that the interface dropped.
    pub fn all(&self) -> u64 {
        self.dropped.saturating_add(self.missed)
    }
}

/// Counts of the backlog of all processors since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoftnetDrops {
    /// Frames dropped because a queue was full.
    pub dropped: u64,
    /// Times that the kernel stopped with frames left.
    pub squeezed: u64,
}

/// The counters of some interfaces, and of the machine's backlog.
#[derive(Debug)]
pub struct InterfaceWatch {
    counting: Counting,
    /// Names and counters at the start, by index.
    start: BTreeMap<u32, (String, Counters)>,
    softnet: Option<(File, SoftnetDrops)>,
}

impl InterfaceWatch {
    /// Starts with these interfaces of this thread's namespace; [`ANY`] is all that are up. Unknown names are ignored.
    ///
    /// # Errors
    /// If the system does not list its interfaces.
    pub fn start<'n>(names: impl IntoIterator<Item = &'n str>) -> io::Result<InterfaceWatch> {
        let names: Vec<&str> = names.into_iter().collect();
        let counting = Counting::open()?;
        let now = counting.ask(0)?;
        let mut start = BTreeMap::new();
        for device in devices::devices()? {
            let is_one = |name: &&str| **name == device.name || (**name == *ANY && device.up);
            let counters = now.iter().find(|counters| counters.index == device.index);
            if let Some(&counters) = counters.filter(|_| names.iter().any(is_one)) {
                start.insert(device.index, (device.name, counters));
            }
        }
        // Some containers hide this file.
        let softnet = File::open("/proc/net/softnet_stat").ok();
        let softnet = softnet.and_then(|file| Some((softnet_of(&file)?, file)));
        let softnet = softnet.map(|(begin, file)| (file, begin));
        Ok(InterfaceWatch { counting, start, softnet })
    }

    /// Drops of each interface so far. Interfaces that do not exist any more are left out.
    pub fn interfaces(&self) -> Vec<InterfaceDrops> {
        let now = |index: u32| self.counting.ask(index).ok()?.into_iter().next();
        let each = self.start.iter().filter_map(|(&index, (name, start))| {
            let now = now(index)?;
            Some(InterfaceDrops {
                name: name.clone(),
                dropped: now.rx_dropped.saturating_sub(start.rx_dropped),
                missed: now.rx_missed_errors.saturating_sub(start.rx_missed_errors),
            })
        });
        each.collect()
    }

    /// Counts of the machine's backlog so far; `None` if this system does not show them.
    pub fn softnet(&self) -> Option<SoftnetDrops> {
        let (file, start) = self.softnet.as_ref()?;
        let now = softnet_of(file)?;
        Some(SoftnetDrops {
            dropped: now.dropped.saturating_sub(start.dropped),
            squeezed: now.squeezed.saturating_sub(start.squeezed),
        })
    }

    /// Interfaces with offloads that merge frames into longer ones, each with the offloads' names for `ethtool -K`.
    /// Must be called before a sandbox is entered.
    pub fn merging(&self) -> Vec<(String, Vec<&'static str>)> {
        let each = self.start.values().map(|(name, _)| (name.clone(), merging(name)));
        each.filter(|(_, offloads)| !offloads.is_empty()).collect()
    }
}

fn softnet_of(file: &File) -> Option<SoftnetDrops> {
    let mut bytes = vec![0; SOFTNET_LEN];
    let mut len = 0;
    // The kernel hands out a page at a time.
    while let Ok(more @ 1..) = file.read_at(&mut bytes[len..], len as u64) {
        len += more;
    }
    softnet(std::str::from_utf8(&bytes[..len]).ok()?)
}

/// Adds the lines of all processors: hexadecimal words, of which the second and the third are these counts.
fn softnet(text: &str) -> Option<SoftnetDrops> {
    let mut sum = SoftnetDrops::default();
    for line in text.lines() {
        let mut words = line.split(' ').skip(1);
        let mut word = || u64::from_str_radix(words.next()?, 16).ok();
        sum.dropped += word()?;
        sum.squeezed += word()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_all_processors_are_added() {
        let text = "000a1b2c 00000010 00000001 00000000\n00000001 00000002 0000000f 00000000\n";
        assert_eq!(softnet(text), Some(SoftnetDrops { dropped: 18, squeezed: 16 }));
        assert_eq!(softnet("no numbers here"), None);
    }

    #[test]
    fn this_machine_has_counters() {
        let watch = InterfaceWatch::start(["lo", "no such device"]).unwrap();
        let drops = watch.interfaces();
        assert_eq!(drops.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["lo"]);
        assert!(
            watch.merging().iter().all(|(name, offloads)| name == "lo" && !offloads.is_empty())
        );
    }
}
