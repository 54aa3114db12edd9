//! `fyke completions` and `fyke man`: texts that are written from the arguments and their help.
//!
//! A page has the sections of clap_mangen, but its own for the text after the options: lines that are indented there
//! (tables, examples) stay as they are, because roff would fill them.

use super::Failure;
use crate::cli::{Cli, CompletionsArgs, ManArgs};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fyke", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Fish {
        // The generator does not quote the letter of an option, and this one begins a comment.
        script = script.replace(" -s # ", " -s '#' ");
    }
    let mut out = io::stdout();
    out.write_all(script.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a manual page, or writes all of them into a folder.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    // `help` has no page, so no page names one.
    let mut fyke = without_help(Cli::command());
    // Fills in the full names of the commands, such as `fyke-dump`.
    fyke.build();
    if let Some(folder) = &args.all {
        return write_all(&fyke, "fyke", folder);
    }
    let (mut name, mut page) = ("fyke".to_owned(), &fyke);
    for word in &args.command {
        let found = page.find_subcommand(word).filter(|command| !command.is_hide_set());
        let Some(found) = found else {
            let commands = name.replace('-', " ");
            let message = format!("there is no command `{word}`; {commands} --help lists them");
            return Err(Failure::Usage(message));
        };
        (name, page) = (format!("{name}-{}", found.get_name()), found);
    }
    let mut out = io::stdout();
    Ok(render(page, &name, &mut out)?)
}

fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Writes the page of a command and those of its commands.
fn write_all(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let written = File::create(&path).and_then(|mut file| render(command, name, &mut file));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    for part in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(part, &format!("{name}-{}", part.get_name()), folder)?;
    }
    Ok(())
}

fn render(command: &Command, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let notes = command.get_after_long_help().or(command.get_after_help());
    let notes = notes.map(ToString::to_string);
    let has_commands = command.get_subcommands().any(|part| !part.is_hide_set());
    let page = Man::new(command.clone().display_name(name)).title(name.to_uppercase());
    let page = page.source(concat!("fyke ", env!("CARGO_PKG_VERSION"))).manual("Manual of fyke");
    // An empty date is left out there, and the version would take its place.
    let mut title = Vec::new();
    page.render_title(&mut title)?;
    out.write_all(String::from_utf8_lossy(&title).replace(" 1  \"", " 1 \"\" \"").as_bytes())?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if has_commands {
        page.render_subcommands_section(out)?;
    }
    if let Some(notes) = notes {
        out.write_all(notes_section(&notes).as_bytes())?;
    }
    out.flush()
}

/// The text after the options as the sections NOTES and EXAMPLES.
fn notes_section(text: &str) -> String {
    let mut page = String::new();
    let (mut is_filled, mut is_after_gap) = (true, false);
    for line in text.lines() {
        if line.is_empty() {
            is_after_gap = true;
            continue;
        }
        let is_head = line == "Examples:";
        let is_filled_now = is_head || !line.starts_with(' ');
        if is_after_gap && !is_head {
            page.push_str(".PP\n");
        }
        if !is_filled && is_filled_now {
            page.push_str(".fi\n");
        }
        match (is_head, page.is_empty()) {
            (true, _) => page.push_str(".SH EXAMPLES\n"),
            (false, true) => page.push_str(".SH NOTES\n"),
            (false, false) => {}
        }
        if is_filled && !is_filled_now {
            page.push_str(".nf\n");
        }
        (is_filled, is_after_gap) = (is_filled_now, false);
        if !is_head {
            page.push_str(&escaped(line));
            page.push('\n');
        }
    }
    page + if is_filled { "" } else { ".fi\n" }
}

/// A line of text for roff: no character has a meaning, and quotes and dashes stay those of a command line.
fn escaped(line: &str) -> String {
    let mut text = String::new();
    if line.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    for letter in line.chars() {
        match letter {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            '`' => text.push_str("\\(ga"),
            '~' => text.push_str("\\(ti"),
            '^' => text.push_str("\\(ha"),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_examples_stay_as_they_are() {
        let text =
            "Two lines\nof text.\n\n  a  table\n  'b'  -x\n\nExamples:\n  fyke dump 'a \\ b'";
        let page = ".SH NOTES\nTwo lines\nof text.\n.PP\n.nf\n  a  table\n  \\(aqb\\(aq  \\-x\n.fi\n\
                    .SH EXAMPLES\n.nf\n  fyke dump \\(aqa \\e b\\(aq\n.fi\n";
        assert_eq!(notes_section(text), page);
        assert_eq!(notes_section("Examples:\n  x"), ".SH EXAMPLES\n.nf\n  x\n.fi\n");
        assert_eq!(escaped(".TH"), "\\&.TH");
    }
}
