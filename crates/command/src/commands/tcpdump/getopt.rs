//! Command lines of tcpdump, read as getopt_long(3) of glibc reads them: letters in one word, values in the same word
//! or the next, options after other words, long names that are cut where they stay unique.

use crate::cli::tcpdump::{Known, NONE, OPTIONS};

/// An option as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The option.
    pub option: Known,
    /// Its value.
    pub value: Option<String>,
}

/// A command line.
#[derive(Debug, Default)]
pub struct Line {
    /// Options in their order.
    pub options: Vec<Given>,
    /// All other words.
    pub words: Vec<String>,
}

/// Reason why a command line runs nothing.
#[derive(Debug)]
pub enum Stop {
    /// A text that it asks for.
    Done(String),
    /// An error.
    Wrong(String),
}

impl Line {
    /// The last option with this letter.
    pub fn last(&self, letter: char) -> Option<&Given> {
        self.options.iter().rev().find(|given| given.option.short == letter)
    }

    /// True if the option with this long name was given.
    pub fn has_long(&self, long: &str) -> bool {
        self.options.iter().any(|given| given.option.long == long)
    }
}

impl Known {
    /// The name under which `fyke dump` takes the option.
    pub fn name(&self) -> String {
        if self.short == NONE { format!("--{}", self.long) } else { format!("-{}", self.short) }
    }
}

/// Reads a command line. If `in_order` is set, options end at the first other word.
pub fn parse(words: &[String], in_order: bool) -> Result<Line, String> {
    let mut line = Line::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        match word.strip_prefix('-') {
            Some("") | None => {
                line.words.push(word.clone());
                if in_order {
                    break;
                }
            }
            Some(rest) => match rest.strip_prefix('-') {
                Some(long) => line.options.push(long_option(long, &mut words)?),
                None => letters(rest, &mut words, &mut line.options)?,
            },
        }
    }
    line.words.extend(words.cloned());
    Ok(line)
}

fn letters<'w>(
    given: &str,
    words: &mut impl Iterator<Item = &'w String>,
    options: &mut Vec<Given>,
) -> Result<(), String> {
    for (at, letter) in given.char_indices() {
        let known = OPTIONS.iter().find(|known| known.short == letter && letter != NONE);
        let option = *known.ok_or_else(|| format!("invalid option -- '{letter}'"))?;
        if !option.has_value {
            options.push(Given { option, value: None });
            continue;
        }
        let value = match &given[at + letter.len_utf8()..] {
            "" => words.next().cloned(),
            rest => Some(rest.to_owned()),
        };
        if value.is_none() {
            return Err(format!("option requires an argument -- '{letter}'"));
        }
        options.push(Given { option, value });
        return Ok(());
    }
    Ok(())
}

fn long_option<'w>(
    given: &str,
    words: &mut impl Iterator<Item = &'w String>,
) -> Result<Given, String> {
    let (name, value) = match given.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (given, None),
    };
    let begins = |known: &&Known| !known.long.is_empty() && known.long.starts_with(name);
    let found: Vec<&Known> = OPTIONS.iter().filter(begins).collect();
    let option = match &found[..] {
        [] => return Err(format!("unrecognized option '--{given}'")),
        [one] => **one,
        several => match several.iter().find(|known| known.long == name) {
            Some(exact) => **exact,
            None => {
                let names = several.iter().map(|known| format!(" '--{}'", known.long));
                let names: String = names.collect();
                return Err(format!("option '--{name}' is ambiguous; possibilities:{names}"));
            }
        },
    };
    let value = match (option.has_value, value) {
        (false, Some(_)) => {
            return Err(format!("option '--{}' doesn't allow an argument", option.long));
        }
        (false, None) => None,
        (true, Some(value)) => Some(value),
        (true, None) => match words.next() {
            Some(value) => Some(value.clone()),
            None => return Err(format!("option '--{}' requires an argument", option.long)),
        },
    };
    Ok(Given { option, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let line = match parse(&words, false) {
            Ok(line) => line,
            Err(message) => return message,
        };
        let options = line.options.iter().map(|given| match &given.value {
            Some(value) => format!("{}={value} ", given.option.name()),
            None => format!("{} ", given.option.name()),
        });
        options.collect::<String>() + "| " + &line.words.join(" ")
    }

    #[test]
    fn as_glibc_reads_them() {
        for (words, expected) in [
            ("-nnvi eth0 tcp", "-n -n -v -i=eth0 | tcp"),
            ("-ieth0 -s0 -c5 port 80 -w -", "-i=eth0 -s=0 -c=5 -w=- | port 80"),
            ("-r - -- -n -x", "-r=- | -n -x"),
            ("udp - -n", "-n | udp -"),
            ("--snap=96 --coun --interface lo", "-s=96 --count -i=lo | "),
            ("-k", "invalid option -- 'k'"),
            ("-nc", "option requires an argument -- 'c'"),
            ("--foo=1", "unrecognized option '--foo=1'"),
            ("--count=1", "option '--count' doesn't allow an argument"),
            ("--linktype", "option '--linktype' requires an argument"),
            (
                "--time-stamp x",
                "option '--time-stamp' is ambiguous; possibilities: '--time-stamp-type' \
                 '--time-stamp-precision'",
            ),
        ] {
            assert_eq!(read(words), expected, "{words}");
        }
    }

    #[test]
    fn in_order() {
        let words = ["-n", "udp", "-x"].map(str::to_owned);
        let line = parse(&words, true).unwrap();
        assert_eq!((line.options.len(), line.words.len()), (1, 2));
    }
}
