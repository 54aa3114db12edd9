//! The command under the name `tcpdump`: its command lines, messages and exit statuses.
//!
//! A link to fyke, or a copy, that is called `tcpdump` reads its arguments as getopt_long(3) does for tcpdump, and runs
//! `fyke dump` with what they mean. What differs from `fyke dump`:
//!
//! | | `fyke dump` | `tcpdump` |
//! |---|---|---|
//! | exit status after a wrong command line | 2 | 1 |
//! | files of -w | pcapng, or pcap by the name; mode 600 | pcap; mode 666 less the umask |
//! | root becomes | the user that ran sudo, or a system user | `tcpdump`, if there is such a user |
//! | options that do nothing | refused | ignored, as tcpdump does |
//! | several -i or -r | all | the last |
//! | summary | one line, exact | three lines, as tcpdump |
//!
//! Source: tcpdump(8), and the behaviour of tcpdump 4.99.3 of Debian.

pub mod getopt;

use super::dump;
use super::{Failure, MAX_SNAPLEN};
use crate::cli::tcpdump::Known;
use crate::cli::{Cli, Command};
use clap::Parser;
use fyke_privilege::user::{self, User};
use getopt::{Given, Line, Stop};

/// User that root becomes.
const USER: &str = "tcpdump";

/// True if the program was called as `tcpdump`.
pub fn is_called() -> bool {
    let name = std::env::args_os().next();
    let file = name.as_deref().map(std::path::Path::new).and_then(std::path::Path::file_name);
    file.is_some_and(|file| file == "tcpdump")
}

/// Runs the command. Messages have been printed when it fails with a status.
pub fn run() -> Result<(), Failure> {
    let mut words = Vec::new();
    for word in std::env::args_os().skip(1) {
        words.push(word.into_string().map_err(|word| wrong(format!("{word:?}: not UTF-8")))?);
    }
    let line = match getopt::parse(&words, std::env::var_os("POSIXLY_CORRECT").is_some()) {
        Ok(line) => line,
        Err(message) => {
            note!("tcpdump: {message}\n{}", dump::as_tcpdump::usage());
            return Err(Failure::Status(1));
        }
    };
    let words = match arguments(&line) {
        Ok(words) => words,
        Err(Stop::Done(text)) => {
            return Ok(std::io::Write::write_all(&mut super::output(), text.as_bytes())?);
        }
        Err(Stop::Wrong(message)) => return Err(wrong(message)),
    };
    let cli = Cli::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        wrong(text.lines().next().unwrap_or_default().to_owned())
    })?;
    let Command::Dump(mut args) = cli.command else { return Ok(()) };
    args.as_tcpdump = true;
    args.print_options.like_tcpdump = true;
    dump::run(*args).map_err(|failure| match failure {
        failure @ (Failure::Pipe | Failure::Status(_)) => failure,
        other => wrong(other.message()),
    })
}

fn wrong(message: String) -> Failure {
    note!("tcpdump: {}", without_error_numbers(&message));
    Failure::Status(1)
}

/// Removes the numbers of errors of the system, as in `No such file or directory (os error 2)`.
fn without_error_numbers(message: &str) -> String {
    let (mut text, mut rest) = (String::new(), message);
    while let Some((before, after)) = rest.split_once(" (os error ") {
        let Some((_, after)) = after.split_once(')') else { break };
        text += before;
        rest = after;
    }
    text + rest
}

/// Reads a number as atoi(3) does: what follows the digits does not count.
fn number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let value = digits[..end].parse::<i64>().unwrap_or(if end == 0 { 0 } else { i64::MAX });
    if text.starts_with('-') { -value } else { value }
}

/// Converts a command line of tcpdump to one of `fyke dump`.
fn arguments(line: &Line) -> Result<Vec<String>, Stop> {
    let has = |letter| line.last(letter).is_some();
    let (reads, writes) = (has('r') || has('V'), has('w'));
    let mut words: Vec<String> = ["fyke", "dump"].map(str::to_owned).to_vec();
    for given in &line.options {
        check(given, reads)?;
    }
    for given in &line.options {
        if !is_kept(line, given, reads, writes) {
            continue;
        }
        words.push(given.option.name());
        words.extend(given.value.clone());
    }
    if writes {
        words.extend(["--file-mode", "666", "--compress", "none"].map(str::to_owned));
    }
    if reads {
        words.push("--no-control".to_owned());
    }
    // Without the user, root becomes another one, as in `fyke dump`.
    if user::is_root() && !has('Z') && User::named(USER).is_ok() {
        words.extend(["-Z", USER].map(str::to_owned));
    }
    words.push("--".to_owned());
    // "An additional expression given on the command line is ignored."
    words.extend(line.words.iter().filter(|_| !has('F')).cloned());
    Ok(words)
}

/// Checks the value of an option, in tcpdump's words.
fn check(given: &Given, reads: bool) -> Result<(), Stop> {
    let value = given.value.as_deref().unwrap_or_default();
    let wrong = |text: String| Err(Stop::Wrong(text));
    let positive = number(value) > 0;
    match (given.option.short, given.option.long) {
        ('B', _) if !positive => wrong(format!("invalid packet buffer size {value}")),
        ('c', _) if !positive => wrong(format!("invalid packet count {value}")),
        ('C', _) if !positive => wrong(format!("invalid file size {value}")),
        ('W', _) if !positive => wrong(format!("invalid number of output files {value}")),
        ('G', _) if number(value) < 0 => wrong(format!("invalid number of seconds {value}")),
        ('s', _) if !value.parse::<u32>().is_ok_and(|bytes| bytes <= MAX_SNAPLEN) => {
            wrong(format!("invalid snaplen {value} (must be >= 0 and <= {MAX_SNAPLEN})"))
        }
        ('Q', _) if !["in", "out", "inout"].contains(&value) => {
            wrong(format!("unknown capture direction `{value}'"))
        }
        ('j', _) if !dump::is_time_stamp_type(value) => {
            wrong(format!("invalid time stamp type {value}"))
        }
        ('y', _) if dump::link_type(value).is_none() => {
            wrong(format!("invalid data link type {value}"))
        }
        (_, "time-stamp-precision") if !["micro", "nano"].contains(&value) => {
            wrong("unsupported time stamp precision".to_owned())
        }
        ('f', _) if reads => wrong("-f can not be used with -V or -r".to_owned()),
        ('h', _) => Err(Stop::Done(dump::as_tcpdump::usage())),
        (_, "version") => Err(Stop::Done(dump::as_tcpdump::version())),
        ('I', _) if reads => Ok(()),
        // They change nothing but rare details of lines.
        ('m' | 'M' | 'H', _) => Ok(()),
        _ => match given.option.refused {
            Some(advice) => wrong(format!("{}: {advice}", given.option.name())),
            None => Ok(()),
        },
    }
}

/// True if an option is passed on. Others have no effect in tcpdump either.
fn is_kept(line: &Line, given: &Given, reads: bool, writes: bool) -> bool {
    let Known { short, long, .. } = given.option;
    let value = given.value.as_deref().unwrap_or_default();
    let is_last = line.last(short).is_some_and(|last| std::ptr::eq(last, given));
    match (short, long) {
        ('m' | 'M' | 'H', _) => {
            let (option, because) = match short {
                'm' => (format!("m {value}"), "no libsmi support"),
                _ => (short.to_string(), "fyke does not have it"),
            };
            note!("tcpdump: ignoring option `-{option}' ({because})");
            false
        }
        ('i' | 'p' | 'B' | 'Q' | 'j' | 'J' | 'L' | 'I' | 'y' | 's', _) if reads => false,
        (_, "immediate-mode") => !reads,
        ('j', _) if value != "host" => {
            note!(
                "tcpdump: WARNING: When trying to set timestamp type '{value}': That type of time \
                 stamp is not supported by that device"
            );
            false
        }
        ('C', _) => writes,
        ('z', _) => {
            let seconds = line.last('G').and_then(|given| given.value.as_deref()).map_or(0, number);
            writes && (line.last('C').is_some() || seconds > 0)
        }
        ('G', _) => writes && number(value) > 0,
        ('W', _) => writes && (line.last('C').is_some() || line.last('G').is_some()),
        ('Z', _) => user::is_root(),
        ('i' | 'r' | 'w' | 'V', _) => is_last,
        (_, "count") => reads || !writes,
        (_, "micro" | "nano" | "time-stamp-precision") => !line.has_long("count") || writes,
        (_, "print") => !line.has_long("count") || (writes && !reads),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let line = getopt::parse(&words, false).unwrap();
        match arguments(&line) {
            Ok(words) => words[2..].join(" ").replace(" -Z tcpdump", ""),
            Err(Stop::Done(_)) => "done".to_owned(),
            Err(Stop::Wrong(message)) => message,
        }
    }

    #[test]
    fn command_lines() {
        assert_eq!(converted("-nnvi eth0 port 80"), "-n -n -v -i eth0 -- port 80");
        assert_eq!(converted("-r a -i eth0 -r b -p -Q in -s 0 udp"), "-r b --no-control -- udp");
        assert_eq!(converted("-i a -i b -W 3 -C 5"), "-i b --");
        assert_eq!(
            converted("-i a -G 0 -W 3 -w x"),
            "-i a -W 3 -w x --file-mode 666 --compress none --"
        );
        assert_eq!(converted("-F file udp -c5x"), "-F file -c 5x --");
        assert_eq!(converted("-c 0"), "invalid packet count 0");
        assert_eq!(converted("-s -1"), "invalid snaplen -1 (must be >= 0 and <= 262144)");
        assert_eq!(converted("--vers"), "done");
        assert_eq!(converted("-i a --count --print"), "-i a --count --");
        let printed = "-i a --print -w x --file-mode 666 --compress none --";
        assert_eq!(converted("-i a --count --print -w x"), printed);
    }

    #[test]
    fn messages_have_no_error_numbers() {
        assert_eq!(without_error_numbers("a: none (os error 2)"), "a: none");
        assert_eq!(without_error_numbers("a (os error 2): b (os error 28)."), "a: b.");
        assert_eq!(without_error_numbers("a (os error"), "a (os error");
        assert_eq!(without_error_numbers("a (os error 2"), "a (os error 2");
    }

    #[test]
    fn numbers_as_in_c() {
        for (text, value) in [("7", 7), (" 7x", 7), ("-3", -3), ("x", 0), ("", 0), ("+1", 1)] {
            assert_eq!(number(text), value, "{text:?}");
        }
        assert_eq!(number("99999999999999999999"), i64::MAX);
    }
}
