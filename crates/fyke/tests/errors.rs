//! The error of every module converts into `fyke::Error`, and keeps its text.

use fyke::Error;
use fyke::control::Client;
use fyke::machine::{Symbols, bpf};
use fyke::pass::primitive::ether_ip;
use fyke::table::{RowTable, Rule, Seed};

fn text_of<E: std::fmt::Display + Into<Error>>(error: E) -> [String; 2] {
    let text = error.to_string();
    [text, error.into().to_string()]
}

#[test]
fn errors_of_every_module_keep_their_text() {
    let mut table = RowTable::new(2, Seed::random());
    let operands = ether_ip().with_operands(&[1; 99]);
    let machine = bpf::assemble::assemble("ldh [12", bpf::Dialect::Bpf, &Symbols::default());
    let folder = tempfile::tempdir().unwrap();
    for [text, converted] in [
        text_of(machine.unwrap_err()),
        text_of(fyke::ruler::Program::from_text("filter {").unwrap_err()),
        text_of(operands.unwrap_err()),
        text_of(Rule::parse("10.0.0.0/99").unwrap_err()),
        text_of(table.insert(&[1], 1).unwrap_err()),
        text_of(Client::connect_in(&[], Some(1)).map(drop).unwrap_err()),
        text_of(fyke::ring::Reader::connect(&folder.path().join("none")).map(drop).unwrap_err()),
        text_of(fyke::graph::Plan::new(&["(nothing)"], &fyke::graph::Classes::new()).unwrap_err()),
    ] {
        assert!(!text.is_empty() && text == converted, "{text}\n{converted}");
    }
}
