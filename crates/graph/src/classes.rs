//! The built-in classes, one folder each: `class.rs` with the code and its tests, `README.md` with ports, parameters
//! and counters. `build.rs` lists the folders, so adding a class changes no other file.
//!
//! A program that embeds the graph can register classes of its own ([`Classes::register`]).

use crate::node::{Class, MakeError, Makers, Node, Settings};
use fyke_capture::Source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

include!(concat!(env!("OUT_DIR"), "/classes.rs"));

/// All built-in classes: purpose, parameters and counters of each, with an example. Every class also takes the
/// parameters of [`COMMON`](crate::node::COMMON).
///
#[doc = include_str!(concat!(env!("OUT_DIR"), "/classes.md"))]
pub mod reference {}

/// The classes that a graph may name.
#[derive(Debug, Clone)]
pub struct Classes {
    by_name: BTreeMap<String, (Class, Makers)>,
    /// Folder of the rings of exported nodes.
    exports: Option<PathBuf>,
}

impl Default for Classes {
    fn default() -> Self {
        Classes::new()
    }
}

impl Classes {
    /// Returns the built-in classes.
    pub fn new() -> Classes {
        let mut classes = Classes { by_name: BTreeMap::new(), exports: None };
        for class in ALL {
            classes.register(*class);
        }
        classes
    }

    /// Publishes the frames that exported nodes (`export=y`) pass: each in a ring in this folder, named after the tag
    /// of the node, or after its class if it has no tag. A plan shows the rings as nodes of class `toring`.
    ///
    /// ```
    /// # mod fyke { pub(crate) use fyke_graph as graph; }
    /// use fyke::graph::{Classes, Plan};
    ///
    /// let mut classes = Classes::new();
    /// classes.export_to("/run/rings".as_ref());
    /// let plan = Plan::new(&["(pcapin,a.pcap) > {web}(filter,tcp port 80,export=y) > (drop)"], &classes)?;
    /// assert!(plan.nodes.iter().any(|node| &*node.text == "(toring, expression=/run/rings/web)"));
    /// # Ok::<(), fyke::graph::language::TextError>(())
    /// ```
    pub fn export_to(&mut self, folder: &Path) {
        self.exports = Some(folder.to_owned());
    }

    /// Folder of the rings of exported nodes, if they have any.
    pub(crate) fn exports(&self) -> Option<&Path> {
        self.exports.as_deref()
    }

    /// Adds a class, or replaces one of the same name.
    pub fn register(&mut self, class: Class) {
        self.insert(class, Makers::default());
    }

    /// Adds a class with nodes that have state of the program, such as a channel. `make` takes the place of
    /// [`Class::make`]. Like that one it also runs when a text is only checked, unless the class has a
    /// [`check`](Class::check), and once per worker, if the class is [`parallel`](Class::parallel).
    ///
    /// ```
    /// # mod fyke { pub(crate) use {fyke_capture as capture, fyke_frame as frame, fyke_graph as graph}; }
    /// use fyke::capture::MemorySource;
    /// use fyke::frame::{Frame, LinkType, Mask};
    /// use fyke::graph::node::{Arrival, Class, Kind, Node, NodeError};
    /// use fyke::graph::{Classes, GraphHandle};
    /// use std::sync::atomic::AtomicBool;
    /// use std::sync::mpsc::{Sender, channel};
    ///
    /// /// Sends the length of each frame to another thread.
    /// struct Report(Sender<usize>);
    ///
    /// impl Node for Report {
    ///     fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
    ///         let sent = |frame: &Frame<'_>| self.0.send(frame.data.len()).is_ok();
    ///         Ok(arrival.select(sent))
    ///     }
    /// }
    ///
    /// let (sender, receiver) = channel();
    /// let mut classes = Classes::new();
    /// let report = Class { name: "report", summary: "sends lengths", ..Class::NODE };
    /// classes.register_with(report, move |_| Ok(Box::new(Report(sender.clone()))));
    ///
    /// let frames = Class { name: "frames", summary: "two frames", kind: Kind::Source, ..Class::NODE };
    /// classes.register_source(frames, |_| {
    ///     let mut source = MemorySource::new(LinkType::EN10MB);
    ///     source.push(&Frame::new(LinkType::EN10MB, &[0; 60]));
    ///     source.push(&Frame::new(LinkType::EN10MB, &[0; 90]));
    ///     Ok(Box::new(source))
    /// });
    /// let (mut engine, _) = GraphHandle::start(&["(frames) > (report)"], classes)?;
    /// engine.run(&AtomicBool::new(false))?;
    /// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [60, 90]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_with(
        &mut self,
        class: Class,
        make: impl Fn(&Settings) -> Result<Box<dyn Node>, MakeError> + Send + Sync + 'static,
    ) {
        self.insert(class, Makers { make: Some(Arc::new(make)), open: None });
    }

    /// Adds a class of sources that have state of the program. `open` takes the place of [`Class::open`].
    pub fn register_source(
        &mut self,
        class: Class,
        open: impl Fn(&Settings) -> Result<Box<dyn Source>, MakeError> + Send + Sync + 'static,
    ) {
        self.insert(class, Makers { make: None, open: Some(Arc::new(open)) });
    }

    fn insert(&mut self, class: Class, makers: Makers) {
        for name in class.aliases.iter().chain([&class.name]) {
            self.by_name.insert(name.to_ascii_lowercase(), (class, makers.clone()));
        }
    }

    /// The class of a name; case does not matter.
    pub fn find(&self, name: &str) -> Option<Class> {
        self.entry(name).map(|(class, _)| *class)
    }

    /// The class of a name, and the functions that were registered with it.
    pub(crate) fn entry(&self, name: &str) -> Option<&(Class, Makers)> {
        self.by_name.get(&name.to_ascii_lowercase())
    }

    /// All names, aliases included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All classes, each once, by name.
    pub fn all(&self) -> impl Iterator<Item = &Class> {
        let all = self.by_name.iter().filter(|(name, (class, _))| *name == class.name);
        all.map(|(_, (class, _))| class)
    }
}

#[cfg(test)]
mod tests;
