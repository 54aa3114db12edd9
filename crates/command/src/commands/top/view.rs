//! The picture of `fyke top`: the sum, its history, filters and nodes, from the model alone.

use super::super::{counts, one_line, shortened};
use super::model::{Input, Model};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, TableState};

/// Most lines of an answer.
const MESSAGE_LINES: u16 = 8;
/// Lines of a terminal below which the history is omitted.
const SMALL_HEIGHT: u16 = 14;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let message = wrapped(&model.message, usize::from(frame.area().width));
    let lines = u16::try_from(message.len()).unwrap_or(u16::MAX).min(MESSAGE_LINES);
    let passes = match (&model.passes, model.shown_filter()) {
        (Some(passes), Some(_)) => (passes.passes.len() as u16 + 1).min(10),
        _ => 0,
    };
    let filters = (model.filters().len() as u16).saturating_add(1).max(2);
    let nodes = (model.stats.nodes.len() as u16).saturating_add(1);
    let [head, sum, graph, filter_area, pass_area, node_area, text, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        // The filters matter more.
        Constraint::Length(if frame.area().height < SMALL_HEIGHT { 0 } else { 4 }),
        Constraint::Fill(filters),
        Constraint::Length(passes),
        Constraint::Max(nodes.min(16)),
        Constraint::Length(lines),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(model), head);
    frame.render_widget(Paragraph::new(totals(model)), sum);
    history(frame, model, graph);
    filter_table(frame, model, filter_area);
    if passes > 0 {
        pass_table(frame, model, pass_area);
    }
    node_table(frame, model, node_area);
    frame.render_widget(Paragraph::new(message), text);
    frame.render_widget(prompt(model, usize::from(keys.width)), keys);
}

/// The lines of an answer, which may have data of packets. Long ones continue in the next line.
fn wrapped(text: &str, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let letters: Vec<char> = one_line(line).chars().collect();
        let mut rest = &letters[..];
        while rest.len() > width.max(1) {
            let (head, _) = rest.split_at(width.max(1));
            let word = head.iter().rposition(|letter| *letter == ' ').filter(|&at| at > 0);
            let end = word.map_or(head.len(), |space| space + 1);
            lines.push(Line::from(rest[..end].iter().collect::<String>()));
            rest = &rest[end..];
        }
        lines.push(Line::from(rest.iter().collect::<String>()));
    }
    lines
}

fn title(model: &Model) -> Line<'static> {
    let stats = &model.stats;
    let yellow = Style::new().fg(Color::Yellow);
    let state = match (&model.ended, model.silent_s) {
        (Some(why), _) => Span::styled(format!("  {why}"), Style::new().fg(Color::Red)),
        (None, Some(time)) => Span::styled(format!("  no counts for {time} s"), yellow),
        (None, None) if stats.paused => Span::styled("  paused", yellow),
        (None, None) => Span::raw(""),
    };
    let seconds = stats.uptime_ms as f64 / 1_000.0;
    let text = format!("  {seconds:.1} s  epoch {}  {}", stats.epoch, one_line(&model.title));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    // The command line is long, so it comes last.
    Line::from(vec![Span::styled("fyke top", bold), state, Span::styled(text, bold)])
}

/// The sum that must close, and its rates.
fn totals(model: &Model) -> Vec<Line<'static>> {
    if let Some(why) = &model.stats.no_counts {
        return vec![Line::from(one_line(why).into_owned())];
    }
    let [seen, accepted, rejected, taken, lost] = model.sum_rates();
    let rates = format!(
        "per second: {seen} seen = {accepted} accepted + {rejected} rejected + {taken} taken + {lost} lost"
    );
    let accounting = &model.stats.accounting;
    let mut sum = counts::sum(accounting, 0, 0);
    let mut style = Style::new();
    if !accounting.is_exact() {
        sum += "  (the sum does not close)";
        style = style.fg(Color::Red);
    } else if !accounting.lost.is_empty() {
        style = style.fg(Color::Yellow);
    }
    vec![Line::styled(sum, style), Line::from(rates)]
}

fn history(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let width = usize::from(area.width.saturating_sub(2));
    let skipped = model.history.len().saturating_sub(width);
    let seen: Vec<u64> = model.history.iter().skip(skipped).map(|rate| rate.0).collect();
    let most = seen.iter().copied().max().unwrap_or(0);
    let title = format!(" seen per second, at most {most} ");
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Sparkline::default().block(block).data(&seen), area);
}

fn header(names: &[&'static str]) -> Row<'static> {
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let cell = |(index, name): (usize, &&'static str)| match index {
        // Texts, and the name of a row.
        0 => Cell::from(*name),
        _ if ["text", "instructions"].contains(name) => Cell::from(*name),
        _ => Cell::from(Line::from(*name).alignment(Alignment::Right)),
    };
    Row::new(names.iter().enumerate().map(cell)).style(style)
}

fn number(value: u64) -> Cell<'static> {
    Cell::from(Line::from(value.to_string()).alignment(Alignment::Right))
}

fn filter_table(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rates = model.filter_rates();
    let rows = model.filters().iter().zip(rates).map(|(filter, rate)| {
        let name = counts::named(filter);
        let text = shortened(&filter.text).into_owned();
        Row::new([Cell::from(name), number(filter.accepted), number(rate), Cell::from(text)])
    });
    let widths = [
        Constraint::Length(20),
        Constraint::Length(14),
        Constraint::Length(11),
        Constraint::Fill(1),
    ];
    let table = Table::new(rows, widths)
        .header(header(&["filter", "accepted", "per second", "text"]))
        .row_highlight_style(Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan));
    let mut state = TableState::new().with_selected(Some(model.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn pass_table(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let Some(filter) = &model.passes else { return };
    let rows = filter.passes.iter().map(|pass| {
        let text = shortened(&pass.text).into_owned();
        Row::new([Cell::from(format!("pass {}", pass.id)), number(pass.accepted), Cell::from(text)])
    });
    let widths = [Constraint::Length(20), Constraint::Length(14), Constraint::Fill(1)];
    let table = Table::new(rows, widths).header(header(&["pass", "accepted", "instructions"]));
    frame.render_widget(table, area);
}

fn node_table(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rates = model.node_rates();
    let rows = model.stats.nodes.iter().zip(rates).map(|(node, rates)| {
        let name = Cell::from(one_line(&node.node).into_owned());
        let lost = rates[4] > 0 || node.failed.is_some();
        let style = if lost { Style::new().fg(Color::Yellow) } else { Style::new() };
        Row::new(std::iter::once(name).chain(rates.into_iter().map(number))).style(style)
    });
    let mut widths = vec![Constraint::Length(20)];
    widths.extend([Constraint::Length(11); 5]);
    let names = ["node, per second", "arrived", "passed", "rejected", "taken", "lost"];
    frame.render_widget(Table::new(rows, widths).header(header(&names)), area);
}

/// The last line: keys, or the text that is typed.
fn prompt(model: &Model, width: usize) -> Line<'static> {
    match &model.input {
        Input::Add(text) => typed("add filter", text, model.after, width),
        Input::Try(text) => typed("try filter", text, model.after, width),
        Input::Delete(id) => Line::from(format!("remove filter {id}? (y: yes)")),
        Input::Pause => Line::from("pause? frames that arrive meanwhile are lost (y: yes)"),
        Input::None => {
            Line::from("q quit  ↑↓ select  a add  t try  d remove  u undo  p passes  space pause")
        }
    }
}

/// The text that is typed, with the cursor before its last `after` letters: a part of it that has the cursor.
fn typed(purpose: &str, text: &str, after: usize, width: usize) -> Line<'static> {
    let head: String = text.chars().take(text.chars().count().saturating_sub(after)).collect();
    let at = one_line(&head).chars().count();
    let letters: Vec<char> = one_line(text).chars().collect();
    let room = width.saturating_sub(purpose.len() + 2).max(2);
    if at >= letters.len() && letters.len() < room {
        return Line::from(format!("{purpose}: {}_   (Enter: go, Esc: leave)", one_line(text)));
    }
    // Of a long text, the last letter that is shown has the cursor.
    let skipped = if letters.len() < room { 0 } else { (at + 2).saturating_sub(room) };
    let end = if skipped > 0 { skipped + room - 1 } else { room };
    let part = |from: usize, to: usize| -> String {
        letters[from.min(letters.len())..to.min(letters.len())].iter().collect()
    };
    let mark = if skipped > 0 { "…" } else { "" };
    let before = format!("{purpose}: {mark}{}", part(skipped, at));
    match letters.get(at) {
        None => Line::from(before + "_"),
        Some(letter) => {
            let cursor = Style::new().add_modifier(Modifier::REVERSED);
            let rest = part(at + 1, end.max(at + 1));
            Line::from(vec![
                Span::raw(before),
                Span::styled(letter.to_string(), cursor),
                Span::raw(rest),
            ])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_control::{Accounting, FilterCount, NodeCount, Stats};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    fn model() -> Model {
        let mut model = Model::new("process 7 v1".into());
        for (uptime_ms, seen) in [(1_000, 10), (2_000, 110)] {
            let accounting =
                Accounting { seen, delivered: seen, rejected: 0, ..Accounting::default() };
            let text = "udp\u{1b}[2J port 53".to_owned();
            let filter = FilterCount { id: 3, text, accepted: seen, ..FilterCount::default() };
            let node = "filter".to_owned();
            let node = NodeCount { id: 1, node, arrived: seen, passed: seen, ..Default::default() };
            model.update(Stats {
                uptime_ms,
                accounting,
                filters: vec![filter],
                nodes: vec![node],
                ..Stats::default()
            });
        }
        model
    }

    #[test]
    fn counts_and_rates_are_shown_and_no_control_character() {
        let mut model = model();
        let shown = drawn(&model, 100, 24);
        for part in [
            "fyke top  2.0 s  epoch 0  process 7 v1",
            "110 seen = 110 accepted + 0 rejected + 0 lost",
            "per second: 100 seen = 100 accepted",
            "filter 3",
            "udp\\u001b[2J port 53",
            "q quit",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        assert!(!shown.contains('\u{1b}'));
        model.message = "tcp prot 1\n    ^~~~".into();
        model.input = Input::Add("tcp prot 1".into());
        let shown = drawn(&model, 100, 24);
        assert!(shown.contains("add filter: tcp prot 1_") && shown.contains("^~~~"), "{shown}");
        model.silent_s = Some(7);
        assert!(drawn(&model, 100, 24).contains("no counts for 7 s"));
        model.stats.accounting.rejected = 5;
        assert!(drawn(&model, 100, 24).contains("the sum does not close"));
    }

    #[test]
    fn long_texts_and_small_terminals_show_what_matters() {
        let mut model = model();
        model.message = format!("first line\n{}the end", "some words ".repeat(12));
        model.input = Input::Add(format!("{} and port 5002", "host 10.0.0.1 or ".repeat(9)));
        let shown = drawn(&model, 40, 20);
        for part in ["first line", "the end", "add filter: …", " and port 5002_"] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        assert!(shown.contains("seen per second, at most"), "{shown}");
        // The part of a long text around the cursor.
        model.after = 16;
        let shown = drawn(&model, 40, 20);
        assert!(shown.contains("host 10.0.0.1 or") && !shown.contains("port 5002"), "{shown}");
        model.after = 1_000;
        let shown = drawn(&model, 40, 20);
        assert!(shown.contains("add filter: host 10.0.0.1 or host"), "{shown}");
        model.after = 0;
        (model.message, model.input) = (String::new(), Input::Pause);
        let shown = drawn(&model, 80, 10);
        assert!(shown.contains("filter 3") && shown.contains("pause? frames"), "{shown}");
    }

    #[test]
    fn every_size_of_a_terminal_is_drawn() {
        let model = model();
        for width in [1, 5, 20, 80, 300] {
            for height in [0, 1, 2, 3, 7, 12, 60] {
                drawn(&model, width, height);
            }
        }
    }
}
