//! The parameters of a node as its class reads them, and the memory buffer that others may read while it runs.

use super::MakeError;
use fyke_capture::Interface;
use fyke_filters::Inputs;
use fyke_frame::LinkType;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parameters of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pairs: Vec<(String, String)>,
    memory: Memory,
    interfaces: Vec<Interface>,
}

impl Settings {
    /// Creates settings from names (in lower case) and values.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Settings {
        let mut settings = Settings { pairs: pairs.into_iter().collect(), ..Settings::default() };
        let bytes = settings.text("mbufsize").and_then(|size| size.parse().ok()).unwrap_or(0);
        settings.memory = Memory::new(bytes);
        settings
    }

    /// Copies the settings for a node after sources with these interfaces.
    pub fn after(&self, interfaces: Vec<Interface>) -> Settings {
        Settings { interfaces, ..self.clone() }
    }

    /// The interfaces of the sources before the node; empty before they are open.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Link type of the first frames, as far as it is known.
    pub fn link(&self) -> Option<LinkType> {
        self.interfaces.first().map(|interface| interface.link)
    }

    /// Link types of those interfaces, for reading a filter text.
    pub(crate) fn inputs(&self) -> Inputs {
        crate::fits::inputs(&self.interfaces)
    }

    /// Name and value, in the order they were written.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// Sets a parameter that the text does not set; `None` removes it again.
    pub(crate) fn set_default(&mut self, name: &str, value: Option<&str>) {
        self.pairs.retain(|(known, value)| known != name || value.is_empty());
        self.pairs.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    /// The value of a parameter, or `None` if it is absent or empty. The last one counts.
    pub fn text(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().rev().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The value of a required parameter.
    ///
    /// # Errors
    /// If it is absent.
    pub fn required(&self, name: &'static str) -> Result<&str, MakeError> {
        self.text(name).ok_or_else(|| {
            let first = if name == "expression" { ", or a first value without a name" } else { "" };
            MakeError::new(name, format!("it needs `{name}=…`{first}"))
        })
    }

    /// A required whole number.
    ///
    /// # Errors
    /// If it is absent, not a number, or out of range.
    pub fn number(&self, name: &'static str, range: RangeInclusive<u64>) -> Result<u64, MakeError> {
        let text = self.required(name)?;
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (from, to) = range.into_inner();
            MakeError::new(name, format!("{text} is not a whole number from {from} to {to}"))
        })
    }

    /// A whole number, or the default.
    ///
    /// # Errors
    /// If it is not a number, or out of range.
    pub fn number_or(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, MakeError> {
        if self.text(name).is_none() { Ok(default) } else { self.number(name, range) }
    }

    /// Reads yes or no; no if absent.
    ///
    /// # Errors
    /// If it is neither.
    pub fn flag(&self, name: &'static str) -> Result<bool, MakeError> {
        match self.text(name).unwrap_or("n").to_ascii_lowercase().as_str() {
            "y" | "yes" | "1" | "true" | "on" => Ok(true),
            "n" | "no" | "0" | "false" | "off" => Ok(false),
            other => Err(MakeError::new(name, format!("{other} is neither `y` nor `n`"))),
        }
    }

    /// Reads one of several words; the first is the default.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn choice(&self, name: &'static str, words: &[&'static str]) -> Result<usize, MakeError> {
        let Some(given) = self.text(name) else { return Ok(0) };
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(given));
        at.ok_or_else(|| {
            MakeError::new(name, format!("{given} is not one of: {}", words.join(", ")))
        })
    }

    /// Netmask for `ip broadcast`, chosen as tcpdump does: that of the first interface before the node if the node
    /// reads live; 0 for files and for interfaces without one.
    pub fn netmask(&self) -> u32 {
        let live = self.flag("live").unwrap_or(false);
        let first = self.interfaces().first().filter(|_| live);
        first.map_or(0, |interface| interface.netmask)
    }

    /// True if the frames of no interface before the node are outgoing.
    pub fn incoming_only(&self) -> bool {
        let interfaces = self.interfaces();
        !interfaces.is_empty() && interfaces.iter().all(|interface| interface.at_driver)
    }

    /// Keeps the memory buffer of the node that had these settings.
    pub fn keep_memory(&mut self, old: &Settings) {
        self.memory = old.memory();
    }

    /// The memory buffer of the node.
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }
}

/// Most bytes of a memory buffer.
pub const MAX_MEMORY_BYTES: u64 = 1 << 24;

/// A memory buffer: words that one node writes and any thread reads while it runs. FFPF's MBuf (section 2.4).
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<[AtomicU64]>);

impl PartialEq for Memory {
    fn eq(&self, other: &Memory) -> bool {
        self.0.len() == other.0.len()
    }
}
impl Eq for Memory {}

impl Memory {
    /// Creates a buffer of at least `bytes` bytes, and at least one word.
    pub fn new(bytes: u64) -> Memory {
        let words = bytes.min(MAX_MEMORY_BYTES).div_ceil(8).max(1);
        Memory((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is no word.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes a word; does nothing if `index` is beyond the end.
    pub fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.0.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads a word; 0 if `index` is beyond the end.
    pub fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}
