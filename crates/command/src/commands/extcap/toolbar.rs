//! Toolbar of a capture: what its controls do, and what it shows. It knows nothing of pipes: messages of Wireshark go
//! in, messages for it come out.

use super::control::{ADD, ERROR, INITIALIZED, MAX_TEXT, Message, REMOVE, SET, STATUS};
use crate::commands::ctl::past;
use fyke_control::{EntryKind, Request, Response, Stats};

const FILTER: u8 = 0;
const TEXT: u8 = 1;
const ADD_IT: u8 = 2;
const TRY_IT: u8 = 3;
const EXPLAIN: u8 = 4;
const IN_FORCE: u8 = 5;
const REMOVE_IT: u8 = 6;
const UNDO: u8 = 7;
const LOG: u8 = 8;

/// The controls, as lines of `--extcap-interfaces`.
pub const CONTROLS: &str = "\
control {number=0}{type=string}{display=Filter}{tooltip=Filter of the running capture: Enter puts it in force}
control {number=1}{type=string}{display=Text}{tooltip=Expression for Add, Try and Explain}
control {number=2}{type=button}{display=Add}{tooltip=Also accept the frames of Text}
control {number=3}{type=button}{display=Try}{tooltip=What Text would accept of the last frames; changes nothing}
control {number=4}{type=button}{display=Explain}{tooltip=How Text, or else Filter, is read and run}
control {number=5}{type=selector}{display=In force}{tooltip=Filters in force}
control {number=6}{type=button}{display=Remove}{tooltip=Remove the filter that is selected in In force}
control {number=7}{type=button}{display=Undo}{tooltip=Take back your last edit}
control {number=8}{type=button}{display=Log}{role=logger}{tooltip=Edits, trials, explanations}
";

/// Most filters in the selector.
const MAX_LISTED: usize = 100;
/// Most characters of a filter in the selector.
const MAX_SHOWN: usize = 80;

/// Carries out what a user of the toolbar asks for.
pub trait Capture {
    /// Sends a request to the capture.
    ///
    /// # Errors
    /// The reason of a refusal, with the place.
    fn call(&mut self, request: Request) -> Result<Response, String>;
    /// Explains an expression.
    fn explain(&mut self, text: &str) -> String;
}

/// State of the toolbar.
#[derive(Debug)]
pub struct Toolbar {
    /// The filter of the string control that is in force.
    filter: String,
    text: String,
    selected: String,
    /// Ids in the selector.
    listed: Vec<String>,
    /// Epoch of the filters in the selector; 0 before the first list.
    epoch: u64,
    status: String,
    out: Vec<Message>,
}

impl Toolbar {
    /// The toolbar of a capture with this filter.
    pub fn new(filter: &str) -> Toolbar {
        Toolbar {
            filter: filter.to_owned(),
            text: String::new(),
            selected: String::new(),
            listed: Vec::new(),
            epoch: 0,
            status: String::new(),
            out: Vec::new(),
        }
    }

    /// The messages for Wireshark since the last call.
    pub fn take(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.out)
    }

    /// Handles a message of Wireshark. Unknown ones are ignored.
    pub fn handle(&mut self, message: Message, capture: &mut impl Capture) {
        let Message { control, command, payload } = message;
        match (command, control) {
            (INITIALIZED, _) => {
                self.show_filter();
                self.list(capture);
            }
            (SET, TEXT) => self.text = payload,
            (SET, IN_FORCE) => self.selected = payload,
            (SET, FILTER) if payload != self.filter => {
                let (text, done) = (payload.clone(), format!("filter: {payload}"));
                let before = std::mem::replace(&mut self.filter, payload);
                if !self.edit(capture, Request::Set { text }, &done) {
                    self.filter = before;
                    self.show_filter();
                }
            }
            (SET, ADD_IT) => {
                let text = self.text.clone();
                self.edit(capture, Request::Add { text }, &format!("added: {}", self.text));
            }
            (SET, REMOVE_IT) => match self.selected.parse() {
                Ok(id) => {
                    self.edit(capture, Request::Delete { id }, &format!("removed: filter {id}"));
                }
                Err(_) => self.error("select a filter in `In force` first"),
            },
            (SET, UNDO) => {
                self.edit(capture, Request::Undo { epoch: None }, "undone");
            }
            (SET, TRY_IT) => self.try_it(capture),
            (SET, EXPLAIN) => {
                let text = if self.text.is_empty() { &self.filter } else { &self.text };
                let explained = capture.explain(text);
                self.log(explained.trim_end());
            }
            _ => {}
        }
    }

    /// Shows counts in the status bar, if they are new, and the filters after an edit that did not come from here.
    pub fn show(&mut self, stats: &Stats) {
        if self.epoch != 0 && self.epoch != stats.epoch {
            self.log(&format!("epoch {}: edited outside this toolbar", stats.epoch));
            self.show_filters(stats);
        }
        let counts = &stats.accounting;
        let lost: u64 = counts.lost.values().fold(0, |sum, lost| sum.saturating_add(*lost));
        let taken = match counts.taken {
            0 => String::new(),
            taken => format!(" + {taken} taken"),
        };
        let uncounted = match &counts.rejected_in_kernel {
            Some(text) => format!(", rejected in the kernel: {text}"),
            None => String::new(),
        };
        let status = format!(
            "fyke: epoch {}, {} seen = {} accepted + {} rejected{taken} + {lost} lost{uncounted}",
            stats.epoch, counts.seen, counts.delivered, counts.rejected
        );
        if status != self.status {
            self.status.clone_from(&status);
            self.out.push(Message::new(0, STATUS, status));
        }
    }

    /// Shows an error in a window, and in the log.
    pub fn fail(&mut self, message: &str) {
        self.error(message);
        self.log(message);
    }

    /// Adds lines to the log.
    pub fn log(&mut self, text: &str) {
        self.out.push(Message::new(LOG, ADD, format!("{text}\n")));
    }

    /// Makes an edit and logs it; false if it was refused.
    fn edit(&mut self, capture: &mut impl Capture, request: Request, done: &str) -> bool {
        match capture.call(request) {
            Ok(Response::Ok { epoch, latency_ns, notes, .. }) => {
                self.log(&format!("epoch {epoch}, {} µs: {done}", latency_ns / 1000));
                notes.iter().for_each(|note| self.log(note));
                self.list(capture);
                true
            }
            Ok(_) => {
                self.error("the capture gave another answer than to an edit");
                false
            }
            Err(message) => {
                self.error(&message);
                false
            }
        }
    }

    fn try_it(&mut self, capture: &mut impl Capture) {
        let text = self.text.clone();
        match capture.call(Request::Try { text, last: None }) {
            Ok(Response::Tried(tried)) => {
                let mut lines = Vec::new();
                let _written = past::tried(&mut lines, &tried);
                let lines = String::from_utf8_lossy(&lines).into_owned();
                self.log(&format!("{}: {}", self.text, lines.trim_end()));
            }
            Ok(_) => self.error("the capture gave another answer than to a trial"),
            Err(message) => self.error(&message),
        }
    }

    /// Shows the filters in force.
    fn list(&mut self, capture: &mut impl Capture) {
        if let Ok(Response::Stats(stats)) = capture.call(Request::Stats) {
            self.show_filters(&stats);
        }
    }

    /// Fills the selector with the filters in force. The string control gets the first of them if its own is no longer
    /// there: after an undo, a removal or an edit by another client. Wireshark sends only values that differ from the
    /// shown one, so a text that is not in force must not stay there.
    fn show_filters(&mut self, stats: &Stats) {
        self.epoch = stats.epoch;
        let in_force = || stats.filters.iter().filter(|filter| filter.kind == EntryKind::Filter);
        if in_force().all(|filter| filter.text != self.filter) {
            let first = in_force().next().map_or("", |filter| &filter.text);
            if first != self.filter {
                self.filter = first.to_owned();
                self.show_filter();
            }
        }
        for id in std::mem::take(&mut self.listed) {
            self.out.push(Message::new(IN_FORCE, REMOVE, id));
        }
        self.selected.clear();
        for filter in in_force().take(MAX_LISTED) {
            let id = filter.id.to_string();
            let text: String = filter.text.chars().take(MAX_SHOWN).collect();
            let text = text.replace(['\n', '\0'], " ");
            self.out.push(Message::new(IN_FORCE, ADD, format!("{id}\0{id}: {text}")));
            self.listed.push(id);
        }
    }

    fn show_filter(&mut self) {
        let text = &self.filter[..self.filter.floor_char_boundary(MAX_TEXT)];
        self.out.push(Message::new(FILTER, SET, text));
    }

    fn error(&mut self, message: &str) {
        self.out.push(Message::new(0, ERROR, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_control::FilterCount;

    /// Accepts every text without `bad`.
    #[derive(Default)]
    struct Fake {
        texts: Vec<(u64, String)>,
        epoch: u64,
    }

    impl Capture for Fake {
        fn call(&mut self, request: Request) -> Result<Response, String> {
            match request {
                Request::Set { text } | Request::Add { text } if text.contains("bad") => {
                    Err(format!("{text}\n^ expected"))
                }
                Request::Set { text } => self.edit(|texts| *texts = vec![(7, text)]),
                Request::Add { text } => self.edit(|texts| texts.push((8, text))),
                Request::Undo { .. } => self.edit(|texts| *texts = vec![(7, "udp".to_owned())]),
                Request::Delete { id } => self.edit(|texts| texts.retain(|(own, _)| *own != id)),
                Request::Stats => {
                    let filters = self.texts.iter().map(|(id, text)| FilterCount {
                        id: *id,
                        text: text.clone(),
                        ..FilterCount::default()
                    });
                    let (filters, epoch) = (filters.collect(), self.epoch);
                    Ok(Response::Stats(Stats { filters, epoch, ..Stats::default() }))
                }
                other => Err(format!("{other:?}")),
            }
        }

        fn explain(&mut self, text: &str) -> String {
            format!("explained {text}")
        }
    }

    impl Fake {
        fn edit(
            &mut self,
            change: impl FnOnce(&mut Vec<(u64, String)>),
        ) -> Result<Response, String> {
            change(&mut self.texts);
            self.epoch += 1;
            Ok(Response::Ok { epoch: self.epoch, ids: vec![], latency_ns: 0, notes: vec![] })
        }
    }

    fn sent(toolbar: &mut Toolbar, fake: &mut Fake, control: u8, payload: &str) -> Vec<Message> {
        toolbar.handle(Message::new(control, SET, payload), fake);
        toolbar.take()
    }

    #[test]
    fn a_refused_filter_comes_back_with_its_reason_and_the_old_text() {
        let (mut toolbar, mut fake) = (Toolbar::new("udp"), Fake::default());
        let answer = sent(&mut toolbar, &mut fake, FILTER, "bad");
        assert_eq!(
            answer,
            [Message::new(0, ERROR, "bad\n^ expected"), Message::new(FILTER, SET, "udp")]
        );
        let answer = sent(&mut toolbar, &mut fake, FILTER, "tcp");
        assert!(answer.contains(&Message::new(IN_FORCE, ADD, "7\x007: tcp")), "{answer:?}");
        assert_eq!(sent(&mut toolbar, &mut fake, FILTER, "tcp"), [], "nothing new");
    }

    #[test]
    fn the_filter_control_follows_what_is_in_force() {
        let (mut toolbar, mut fake) = (Toolbar::new("udp"), Fake::default());
        sent(&mut toolbar, &mut fake, FILTER, "tcp");
        let undone = sent(&mut toolbar, &mut fake, UNDO, "");
        assert!(undone.contains(&Message::new(FILTER, SET, "udp")), "{undone:?}");
        let again = sent(&mut toolbar, &mut fake, FILTER, "tcp");
        assert!(again.contains(&Message::new(IN_FORCE, ADD, "7\x007: tcp")), "{again:?}");
        // An added filter leaves it as it is; another client's edit does not.
        sent(&mut toolbar, &mut fake, TEXT, "icmp");
        let added = sent(&mut toolbar, &mut fake, ADD_IT, "");
        assert!(added.iter().all(|message| message.control != FILTER), "{added:?}");
        let other = FilterCount { id: 9, text: "arp".to_owned(), ..FilterCount::default() };
        toolbar.show(&Stats { filters: vec![other], epoch: 77, ..Stats::default() });
        let shown = toolbar.take();
        for expected in
            [Message::new(FILTER, SET, "arp"), Message::new(IN_FORCE, ADD, "9\x009: arp")]
        {
            assert!(shown.contains(&expected), "{expected:?}: {shown:?}");
        }
        toolbar.show(&Stats { epoch: 77, ..Stats::default() });
        assert!(toolbar.take().is_empty(), "nothing new");
    }

    #[test]
    fn filters_are_added_listed_and_removed() {
        let (mut toolbar, mut fake) = (Toolbar::new(""), Fake::default());
        assert_eq!(sent(&mut toolbar, &mut fake, REMOVE_IT, "")[0].command, ERROR);
        sent(&mut toolbar, &mut fake, TEXT, "icmp");
        let added = sent(&mut toolbar, &mut fake, ADD_IT, "");
        assert!(added.contains(&Message::new(IN_FORCE, ADD, "8\x008: icmp")), "{added:?}");
        sent(&mut toolbar, &mut fake, IN_FORCE, "8");
        let removed = sent(&mut toolbar, &mut fake, REMOVE_IT, "");
        assert!(removed.contains(&Message::new(IN_FORCE, REMOVE, "8")), "{removed:?}");
        assert!(fake.texts.is_empty());
        assert_eq!(sent(&mut toolbar, &mut fake, EXPLAIN, "")[0].payload, "explained icmp\n");
        assert_eq!(sent(&mut toolbar, &mut fake, 77, "?"), [], "unknown controls are ignored");
    }

    #[test]
    fn the_status_is_a_sum_and_is_sent_when_it_changes() {
        let mut toolbar = Toolbar::new("");
        let mut stats = Stats { epoch: 3, ..Stats::default() };
        stats.accounting.seen = 10;
        stats.accounting.delivered = 4;
        stats.accounting.rejected = 5;
        stats.accounting.lost.insert("ring".to_owned(), 1);
        toolbar.show(&stats);
        toolbar.show(&stats);
        let text = "fyke: epoch 3, 10 seen = 4 accepted + 5 rejected + 1 lost";
        assert_eq!(toolbar.take(), [Message::new(0, STATUS, text)]);
    }
}
