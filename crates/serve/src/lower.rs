//! The service as the space below a reader's own graph: the filters after `serve:NAME` also run in the service.
//!
//! As the kernel does for a device, the service passes a superset of what the reader's nodes need, and these decide
//! under which epoch a frame is evaluated. An edit reaches the service before it takes effect in the reader, and leaves
//! it afterwards. A text that the service refuses makes it pass every frame to this reader; the answer to the edit, the
//! user of the reader and its counts tell the reason. An edit that the service does not answer in time, or that comes
//! after its end, is refused, and the filters stay. A service that was stopped may make such an edit later: once it
//! answers, a thread brings its texts in order.

use fyke_capture::{FilterSocket, FrameServer, Interface, SocketFilter};
use fyke_filter::Options;
use fyke_filters::{Listing, Superset};
use fyke_graph::RuleSet;
use fyke_graph::placement::{LowerFilter, NoRules, RulesTap, RulesWanted, Space};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Number of the text that accepts every frame.
const EVERY_FRAME: u64 = u64::MAX;
/// Pause between two looks whether a service answers again.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Refusal of edits of a service that does not exist any more.
const ENDED: &str = "the service has ended";

/// Services for sources `serve:NAME`, and another space for all other sources.
pub struct ServeSpace<S>(pub S);

impl<S: Space> Space for ServeSpace<S> {
    fn rules(
        &self,
        interface: &Interface,
        rules: &RuleSet,
        wanted: &RulesWanted,
    ) -> Result<Arc<dyn RulesTap>, NoRules> {
        match interface.name.starts_with("serve:") {
            true => Err(NoRules::Alone("a service has no rules".to_owned())),
            false => self.0.rules(interface, rules, wanted),
        }
    }

    fn filter(
        &self,
        interface: &Interface,
        reading: Options,
    ) -> Result<Arc<dyn LowerFilter>, String> {
        match interface.name.starts_with("serve:") {
            true => Ok(Arc::new(Lower::of(&interface.name))),
            false => self.0.filter(interface, reading),
        }
    }
}

/// The texts of a reader's filters at the service.
#[derive(Debug, Default)]
pub struct Lower(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Name of the source.
    name: String,
    server: Option<Arc<dyn FrameServer>>,
    /// Texts that the filters need.
    wanted: BTreeMap<u64, Arc<str>>,
    /// True if the filters need every frame.
    unfiltered: bool,
    /// Texts that the service has, by number; [`EVERY_FRAME`] among them if it passes every frame.
    there: BTreeMap<u64, Arc<str>>,
    /// Reason why something else than texts accepts frames.
    for_good: Option<&'static str>,
    /// Reason why the service does not have the texts.
    refused: Option<String>,
    /// Reason why it has not made the last edit: it does not answer, or has ended.
    unmade: Option<String>,
    /// True after an edit without an answer, which it may make later.
    is_unsure: bool,
    /// True while a thread waits for that answer.
    settles: bool,
    /// True if the user of the reader knows that the service refuses the texts.
    is_told: bool,
}

impl State {
    /// The texts that the service should have.
    fn target(&self) -> BTreeMap<u64, Arc<str>> {
        let passes_all = self.unfiltered || self.for_good.is_some() || self.refused.is_some();
        match passes_all || self.wanted.is_empty() {
            true => BTreeMap::from([(EVERY_FRAME, Arc::from(""))]),
            false => self.wanted.clone(),
        }
    }

    /// Brings the texts to the service, and tells the user of the reader if that changes the side that decides.
    fn sync(&mut self, only_add: bool) {
        let Some(server) = self.server.clone() else { return };
        self.bring(&*server, only_add);
        if self.unmade.is_none() && self.is_told != self.refused.is_some() {
            self.is_told = self.refused.is_some();
            let again =
                || "the service takes the filters again, and filters for this reader".to_owned();
            server.tell(self.refusal_in_words().unwrap_or_else(again));
        }
    }

    /// Consequence of a refusal, and what to do.
    fn refusal_in_words(&self) -> Option<String> {
        let why = self.refused.as_ref()?;
        Some(format!(
            "the service refuses the filters ({why}), so it sends this reader every frame that it may have, and the \
             reader rejects the others itself, at a higher cost; remove filters (fyke ctl del), or raise the limit \
             in the policy of the service"
        ))
    }

    /// Brings the texts to the service. While it only adds, it keeps those that are not needed any more, unless they
    /// are too many.
    fn bring(&mut self, server: &dyn FrameServer, only_add: bool) {
        for _ in 0..2 {
            let target = self.target();
            let missing = target.iter().filter(|(id, _)| !self.there.contains_key(id));
            let missing: Vec<_> = missing.map(|(&id, text)| (id, &**text)).collect();
            let keeps = only_add && self.refused.is_none();
            let gone = self.there.keys().filter(|id| !keeps && !target.contains_key(id));
            let gone: Vec<u64> = gone.copied().collect();
            if missing.is_empty() && gone.is_empty() && !self.is_unsure {
                return;
            }
            match server.edit(&gone, &missing) {
                Ok(()) => {
                    self.is_unsure = false;
                    gone.iter().for_each(|id| drop(self.there.remove(id)));
                    let missing: Vec<_> = missing.iter().map(|(id, _)| *id).collect();
                    self.there.extend(
                        missing
                            .into_iter()
                            .filter_map(|id| target.get(&id).map(|text| (id, Arc::clone(text)))),
                    );
                    return;
                }
                // The second round asks for every frame.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.refused = Some(first_line(&error.to_string()));
                }
                Err(error) => {
                    self.unmade = Some(first_line(&error.to_string()));
                    self.is_unsure = true;
                    return;
                }
            }
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic elsewhere leaves texts too many at the service.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the service answers an edit that it was too late for, then brings its texts in order.
fn settle(state: &Weak<Mutex<State>>) {
    loop {
        sleep(LOOK_PAUSE);
        let Some(shared) = state.upgrade() else { return };
        let state = &mut *lock(&shared);
        let server = state.server.clone().filter(|server| state.is_unsure && !server.is_gone());
        let Some(server) = server else {
            state.settles = false;
            return;
        };
        // Takes late answers; without one, it fails at once.
        if server.edit(&[], &[]).is_ok() {
            // An edit in another thread may still look at its own refusal.
            let unmade = state.unmade.take();
            state.sync(false);
            state.unmade = unmade;
        }
    }
}

impl Lower {
    fn of(name: &str) -> Lower {
        Lower(Arc::new(Mutex::new(State { name: name.to_owned(), ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Has the texts brought in order later if the service may still make an edit.
    fn settle_later(&self, state: &mut State) {
        if state.is_unsure && !state.settles {
            let shared = Arc::downgrade(&self.0);
            let thread = Builder::new().name("fyke-settle".to_owned());
            // Without a thread, the next edit brings the texts in order.
            state.settles = thread.spawn(move || settle(&shared)).is_ok();
        }
    }
}

impl Superset for Lower {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let state = &mut *self.lock();
        state.unmade = None;
        state.wanted.extend(added.iter().map(|&(id, text)| (id, Arc::from(text))));
        state.unfiltered |= unfiltered;
        state.sync(true);
        if state.unmade.is_none() && state.server.as_ref().is_some_and(|server| server.is_gone()) {
            state.unmade = Some(ENDED.to_owned());
        }
    }

    fn refusal(&self) -> Option<String> {
        self.lock().unmade.clone()
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, _removed: &[u64]) {
        let state = &mut *self.lock();
        state.wanted = texts();
        state.unfiltered = state.wanted.is_empty();
        if state.unmade.take().is_some() && state.is_unsure {
            // The edit was refused for it.
            self.settle_later(state);
            return;
        }
        // The refused text may be gone.
        state.refused = None;
        state.sync(false);
        // Without its answer there are texts too many there.
        state.unmade = None;
        self.settle_later(state);
    }

    fn remark(&self) -> Option<String> {
        let state = self.lock();
        state.refusal_in_words().map(|words| format!("{}: {words}", state.name))
    }

    fn open_for_good(&self, reason: &'static str) {
        let state = &mut *self.lock();
        state.for_good = Some(reason);
        state.sync(false);
        self.settle_later(state);
    }
}

impl SocketFilter for Lower {
    fn take_socket(&self, _socket: Arc<FilterSocket>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the frames come from a service"))
    }

    fn take_server(&self, server: Arc<dyn FrameServer>) -> io::Result<()> {
        let state = &mut *self.lock();
        state.server = Some(server);
        state.sync(false);
        match state.there.is_empty() {
            true => {
                let why = state.unmade.take().or_else(|| state.refused.clone());
                Err(io::Error::other(why.unwrap_or_default()))
            }
            false => Ok(()),
        }
    }

    fn rejected(&self) -> Option<u64> {
        // The source has the counts of the service.
        None
    }
}

impl LowerFilter for Lower {
    fn passes_all(&self) -> Option<String> {
        let state = self.lock();
        let graph = state.server.as_ref().and_then(|server| server.graph());
        if let Some(graph) = graph {
            return Some(format!("this graph decides there which frames arrive: {graph}"));
        }
        let refused = state.refused.as_ref().map(|why| format!("it refuses a text: {why}"));
        let all = || state.unfiltered.then(|| "no filter rejects a frame".to_owned());
        refused.or_else(|| state.for_good.map(str::to_owned)).or_else(all)
    }

    fn form(&self) -> String {
        self.lock().name.clone()
    }

    fn place(&self) -> &'static str {
        match self.lock().server.as_ref().is_some_and(|server| server.is_restricted()) {
            true => "fyke serve (within its policy)",
            false => "fyke serve",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_capture::ServerCounts;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Most texts of the service below.
    const QUOTA: usize = 3;

    /// A service that refuses texts with `wrong`, and writes down its texts after each edit; true while it is stopped;
    /// remarks.
    #[derive(Debug, Default)]
    struct Peer(Mutex<BTreeMap<u64, String>>, Mutex<Vec<String>>, AtomicBool, Mutex<Vec<String>>);

    impl FrameServer for Peer {
        fn edit(&self, removed: &[u64], added: &[(u64, &str)]) -> io::Result<()> {
            if self.2.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            if added.iter().any(|(_, text)| text.contains("wrong")) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "wrong\n^"));
            }
            let mut texts = self.0.lock().unwrap();
            if texts.len() + added.len() - removed.len() > QUOTA {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many"));
            }
            for id in removed {
                assert!(texts.remove(id).is_some(), "{id} is not there");
            }
            for (id, text) in added {
                assert!(texts.insert(*id, (*text).to_owned()).is_none(), "{id} is there");
            }
            let all: Vec<&str> = texts.values().map(String::as_str).collect();
            self.1.lock().unwrap().push(all.join("|"));
            Ok(())
        }

        fn counts(&self, _: u64, _: u64) -> ServerCounts {
            ServerCounts::default()
        }

        fn tell(&self, remark: String) {
            self.3.lock().unwrap().push(remark);
        }

        fn end(&self) -> bool {
            true
        }

        fn end_reason(&self) -> Option<String> {
            None
        }

        fn is_gone(&self) -> bool {
            false
        }
    }

    fn narrow(lower: &Lower, texts: &[(u64, &str)]) {
        let listing: Listing = texts.iter().map(|(id, text)| (*id, Arc::from(*text))).collect();
        lower.narrow(&|| listing.clone(), &[]);
    }

    #[test]
    fn the_service_has_a_superset_of_the_texts_at_every_moment() {
        let (lower, peer) = (Lower::default(), Arc::new(Peer::default()));
        lower.widen(&[(1, "udp")], false);
        lower.take_server(Arc::clone(&peer) as _).unwrap();
        lower.widen(&[(2, "tcp")], false);
        narrow(&lower, &[(2, "tcp")]);
        // The last filter goes: every frame is accepted.
        lower.widen(&[], true);
        narrow(&lower, &[]);
        lower.widen(&[(3, "arp")], false);
        narrow(&lower, &[(3, "arp")]);
        let seen = peer.1.lock().unwrap().clone();
        assert_eq!(seen, ["udp", "udp|tcp", "tcp", "tcp|", "", "arp"]);
        assert_eq!(lower.passes_all(), None);
    }

    #[test]
    fn an_edit_without_an_answer_is_refused_and_the_texts_stay() {
        let (lower, peer) = (Lower::default(), Arc::new(Peer::default()));
        lower.widen(&[(1, "udp")], false);
        lower.take_server(Arc::clone(&peer) as _).unwrap();
        peer.2.store(true, Ordering::Relaxed);
        lower.widen(&[(2, "tcp")], false);
        assert_eq!(lower.refusal().unwrap(), "no answer");
        narrow(&lower, &[(1, "udp")]);
        assert_eq!((lower.refusal(), lower.passes_all()), (None, None));
        peer.2.store(false, Ordering::Relaxed);
        lower.widen(&[(3, "arp")], false);
        assert_eq!(lower.refusal(), None);
        narrow(&lower, &[(1, "udp"), (3, "arp")]);
        let seen = peer.1.lock().unwrap().clone();
        assert_eq!(seen, ["udp", "udp|arp"]);
    }

    #[test]
    fn a_service_that_answers_again_has_the_texts_without_another_edit() {
        let (lower, peer) = (Lower::default(), Arc::new(Peer::default()));
        lower.widen(&[(1, "udp"), (2, "tcp")], false);
        lower.take_server(Arc::clone(&peer) as _).unwrap();
        peer.2.store(true, Ordering::Relaxed);
        narrow(&lower, &[(2, "tcp")]);
        lower.widen(&[(3, "arp")], false);
        assert_eq!(lower.refusal().unwrap(), "no answer");
        narrow(&lower, &[(2, "tcp")]);
        peer.2.store(false, Ordering::Relaxed);
        let limit = std::time::Instant::now() + Duration::from_secs(20);
        while peer.0.lock().unwrap().values().ne(["tcp"]) {
            assert!(std::time::Instant::now() < limit, "{:?}", peer.0);
            sleep(Duration::from_millis(5));
        }
        assert_eq!(lower.lock().there.values().map(|text| &**text).collect::<Vec<_>>(), ["tcp"]);
    }

    #[test]
    fn more_texts_than_the_service_takes_open_it_at_once_and_its_user_is_told() {
        let (lower, peer) = (Lower::default(), Arc::new(Peer::default()));
        let all = [(1, "udp"), (2, "tcp"), (3, "arp"), (4, "icmp"), (5, "sctp")];
        lower.widen(&all[..3], false);
        lower.take_server(Arc::clone(&peer) as _).unwrap();
        assert_eq!(lower.remark(), None);
        lower.widen(&all[3..4], false);
        assert_eq!(lower.refusal(), None);
        // Before the edit takes effect, its frames arrive.
        assert_eq!(peer.0.lock().unwrap().keys().collect::<Vec<_>>(), [&EVERY_FRAME]);
        narrow(&lower, &all[..4]);
        assert!(lower.remark().unwrap().contains("refuses the filters (too many)"));
        lower.widen(&all[4..], false);
        narrow(&lower, &all);
        assert_eq!(peer.3.lock().unwrap().len(), 1, "it is told once: {:?}", peer.3);
        narrow(&lower, &all[..3]);
        assert_eq!((lower.remark(), peer.0.lock().unwrap().len()), (None, 3));
        let told = peer.3.lock().unwrap().clone();
        assert!(told.len() == 2 && told[1].contains("takes the filters again"), "{told:?}");
    }

    #[test]
    fn a_refused_text_opens_the_service_until_it_is_gone() {
        let (lower, peer) = (Lower::default(), Arc::new(Peer::default()));
        lower.widen(&[(1, "udp")], false);
        lower.take_server(Arc::clone(&peer) as _).unwrap();
        lower.widen(&[(2, "wrong")], false);
        narrow(&lower, &[(1, "udp"), (2, "wrong")]);
        assert_eq!(lower.passes_all().unwrap(), "it refuses a text: wrong");
        assert_eq!(peer.0.lock().unwrap().get(&EVERY_FRAME).unwrap(), "");
        narrow(&lower, &[(1, "udp")]);
        assert_eq!(lower.passes_all(), None);
        assert_eq!(peer.0.lock().unwrap().values().collect::<Vec<_>>(), ["udp"]);
    }
}
