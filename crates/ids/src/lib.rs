//! Rules of Snort and Suricata on packets, streams and messages of applications.
//!
//! A text of rules is translated ([`Translation`]); a rule that cannot be judged exactly is refused with its line and a
//! reason. An [`Engine`] judges frames and gives alerts, which [`eve`] writes as Suricata does. `docs/ids.md` lists
//! the options.
//!
//! | module | what |
//! |---|---|
//! | [`read`] | texts into rules, headers and options |
//! | [`endpoints`] | addresses, ports and variables |
//! | [`compile`] | options into tests |
//! | [`rule`] | a translated rule |
//! | [`pcre`] | regular expressions |
//! | [`verify`] | tests on bytes |
//! | [`work`] | the work that tests may take |
//! | [`buffer`], [`transform`] | named buffers and their changes |
//! | [`app`] | messages of HTTP, TLS and DNS |
//! | [`engine`] | flows, the search for literals, alerts |
//! | [`eve`] | alerts and records as JSON |
//! | [`files`] | files of rules |
//! | [`prefilter()`] | rules into an expression that accepts all frames they need |
//!
//! ```
//! # mod fyke { pub(crate) use fyke_ids as ids; }
//! use fyke::ids::{Engine, Index, Limits, Translation, Variables};
//!
//! let text = b"alert tcp any any -> any 80 (msg:\"admin\"; content:\"/admin\"; sid:1;)\n\
//!              alert smb any any -> any any (msg:\"?\"; sid:2;)";
//! let translation = Translation::new(text, None, &Variables::default());
//! assert_eq!((translation.rules.len(), translation.refused[0].line), (1, 2));
//! let engine = Engine::new(Index::new(translation.rules), Limits::default());
//! assert_eq!(engine.rules().len(), 1);
//! ```
#![forbid(unsafe_code)]

pub mod app;
pub mod buffer;
pub mod compile;
mod digest;
pub mod endpoints;
pub mod engine;
pub mod error;
pub mod eve;
pub mod files;
pub mod pcre;
pub mod prefilter;
pub mod read;
pub mod rule;
pub mod transform;
mod translate;
pub mod verify;
pub mod work;

pub use compile::Dialect;
pub use endpoints::Variables;
pub use engine::{Alert, Checksums, Counters, Engine, Index, Kinds, Limits};
pub use error::{Refused, VariableError};
pub use files::RuleFiles;
pub use prefilter::{Prefilter, prefilter};
pub use rule::Rule;
pub use translate::{Step, Tell, Translation};
