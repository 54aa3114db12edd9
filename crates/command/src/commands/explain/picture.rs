//! Picture of a filter as SVG: its text, its passes, one table for those of one form, and the spaces that run it.

use super::{notes, plural, spaces::Spaces};
use fyke_filter::{Predicate, Reading};
use fyke_pass::PassSet;
use std::fmt::Write;

/// Most tables, and most rows of a table.
const MAX_TABLES: usize = 40;
const MAX_ROWS: usize = 16;
/// Pixels of a line of text, of a letter, and around them.
const LINE: usize = 18;
const LETTER: usize = 7;
const MARGIN: usize = 20;
/// Most letters of a line and of a cell.
const MAX_LINE: usize = 110;
const MAX_CELL: usize = 72;

/// Passes with the same instructions on different values.
struct Form {
    /// The instructions of each pass, as text.
    rows: Vec<Vec<String>>,
    count: usize,
}

/// Draws a filter.
pub fn svg(predicate: &Predicate, set: &PassSet, spaces: &Spaces) -> String {
    let text = predicate.text().trim();
    let mut page = Page::default();
    page.line(if text.is_empty() { "(empty: every frame)" } else { text }, "bold");
    page.line(&format!("read as {}", predicate.root()), "normal");
    page.line(&format!("link type {}", predicate.link()), "normal");
    for note in notes::of(predicate) {
        page.line(&format!("note: {note}"), "normal");
    }
    page.gap();
    let in_order = set.filters().find_map(|filter| filter.too_large());
    match (predicate.reading(), in_order) {
        (Reading::Scoped, _) => page.line("runs frame by frame in the scoped reading", "bold"),
        (_, Some(why)) => {
            page.line("runs frame by frame, in the order of the text", "bold");
            page.line(&why.to_string(), "normal");
        }
        _ => passes(&mut page, set),
    }
    page.gap();
    page.line("live in", "bold");
    page.line(&spaces.describe(), "normal");
    page.finish()
}

fn passes(page: &mut Page, set: &PassSet) {
    let (count, layout) = (set.pass_count(), set.layout());
    let word = plural(count, "pass", "passes");
    page.line(
        &format!("{count} {word}: a frame is accepted if all instructions of one are true"),
        "bold",
    );
    if layout.shapes > 0 {
        let (rows, shapes, loose) = (layout.rows, layout.shapes, layout.loose);
        let tables = plural(shapes, "table", "tables");
        page.line(
            &format!("{rows} are rows of {shapes} {tables}, {loose} are evaluated one by one"),
            "normal",
        );
    }
    let all = forms(set);
    for form in all.iter().take(MAX_TABLES) {
        page.table(form);
    }
    if let Some(more @ 1..) = all.len().checked_sub(MAX_TABLES) {
        page.line(&format!("… and {more} more forms"), "normal");
    }
}

/// Groups the passes by their opcodes, in the order of the first of each group.
fn forms(set: &PassSet) -> Vec<Form> {
    let mut places = std::collections::HashMap::new();
    let mut forms: Vec<Form> = Vec::new();
    for pass in set.passes() {
        let key: Vec<_> = pass.describe().map(|one| (one.opcode, one.negated)).collect();
        let at = *places.entry(key).or_insert_with(|| {
            forms.push(Form { rows: Vec::new(), count: 0 });
            forms.len() - 1
        });
        forms[at].count += 1;
        if forms[at].rows.len() < MAX_ROWS {
            forms[at].rows.push(pass.describe().map(|one| one.to_string()).collect());
        }
    }
    forms
}

/// A picture that grows downwards.
#[derive(Default)]
struct Page {
    shapes: String,
    y: usize,
    width: usize,
}

impl Page {
    fn line(&mut self, text: &str, weight: &str) {
        self.y += LINE;
        let shown = cut(text, MAX_LINE);
        self.width = self.width.max(shown.chars().count() * LETTER);
        let text = escaped(&shown);
        let _infallible = writeln!(
            self.shapes,
            "<text x=\"{MARGIN}\" y=\"{}\" font-weight=\"{weight}\">{text}</text>",
            self.y + MARGIN
        );
    }

    fn gap(&mut self) {
        self.y += LINE / 2;
    }

    /// A row for each pass, a column for each instruction.
    fn table(&mut self, form: &Form) {
        self.gap();
        let columns = form.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = form.rows.iter().filter_map(|row| row.get(column));
                cells
                    .map(|cell| cut(cell, MAX_CELL).chars().count() * LETTER + 16)
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in &form.rows {
            let mut x = MARGIN;
            if row.is_empty() {
                self.line("(no instruction: every frame)", "normal");
            }
            for (cell, width) in row.iter().zip(&widths) {
                self.cell(x, *width, cell);
                x += width;
            }
            self.width = self.width.max(x - MARGIN);
            self.y += if row.is_empty() { 0 } else { LINE + 4 };
        }
        if let Some(more @ 1..) = form.count.checked_sub(form.rows.len()) {
            self.line(&format!("… and {more} more of this form"), "normal");
        }
    }

    fn cell(&mut self, x: usize, width: usize, text: &str) {
        let (y, height) = (self.y + MARGIN, LINE + 4);
        let text = escaped(&cut(text, MAX_CELL));
        let _infallible = writeln!(
            self.shapes,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"#f4f4f4\" stroke=\"black\"/>\n\
             <text x=\"{}\" y=\"{}\">{text}</text>",
            x + 8,
            y + LINE - 3
        );
    }

    fn finish(self) -> String {
        let (width, height) = (self.width + 2 * MARGIN, self.y + 2 * MARGIN + LINE / 2);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.shapes
        )
    }
}

fn cut(text: &str, most: usize) -> String {
    let line = super::super::one_line(text);
    match line.chars().nth(most) {
        None => line.into_owned(),
        Some(_) => line.chars().take(most - 1).chain(['…']).collect(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
