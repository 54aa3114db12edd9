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
    let near = || match nearest(command, given) {
        Some(nearest) => Some(line(nearest)),
        None => with_value(command, given),
    };
    if advice.is_none()
        && let Some(near) = near()
    {
        text += &format!("\n  nearest: {near}");
    }
    text + &format!("\n  all options: {path} --help")
}

/// Names of an option and the first sentence of its help.
fn line(option: &Arg) -> String {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    format!("{}  {}", names.join(", "), first_sentence(&help))
}

/// Returns the text up to the first full stop or semicolon that ends a sentence and is not in parentheses.
fn first_sentence(text: &str) -> &str {
    let mut depth = 0_u32;
    for (at, letter) in text.char_indices() {
        let ends = || text[at + 1..].chars().next().is_none_or(char::is_whitespace);
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '.' | ';' if depth == 0 && ends() => return &text[..at],
            _ => {}
        }
    }
    text
}

/// Returns the option with the name that is nearest to a given one, if it is near.
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
    let nearest = near.min_by_key(|(distance, _)| *distance);
    // Two letters of five may be wrong.
    let limit = (given.chars().count() * 2 / 5).max(1);
    nearest.filter(|(distance, _)| *distance <= limit).map(|(_, option)| option)
}

/// Returns the option of which a given name is a value: `--report json` for `--json`.
fn with_value(command: &Command, given: &str) -> Option<String> {
    let given = given.strip_prefix("--")?;
    let has =
        |option: &&Arg| option.get_possible_values().iter().any(|one| one.matches(given, false));
    let option = command.get_arguments().find(has)?;
    Some(format!("--{} {given}", option.get_long()?))
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
    use super::{distance, first_sentence};

    #[test]
    fn distances() {
        assert_eq!(distance("snap", "snaplen"), 0);
        assert_eq!(distance("snaplenn", "snaplen"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "x"), 0);
        assert_eq!(distance("é", "e"), 1);
    }

    #[test]
    fn sentences() {
        assert_eq!(first_sentence("Write (.gz; `-` = output)"), "Write (.gz; `-` = output)");
        assert_eq!(first_sentence("Files of .pcap. Others"), "Files of .pcap");
        assert_eq!(first_sentence("With -C: keep; with -G: stop."), "With -C: keep");
        assert_eq!(first_sentence(""), "");
    }
}
