//! File sizes and line widths.

use super::rust_text::code_only;
use super::{Tree, Violation, exceptions};

/// Lines a file may have.
pub const MAX_LINES: usize = 800;
/// Columns of a line of code.
const MAX_COLUMNS_CODE: usize = 100;
/// Columns of text: comments, documents, string contents.
const MAX_COLUMNS_TEXT: usize = 120;

/// A line whose code ends before this column is text.
const MIN_CODE_BEFORE_TEXT: usize = 40;

const CODE_ENDINGS: &[&str] = &[".rs", ".c", ".h", ".cpp", ".hpp", ".py", ".sh"];

/// Checks every source file and document.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        let code = CODE_ENDINGS.iter().any(|ending| path.ends_with(ending)) || path == ".ci/run";
        let data = path.starts_with("testdata/") || path.contains("/testdata/");
        if code && !data {
            check_lines(path, text, &mut found);
            check_width(path, code_lines(text), &mut found);
        } else if path.ends_with(".md") || path.ends_with("Cargo.toml") {
            check_width(path, document_lines(text), &mut found);
        }
    }
    found
}

fn check_lines(path: &str, text: &str, found: &mut Vec<Violation>) {
    let (lines, max) = (text.lines().count(), exceptions::max_lines(path));
    if lines > max {
        let message = format!("{lines} lines, at most {max}: split it, one job a file");
        found.push(Violation::new(path, 0, message));
    }
}

/// Line number, line, allowed columns.
type Line<'a> = (usize, &'a str, usize);

fn code_lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let code = code_only(text);
    let code: Vec<String> = code.lines().map(str::to_owned).collect();
    text.lines().enumerate().map(move |(number, line)| {
        // A string may extend beyond the limit for code, including the characters that close it.
        let closing = [' ', '"', ',', ';', ')', '\\', '\''];
        let end = code.get(number).map_or(line, |line| line.trim_end_matches(closing));
        if end.chars().count() < MIN_CODE_BEFORE_TEXT {
            return (number + 1, line, MAX_COLUMNS_TEXT);
        }
        let start = line.trim_start();
        let comment = ["//", "/*", "*", "#"].iter().any(|mark| start.starts_with(mark));
        // `#` opens a comment in shell, Python and TOML; in Rust and C an attribute or a directive.
        let attribute =
            start.starts_with("#[") || start.starts_with("#!") || start.starts_with("#i");
        let columns = if comment && !attribute { MAX_COLUMNS_TEXT } else { MAX_COLUMNS_CODE };
        (number + 1, line, columns)
    })
}

/// All lines except tables, lines with an address, and fenced blocks, which cannot be wrapped.
fn document_lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let rigid = fenced || line.trim_start().starts_with('|') || line.contains("://");
        (!rigid).then_some((number + 1, line, MAX_COLUMNS_TEXT))
    })
}

fn check_width<'a>(path: &str, lines: impl Iterator<Item = Line<'a>>, found: &mut Vec<Violation>) {
    for (number, line, max) in lines {
        let columns = line.chars().count();
        if columns > max {
            found.push(Violation::new(path, number, format!("{columns} columns, at most {max}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_file_of_801_lines_is_too_long() {
        assert_eq!(lines_of("a.rs", &"x\n".repeat(801)), [0]);
        assert!(lines_of("a.rs", &"x\n".repeat(800)).is_empty());
    }

    #[test]
    fn code_is_narrower_than_comments() {
        let (code, comment) = ("x".repeat(101), format!("// {}", "x".repeat(117)));
        assert_eq!(lines_of("a.rs", &format!("{code}\n{comment}\n{comment}x\n")), [1, 3]);
        let attribute = format!("#[{}]", "x".repeat(99));
        assert_eq!(lines_of("a.rs", &attribute), [1]);
    }

    #[test]
    fn documents_may_have_wide_tables_addresses_and_blocks() {
        let wide = "x".repeat(121);
        let text = format!("| {wide}\nhttps://{wide}\n```\n{wide}\n```\n{wide}\n");
        assert_eq!(lines_of("a.md", &text), [6]);
    }

    #[test]
    fn test_data_has_no_width() {
        assert!(lines_of("testdata/cases.toml", &"x".repeat(500)).is_empty());
    }
}
