//! The link types at hand, and which of them take a filter text.
//!
//! A text means different bytes on different link types, and some texts mean nothing on some: `wlan type mgt` needs
//! 802.11 headers. A text is good when one of the link types at hand takes it; while none is known, when any link
//! type takes it. Cost: one compilation for each link type at hand; for a text that is refused while none is known, as
//! many as fit into `BUDGET` bytes of text.

use fyke_filter::{Error, Fragments, Options, Predicate};
use fyke_frame::LinkType;
use fyke_frame::condition::MetaField;
use fyke_frame::link;

/// Bytes of text that are compiled in search of a link type that takes it.
const BUDGET: usize = 1 << 22;
/// Link types that are tried however long the text is.
const LEAST: usize = 12;

/// Link types of the sources before a node.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// Link types of their interfaces, each once, those of the first source first; empty while none is open.
    pub links: Vec<LinkType>,
    /// Whether one of them is a ring, which does not carry all metadata.
    pub ring: bool,
}

/// Why no link type takes a text.
#[derive(Debug)]
pub struct Refused {
    /// Error of the first link type.
    pub error: Error,
    /// Another link type gives another error, so that the link type of a source is to be waited for.
    pub varies: bool,
}

impl Inputs {
    /// Compiles a text for one link type.
    pub fn compile(
        &self,
        text: &str,
        options: &Options,
        fragments: &Fragments,
    ) -> Result<Predicate, Error> {
        let predicate = fyke_filter::compile_with(text, options, fragments)?;
        match self.ring {
            true => carried(text, predicate),
            false => Ok(predicate),
        }
    }

    /// Whether a link type takes the text: one of those at hand, or any when none is.
    ///
    /// # Errors
    /// The error of the first of them.
    pub fn check(&self, text: &str, options: &Options) -> Result<(), Refused> {
        let some = LEAST.max(BUDGET / text.len().max(1));
        let any = link::all().map(|link| link.numbers[0]).take(some);
        let links: Vec<_> = match self.links.is_empty() {
            true => any.collect(),
            false => self.links.clone(),
        };
        let mut refused: Option<Refused> = None;
        for link in links {
            let options = Options { link, ..*options };
            let Err(error) = self.compile(text, &options, &Fragments::default()) else {
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

/// Refuses a text that asks for what rings do not carry.
fn carried(text: &str, predicate: Predicate) -> Result<Predicate, Error> {
    for primitive in predicate.root().primitives() {
        let reads = |field| primitive.condition.reads(field);
        let what = match () {
            () if reads(MetaField::Direction) || reads(MetaField::PacketType) => {
                "which way a frame went"
            }
            () if reads(MetaField::IfIndex) => "which interface a frame came from",
            () => continue,
        };
        let message = format!("this asks {what}, and a ring does not carry that");
        let hint = "filter before the ring: fyke demux -i IF 'EXPR => ring:PATH'";
        return Err(Error::new(text, primitive.span.clone(), message).with_hint(Some(hint)));
    }
    Ok(predicate)
}
