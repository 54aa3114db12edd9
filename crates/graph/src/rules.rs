//! The rules of a Bloom pre-filter, editable from any thread while a node uses them ([`crate::classes`], `bloom`).
//!
//! A change takes effect at the next batch. Texts are Deri's: `+ip=…,port=…`, `-proto=tcp`, `list`, `reset`,
//! `enable 0|1`, `negative 0|1`. Source: Deri, *High-Speed Dynamic Packet Filtering*.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_graph as graph; }
//! use fyke::graph::RuleSet;
//!
//! let rules = RuleSet::new(true);
//! rules.command("+ip=10.0.0.1,port=80")?;
//! assert!(rules.command("list")?.contains("port=80"));
//! assert!(rules.command("-ip=10.0.0.2").is_err());
//! # Ok::<(), fyke::graph::RulesError>(())
//! ```

use fyke_table::Seed;
use fyke_table::prefilter::{
    Command, Prefilter, PrefilterError, PrefilterOptions, PrefilterReader, RuleTextError,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reason why a command of the pre-filter was refused. A refused command changes nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The text is not a command.
    #[error(transparent)]
    Text(#[from] RuleTextError),
    /// The rule does not exist, or there would be one rule too many.
    #[error(transparent)]
    Rule(#[from] PrefilterError),
}

/// The writer's side; clones share the rules.
#[derive(Debug, Clone)]
pub struct RuleSet(Arc<Mutex<Prefilter>>);

impl RuleSet {
    /// Creates an empty rule set. While it is disabled, every frame passes.
    pub fn new(enabled: bool) -> RuleSet {
        let mut rules = Prefilter::new(PrefilterOptions::default(), Seed::random());
        rules.set_enabled(enabled);
        RuleSet(Arc::new(Mutex::new(rules)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Prefilter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader for one worker.
    pub fn reader(&self) -> PrefilterReader {
        self.lock().reader()
    }

    /// Executes a command and returns its output.
    ///
    /// # Errors
    /// If the text is not a command, or the command cannot be executed.
    pub fn command(&self, command: &str) -> Result<String, RulesError> {
        let command = Command::parse(command)?;
        let mut rules = self.lock();
        let shown = rules.apply(command)?;
        if command != Command::List {
            return Ok(shown);
        }
        let (enabled, negative) = (rules.is_enabled(), rules.is_negative());
        let mut text =
            format!("enable {}\nnegative {}\n{shown}", u8::from(enabled), u8::from(negative));
        for space in rules.stats() {
            text += &format!(
                "# {}: {} rules in {} KiB, false positives {:.1e} expected, {:.1e} by the bits\n",
                space.name,
                space.rules,
                space.bits / 8192,
                space.expected_false_positives,
                space.filled_false_positives,
            );
        }
        Ok(text)
    }
}
