//! `fyke completions` and `fyke man`: texts that are written from the arguments and their help.

use super::Failure;
use crate::cli::{Cli, CompletionsArgs, ManArgs};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::fs::File;
use std::io::Write;

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fyke", &mut script);
    let mut out = std::io::stdout();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// Prints a manual page, or writes all of them into a folder.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut fyke = Cli::command();
    // Fills in the full names of the commands, such as `fyke-dump`.
    fyke.build();
    if let Some(folder) = &args.all {
        let pages = fyke.get_subcommands().filter(|command| !command.is_hide_set());
        let pages = pages.filter(|command| command.get_name() != "help").cloned();
        for (name, page) in std::iter::once(("fyke".to_owned(), fyke.clone()))
            .chain(pages.map(|command| (format!("fyke-{}", command.get_name()), command)))
        {
            let path = folder.join(format!("{name}.1"));
            let written = File::create(&path).and_then(|file| render(page, &name, file));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        return Ok(());
    }
    let (name, page) = match &args.command {
        None => ("fyke".to_owned(), fyke),
        Some(name) => {
            let found = fyke.find_subcommand(name).filter(|command| !command.is_hide_set());
            let Some(found) = found else {
                let message = format!("there is no command `{name}`; fyke --help lists them");
                return Err(Failure::Usage(message));
            };
            (format!("fyke-{}", found.get_name()), found.clone())
        }
    };
    Ok(render(page, &name, std::io::stdout())?)
}

fn render(page: Command, name: &str, mut out: impl Write) -> std::io::Result<()> {
    let title = name.to_uppercase();
    Man::new(page.display_name(name)).title(title).render(&mut out)?;
    out.flush()
}
