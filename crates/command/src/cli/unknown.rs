//! Answers to unknown options: what to use instead of an option of tcpdump, or the nearest option of fyke.

use super::Cli;
use super::tcpdump::advice;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

/// Formats an error of the command line. `words` are the arguments, without the name of the program.
pub fn explained(error: &clap::Error, words: &[String]) -> String {
    let plain = || error.to_string().trim_end().to_owned();
    let given = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) => given.as_str(),
        _ => return plain(),
    };
    // A word beyond the last argument.
    if !given.starts_with('-') {
        return plain();
    }
    let mut all = Cli::command();
    // Adds -h and -V.
    all.build();
    let (mut path, mut command) = ("fyke".to_owned(), &all);
    for word in words {
        let Some(found) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", found.get_name());
        command = found;
    }
    let given = given.split('=').next().unwrap_or(given);
    let advice = advice(given).filter(|_| command.get_name() == "dump");
    let mut text = match advice {
        Some(advice) => format!("{path}: {given}: {advice}"),
        None => format!("{path}: there is no option {given}"),
    };
    if advice.is_none()
        && let Some(nearest) = nearest(command, given)
    {
        text += &format!("\n  nearest: {}", line(nearest));
    }
    text + &format!("\n  all options: {path} --help")
}

/// Names of an option and the first sentence of its help.
fn line(option: &Arg) -> String {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let first = help.split(['.', ';']).next().unwrap_or_default();
    format!("{}  {first}", names.join(", "))
}

/// Returns the option with the name that is nearest to a given one.
fn nearest<'c>(command: &'c Command, given: &str) -> Option<&'c Arg> {
    let options = || command.get_arguments().filter(|option| !option.is_positional());
    let Some(given) = given.strip_prefix("--") else {
        let letter = given.strip_prefix('-')?.chars().next()?;
        let other_case = |option: &&Arg| {
            option.get_short().is_some_and(|short| short.eq_ignore_ascii_case(&letter))
        };
        let begins = |option: &&Arg| {
            option.get_long().is_some_and(|long| long.starts_with(letter.to_ascii_lowercase()))
        };
        return options().find(other_case).or_else(|| options().find(begins));
    };
    let names = |option: &'c Arg| {
        let aliases = option.get_all_aliases().unwrap_or_default();
        option.get_long().into_iter().chain(aliases)
    };
    let all = options().flat_map(|option| names(option).map(move |name| (option, name)));
    let near = all.map(|(option, name)| (distance(given, name), option));
    near.min_by_key(|(distance, _)| *distance).map(|(_, option)| option)
}

/// Distance of a given name from a name: the number of letters to insert, remove or replace; 0 for its beginning.
fn distance(given: &str, name: &str) -> usize {
    if name.starts_with(given) {
        return 0;
    }
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (line, letter) in given.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in name.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        assert_eq!(distance("snap", "snaplen"), 0);
        assert_eq!(distance("snaplenn", "snaplen"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "x"), 0);
        assert_eq!(distance("é", "e"), 1);
    }
}
