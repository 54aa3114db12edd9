//! A compiled filter text.

use crate::ast::Node;
use crate::error::Error;
use crate::parse;
use fyke_frame::{Frame, LinkType, OutOfBounds};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Looks the addresses of a host up, all of them, none when the name is unknown.
pub type Resolver = fn(&str) -> Vec<IpAddr>;

/// What a filter text is read for.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The link type of the frames.
    pub link: LinkType,
    /// Most bytes of a frame that are captured; 0 is refused, as it rejects everything.
    pub snaplen: u32,
    /// The netmask of the captured network, which `ip broadcast` needs; `None` = unknown.
    pub netmask: Option<u32>,
    /// The file was written on a machine with the other byte order than little-endian; matters for link type NULL.
    pub swapped: bool,
    /// Whom to ask for the addresses of a name; `None` = names of hosts are refused.
    pub resolve: Option<Resolver>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            link: LinkType::EN10MB,
            snaplen: 262_144,
            netmask: None,
            swapped: false,
            resolve: None,
        }
    }
}

/// A filter text with its meaning. A clone shares the tree.
#[derive(Debug, Clone)]
pub struct Predicate {
    text: Arc<str>,
    link: LinkType,
    root: Arc<Node>,
}

/// Reads a filter text.
///
/// # Errors
/// [`Error`] shows the place, what was expected there, and advice where there is any.
pub fn compile(text: &str, options: &Options) -> Result<Predicate, Error> {
    let root = parse::parse(text, options)?;
    Ok(Predicate { text: text.into(), link: options.link, root: Arc::new(root) })
}

/// The system's resolver, which may ask the network and wait for it.
pub fn system_resolver(name: &str) -> Vec<IpAddr> {
    use std::net::ToSocketAddrs;
    (name, 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect()).unwrap_or_default()
}

impl Predicate {
    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The link type it was read for.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Judges a frame, left to right and no further than needed: the oracle that faster engines must equal.
    ///
    /// # Errors
    /// [`OutOfBounds`] when a load lay outside the captured bytes, which rejects the frame.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        self.root.holds(frame)
    }

    /// Whether the frame is accepted.
    pub fn accepts(&self, frame: &Frame) -> bool {
        self.holds(frame) == Ok(true)
    }
}

/// Equal meaning for the same link type, however it is written.
impl PartialEq for Predicate {
    fn eq(&self, other: &Self) -> bool {
        self.link == other.link && self.root == other.root
    }
}

impl Eq for Predicate {}

/// The canonical text.
impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}
