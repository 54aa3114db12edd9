//! Any text as a graph in TOML: a graph or an error with its location.
#![no_main]

#[path = "../checks/graph.rs"]
mod checks;

use fyke_graph::Classes;
use std::sync::LazyLock;

static CLASSES: LazyLock<Classes> = LazyLock::new(Classes::new);

libfuzzer_sys::fuzz_target!(|text: &str| checks::toml(text, &CLASSES));
