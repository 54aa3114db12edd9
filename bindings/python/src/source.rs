//! The graph of a capture: `source > filter > limit > arrow`, as `fyke dump` builds its own.

use crate::errors::Failure;
use crate::sink;
use fyke::capture::interfaces_available;
use fyke::graph::language::quoted;
use std::path::Path;

/// Tag of the filter.
pub const FILTER: &str = "filter";

/// Beginnings of the names of sources that are no files.
const PREFIXES: [&str; 3] = ["serve:", "ring:", "xdp:"];

/// Arguments of a capture.
#[derive(Debug)]
pub struct Request {
    /// The source; `true`: it is the path of a file.
    pub source: (String, bool),
    /// The filter text.
    pub filter: String,
    /// Frames after which it ends.
    pub count: Option<u64>,
    /// The text is read by meaning.
    pub scoped: bool,
    /// Names of hosts are looked up.
    pub names: bool,
    /// Interfaces take frames for other hosts, too.
    pub promiscuous: bool,
    /// Bytes of each frame that are captured.
    pub snaplen: Option<u32>,
    /// The user of a service.
    pub user: Option<String>,
    /// KiB of the capture ring.
    pub buffer: Option<u32>,
    /// True if columns tell the pass.
    pub credits: bool,
}

impl Request {
    /// True if frames come from a network.
    ///
    /// # Errors
    /// The source is neither a file nor an interface.
    pub fn is_live(&self) -> Result<bool, Failure> {
        let (name, is_path) = &self.source;
        if *is_path || name == "-" {
            return Ok(false);
        }
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || name == "any" {
            return Ok(true);
        }
        if Path::new(name).is_file() || name.contains('/') {
            return Ok(false);
        }
        let interfaces =
            interfaces_available().map_err(|error| Failure::Capture(error.to_string()))?;
        if interfaces.iter().any(|one| one.name == *name) {
            return Ok(true);
        }
        if Path::new(name).exists() {
            return Ok(false);
        }
        let names: Vec<_> = interfaces.iter().map(|one| one.name.as_str()).collect();
        Err(Failure::Capture(format!(
            "{name:?} is neither a file nor an interface; the interfaces are: {}; serve:NAME is a service",
            names.join(", ")
        )))
    }

    /// The text of the graph.
    pub fn graph(&self, live: bool) -> String {
        let flag = |set: bool| set.then(|| "y".to_owned());
        let name = Some(self.source.0.clone());
        let source = match live {
            false => node("pcapin", &[("expression", name)]),
            true => {
                let promiscuous = (!self.promiscuous).then(|| "n".to_owned());
                node(
                    "device",
                    &[
                        ("expression", name),
                        ("promiscuous", promiscuous),
                        ("snaplen", self.snaplen.map(|bytes| bytes.to_string())),
                        ("buffer", self.buffer.map(|kib| kib.to_string())),
                        ("user", self.user.clone()),
                    ],
                )
            }
        };
        let text = (!self.filter.trim().is_empty()).then(|| self.filter.clone());
        let filter = node(
            "bpf",
            &[
                ("expression", text),
                ("scoped", flag(self.scoped)),
                ("live", flag(live)),
                ("names", flag(self.names)),
                ("credits", flag(self.credits)),
            ],
        );
        let mut chain = vec![source, format!("{{{FILTER}}}{filter}")];
        let limit = |count: u64| node("limit", &[("expression", Some(count.to_string()))]);
        chain.extend(self.count.map(limit));
        chain.push(format!("({})", sink::NAME));
        chain.join(" > ")
    }
}

/// A node with the parameters that have a value.
fn node(class: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let given = given.map(|(name, value)| format!(", {name}={}", quoted(value)));
    format!("({class}{})", given.collect::<String>())
}
