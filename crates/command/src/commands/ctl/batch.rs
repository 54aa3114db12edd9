//! Files of edits for `fyke ctl batch`, one a line, read by the same parser as the command line.

use super::super::{Failure, shortened};
use crate::cli::AddArgs;
use clap::Parser;
use fyke_control::{Change, MAX_CHANGES};
use std::collections::HashMap;

/// The edits of a file, and the line of each.
#[derive(Debug)]
pub struct Batch {
    /// The edits, in the order of the file.
    pub changes: Vec<Change>,
    /// The number of the line of each, from 1.
    pub lines: Vec<usize>,
}

/// The words of `add` before its expression.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Add {
    #[command(flatten)]
    args: AddArgs,
}

/// Reads a file of edits. `ids` returns the ids of the filters in force by their names; it is called at most once, if a
/// line removes a filter by its name.
pub fn read(
    name: &str,
    text: &str,
    mut ids: impl FnMut() -> Result<HashMap<String, u64>, Failure>,
) -> Result<Batch, Failure> {
    let (mut changes, mut lines) = (Vec::new(), Vec::new());
    let mut known = None;
    for (number, line) in (1..).zip(text.lines()) {
        let edit = line.split('#').next().unwrap_or_default().trim();
        if edit.is_empty() {
            continue;
        }
        let refused = |problem: String| {
            Failure::Usage(format!("{name}:{number}: {problem}\n  {}", shortened(line)))
        };
        let (word, rest) = edit.split_once(char::is_whitespace).unwrap_or((edit, ""));
        let rest = rest.trim();
        let change = match word {
            "add" => add(rest).map_err(refused)?,
            "set" => Change::Set { text: unquoted(rest).to_owned() },
            "del" => match rest.parse() {
                Ok(id) => Change::Delete { id },
                Err(_) if rest.is_empty() || rest.contains(char::is_whitespace) => {
                    return Err(refused("del needs the id or the name of one filter".into()));
                }
                Err(_) => {
                    if known.is_none() {
                        known = Some(ids()?);
                    }
                    let id = known.as_ref().and_then(|known| known.get(rest).copied());
                    let id = id.ok_or_else(|| refused(unknown(rest, &changes)));
                    Change::Delete { id: id? }
                }
            },
            _ => {
                let problem = format!("\"{}\" is none of: add, set, del", shortened(word));
                return Err(refused(problem));
            }
        };
        changes.push(change);
        lines.push(number);
    }
    match changes.len() {
        0 => Err(Failure::Usage(format!("{name} has no edit"))),
        count if count > MAX_CHANGES => Err(Failure::Usage(format!(
            "{name} has {count} edits, and one batch has at most {MAX_CHANGES}; a list of addresses is one edit: \
             `ctl add --hosts FILE`"
        ))),
        _ => Ok(Batch { changes, lines }),
    }
}

/// The reason why no filter of this name can be removed.
fn unknown(name: &str, before: &[Change]) -> String {
    let is_it =
        |change: &Change| matches!(change, Change::Add { name: Some(own), .. } if own == name);
    let name = shortened(name);
    match before.iter().any(is_it) {
        true => {
            format!("\"{name}\" is added by this file, which cannot remove it; omit both lines")
        }
        false => format!("no filter has the name \"{name}\""),
    }
}

/// Reads the rest of a line `add`: options, then the expression, which stays as it is written.
fn add(rest: &str) -> Result<Change, String> {
    let mut words = Vec::new();
    let mut expression = rest;
    while expression.starts_with("--") {
        let (option, after) = next_word(expression);
        words.push(option.to_owned());
        expression = after;
        // A value in a word of its own.
        if !option.contains('=') && option != "--" {
            let (value, after) = next_word(expression);
            words.push(value.to_owned());
            expression = after;
        }
        if option == "--" {
            break;
        }
    }
    words.extend((!words.iter().any(|word| word == "--")).then(|| "--".to_owned()));
    words.push(unquoted(expression).to_owned());
    let parsed = Add::try_parse_from(&words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    let args = parsed.args;
    if args.hosts.is_some() || args.expression_file.is_some() {
        return Err("a line of a batch reads no other file".to_owned());
    }
    if expression.is_empty() {
        return Err("the expression is missing; `set` without one accepts every frame".to_owned());
    }
    let for_ms = args.lifetime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Ok(Change::Add {
        text: args.expression.join(" "),
        name: args.name,
        for_ms,
        snaplen: args.snaplen,
    })
}

fn next_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// An expression without the quotes that a shell would remove around the whole of it.
fn unquoted(text: &str) -> &str {
    let inner = |quote: char| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    };
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Batch, String> {
        let ids = || Ok(HashMap::from([("voip".to_owned(), 7)]));
        read("edits", text, ids).map_err(|failure| failure.message())
    }

    #[test]
    fn lines_are_edits() {
        let text = "# new rules\nadd tcp port 80 and not host 10.0.0.1\n\n  add --name a --for 5m 'udp'  # phones\n\
                    add --name=b --for=1s -- ip[0] & 0xf > 5\nset\nset icmp\ndel 3\ndel voip\n";
        let batch = of(text).unwrap();
        assert_eq!(batch.lines, [2, 4, 5, 6, 7, 8, 9]);
        let add = |text: &str, name: Option<&str>, for_ms| Change::Add {
            text: text.into(),
            name: name.map(str::to_owned),
            for_ms,
            snaplen: None,
        };
        let set = |text: &str| Change::Set { text: text.into() };
        let expected = [
            add("tcp port 80 and not host 10.0.0.1", None, None),
            add("udp", Some("a"), Some(300_000)),
            add("ip[0] & 0xf > 5", Some("b"), Some(1_000)),
            set(""),
            set("icmp"),
            Change::Delete { id: 3 },
            Change::Delete { id: 7 },
        ];
        assert_eq!(batch.changes, expected);
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, part) in [
            ("add ip\nremove 3", "edits:2: \"remove\" is none of: add, set, del\n  remove 3"),
            ("add", "edits:1: the expression is missing"),
            ("add --name", "edits:1:"),
            ("add --for 5 ip", "expected a number and a unit"),
            ("add --colour red ip", "edits:1:"),
            ("add --hosts /etc/passwd ip", "reads no other file"),
            ("del", "edits:1: del needs"),
            ("del phone", "no filter has the name \"phone\""),
            ("add --name z udp\ndel z", "edits:2: \"z\" is added by this file"),
            ("# nothing", "edits has no edit"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
