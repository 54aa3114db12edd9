//! Turns of phrase that make prose hard to read, counted: `cargo xtask tidy` refuses more of them than `prose.txt`
//! records, and `cargo xtask tidy --record` writes the counts when they have fallen.
//!
//! | area | texts |
//! |---|---|
//! | comments | comments of Rust and C sources |
//! | docs | Markdown files |
//! | help | documentation comments of the command line, which `--help` prints |
//! | messages | string literals of the sources, outside tests: errors, notes, summaries |
//!
//! The patterns are words that have a plainer one (see [`Pattern::of`]), documentation comments that open with a
//! question word instead of a noun or a verb, and codes of an inventory that is not in this repository. Names do not
//! count: text between backticks, and string literals of a single word.

use super::rust_text::{Kind, pieces};
use super::{Tree, Violation};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The file with the recorded counts.
pub const RECORD: &str = "xtask/prose.txt";

const HEAD: &str = "\
# Hard-to-read turns of phrase: area, pattern, count. Counts may only fall.
# `cargo xtask tidy --record` writes lower counts.
";

/// A turn of phrase that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pattern {
    /// "behind" for "after" or "following".
    Behind,
    /// "says", "said" of things.
    Says,
    /// "stands", "stand" for "is" or "applies".
    Stands,
    /// "nobody", "somebody", "whoever", "who" for a part of the program.
    Persons,
    /// "so many", "so much" for a number that was named before.
    SoMany,
    /// "asked" for "requested", "queried", "evaluated".
    Asked,
    /// "goes on", "go on" for "continues".
    GoesOn,
    /// A documentation comment that opens with a question word.
    Opening,
    /// A code such as S37 that refers to a list outside the repository.
    Code,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::Behind => "behind",
            Pattern::Says => "says",
            Pattern::Stands => "stands",
            Pattern::Persons => "persons",
            Pattern::SoMany => "so-many",
            Pattern::Asked => "asked",
            Pattern::GoesOn => "goes-on",
            Pattern::Opening => "opening",
            Pattern::Code => "code",
        }
    }

    /// The pattern of a word, given the word after it.
    fn of(word: &str, next: &str) -> Option<Pattern> {
        Some(match word.to_ascii_lowercase().as_str() {
            "behind" => Pattern::Behind,
            "says" | "said" => Pattern::Says,
            "stand" | "stands" => Pattern::Stands,
            "nobody" | "somebody" | "whoever" | "who" | "whose" | "whom" => Pattern::Persons,
            "so" if matches!(next, "many" | "much") => Pattern::SoMany,
            "asked" => Pattern::Asked,
            "goes" | "go" if next == "on" => Pattern::GoesOn,
            _ if is_code(word) => Pattern::Code,
            _ => return None,
        })
    }
}

/// A letter of the inventory and one or two digits. F1 to F6 are filters of the papers, and R0 to R10 registers.
fn is_code(word: &str) -> bool {
    let Some(letter) = word.chars().next() else { return false };
    let digits = &word[letter.len_utf8()..];
    if !"ADFMNRS".contains(letter) || !matches!(digits.len(), 1 | 2) {
        return false;
    }
    match (letter, digits.parse::<u32>()) {
        ('F', Ok(number)) => number > 6,
        ('R', Ok(number)) => number > 10,
        // Tables of ten rows are a case of the benches.
        ('D', Ok(number)) => number != 10,
        (_, number) => number.is_ok(),
    }
}

type Counts = BTreeMap<(&'static str, Pattern), usize>;

/// Refuses more of a pattern than is recorded.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let recorded = recorded(tree);
    let mut found = Vec::new();
    for ((area, pattern), count) in count(tree) {
        let name = pattern.name();
        let limit = recorded.get(&(area.to_owned(), name.to_owned())).copied().unwrap_or(0);
        if count > limit {
            let message = format!(
                "{area}: {count} times `{name}`, {limit} recorded: write the new text plainly (tidy/prose.rs has \
                 the patterns)"
            );
            found.push(Violation::new(RECORD, 0, message));
        }
    }
    found
}

/// The record for the current counts.
pub fn record(tree: &Tree) -> String {
    let mut text = HEAD.to_owned();
    for ((area, pattern), count) in count(tree) {
        let _infallible = writeln!(text, "{area} {} {count}", pattern.name());
    }
    text
}

/// Sums by area, for the message of `tidy`.
pub fn summary(tree: &Tree) -> String {
    let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
    for ((area, _), count) in count(tree) {
        *sums.entry(area).or_default() += count;
    }
    let parts: Vec<String> = sums.iter().map(|(area, sum)| format!("{area} {sum}")).collect();
    format!("hard-to-read turns of phrase: {}", parts.join(", "))
}

fn recorded(tree: &Tree) -> BTreeMap<(String, String), usize> {
    let lines = tree.text(RECORD).unwrap_or_default().lines();
    let parse = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let key = (words.next()?, words.next()?);
        Some((key, words.next()?.parse().ok()?))
    };
    lines.filter(|line| !line.starts_with('#')).filter_map(parse).collect()
}

fn count(tree: &Tree) -> Counts {
    let mut counts = Counts::new();
    for (path, text) in tree.texts() {
        if path.starts_with("xtask/src/tidy/") {
            // The checks name what they look for.
        } else if path.ends_with(".rs") {
            count_rust(path, text, &mut counts);
        } else if path.ends_with(".c") || path.ends_with(".h") || path.ends_with(".hpp") {
            for (kind, piece) in pieces(text) {
                if kind == Kind::Comment {
                    add(&mut counts, "comments", piece);
                }
            }
        } else if path.ends_with(".md") {
            // The papers' claims are listed by their codes, beside their text.
            let papers = path.starts_with("docs/papers/");
            let keep = |pattern: Pattern| !(papers && pattern == Pattern::Code);
            add_some(&mut counts, "docs", text, keep);
        }
    }
    counts
}

fn count_rust(path: &str, text: &str, counts: &mut Counts) {
    let help = path.contains("/src/cli/") || path.ends_with("/src/cli.rs");
    // Lines in tcpdump's format have tcpdump's words.
    let messages = path.contains("/src/") && !path.starts_with("crates/print/") && !is_test(path);
    let tests_from = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    let (mut at, mut documented) = (0, false);
    for (kind, piece) in pieces(text) {
        at += piece.len();
        match kind {
            Kind::Comment => {
                let document = piece.starts_with("///");
                let area = if help && document { "help" } else { "comments" };
                add(counts, area, piece);
                if document && !documented && opens_with_a_question(piece) {
                    *counts.entry((area, Pattern::Opening)).or_default() += 1;
                }
                documented = document;
            }
            Kind::Text if messages && at <= tests_from && piece.contains(char::is_whitespace) => {
                add(counts, "messages", piece);
            }
            Kind::Code if piece.trim().is_empty() => {}
            _ => documented = false,
        }
    }
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("crates/testkit/")
}

fn opens_with_a_question(comment: &str) -> bool {
    let first = comment.trim_start_matches('/').split_whitespace().next().unwrap_or_default();
    matches!(first, "What" | "Who" | "Whose" | "Where" | "Whether" | "How" | "Which" | "Why")
}

/// The line without the text between pairs of backticks.
fn without_names(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let paired = (parts.len() - 1) / 2 * 2 + 1;
    let is_prose = |at: &usize| at.is_multiple_of(2) || *at >= paired;
    (0..parts.len()).filter(is_prose).map(|at| parts[at]).collect::<Vec<_>>().join("`")
}

fn add(counts: &mut Counts, area: &'static str, text: &str) {
    add_some(counts, area, text, |_| true);
}

fn add_some(counts: &mut Counts, area: &'static str, text: &str, keep: impl Fn(Pattern) -> bool) {
    let text: String = text.lines().map(without_names).collect::<Vec<_>>().join("\n");
    // A comma within a number belongs to it: D1,000 is a case of the benches and no code.
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != ',')
        .map(|word| word.trim_matches(','))
        .filter(|word| !word.is_empty())
        .collect();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).copied().unwrap_or_default();
        if let Some(pattern) = Pattern::of(word, next).filter(|pattern| keep(*pattern)) {
            *counts.entry((area, pattern)).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! Stands behind it.\n/// What is asked,\n/// What follows.\nfn f() { e(\"who says so\") }\n\
                          #[cfg(test)]\nmod tests { const T: &str = \"nobody\"; }\n";

    #[test]
    fn patterns_are_counted_by_area() {
        let tree =
            Tree::of(&[("crates/a/src/lib.rs", SOURCE), ("README.md", "S37 goes on, F3 too")]);
        let expected = "comments asked 1\ncomments behind 1\ncomments opening 1\ncomments stands 1\n\
                        docs code 1\ndocs goes-on 1\nmessages persons 1\nmessages says 1\n";
        let mut lines: Vec<String> = record(&tree)
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        lines.sort();
        assert_eq!(lines.join("\n") + "\n", expected);
    }

    #[test]
    fn the_command_line_is_help_and_papers_keep_their_codes() {
        let cli = "/// Whether it says so.\nstruct A;\n";
        let tree =
            Tree::of(&[("crates/command/src/cli/dump.rs", cli), ("docs/papers/swift.md", "S37")]);
        assert_eq!(record(&tree), format!("{HEAD}help says 1\nhelp opening 1\n"));
    }

    #[test]
    fn names_do_not_count() {
        let source = "//! `nobody` and `stands` behind.\nconst USER: [&str; 2] = [\"nobody\", \"who is it\"];\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", source), ("a.md", "`asked` asked `who")]);
        let expected = "comments behind 1\ndocs persons 1\ndocs asked 1\nmessages persons 1\n";
        assert_eq!(record(&tree), format!("{HEAD}{expected}"));
    }

    #[test]
    fn more_than_recorded_is_refused_and_fewer_is_not() {
        let record = |count: usize| format!("{HEAD}docs behind {count}\n");
        let with = |count| {
            let record = record(count);
            check(&Tree::of(&[("a.md", "behind, behind"), (RECORD, &record)])).len()
        };
        assert_eq!((with(1), with(2), with(3)), (1, 0, 0));
    }

    #[test]
    fn codes_are_a_letter_and_one_or_two_digits() {
        for code in ["S37", "N22", "F36", "A11", "R30", "M1"] {
            assert!(is_code(code), "{code}");
        }
        for other in ["F3", "D10", "D1,000", "R0", "D100", "SA1", "X3", "S", "Müller", "é1"] {
            assert!(!is_code(other), "{other}");
        }
    }
}
