//! Link types of the sources, and the check that a filter text fits one of them.
//!
//! A text tests different bytes on different link types, and some texts are not valid on some: `wlan type mgt` needs
//! 802.11 headers. A text is accepted if it fits one of the sources' link types; while none is known, if it fits any
//! link type. Cost: one compilation for each link type of the sources. While none is known, a text that is refused
//! costs as many compilations as fit into `BUDGET` bytes of text.

use fyke_filter::{Error, Fragments, Options};
use fyke_frame::LinkType;
use fyke_frame::link;

/// Most bytes of text that are compiled in search of a link type that the text fits.
const BUDGET: usize = 1 << 22;
/// Link types that are tried for a text of any length.
const MIN_LINKS: usize = 12;

/// Link types of the sources before a node.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// Link types of their interfaces, without repetition, those of the first source first; empty while none is open.
    pub links: Vec<LinkType>,
}

/// Reason why a text fits no link type.
#[derive(Debug)]
pub struct Refused {
    /// Error of the first link type.
    pub error: Error,
    /// Other link types give other errors, so the caller must wait until the link type of a source is known.
    pub varies: bool,
}

impl Inputs {
    /// Checks that a text fits one of the sources' link types, or any link type if none is known.
    ///
    /// # Errors
    /// The error of the first of them.
    pub fn check(&self, text: &str, options: &Options) -> Result<(), Refused> {
        let some = MIN_LINKS.max(BUDGET / text.len().max(1));
        let any = link::all().map(|link| link.numbers[0]).take(some);
        let links: Vec<_> = match self.links.is_empty() {
            true => any.collect(),
            false => self.links.clone(),
        };
        let mut refused: Option<Refused> = None;
        for link in links {
            let options = Options { link, ..*options };
            let Err(error) = fyke_filter::compile_with(text, &options, &Fragments::default())
            else {
                return Ok(());
            };
            match &mut refused {
                None => refused = Some(Refused { error, varies: false }),
                Some(first) => first.varies |= first.error != error,
            }
        }
        refused.map_or(Ok(()), Err)
    }
}
