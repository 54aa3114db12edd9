//! `fyke explain`: how a filter text is read and how it will run.

mod trace;

use super::{Failure, expression};
use crate::cli::ExplainArgs;
use fyke_filter::{Node, Options, Predicate, Reading};
use fyke_frame::LinkType;
use fyke_pass::PassSet;
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// Runs the command.
pub fn run(args: ExplainArgs) -> Result<(), Failure> {
    if args.graph {
        let text = super::graphs::explain(&args.expression)?;
        return Ok(std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?);
    }
    let link = match &args.read {
        Some(path) => trace::link_of(path)?,
        None => LinkType::from_name(&args.link).ok_or_else(|| unknown_link(&args.link))?,
    };
    let text = expression(&args.expression, args.expression_file.as_deref())?;
    let reading = if args.scoped { Reading::Scoped } else { Reading::Compat };
    let options = Options { link, reading, live: args.live, ..Options::default() };
    let predicate =
        fyke_filter::compile(&text, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut set = PassSet::new(link);
    let mut edit = set.edit();
    edit.add_filter(&predicate).map_err(|error| Failure::Usage(error.to_string()))?;
    edit.commit();
    let output = match args.json {
        true => format!("{}\n", as_json(&predicate, &set)),
        false => {
            let mut table = String::new();
            as_table(&mut table, &predicate, &set)?;
            if let Some(path) = &args.read {
                trace::over_file(&mut table, &predicate, &options, path, args.frame)?;
            }
            table
        }
    };
    Ok(std::io::Write::write_all(&mut std::io::stdout(), output.as_bytes())?)
}

fn unknown_link(name: &str) -> Failure {
    let known: Vec<_> = fyke_frame::link::LINKS.iter().map(|link| link.name).collect();
    Failure::Usage(format!(
        "unknown link type {name:?}; known are {} and, for bytes and lengths only, those that \
         libpcap names besides",
        known.join(", ")
    ))
}

fn as_table(out: &mut impl Write, predicate: &Predicate, set: &PassSet) -> fmt::Result {
    let text = predicate.text().trim();
    writeln!(out, "text    {}", if text.is_empty() { "(empty: every frame)" } else { text })?;
    writeln!(out, "link    {}", predicate.link())?;
    writeln!(out, "read as")?;
    write_node(out, predicate.root(), 1)?;
    if predicate.reading() == Reading::Scoped {
        writeln!(
            out,
            "runs    frame by frame in the scoped reading: the headers are walked, then"
        )?;
        return writeln!(out, "        the innermost packet (or the one named) is asked as above");
    }
    let passes: Vec<_> = set.passes().collect();
    let instructions: usize = passes.iter().map(|pass| pass.instructions.len()).sum();
    writeln!(
        out,
        "runs as {} {} with {} {}; a frame is accepted when all instructions of one pass hold",
        passes.len(),
        plural(passes.len(), "pass", "passes"),
        instructions,
        plural(instructions, "instruction", "instructions"),
    )?;
    for (number, pass) in passes.iter().enumerate() {
        for (index, instruction) in pass.describe().enumerate() {
            let head = if index == 0 { format!("pass {}", number + 1) } else { String::new() };
            writeln!(out, "  {head:<9} {instruction}")?;
        }
        if pass.instructions.is_empty() {
            writeln!(out, "  pass {:<4} (no instruction: every frame)", number + 1)?;
        }
    }
    Ok(())
}

fn write_node(out: &mut impl Write, node: &Node, depth: usize) -> fmt::Result {
    let indent = depth * 2 + 6;
    let (word, children) = match node {
        Node::All(children) => ("all of", children.as_slice()),
        Node::Any(children) => ("any of", children.as_slice()),
        Node::Not(child) => ("not", std::slice::from_ref(&**child)),
        leaf => return writeln!(out, "{:indent$}{leaf}", ""),
    };
    writeln!(out, "{:indent$}{word}", "")?;
    for child in children.iter().take(MAX_SHOWN) {
        write_node(out, child, depth + 1)?;
    }
    if children.len() > MAX_SHOWN {
        let indent = indent + 2;
        writeln!(out, "{:indent$}… and {} more", "", children.len() - MAX_SHOWN)?;
    }
    Ok(())
}

/// Operands of one node that are shown to people.
const MAX_SHOWN: usize = 40;

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn as_json(predicate: &Predicate, set: &PassSet) -> Value {
    let passes = set.passes().map(|pass| {
        let instructions = pass.describe().zip(pass.instructions).map(|(view, instruction)| {
            json!({
                "opcode": view.opcode,
                "negated": view.negated,
                "text": view.to_string(),
                "words": std::iter::once(instruction.command).chain(instruction.params)
                    .collect::<Vec<u32>>(),
            })
        });
        json!({ "id": pass.id.0, "instructions": instructions.collect::<Vec<_>>() })
    });
    json!({
        "text": predicate.text(),
        "link": predicate.link().to_string(),
        "scoped": predicate.reading() == Reading::Scoped,
        "canonical": predicate.root().to_string(),
        "passes": passes.collect::<Vec<_>>(),
    })
}
