//! The interfaces that can be captured from, and their link types.

use crate::error::LiveError;
use crate::sys::devices::{self, Device};
use fyke_frame::LinkType;
use fyke_privilege::helper;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which the name of an unknown interface is queried again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Name that means all interfaces.
pub const ANY: &str = "any";

/// An interface that can be captured from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// Name, as in `RingOptions::interface`.
    pub name: String,
    /// Interface index of the operating system; 0 for `any`.
    pub ifindex: u32,
    /// Link type of its frames.
    pub link: LinkType,
    /// True if it is up.
    pub up: bool,
    /// True if it has a carrier.
    pub running: bool,
    /// True if it is the loopback interface.
    pub loopback: bool,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Netmask of its first IPv4 address; 0 if there is none.
    pub netmask: u32,
}

impl Available {
    /// Link types that it offers, in tcpdump's order; [`link`](Self::link) is the default.
    pub fn links(&self) -> Vec<LinkType> {
        offered(&self.name, self.link)
    }
}

fn offered(name: &str, link: LinkType) -> Vec<LinkType> {
    if name == ANY { vec![LinkType::LINUX_SLL, LinkType::LINUX_SLL2] } else { vec![link] }
}

/// Returns the link type of a capture on the interface `name`: `given`, or its default `link`.
///
/// # Errors
/// If the interface does not offer `given`.
pub(crate) fn chosen(
    name: &str,
    link: LinkType,
    given: Option<LinkType>,
) -> Result<LinkType, LiveError> {
    let (offered, given) = (offered(name, link), given.unwrap_or(link));
    match offered.contains(&given) {
        true => Ok(given),
        false => Err(LiveError::NotOffered { interface: name.to_owned(), given, offered }),
    }
}

/// The interfaces of this machine (of this network namespace): first those that are up, `any` last.
///
/// # Errors
/// If the system does not list them.
pub fn interfaces_available() -> io::Result<Vec<Available>> {
    let mut found: Vec<Available> = devices::devices()?.into_iter().map(Available::from).collect();
    found.sort_by_key(|interface| (!interface.up, interface.loopback, interface.ifindex));
    found.push(Available {
        name: ANY.to_owned(),
        ifindex: 0,
        link: LinkType::LINUX_SLL2,
        up: true,
        running: true,
        loopback: false,
        addresses: Vec::new(),
        netmask: 0,
    });
    Ok(found)
}

/// Name of the interface with that index; `None` if it is unknown. Names are read when a capture starts, because a
/// process in a sandbox may not be able to query the system. The name of an interface that was created later is
/// queried, by the helper process if there is one; an index without a name is queried once a second.
pub fn interface_name(ifindex: u32) -> Option<String> {
    /// The last index without a name, and the time of the query.
    static NAMELESS: Mutex<Option<(u32, Instant)>> = Mutex::new(None);
    if let Some(name) = names().get(&ifindex) {
        return Some(name.clone());
    }
    let mut nameless = NAMELESS.lock().unwrap_or_else(PoisonError::into_inner);
    let just_asked = |(index, at): (u32, Instant)| index == ifindex && at.elapsed() < ASK_AGAIN;
    if nameless.is_some_and(just_asked) {
        return None;
    }
    match helper::current() {
        Some(helper) => {
            let named = helper.named(ifindex).ok().flatten();
            names().extend(named.map(|(name, _)| (ifindex, name)));
        }
        None => remember(&devices::devices().ok()?),
    }
    let name = names().get(&ifindex).cloned();
    if name.is_none() {
        *nameless = Some((ifindex, Instant::now()));
    }
    name
}

/// Names of interfaces by index.
type Names = BTreeMap<u32, String>;

fn names() -> MutexGuard<'static, Names> {
    static NAMES: Mutex<Names> = Mutex::new(Names::new());
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the known names by those of these devices.
fn remember(devices: &[Device]) {
    *names() = devices.iter().map(|device| (device.index, device.name.clone())).collect();
}

/// Offset from UTC to local time at that moment (seconds since 1970), in seconds.
pub fn local_offset_s(seconds: i64) -> i32 {
    crate::sys::time::local_offset_s(seconds)
}

/// One line: name and state, as `fyke dump -D` lists it.
impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for (word, holds) in
            [("up", self.up), ("running", self.running), ("loopback", self.loopback)]
        {
            words.extend(holds.then(|| word.to_owned()));
        }
        words.extend(self.addresses.iter().map(IpAddr::to_string));
        match self.name == ANY {
            true => write!(f, "{} (all interfaces, {})", self.name, self.link),
            false => write!(f, "{} ({}) [{}]", self.name, self.link, words.join(", ")),
        }
    }
}

impl From<Device> for Available {
    fn from(device: Device) -> Self {
        let (link, _) = link_of(device.hardware);
        let Device { name, index, up, running, loopback, addresses, netmask, .. } = device;
        let netmask = netmask.unwrap_or(0);
        Available { name, ifindex: index, link, up, running, loopback, addresses, netmask }
    }
}

/// Parameters of a capture from an interface.
pub(crate) struct Capture {
    /// 0 = from all.
    pub(crate) ifindex: u32,
    pub(crate) link: LinkType,
    /// True if the kernel removes the link header, and a cooked header is added.
    pub(crate) cooked: bool,
    /// Index of the loopback interface; 0 = there is none.
    pub(crate) loopback: u32,
    pub(crate) is_loopback: bool,
    /// Netmask of its first IPv4 address, as tcpdump takes it for `ip broadcast`; 0 if there is none.
    pub(crate) netmask: u32,
    /// Its address, if it is an Ethernet interface.
    pub(crate) address: [u8; 6],
}

/// Finds an interface by name.
pub(crate) fn find(name: &str) -> Result<Capture, LiveError> {
    let devices = devices::devices().map_err(|source| LiveError::Call {
        interface: name.to_owned(),
        call: "getifaddrs",
        source,
    })?;
    remember(&devices);
    find_in(name, devices)
}

/// Finds an interface by name in a list.
pub(crate) fn find_in(name: &str, devices: Vec<Device>) -> Result<Capture, LiveError> {
    let loopback = devices.iter().find(|device| device.loopback).map_or(0, |device| device.index);
    if name == ANY {
        let link = LinkType::LINUX_SLL2;
        return Ok(Capture {
            ifindex: 0,
            link,
            cooked: true,
            loopback,
            is_loopback: false,
            netmask: 0,
            address: [0; 6],
        });
    }
    let Some(device) = devices.iter().find(|device| device.name == name) else {
        let available = devices.into_iter().map(|device| device.name).collect();
        return Err(LiveError::NoSuchInterface { interface: name.to_owned(), available });
    };
    let (link, cooked) = link_of(device.hardware);
    let is_loopback = device.loopback;
    let (netmask, address) = (device.netmask.unwrap_or(0), device.address);
    Ok(Capture { ifindex: device.index, link, cooked, loopback, is_loopback, netmask, address })
}

/// Link type of a kind of hardware (`ARPHRD_…`), and true if frames get a cooked header. The same choice as libpcap's
/// on Linux, for the common kinds; others are cooked.
fn link_of(hardware: u16) -> (LinkType, bool) {
    const RAW_KINDS: [u16; 11] = [
        libc::ARPHRD_NONE,
        libc::ARPHRD_TUNNEL,
        libc::ARPHRD_SIT,
        libc::ARPHRD_SLIP,
        libc::ARPHRD_CSLIP,
        libc::ARPHRD_SLIP6,
        libc::ARPHRD_CSLIP6,
        libc::ARPHRD_ADAPT,
        libc::ARPHRD_RAWHDLC,
        libc::ARPHRD_DLCI,
        // Raw IP (519), of mobile modems.
        519,
    ];
    match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK | libc::ARPHRD_METRICOM => {
            (LinkType::EN10MB, false)
        }
        libc::ARPHRD_IEEE80211 => (LinkType::IEEE802_11, false),
        libc::ARPHRD_IEEE80211_PRISM => (LinkType::PRISM_HEADER, false),
        libc::ARPHRD_IEEE80211_RADIOTAP => (LinkType::IEEE802_11_RADIO, false),
        libc::ARPHRD_IEEE802154 => (LinkType::IEEE802_15_4_NOFCS, false),
        kind if RAW_KINDS.contains(&kind) => (LinkType::RAW, false),
        _ => (LinkType::LINUX_SLL, true),
    }
}
