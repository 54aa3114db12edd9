//! Interception by warrant: messages tell which user has which address, and the frames of a user with a valid warrant
//! are captured, encrypted, and nothing else.
//!
//! ```text
//! frame ─▶ RADIUS, DHCP, PPPoE ─▶ users ─▶ rows of the filter ─▶ frames that come next
//!      └─▶ user ─▶ valid warrants ─▶ a file for each, encrypted to the key of the warrant
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`warrant`] | warrants, from files |
//! | [`age`] | files encrypted to a public key |
//! | [`log`] | the log chained by hashes, and its check |
//! | [`class`] | the graph class `intercept` |
//!
//! Nothing in a frame is trusted but RADIUS requests with the right authenticator; DHCP and PPPoE have none, so a host
//! that can send on that network can name users. All memory is bounded. Clear text of frames is in memory only.
//! Source: Deri, High-Speed Dynamic Packet Filtering, section 1 (lawful interception).
#![forbid(unsafe_code)]

pub mod age;
mod bech32;
pub mod class;
mod dhcp;
mod facts;
pub mod log;
mod output;
mod pppoe;
mod radius;
mod rows;
mod time;
mod users;
pub mod warrant;

pub use class::CLASS;

use radius::Secrets;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// All protocols that name users.
pub const PROTOCOLS: &str = "radius,dhcp,pppoe";
/// Most ports of RADIUS accounting.
const MAX_PORTS: usize = 16;

/// Protocols that name users, and what is believed of them.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    radius: bool,
    dhcp: bool,
    pppoe: bool,
    /// Ports of RADIUS accounting.
    ports: Vec<u16>,
    secrets: Option<Secrets>,
    /// DHCP servers that are believed; empty: all.
    servers: Vec<IpAddr>,
}

impl Identities {
    /// Parses a list such as `radius,dhcp`.
    ///
    /// # Errors
    /// If a word is another one.
    pub fn parse(text: &str) -> Result<Identities, String> {
        let mut found = Identities { ports: vec![1_813, 1_646], ..Identities::default() };
        for word in text.split(',').map(str::trim) {
            match word {
                "radius" => found.radius = true,
                "dhcp" => found.dhcp = true,
                "pppoe" => found.pppoe = true,
                other => return Err(format!("{other:?}: expected radius, dhcp or pppoe")),
            }
        }
        Ok(found)
    }

    /// The filter text that accepts the messages and nothing else.
    pub fn start_filter(&self, ports: Option<&[u16]>) -> String {
        let mut parts = Vec::new();
        if self.radius {
            let each = ports.unwrap_or(&self.ports).iter();
            parts.extend(each.map(|port| format!("udp dst port {port}")));
        }
        if self.dhcp {
            parts.push("udp port 67".to_owned());
        }
        if self.pppoe {
            // A keyword moves the offsets of all that follows it, so this is the last part.
            parts.push("pppoed or (pppoes and not ip and not ip6)".to_owned());
        }
        parts.join(" or ")
    }
}

/// Parses ports such as `1813,1646`.
///
/// # Errors
/// When one is not a port, or there are more than 16.
pub fn ports(text: &str) -> Result<Vec<u16>, String> {
    let port = |word: &str| match word.trim().parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(format!("{word:?} is not a port from 1 to 65535; expected N[,N]")),
    };
    let ports: Vec<u16> = text.split(',').map(port).collect::<Result<_, _>>()?;
    match ports.len() {
        1..=MAX_PORTS => Ok(ports),
        given => Err(format!("{given} ports given, the limit is {MAX_PORTS}")),
    }
}

/// The error with the name of its file.
fn name_of(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Two digits for each byte.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
