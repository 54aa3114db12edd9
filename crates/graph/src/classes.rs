//! The built-in classes, one folder each: `class.rs` with the code and its tests, `README.md` with ports, parameters
//! and counters. `build.rs` lists the folders, so adding a class changes no other file.
//!
//! A program that embeds the graph can register classes of its own ([`Classes::register`]).

use crate::node::Class;
use std::collections::BTreeMap;

include!(concat!(env!("OUT_DIR"), "/classes.rs"));

/// The classes that a graph may name.
#[derive(Debug, Clone)]
pub struct Classes {
    by_name: BTreeMap<String, Class>,
}

impl Default for Classes {
    fn default() -> Self {
        Classes::new()
    }
}

impl Classes {
    /// Returns the built-in classes.
    pub fn new() -> Classes {
        let mut classes = Classes { by_name: BTreeMap::new() };
        for class in ALL {
            classes.register(*class);
        }
        classes
    }

    /// Adds a class, or replaces one of the same name.
    pub fn register(&mut self, class: Class) {
        for name in class.aliases.iter().chain([&class.name]) {
            self.by_name.insert(name.to_ascii_lowercase(), class);
        }
    }

    /// The class of a name; case does not matter.
    pub fn find(&self, name: &str) -> Option<Class> {
        self.by_name.get(&name.to_ascii_lowercase()).copied()
    }

    /// All names, aliases included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// All classes, each once, by name.
    pub fn all(&self) -> impl Iterator<Item = &Class> {
        self.by_name.iter().filter(|(name, class)| *name == class.name).map(|(_, class)| class)
    }
}

#[cfg(test)]
mod tests;
