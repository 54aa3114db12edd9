//! What `fyke top` shows, without a terminal: counts, their rates, the selected filter, and the text that is typed.

use fyke_control::{Accounting, EntryKind, FilterCount, FilterPasses, NodeCount, Stats};
use std::collections::{HashMap, VecDeque};

/// Rates that the history keeps.
const HISTORY: usize = 120;
/// Shortest time of a rate, in milliseconds.
const SMOOTHED_MS: u64 = 1_000;

/// An action on the running fyke that the user has requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Add(String),
    Try(String),
    Delete(u64),
    Undo,
    Pause(bool),
    Quit,
}

/// The text that is being typed, and its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    None,
    Add(String),
    Try(String),
    /// The filter with this id is removed if the answer is yes.
    Delete(u64),
    /// The capture is paused if the answer is yes.
    Pause,
}

/// A key, as far as this program uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Delete,
    Left,
    Right,
    Home,
    End,
    Up,
    Down,
    Interrupt,
}

/// Everything that is shown.
#[derive(Debug)]
pub struct Model {
    /// The running fyke: its process and source.
    pub title: String,
    pub stats: Stats,
    /// Earlier counts, oldest first: the first is of at least a second ago, so that rates are those of a second. A
    /// kernel's ring hands frames over in blocks of up to 160 ms.
    recent: VecDeque<Stats>,
    /// Seen and accepted frames per second, oldest first.
    pub history: VecDeque<(u64, u64)>,
    /// Index of the selected filter.
    pub selected: usize,
    pub input: Input,
    /// Number of letters of the typed text after the cursor.
    pub after: usize,
    /// Answer to the last action.
    pub message: String,
    /// True if the passes of the selected filter are shown.
    pub shows_passes: bool,
    pub passes: Option<FilterPasses>,
    /// Reason why no counts come any more.
    pub ended: Option<String>,
    /// Seconds without counts, if these are late.
    pub silent_s: Option<u64>,
}

impl Model {
    pub fn new(title: String) -> Model {
        Model {
            title,
            stats: Stats::default(),
            recent: VecDeque::new(),
            history: VecDeque::new(),
            selected: 0,
            input: Input::None,
            after: 0,
            message: String::new(),
            shows_passes: false,
            passes: None,
            ended: None,
            silent_s: None,
        }
    }

    /// Takes new counts.
    pub fn update(&mut self, stats: Stats) {
        let last = std::mem::replace(&mut self.stats, stats);
        // The first counts have no rates.
        self.recent.extend((last.uptime_ms > 0).then_some(last));
        let is_enough =
            |one: &Stats| self.stats.uptime_ms.saturating_sub(one.uptime_ms) >= SMOOTHED_MS;
        while self.recent.get(1).is_some_and(is_enough) {
            self.recent.pop_front();
        }
        let total = |stats: &Stats| (stats.accounting.seen, stats.accounting.delivered);
        if let Some(before) = self.before().map(total) {
            let now = total(&self.stats);
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back((self.rate(before.0, now.0), self.rate(before.1, now.1)));
        }
        self.selected = self.selected.min(self.filters().len().saturating_sub(1));
    }

    /// The counts with which rates are made.
    fn before(&self) -> Option<&Stats> {
        self.recent.front()
    }

    /// The filters, with those of trackers and removed ones.
    pub fn filters(&self) -> &[FilterCount] {
        &self.stats.filters
    }

    /// The selected filter, if it can be removed.
    fn selected_filter(&self) -> Option<&FilterCount> {
        let selected = self.filters().get(self.selected)?;
        let has_id = matches!(selected.kind, EntryKind::Filter | EntryKind::Graph);
        has_id.then_some(selected)
    }

    /// Id of the filter with the passes that are shown.
    pub fn shown_filter(&self) -> Option<u64> {
        self.selected_filter().filter(|_| self.shows_passes).map(|filter| filter.id)
    }

    /// Frames per second of each filter.
    pub fn filter_rates(&self) -> Vec<u64> {
        let before: HashMap<_, _> = self
            .before()
            .into_iter()
            .flat_map(|stats| &stats.filters)
            .fold(HashMap::new(), |mut all, one| {
                all.insert((one.id, one.kind as u8), one.accepted);
                all
            });
        let rate = |one: &FilterCount| {
            let earlier = before.get(&(one.id, one.kind as u8)).copied();
            self.rate(earlier.unwrap_or(0), one.accepted)
        };
        match self.before() {
            Some(_) => self.filters().iter().map(rate).collect(),
            None => vec![0; self.filters().len()],
        }
    }

    /// Frames per second that arrived at, passed, were rejected by, taken by and lost at each node.
    pub fn node_rates(&self) -> Vec<[u64; 5]> {
        let counts =
            |node: &NodeCount| [node.arrived, node.passed, node.rejected, node.taken, node.lost];
        let before: HashMap<u64, [u64; 5]> = self
            .before()
            .into_iter()
            .flat_map(|stats| &stats.nodes)
            .map(|node| (node.id, counts(node)))
            .collect();
        let rates = |node: &NodeCount| {
            let earlier = before.get(&node.id);
            let mut rates = counts(node);
            for (index, value) in rates.iter_mut().enumerate() {
                *value = earlier.map_or(0, |earlier| self.rate(earlier[index], *value));
            }
            rates
        };
        self.stats.nodes.iter().map(rates).collect()
    }

    /// Frames per second of the whole: seen, accepted, rejected, taken, lost.
    pub fn sum_rates(&self) -> [u64; 5] {
        let counts = |accounting: &Accounting| {
            let lost = accounting.lost.values().sum();
            let Accounting { seen, delivered, rejected, taken, .. } = accounting;
            [*seen, *delivered, *rejected, *taken, lost]
        };
        let mut now = counts(&self.stats.accounting);
        let before = self.before().map(|before| counts(&before.accounting));
        for (index, value) in now.iter_mut().enumerate() {
            *value = before.map_or(0, |before| self.rate(before[index], *value));
        }
        now
    }

    fn rate(&self, before: u64, now: u64) -> u64 {
        let Some(earlier) = self.before() else { return 0 };
        let ms = self.stats.uptime_ms.saturating_sub(earlier.uptime_ms).max(1);
        let rate = u128::from(now.saturating_sub(before)) * 1_000 / u128::from(ms);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Takes a key; returns the action that it completes.
    pub fn key(&mut self, key: Key) -> Option<Action> {
        if key == Key::Interrupt {
            return Some(Action::Quit);
        }
        match std::mem::replace(&mut self.input, Input::None) {
            Input::None => self.command(key),
            Input::Delete(id) => (key == Key::Letter('y')).then_some(Action::Delete(id)),
            Input::Pause => (key == Key::Letter('y')).then_some(Action::Pause(true)),
            Input::Add(text) => self.typed(text, key, Input::Add, Action::Add),
            Input::Try(text) => self.typed(text, key, Input::Try, Action::Try),
        }
    }

    /// Takes the answer to an action. A text that was refused stays open, to be corrected.
    pub fn answered(&mut self, action: Action, answer: Result<String, String>) {
        self.message = match (action, answer) {
            (_, Ok(message)) => message,
            (action, Err(message)) => {
                match action {
                    Action::Add(text) => self.input = Input::Add(text),
                    Action::Try(text) => self.input = Input::Try(text),
                    _ => {}
                }
                message
            }
        };
    }

    fn typed(
        &mut self,
        mut text: String,
        key: Key,
        input: fn(String) -> Input,
        action: fn(String) -> Action,
    ) -> Option<Action> {
        let length = text.chars().count();
        let at = length - self.after.min(length);
        let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
        let place = byte(at);
        match key {
            Key::Enter if text.trim().is_empty() => {
                self.message = "no filter was typed".to_owned();
                return None;
            }
            Key::Enter => return Some(action(text)),
            Key::Escape => return None,
            Key::Backspace if at > 0 => drop(text.remove(byte(at - 1))),
            Key::Delete if at < length => {
                text.remove(place);
                self.after = length - at - 1;
            }
            Key::Letter(letter) => text.insert(place, letter),
            Key::Left => self.after = (length - at + 1).min(length),
            Key::Right => self.after = (length - at).saturating_sub(1),
            Key::Home => self.after = length,
            Key::End => self.after = 0,
            Key::Backspace | Key::Delete | Key::Up | Key::Down | Key::Interrupt => {}
        }
        self.input = input(text);
        None
    }

    fn command(&mut self, key: Key) -> Option<Action> {
        self.after = 0;
        match key {
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => {
                self.selected = (self.selected + 1).min(self.filters().len().saturating_sub(1));
            }
            Key::Letter('q') => return Some(Action::Quit),
            Key::Letter('a') => self.input = Input::Add(String::new()),
            Key::Letter('t') => self.input = Input::Try(String::new()),
            Key::Letter('u') => return Some(Action::Undo),
            Key::Letter('p') => self.shows_passes = !self.shows_passes,
            Key::Letter(' ') if self.stats.paused => return Some(Action::Pause(false)),
            // A space that was meant for a text must not lose frames.
            Key::Letter(' ') => self.input = Input::Pause,
            Key::Letter('d') => match self.selected_filter().map(|filter| filter.id) {
                Some(id) => self.input = Input::Delete(id),
                None => self.message = "this entry is no filter that can be removed".to_owned(),
            },
            Key::Escape => self.message.clear(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(uptime_ms: u64, seen: u64, accepted: u64) -> Stats {
        let rejected = seen - accepted;
        let accounting =
            Accounting { seen, delivered: accepted, rejected, ..Accounting::default() };
        let filter = |id, accepted| FilterCount { id, accepted, ..FilterCount::default() };
        let filters = vec![filter(1, accepted), filter(2, 0)];
        let node = NodeCount { id: 1, arrived: seen, passed: accepted, ..NodeCount::default() };
        Stats { uptime_ms, accounting, filters, nodes: vec![node], ..Stats::default() }
    }

    #[test]
    fn rates_are_differences_per_second() {
        let mut model = Model::new("x".into());
        model.update(stats(1_000, 50, 10));
        assert_eq!((model.sum_rates()[0], model.filter_rates()), (0, vec![0, 0]));
        model.update(stats(1_500, 150, 30));
        assert_eq!(model.sum_rates(), [200, 40, 160, 0, 0]);
        assert_eq!(model.filter_rates(), [40, 0]);
        assert_eq!(model.node_rates(), [[200, 40, 0, 0, 0]]);
        assert_eq!(model.history, [(200, 40)]);
        // Blocks of a ring: 0 or 400 frames in each fifth of a second.
        for step in 1..=20 {
            model.update(stats(1_500 + 200 * step, 150 + 400 * step.div_ceil(2), 30));
        }
        let last: Vec<_> = model.history.iter().rev().take(10).map(|rate| rate.0).collect();
        assert!(last.iter().all(|rate| (800..=1_200).contains(rate)), "{last:?}");
    }

    #[test]
    fn keys_are_actions() {
        let mut model = Model::new("x".into());
        model.update(stats(1_000, 50, 10));
        let mut press = |keys: &str| {
            let key = |letter| match letter {
                '\n' => Key::Enter,
                '<' => Key::Backspace,
                '!' => Key::Escape,
                'v' => Key::Down,
                '[' => Key::Left,
                ']' => Key::Right,
                '{' => Key::Home,
                '}' => Key::End,
                '\u{7f}' => Key::Delete,
                letter => Key::Letter(letter),
            };
            keys.chars().map(key).filter_map(|key| model.key(key)).collect::<Vec<_>>()
        };
        assert_eq!(press("audx<p\n"), [Action::Add("udp".into())]);
        assert_eq!(press("tq!u"), [Action::Undo]);
        // The cursor: left, right, begin, end, and the letter under it.
        assert_eq!(press("audx[p\u{7f}]\n"), [Action::Add("udp".into())]);
        assert_eq!(press("adp{u}\n"), [Action::Add("udp".into())]);
        assert_eq!(press("a[[<ü]\u{7f}[\u{7f}{\u{7f}xy[<z\n"), [Action::Add("zy".into())]);
        assert_eq!(press("vdy"), [Action::Delete(2)]);
        assert!(press("dn").is_empty());
        assert_eq!(press("a\nq"), [Action::Quit]);
        assert!(press(" n").is_empty());
        assert_eq!(press(" y"), [Action::Pause(true)]);
        model.stats.paused = true;
        assert_eq!(model.key(Key::Letter(' ')), Some(Action::Pause(false)));
    }

    #[test]
    fn a_refused_text_stays_to_be_corrected() {
        let mut model = Model::new("x".into());
        for (letter, action) in [('a', Action::Add as fn(String) -> Action), ('t', Action::Try)] {
            let typed = |model: &mut Model, text: &str| {
                text.chars().find_map(|letter| model.key(Key::Letter(letter)))
            };
            assert_eq!(typed(&mut model, &format!("{letter}udp dst port")), None);
            let first = model.key(Key::Enter).unwrap();
            assert_eq!(first, action("udp dst port".into()));
            model.answered(first, Err("expected a port".into()));
            assert_eq!(model.message, "expected a port");
            assert_eq!(typed(&mut model, " 5002"), None);
            let second = model.key(Key::Enter).unwrap();
            assert_eq!(second, action("udp dst port 5002".into()));
            model.answered(second, Ok("filter 2".into()));
            assert_eq!((&model.input, model.message.as_str()), (&Input::None, "filter 2"));
        }
    }
}
