//! Chains of filters before a space without a kernel: the texts that it gets, its counters, and the limits.

use fyke_filter::Options;
use fyke_filters::{Chain, FilterSet, LATER, Listing, Superset, Union};
use std::sync::{Arc, Mutex};

/// A space that keeps what it is told, with counters that a test raises.
#[derive(Debug, Default)]
struct Space {
    accepting: Mutex<Listing>,
    passes_all: Mutex<bool>,
    counting: Mutex<Vec<(String, usize)>>,
    counters: Mutex<[u64; LATER]>,
}

impl Superset for Space {
    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        let added = added.iter().map(|&(id, text)| (id, text.into()));
        self.accepting.lock().unwrap().extend(added);
        *self.passes_all.lock().unwrap() |= unfiltered;
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, _removed: &[u64]) {
        *self.accepting.lock().unwrap() = texts();
        *self.passes_all.lock().unwrap() = texts().is_empty();
    }

    fn why_not_later(&self) -> Option<String> {
        None
    }

    fn count_later(&self, texts: &[(String, usize)]) -> Result<(), String> {
        *self.counting.lock().unwrap() = texts.to_vec();
        Ok(())
    }

    fn open_for_good(&self, _reason: &'static str) {}
}

impl Space {
    /// The texts that accept, without their numbers; the parts of a conjunction are separated by `&`.
    fn accepting(&self) -> Vec<String> {
        self.accepting.lock().unwrap().values().map(|text| text.replace('\u{1}', "&")).collect()
    }

    fn counting(&self) -> Vec<String> {
        let counting = self.counting.lock().unwrap();
        counting.iter().map(|(text, _)| text.replace('\u{1}', "&")).collect()
    }

    /// Counts frames for the text in this place among those that count.
    fn count(&self, place: usize, frames: u64) {
        let slot = self.counting.lock().unwrap()[place].1;
        self.counters.lock().unwrap()[slot] += frames;
    }

    fn counters(&self) -> [u64; LATER] {
        *self.counters.lock().unwrap()
    }
}

fn chain(texts: &[&str]) -> (Arc<Space>, Chain, Vec<FilterSet>) {
    let space = Arc::new(Space::default());
    let lower: Arc<dyn Superset> = Arc::clone(&space) as _;
    let counters = Arc::clone(&space);
    let chain = Chain::new(&Union::new(Arc::clone(&lower)), lower, texts.len(), move || {
        counters.counters()
    });
    let set = |(at, text): (usize, &&str)| {
        let set = FilterSet::new(Options { live: true, ..Options::default() });
        set.set(text).unwrap();
        set.add_superset(Arc::new(chain.link(at)));
        set
    };
    let sets = texts.iter().enumerate().map(set).collect();
    (space, chain, sets)
}

#[test]
fn the_space_has_the_conjunctions_and_counts_for_each_filter() {
    let (space, chain, sets) = chain(&["ip", "udp", "port 53"]);
    assert_eq!(chain.reason(), None);
    assert_eq!(space.accepting(), ["ip&udp&port 53"]);
    assert_eq!(space.counting(), ["ip&udp", "ip"]);
    space.count(0, 5);
    space.count(1, 7);
    let counts = chain.counts(&space.counters()).0;
    let of = |at: usize| (counts[at].arrived, counts[at].passed);
    assert_eq!([of(0), of(1), of(2)], [(12, 12), (12, 5), (5, 0)]);
    assert_eq!((counts[0].texts[&1], counts[1].texts[&1], counts[2].texts.len()), (12, 5, 0));
    // The last filter gets and loses texts; the others stay.
    sets[2].add("port 80").unwrap();
    assert_eq!(space.accepting(), ["ip&udp&port 53", "ip&udp&port 80"]);
    sets[2].remove(1).unwrap();
    assert_eq!(space.accepting(), ["ip&udp&port 80"]);
    assert_eq!(space.counting(), ["ip&udp", "ip"]);
    // A filter without a text accepts every frame.
    sets[0].set("").unwrap();
    assert_eq!(space.accepting(), ["udp&port 80"]);
    assert_eq!(space.counting(), ["udp", ""]);
    sets[2].set("").unwrap();
    sets[1].set("").unwrap();
    assert!(*space.passes_all.lock().unwrap());
}

#[test]
fn the_counts_of_a_text_stay_when_its_counter_is_given_away() {
    let (space, chain, sets) = chain(&["udp", "port 53"]);
    let mut total = 0;
    for round in 0..3 * LATER as u64 {
        space.count(0, round + 1);
        total += round + 1;
        sets[0].set(&format!("less {}", 100 + round)).unwrap();
        assert_eq!(space.counting().len(), 1, "round {round}");
        let counts = chain.counts(&space.counters());
        assert_eq!(counts.total(), total, "round {round}");
        assert_eq!(counts.0[0].texts[&(round + 1)], round + 1);
    }
    space.count(0, 1);
    chain.stand_apart(Some("a test"));
    assert_eq!((space.accepting().len(), space.counting().len()), (1, 0));
    chain.leave();
    // Others use the counters now.
    *space.counters.lock().unwrap() = [1 << 40; LATER];
    assert_eq!(chain.counts(&space.counters()).total(), total + 1);
}

#[test]
fn the_first_filter_is_alone_beyond_the_limits() {
    let (space, chain, sets) = chain(&["udp", "port 53"]);
    let mut ids = Vec::new();
    for port in 0..LATER {
        assert_eq!(chain.reason(), None);
        ids.push(sets[0].add(&format!("tcp port {port}")).unwrap());
    }
    let is_alone = |why: &str| {
        let reason = chain.reason().expect("a reason");
        assert!(reason.contains(why), "{reason}");
        assert!(space.counting().is_empty());
        assert!(space.accepting().iter().all(|text| !text.contains('&')));
    };
    is_alone("17 counters");
    sets[0].remove(ids[0]).unwrap();
    assert_eq!((chain.reason(), space.accepting().len()), (None, LATER));
    let more: Vec<_> = (0..4).map(|port| sets[1].add(&format!("port {port}")).unwrap()).collect();
    is_alone("80 conjunctions");
    more.into_iter().for_each(|id| sets[1].remove(id).unwrap());
    assert_eq!(chain.reason(), None);
    let long: Vec<_> = (0..400).map(|port| format!("port {port}")).collect();
    sets[1].set(&long.join(" or ")).unwrap();
    is_alone("bytes of conjunctions");
    sets[1].set("port 53").unwrap();
    assert_eq!(chain.reason(), None);
}
