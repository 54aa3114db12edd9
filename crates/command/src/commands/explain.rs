//! `fyke explain`: shows how a filter expression is read and how it will run.

mod notes;
mod picture;
mod spaces;
mod trace;
mod tree;
mod witness;

use super::privilege::Needs;
use super::{Failure, expression};
use crate::cli::ExplainArgs;
use fyke_filter::{Cost, Node, Options, Predicate, Reading, cost};
use fyke_frame::LinkType;
use fyke_machine::bpf::disassemble::{Format, disassemble};
use fyke_machine::bpf::{Dialect, Instruction};
use fyke_pass::{Opcode, PassSet};
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// Runs the command.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let text = text(args)?;
    Ok(std::io::Write::write_all(&mut super::output(), text.as_bytes())?)
}

/// Returns what the command prints.
pub fn text(args: &ExplainArgs) -> Result<String, Failure> {
    check(args)?;
    if args.graph {
        return super::graphs::explain(&args.expression);
    }
    let text = expression(&args.expression, args.expression_file.as_deref())?;
    if let Some(path) = &args.read {
        super::privilege::read_only(&args.privilege, path, &Needs::default())?;
    }
    let reading = if args.scoped { Reading::Scoped } else { Reading::Compat };
    let options = Options { reading, live: args.live, netmask: Some(0), ..Options::default() };
    let link = match (&args.read, &args.link) {
        (Some(path), _) => trace::link_of(path)?,
        (None, Some(name)) => LinkType::from_name(name).ok_or_else(|| unknown_link(name))?,
        (None, None) => link_for(&text, &options),
    };
    let options = Options { link, ..options };
    let predicate =
        fyke_filter::compile(&text, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    if args.dump > 0 {
        return program(&predicate, args.dump);
    }
    if args.witness {
        return witness::of(&predicate, &options);
    }
    let mut set = PassSet::new(link);
    let mut edit = set.edit();
    edit.add_filter(&predicate).map_err(|error| Failure::Usage(error.to_string()))?;
    edit.commit();
    let spaces = spaces::of(&text, &options);
    if args.svg {
        return Ok(picture::svg(&predicate, &set, &spaces));
    }
    Ok(match args.json {
        true => format!("{}\n", as_json(&predicate, &set, &spaces)),
        false => {
            let mut table = String::new();
            as_table(&mut table, &predicate, &set)?;
            writeln!(table, "live in {}", spaces.describe())?;
            if args.bpf {
                table.push_str("as a program of classic BPF\n");
                table.push_str(&program(&predicate, 1)?);
            }
            if let Some(path) = &args.read {
                trace::over_file(&mut table, &predicate, &options, path, args.frame)?;
            }
            table
        }
    })
}

/// Refuses options that would do nothing.
fn check(args: &ExplainArgs) -> Result<(), Failure> {
    let reads = args.read.is_some();
    let problem = match () {
        () if args.graph && args.expression_file.is_some() => {
            "-F: --graph takes a command line, not an expression; omit one of them"
        }
        () if args.privilege.user.is_some() && !reads => {
            "-Z: without -r, no file is read and no right is dropped; omit this option"
        }
        () if args.privilege.no_sandbox && !reads => {
            "--no-sandbox: without -r, no file is read and there is no sandbox; omit this option"
        }
        () => return Ok(()),
    };
    Err(Failure::Usage(problem.to_owned()))
}

/// Chooses the link type to explain an expression for when none is given: Ethernet if the expression is valid for it
/// (in a file or live), else the first of the known link types for which it is.
fn link_for(text: &str, options: &Options) -> LinkType {
    let takes =
        |link, live| fyke_filter::compile(text, &Options { link, live, ..*options }).is_ok();
    if takes(LinkType::EN10MB, false) || takes(LinkType::EN10MB, true) {
        return LinkType::EN10MB;
    }
    let mut links = fyke_frame::link::decoded().map(|link| link.numbers[0]);
    links.find(|&link| takes(link, options.live)).unwrap_or(LinkType::EN10MB)
}

fn unknown_link(name: &str) -> Failure {
    let known: Vec<_> = fyke_frame::link::decoded().map(|link| link.name).collect();
    Failure::Usage(format!(
        "unknown link type {name:?}; known: {}. Other libpcap names work too, but only for byte \
         and length expressions",
        known.join(", ")
    ))
}

fn as_table(out: &mut impl Write, predicate: &Predicate, set: &PassSet) -> fmt::Result {
    let text = predicate.text().trim();
    writeln!(out, "text    {}", if text.is_empty() { "(empty: every frame)" } else { text })?;
    writeln!(out, "link    {}", predicate.link())?;
    writeln!(out, "read as")?;
    tree::write(out, predicate)?;
    for note in notes::of(predicate) {
        writeln!(out, "note    {note}")?;
    }
    if predicate.reading() == Reading::Scoped {
        writeln!(
            out,
            "runs    frame by frame in the scoped reading: fyke parses the headers, then"
        )?;
        return writeln!(out, "        evaluates the innermost packet (or the named one) as above");
    }
    if let Some(reason) = set.filters().find_map(|filter| filter.too_large()) {
        writeln!(out, "runs    frame by frame, in the order of the text:")?;
        return writeln!(out, "        {reason}");
    }
    let passes: Vec<_> = set.passes().collect();
    let instructions: usize = passes.iter().map(|pass| pass.instructions.len()).sum();
    writeln!(
        out,
        "runs as {} {} with {} {}; a frame is accepted when all instructions of one pass are true",
        passes.len(),
        plural(passes.len(), "pass", "passes"),
        instructions,
        plural(instructions, "instruction", "instructions"),
    )?;
    let layout = set.layout();
    if layout.shapes > 0 {
        let (shapes, rows, loose) = (layout.shapes, layout.rows, layout.loose);
        let tables = plural(shapes, "table", "tables");
        writeln!(
            out,
            "  {rows} of them are rows of {shapes} {tables}, {loose} are evaluated one by one"
        )?;
    }
    if layout.capped > 0 {
        let (capped, limit) = (layout.capped, fyke_pass::MAX_SHAPES);
        writeln!(
            out,
            "  {capped} passes could be rows, but the limit of {limit} tables is reached"
        )?;
    }
    write_passes(out, set, usize::MAX, 2)
}

/// Writes passes, and the first passes of each set that an instruction refers to.
fn write_passes(out: &mut impl Write, set: &PassSet, most: usize, indent: usize) -> fmt::Result {
    for (number, pass) in set.passes().take(most).enumerate() {
        for (index, (view, instruction)) in pass.describe().zip(pass.instructions).enumerate() {
            let head = if index == 0 { format!("pass {}", number + 1) } else { String::new() };
            writeln!(out, "{:indent$}{head:<9} {view}", "")?;
            let named = instruction.operands().first().and_then(|&name| set.inner_set(name));
            let inner = named.filter(|_| instruction.opcode() == Some(Opcode::Passes));
            if let Some(inner) = inner {
                let fyke_pass::Layout { shapes, rows, .. } = inner.layout();
                if shapes > 0 {
                    let tables = plural(shapes, "table", "tables");
                    writeln!(
                        out,
                        "{:indent$}{rows} of them are rows of {shapes} {tables}",
                        "",
                        indent = indent + 12
                    )?;
                }
                write_passes(out, inner, tree::MAX_SHOWN, indent + 12)?;
            }
        }
        if pass.instructions.is_empty() {
            writeln!(out, "{:indent$}pass {:<4} (no instruction: every frame)", "", number + 1)?;
        }
    }
    if let Some(more) = set.pass_count().checked_sub(most).filter(|&more| more > 0) {
        writeln!(out, "{:indent$}… and {more} more", "")?;
    }
    Ok(())
}

/// Formats the classic BPF program like tcpdump: 1 = listing, 2 = C, more = numbers.
fn program(predicate: &Predicate, form: u8) -> Result<String, Failure> {
    let lowered = fyke_filter::bpf::lower(predicate, Options::default().snaplen)
        .map_err(|error| Failure::Usage(format!("no classic BPF program exists: {error}")))?;
    let program: Vec<Instruction> = lowered
        .into_iter()
        .map(|one| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k })
        .collect();
    let form = match form {
        1 => Format::Listing,
        2 => Format::C,
        _ => Format::Decimal,
    };
    Ok(disassemble(&program, Dialect::Bpf, form))
}

/// Chooses the singular or the plural.
fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn as_json(predicate: &Predicate, set: &PassSet, spaces: &spaces::Spaces) -> Value {
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
    let primitives = predicate.root().primitives().take(tree::MAX_LINES).map(|primitive| {
        let Cost { tests, bytes, varies } = cost(&primitive.condition);
        json!({
            "text": primitive.to_string(),
            "span": [primitive.span.start, primitive.span.end],
            "tests": tests,
            "bytes": bytes,
            "varies": varies,
            "passes": tree::passes_of(predicate, Node::Primitive(primitive.clone())),
        })
    });
    json!({
        "text": predicate.text(),
        "primitives": primitives.collect::<Vec<_>>(),
        "notes": notes::of(predicate),
        "live_in": {
            "user_only": spaces.why_user,
            "classic_instructions": spaces.classic.as_ref().ok(),
            "classic_refused": spaces.classic.as_ref().err(),
        },
        "link": predicate.link().to_string(),
        "scoped": predicate.reading() == Reading::Scoped,
        "in_order": set.filters().any(|filter| filter.is_in_order()),
        "too_large": set.filters().find_map(|one| Some(one.too_large()?.to_string())),
        "canonical": predicate.root().to_string(),
        "passes": passes.collect::<Vec<_>>(),
    })
}
