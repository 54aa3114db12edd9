//! Properties of graph texts that hold for any input: shared by the fuzz targets and `cargo test`.
//!
//! A valid text is printed and parsed again to the same tree; an error has a location. In a plan, every node comes
//! after those that feed it, only sources have no feeds, and names are unique.

use fyke_graph::language::{from_toml, parse};
use fyke_graph::node::Kind;
use fyke_graph::{Classes, Plan};
use std::collections::HashSet;

/// Checks a text of the graph language.
pub fn text(text: &str, classes: &Classes) {
    match parse(text) {
        Ok(parsed) => {
            let reading = parsed.tree.to_string();
            let again = parse(&reading).unwrap_or_else(|error| panic!("{reading}\n{error}"));
            assert_eq!(again.tree.to_string(), reading);
        }
        Err(error) => assert!(error.span.start <= text.len() && error.to_string().contains('^')),
    }
    match Plan::new(&[text], classes) {
        Ok(plan) => {
            let mut names = HashSet::new();
            for (index, node) in plan.nodes.iter().enumerate() {
                assert!(node.feeds.iter().all(|feed| feed.from < index));
                assert_eq!(node.feeds.is_empty(), node.class.kind == Kind::Source);
                assert!(names.insert(node.name.clone()), "two nodes have the name {}", node.name);
            }
            let _drawn = (plan.describe(), plan.dot(), plan.svg(None));
        }
        Err(error) => assert!(error.to_string().contains('^')),
    }
}

/// Checks the same graph as TOML: if it converts to a text, that text is valid.
pub fn toml(toml: &str, classes: &Classes) {
    match from_toml(toml) {
        Ok(made) => {
            parse(&made).unwrap_or_else(|error| panic!("{made}\n{error}"));
            text(&made, classes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
