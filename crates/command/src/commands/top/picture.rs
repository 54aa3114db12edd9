//! The screen of `fyke top` as SVG, for documents.

use super::model::Model;
use super::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// Pixels of a cell.
const WIDTH: usize = 9;
const HEIGHT: usize = 18;
const MARGIN: usize = 12;
/// Colours of the picture.
const GROUND: &str = "#1d2125";
const INK: &str = "#e8eaec";

/// Draws the screen of a terminal of this size.
pub fn svg(model: &Model, columns: u16, lines: u16) -> std::io::Result<String> {
    // The terminal is memory, which refuses nothing.
    let mut terminal = Terminal::new(TestBackend::new(columns, lines))
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    let drawn = terminal.draw(|frame| view::draw(frame, model));
    drawn.map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(of(terminal.backend().buffer()))
}

fn of(buffer: &Buffer) -> String {
    let (columns, lines) = (usize::from(buffer.area.width), usize::from(buffer.area.height));
    let (width, height) = (columns * WIDTH + 2 * MARGIN, lines * HEIGHT + 2 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"15\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    for (line, cells) in buffer.content.chunks(columns.max(1)).enumerate() {
        let mut start = 0;
        for run in cells.chunk_by(|one, other| style(one) == style(other)) {
            piece(&mut out, start, line, run);
            start += run.len();
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Cells with one style.
fn piece(out: &mut String, column: usize, line: usize, run: &[Cell]) {
    let (ink, is_bold, is_reversed) = style(&run[0]);
    let text: String = run.iter().map(Cell::symbol).collect();
    let (x, y) = (MARGIN + column * WIDTH, MARGIN + line * HEIGHT);
    let width = run.len() * WIDTH;
    if is_reversed {
        let _infallible = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{ink}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let fill = if is_reversed { GROUND } else { ink };
    let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _infallible = writeln!(
        out,
        "<text x=\"{x}\" y=\"{}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\" \
         xml:space=\"preserve\" fill=\"{fill}\"{weight}>{text}</text>",
        y + HEIGHT - 4
    );
}

/// Colour, bold, reversed.
fn style(cell: &Cell) -> (&'static str, bool, bool) {
    let ink = match cell.fg {
        Color::Red => "#f0705f",
        Color::Yellow => "#e5a645",
        Color::Cyan => "#58c6d8",
        _ => INK,
    };
    let has = |modifier| cell.modifier.contains(modifier);
    (ink, has(Modifier::BOLD), has(Modifier::REVERSED))
}
