//! The same graph as TOML, for programs that write it.
//!
//! ```toml
//! [[node]]
//! tag = "in"                      # every node has a tag
//! class = "pcapin"
//! expression = "trace.pcap"       # any parameter, as text, number or yes/no
//!
//! [[node]]
//! tag = "web"
//! class = "bpf"
//! expression = "tcp port 80"
//! from = ["in"]                   # nodes before this one; "in:80" for the class value 80
//! ```
//!
//! It is translated into the graph language, so all later steps are the same, and the rules exist once.

use super::{MAX_TAG, quoted};
use std::fmt::Write;

/// A TOML text that is not a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TomlError {
    /// The text is not TOML; the message has the position.
    #[error("{0}")]
    Toml(String),
    /// The text is TOML, but not a graph.
    #[error("node {number} {what}")]
    Node {
        /// Number of the node, from 1.
        number: usize,
        /// Problem of the node.
        what: String,
    },
    /// The text has no node.
    #[error("there is no node; a node begins with [[node]]")]
    Empty,
}

/// Translates the graph into the graph language.
///
/// # Errors
/// If the text is not TOML or not a graph. Classes check their parameters later.
pub fn from_toml(text: &str) -> Result<String, TomlError> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error| TomlError::Toml(error.to_string()))?;
    if let Some(other) = table.keys().find(|key| *key != "node") {
        let what = format!("\"{other}\" is not known here; nodes begin with [[node]]");
        return Err(TomlError::Toml(what));
    }
    let nodes = table.get("node").and_then(toml::Value::as_array);
    let nodes = nodes.filter(|nodes| !nodes.is_empty()).ok_or(TomlError::Empty)?;
    let mut chains = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let refuse = |what: String| TomlError::Node { number: index + 1, what };
        chains.push(one(node).map_err(refuse)?);
    }
    Ok(chains.join(" |\n"))
}

fn is_tag(name: &str) -> bool {
    let usable = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().count() <= MAX_TAG && name.chars().all(usable)
}

/// Translates one node and the edges to it into a chain.
fn one(node: &toml::Value) -> Result<String, String> {
    let table = node.as_table().ok_or("is not a table")?;
    let word = |name: &str| table.get(name).and_then(toml::Value::as_str);
    let tag = word("tag").ok_or("has no tag")?;
    let class = word("class").ok_or("has no class")?;
    if !is_tag(tag) {
        return Err(format!("has the tag \"{tag}\": 1 to {MAX_TAG} letters, digits or `_`"));
    }
    for name in table.keys().map(String::as_str).chain([class]) {
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "_-".contains(c)) {
            return Err(format!("has an invalid name, \"{name}\""));
        }
    }
    let mut text = format!("{{{tag}}}({class}");
    for (name, value) in table {
        if ["tag", "class", "from"].contains(&name.as_str()) {
            continue;
        }
        let value = match value {
            toml::Value::String(value) => value.clone(),
            toml::Value::Integer(value) => value.to_string(),
            toml::Value::Float(value) => value.to_string(),
            toml::Value::Boolean(value) => if *value { "y" } else { "n" }.to_owned(),
            _ => return Err(format!("has a `{name}` that is not a text, number or boolean")),
        };
        let _infallible = write!(text, ", {name}={}", quoted(&value));
    }
    text.push(')');
    let feeds = match table.get("from") {
        None => return Ok(format!("[{text}]")),
        Some(toml::Value::String(feed)) => vec![feed.as_str()],
        Some(toml::Value::Array(feeds)) => {
            let feeds = feeds
                .iter()
                .map(|feed| feed.as_str().ok_or("has a `from` with a value that is not a text"));
            feeds.collect::<Result<Vec<_>, _>>()?
        }
        Some(_) => return Err("has a `from` that is not a list of tags".into()),
    };
    let mut chain = Vec::new();
    for (index, feed) in feeds.iter().enumerate() {
        let (from, class) = feed.split_once(':').unwrap_or((feed, ""));
        let arrow = if class.is_empty() { ">".to_owned() } else { format!("-{class}->") };
        if !is_tag(from) {
            return Err(format!("has \"{feed}\" in `from`, which is not a tag"));
        }
        let is_class =
            class.bytes().all(|digit| digit.is_ascii_digit()) && class.parse::<u32>().is_ok();
        if feed.contains(':') && !is_class {
            return Err(format!(
                "has \"{feed}\" in `from`; its class value must be a number from 0 to 4294967295"
            ));
        }
        let to = if index == 0 { text.clone() } else { format!("{{{tag}}}()") };
        chain.push(format!("[{{{from}}}() {arrow} {to}]"));
    }
    Ok(chain.join(" |\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::parse;

    const GRAPH: &str = "[[node]]\ntag='in'\nclass='pcapin'\nexpression='a b.pcap'\n\n[[node]]\n\
                         tag='n'\nclass='packetcount'\nmbufsize=8\nexport=true\n\
                         from=['in:80', 'in']\n";

    #[test]
    fn becomes_the_text() {
        let text = from_toml(GRAPH).unwrap();
        assert_eq!(
            text,
            "[{in}(pcapin, expression=\"a b.pcap\")] |\n[{in}() -80-> {n}(packetcount, export=y, \
             mbufsize=8)] |\n[{in}() > {n}()]"
        );
        assert!(!parse(&text).unwrap().mixed);
    }

    /// Prefixes and replacements are refused or give a text that parses or is refused; nothing panics.
    #[test]
    fn mutilated_texts_do_not_panic() {
        for at in 0..GRAPH.len() {
            for put in ["", "'", "[", "=", "\n", "é", "}", "\""] {
                let text = format!("{}{put}{}", &GRAPH[..at], &GRAPH[at + 1..]);
                if let Ok(text) = from_toml(&text) {
                    let _ = parse(&text).map_err(|error| error.to_string());
                }
            }
        }
    }
}
