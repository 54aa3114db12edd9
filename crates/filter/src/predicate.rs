//! A compiled filter text.

use crate::ast::{Node, Primitive};
use crate::error::Error;
use crate::options::{Options, Reading};
use crate::parse;
use crate::scoped::{self, Fragments};
use fyke_frame::{Frame, LinkType, OutOfBounds};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A filter text with its meaning. A clone shares the tree.
#[derive(Debug, Clone)]
pub struct Predicate {
    text: Arc<str>,
    link: LinkType,
    root: Arc<Node>,
    scoped: Option<Scoped>,
}

/// Data that the scoped reading needs besides the tree.
#[derive(Debug, Clone)]
struct Scoped {
    fragments: Fragments,
    netmask: Option<u32>,
}

/// Reads a filter text.
///
/// # Errors
/// [`Error`] shows the position, the expected input, and advice if there is any.
pub fn compile(text: &str, options: &Options) -> Result<Predicate, Error> {
    compile_with(text, options, &Fragments::default())
}

/// Reads a filter text that shares its memory of fragments with others; only the scoped reading
/// uses it.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    text: &str,
    options: &Options,
    fragments: &Fragments,
) -> Result<Predicate, Error> {
    let root = Arc::new(parse::parse(text, options)?);
    let scoped = (options.reading == Reading::Scoped)
        .then(|| Scoped { fragments: fragments.clone(), netmask: options.netmask });
    Ok(Predicate { text: text.into(), link: options.link, root, scoped })
}

/// Reads several filter texts in the compat reading, each on its own, as one predicate that holds if
/// all do, evaluated in this order. Its text is the first one.
///
/// # Errors
/// As [`compile`], for the first text with an error.
pub fn compile_all<'t>(
    texts: impl IntoIterator<Item = &'t str>,
    options: &Options,
) -> Result<Predicate, Error> {
    let (mut first, mut all) = (None, Vec::new());
    for text in texts {
        all.push(parse::parse(text, options)?);
        first.get_or_insert(text);
    }
    let root = if all.len() == 1 { all.swap_remove(0) } else { Node::All(all) };
    let text = first.unwrap_or_default().into();
    Ok(Predicate { text, link: options.link, root: Arc::new(root), scoped: None })
}

/// Most names that are remembered.
const MAX_NAMES: usize = 4_096;
/// Time after which an unknown name is queried again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Addresses of a name, and the time of the query.
type Known = BTreeMap<String, (Vec<IpAddr>, Instant)>;

/// The system's resolver, which may query the network and wait for it. The addresses of a name are remembered, so that
/// a text has one meaning for all link types, and in a process that can query nothing any more.
pub fn system_resolver(name: &str) -> Vec<IpAddr> {
    use std::net::ToSocketAddrs;
    static KNOWN: Mutex<Known> = Mutex::new(Known::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_fresh =
        |entry: &&(Vec<IpAddr>, Instant)| !entry.0.is_empty() || entry.1.elapsed() < ASK_AGAIN;
    if let Some((addresses, _)) = known().get(name).filter(is_fresh) {
        return addresses.clone();
    }
    let found = (name, 0).to_socket_addrs();
    let addresses: Vec<_> = found.map(|all| all.map(|one| one.ip()).collect()).unwrap_or_default();
    let mut known = known();
    if known.len() < MAX_NAMES || known.contains_key(name) {
        known.insert(name.to_owned(), (addresses.clone(), Instant::now()));
    }
    addresses
}

impl Predicate {
    /// The text as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The link type for which the text was read.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// The reading of the text.
    pub fn reading(&self) -> Reading {
        if self.scoped.is_some() { Reading::Scoped } else { Reading::Compat }
    }

    /// The tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The same predicate with an empty memory of fragments.
    pub fn afresh(&self) -> Predicate {
        let own = |scoped: &Scoped| Scoped { fragments: Fragments::default(), ..scoped.clone() };
        Predicate { scoped: self.scoped.as_ref().map(own), ..self.clone() }
    }

    /// A part of it as a predicate of its own, to evaluate it alone. It tests the same bytes as at
    /// its place in the text, after the tags and tunnels before it.
    pub fn alone(&self, part: Node) -> Predicate {
        Predicate { root: Arc::new(part), ..self.clone() }
    }

    /// Evaluates a frame left to right and stops as soon as the result is known: the oracle with
    /// which faster engines must agree. In the scoped reading frames should come in capture order:
    /// first fragments are remembered for later ones.
    ///
    /// # Errors
    /// [`OutOfBounds`] when a load lay outside the captured bytes, or when the scoped reading
    /// cannot decide (a fragment without its first): the frame is rejected.
    pub fn holds(&self, frame: &Frame) -> Result<bool, OutOfBounds> {
        self.trace(frame, &mut |_, _| {})
    }

    /// Like [`Predicate::holds`], and calls back for each evaluated primitive, in order, with its
    /// result. A scope of the scoped reading counts as one primitive.
    ///
    /// # Errors
    /// As [`Predicate::holds`].
    pub fn trace(
        &self,
        frame: &Frame,
        asked: &mut dyn FnMut(&Primitive, Result<bool, OutOfBounds>),
    ) -> Result<bool, OutOfBounds> {
        match &self.scoped {
            None => self.root.judge(&mut |primitive| {
                let answer = primitive.condition.holds(frame);
                asked(primitive, answer);
                answer
            }),
            Some(with) => scoped::holds(&self.root, frame, &with.fragments, with.netmask, asked),
        }
    }

    /// True if the frame is accepted.
    pub fn accepts(&self, frame: &Frame) -> bool {
        self.holds(frame) == Ok(true)
    }
}

/// Predicates are equal if they have the same meaning, link type and reading, however they are
/// written.
impl PartialEq for Predicate {
    fn eq(&self, other: &Self) -> bool {
        self.link == other.link && self.reading() == other.reading() && self.root == other.root
    }
}

impl Eq for Predicate {}

/// The canonical text.
impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}
