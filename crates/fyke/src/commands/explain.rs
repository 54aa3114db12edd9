//! `fyke explain`: how a filter text is read and how it will run.

use super::{Failure, expression};
use crate::cli::ExplainArgs;
use fyke_filter::{Node, Options, Predicate};
use fyke_frame::LinkType;
use fyke_pass::{PassSet, PassView};
use serde_json::json;
use std::fmt::Write;

/// Runs the command.
pub fn run(args: ExplainArgs) -> Result<(), Failure> {
    let link = LinkType::from_name(&args.link).ok_or_else(|| unknown_link(&args.link))?;
    let text = expression(&args.expression, args.expression_file.as_deref())?;
    let options = Options { link, ..Options::default() };
    let predicate =
        fyke_filter::compile(&text, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut set = PassSet::new(link);
    let mut edit = set.edit();
    edit.add_filter(&predicate).map_err(|error| Failure::Usage(error.to_string()))?;
    edit.commit();
    let output = match args.json {
        true => as_json(&predicate, &set),
        false => as_table(&predicate, &set),
    };
    Ok(std::io::Write::write_all(&mut std::io::stdout(), output.as_bytes())?)
}

fn unknown_link(name: &str) -> Failure {
    let known: Vec<_> = fyke_frame::link::LINKS.iter().map(|link| link.name).collect();
    Failure::Usage(format!("unknown link type {name:?}; known are {}", known.join(", ")))
}
