//! Rights of a client: the rule of the policy that has its name.

use super::Options;
use fyke_filters::Inputs;
use fyke_frame::LinkType;
use fyke_serve::Policy;
use fyke_serve::policy::{self, MAX_OF_USER, MAX_READERS};
use std::path::Path;

/// Rights and limits of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    /// The filter that all its frames pass; empty if there is none.
    pub filter: String,
    /// Most bytes of a frame; 0 for all.
    pub snaplen: u32,
    /// Most texts.
    pub texts: usize,
    /// Most bytes of a text.
    pub text_bytes: usize,
    /// Most connections of its name.
    pub readers: usize,
}

impl Terms {
    /// The terms of a name for an interface.
    ///
    /// # Errors
    /// There is no rule for it, or the policy cannot be read.
    pub(super) fn of(options: &Options, name: &str, interface: &str) -> Result<Terms, String> {
        let limits = fyke_serve::message::Limits::default();
        let everything = Terms {
            filter: String::new(),
            snaplen: 0,
            texts: limits.texts,
            text_bytes: limits.text_bytes,
            readers: MAX_READERS,
        };
        let Some(path) = &options.policy else { return Ok(everything) };
        let policy = read(path)?;
        let rule = policy.terms_of_name(name, interface).ok_or_else(|| {
            format!("the policy of this relay has no rule for the name {name:?} on {interface}")
        })?;
        let snaplen = rule.group.snaplen;
        Ok(Terms {
            filter: rule.group.filter.to_string(),
            snaplen: if snaplen < fyke_capture::DEFAULT_SNAPLEN { snaplen } else { 0 },
            texts: rule.limits.texts,
            text_bytes: rule.limits.text_bytes,
            readers: rule.readers.min(MAX_OF_USER),
        })
    }

    /// True if the rule keeps frames or bytes from the client.
    pub(super) fn restricts(&self) -> bool {
        !self.filter.is_empty() || self.snaplen != 0
    }
}

/// Reads a policy file.
///
/// # Errors
/// It cannot be read, or is wrong; with its line.
pub fn check_policy(path: &Path) -> Result<(), String> {
    read(path).map(drop)
}

fn read(path: &Path) -> Result<Policy, String> {
    let failed = |error: std::io::Error| format!("the policy: {}: {error}", path.display());
    if path.metadata().map_err(failed)?.len() > policy::MAX_BYTES {
        return Err(format!("the policy: {} is too long", path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let text = text.trim_start_matches('\u{feff}');
    check(path, text).map_err(|error| format!("the policy: {error}"))
}

/// Reads a policy. Its filters are read for Ethernet, the service reads them again for its interface.
fn check(path: &Path, text: &str) -> Result<Policy, policy::PolicyError> {
    let inputs = Inputs { links: vec![LinkType::EN10MB] };
    let reading = fyke_filter::Options { live: true, ..fyke_filter::Options::default() };
    let check = |text: &str, _: Option<&[String]>| {
        inputs.check(text, &reading).map_err(|refused| refused.error.to_string())
    };
    Policy::read(path, text, &policy::Names::of_system(), &check)
}
