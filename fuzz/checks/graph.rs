//! What holds for graph texts whatever the input: shared by the fuzz targets and `cargo test`.
//!
//! What parses is printed and parsed again to the same tree; an error has a place. What is planned keeps its promises:
//! every node stands after those that feed it, only sources have no feeds, names are unique.

use fyke_graph::language::{from_toml, parse};
use fyke_graph::node::Kind;
use fyke_graph::{Classes, Plan};
use std::collections::HashSet;

/// A text of the graph language.
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
                assert!(names.insert(node.name.clone()), "two are called {}", node.name);
            }
            let _drawn = (plan.describe(), plan.dot(), plan.svg(None));
        }
        Err(error) => assert!(error.to_string().contains('^')),
    }
}

/// The same graph as TOML: what becomes a text is one that parses.
pub fn toml(toml: &str, classes: &Classes) {
    match from_toml(toml) {
        Ok(made) => {
            parse(&made).unwrap_or_else(|error| panic!("{made}\n{error}"));
            text(&made, classes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
