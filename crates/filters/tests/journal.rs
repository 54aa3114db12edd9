//! The log of edits, edits that take others back, names, and filters with a limited time.

use fyke_filter::Options;
use fyke_filters::{
    Author, Change, Edit, Edited, FilterError, FilterSet, GroupError, Label, UndoError,
};
use fyke_frame::{Batch, Frame, LinkType};
use std::time::{Duration, Instant};

fn user(uid: u32, pid: u32) -> Author {
    Author::Client { uid, pid, program: Some("fyke ctl".into()) }
}

fn labeled(
    filters: &FilterSet,
    author: Author,
    text: &str,
    name: Option<&str>,
    lifetime: Option<Duration>,
) -> Result<Edited, GroupError> {
    let labels = [Label { name: name.map(Into::into), lifetime, ..Label::default() }];
    filters.edit_as(&Edit { changes: &[Change::Add(text)], labels: &labels, author })
}

fn edit(filters: &FilterSet, author: &Author, changes: &[Change<'_>]) -> u64 {
    let edit = Edit { author: author.clone(), ..Edit::of(changes) };
    filters.edit_as(&edit).unwrap().epoch
}

fn texts(filters: &FilterSet) -> Vec<String> {
    filters.counts().into_iter().map(|count| count.text.to_string()).collect()
}

/// A set that began with `ip`, as a capture does.
fn begun() -> FilterSet {
    let filters = FilterSet::new(Options::default());
    filters.set("ip").unwrap();
    filters
}

#[test]
fn an_edit_is_taken_back_and_others_stay() {
    let (filters, alice, bob) = (begun(), user(1, 10), user(2, 20));
    let set = edit(&filters, &alice, &[Change::Set("udp port 1"), Change::Add("udp port 2")]);
    edit(&filters, &bob, &[Change::Add("arp")]);
    let (undone, edited) = filters.undo(None, alice.clone()).unwrap();
    assert_eq!((undone, edited.epoch), (set, 4));
    // The old text comes back with a new number, after those that are in force.
    assert_eq!(texts(&filters), ["arp", "ip"]);
    // A second undo takes back nothing of Bob's, and the first one only if it is named.
    assert!(matches!(filters.undo(None, alice.clone()), Err(UndoError::Nothing)));
    let (undone, _) = filters.undo(Some(4), alice).unwrap();
    assert_eq!(undone, 4);
    assert_eq!(texts(&filters), ["arp", "udp port 1", "udp port 2"]);
    let (undone, _) = filters.undo(None, bob).unwrap();
    assert_eq!((undone, texts(&filters).len()), (3, 2));
}

#[test]
fn what_others_have_touched_is_not_taken_back() {
    let (filters, alice, bob) = (begun(), user(1, 10), user(0, 20));
    let added = edit(&filters, &alice, &[Change::Add("tcp"), Change::Add("udp")]);
    let removed = edit(&filters, &bob, &[Change::Remove(3)]);
    let refused = |epoch, who: &Author| filters.undo(epoch, who.clone()).unwrap_err().to_string();
    assert_eq!(
        refused(Some(added), &alice),
        format!(
            "filter 3 of epoch {added} has been removed since, in epoch {removed} by root (fyke ctl, process 20)"
        )
    );
    assert_eq!(texts(&filters), ["ip", "tcp"]);
    filters.undo(Some(removed), alice.clone()).unwrap();
    assert!(refused(Some(removed), &bob).contains("taken back already, in epoch 4 by user 1"));
    assert!(refused(Some(1), &alice).contains("edit by the program itself"));
    assert!(refused(Some(9), &alice).contains("the log has epochs 1 to 4"));
    // The second text is back, as another filter.
    assert_eq!(texts(&filters), ["ip", "tcp", "udp"]);
    filters.undo(Some(added), alice).unwrap();
    assert_eq!(texts(&filters), ["ip"]);
}

/// A filter with a time that is over does not come back with an undo; the others do, and the log knows them still.
#[test]
fn an_undo_adds_no_filter_again_with_a_time_that_is_over() {
    let (filters, alice) = (begun(), user(1, 10));
    let hour = Some(Duration::from_secs(3_600));
    labeled(&filters, alice.clone(), "udp port 1", Some("e"), Some(Duration::from_millis(1)))
        .unwrap();
    // The thread that removes it looks every 50 ms; the edit may come first or not.
    labeled(&filters, alice.clone(), "udp port 2", Some("f"), hour).unwrap();
    let set = edit(&filters, &alice, &[Change::Set("arp")]);
    std::thread::sleep(Duration::from_millis(20));
    let (undone, edited) = filters.undo(None, alice.clone()).unwrap();
    assert_eq!((undone, texts(&filters)), (set, vec!["ip".to_owned(), "udp port 2".to_owned()]));
    let left_out: Vec<_> =
        filters.left_out(edited.epoch).into_iter().filter_map(|(_, name)| name).collect();
    assert!(left_out.iter().all(|name| &**name == "e"), "{left_out:?}");
    // `f` is the same filter under its new number, so the edit that added it can still be taken back.
    filters.undo(None, alice.clone()).unwrap();
    assert_eq!(texts(&filters), ["ip"]);
    // The only filter that would come back is over.
    let only = Label { lifetime: Some(Duration::from_millis(200)), ..Label::default() };
    let changes = [Change::Set("udp port 3")];
    filters.edit_as(&Edit { changes: &changes, labels: &[only], author: alice.clone() }).unwrap();
    let set = edit(&filters, &alice, &[Change::Set("icmp")]);
    std::thread::sleep(Duration::from_millis(250));
    let refused = filters.undo(Some(set), alice).unwrap_err();
    assert!(matches!(refused, UndoError::Over { .. }), "{refused}");
    assert_eq!(texts(&filters), ["icmp"]);
}

/// Undo takes back the next older edit that can be taken back, and none is in its way.
#[test]
fn undo_after_undo_goes_back_step_by_step() {
    let (filters, alice, bob) = (begun(), user(1, 10), user(2, 20));
    let undo = || filters.undo(None, alice.clone()).map(|(epoch, _)| epoch);
    // Add, remove, and back twice.
    let added = edit(&filters, &alice, &[Change::Add("tcp")]);
    let removed = edit(&filters, &alice, &[Change::Remove(2)]);
    assert_eq!(undo().unwrap(), removed);
    assert_eq!(texts(&filters), ["ip", "tcp"]);
    assert_eq!(undo().unwrap(), added);
    assert_eq!(texts(&filters), ["ip"]);
    assert!(matches!(undo(), Err(UndoError::Nothing)));
    // A set that takes an added text with it.
    let added = edit(&filters, &alice, &[Change::Add("udp")]);
    let set = edit(&filters, &alice, &[Change::Set("arp")]);
    assert_eq!((undo().unwrap(), undo().unwrap()), (set, added));
    assert_eq!(texts(&filters), ["ip"]);
    // An edit that another user has undone in part is passed over.
    let kept = edit(&filters, &alice, &[Change::Add("udp port 1")]);
    let Edited { epoch, ids } = labeled(&filters, alice.clone(), "udp port 2", None, None).unwrap();
    edit(&filters, &bob, &[Change::Remove(ids[0].unwrap())]);
    assert_eq!(undo().unwrap(), kept);
    assert_eq!(texts(&filters), ["ip"]);
    // With nothing left, the reason of the last one is told.
    assert!(matches!(undo(), Err(UndoError::Touched { epoch: of, .. }) if of == epoch));
}

/// An undo that has been taken back leaves the first edit in force, to be taken back again, any number of times.
#[test]
fn an_undo_is_taken_back_again_and_again() {
    let (filters, alice) = (begun(), user(1, 10));
    let added = edit(&filters, &alice, &[Change::Add("tcp"), Change::Add("udp")]);
    let set = edit(&filters, &alice, &[Change::Set("arp")]);
    let undone = |epoch: u64| {
        let records = filters.log(100).records.into_iter();
        records.filter(|record| record.epoch == epoch).find_map(|record| record.undone)
    };
    for _ in 0..3 {
        let (of, Edited { epoch: undo, .. }) = filters.undo(None, alice.clone()).unwrap();
        assert_eq!((of, undone(set)), (set, Some(undo)));
        assert_eq!(texts(&filters), ["ip", "tcp", "udp"]);
        let (of, _) = filters.undo(Some(undo), alice.clone()).unwrap();
        assert_eq!((of, undone(set)), (undo, None));
        assert_eq!(texts(&filters), ["arp"]);
    }
    filters.undo(None, alice.clone()).unwrap();
    let (of, _) = filters.undo(None, alice.clone()).unwrap();
    assert_eq!((of, texts(&filters)), (added, vec!["ip".to_owned()]));
    assert!(matches!(filters.undo(None, alice), Err(UndoError::Nothing)));
}

/// Pauses are in the log, and no edit: nothing takes them back.
#[test]
fn pauses_are_in_the_log_and_no_edits() {
    let (filters, alice) = (begun(), user(1, 10));
    filters.log_pause(true, alice.clone());
    let added = edit(&filters, &alice, &[Change::Add("tcp")]);
    filters.log_pause(false, alice.clone());
    let log = filters.log(10);
    let seen: Vec<_> = log.records.iter().map(|one| (one.epoch, one.edits, one.pause)).collect();
    let expected = [(1, 1, None), (1, 0, Some(true)), (2, 1, None), (2, 0, Some(false))];
    assert_eq!(seen, expected);
    assert_eq!(log.records[1].author, alice);
    let (of, _) = filters.undo(None, alice.clone()).unwrap();
    assert_eq!((of, texts(&filters)), (added, vec!["ip".to_owned()]));
    assert!(matches!(filters.undo(Some(1), alice.clone()), Err(UndoError::NotOfUser { .. })));
    assert!(matches!(filters.undo(None, alice), Err(UndoError::Nothing)));
}

#[test]
fn without_a_filter_before_there_is_none_after() {
    let (filters, alice) = (FilterSet::new(Options::default()), user(1, 10));
    edit(&filters, &alice, &[Change::Add("tcp")]);
    filters.undo(None, alice.clone()).unwrap();
    assert!(filters.is_empty());
    // If another filter has come, that one stays.
    edit(&filters, &alice, &[Change::Add("tcp")]);
    edit(&filters, &user(2, 20), &[Change::Add("udp")]);
    filters.undo(None, alice.clone()).unwrap();
    assert_eq!(texts(&filters), ["udp"]);
    edit(&filters, &alice, &[Change::Set("")]);
    filters.undo(None, alice).unwrap();
    assert_eq!(texts(&filters), ["udp"]);
}

#[test]
fn edits_of_trackers_are_one_entry_and_stay() {
    let filters = begun();
    filters.tracked_by("ftp".to_owned());
    for _ in 0..5 {
        filters.edit_rows(LinkType::EN10MB, &[], &[], |_| ()).unwrap();
    }
    edit(&filters, &user(1, 10), &[Change::Add("tcp")]);
    filters.edit_passes(LinkType::EN10MB, |_| ()).unwrap();
    let log = filters.log(usize::MAX);
    assert_eq!(log.trackers.as_deref(), Some("ftp"));
    let entries: Vec<_> = log.records.iter().map(|one| (one.epoch, one.edits)).collect();
    assert_eq!(entries, [(1, 1), (2, 5), (7, 1), (8, 1)]);
    for epoch in [2, 4, 6, 8] {
        let refused = filters.undo(Some(epoch), user(1, 10)).unwrap_err();
        assert!(refused.to_string().contains("an edit by a tracker"), "{epoch}: {refused}");
    }
    assert_eq!(filters.undo(None, user(1, 11)).unwrap().0, 7);
}

#[test]
fn the_log_has_the_frames_that_each_edit_has_accepted() {
    let (filters, alice) = (begun(), user(1, 10));
    edit(&filters, &alice, &[Change::Set("greater 60"), Change::Add("less 59")]);
    let mut reader = filters.reader();
    let mut count = |frames: &[usize]| {
        let bytes = [0; 100];
        let mut batch = Batch::new();
        for &len in frames {
            batch.push(Frame::new(LinkType::EN10MB, &bytes[..len])).unwrap();
        }
        reader.refresh();
        let accepted = reader.evaluate(&batch, batch.all()).unwrap();
        reader.count(batch.all());
        accepted.count()
    };
    assert_eq!(count(&[60, 59, 58, 61, 62]), 5);
    edit(&filters, &alice, &[Change::Remove(2)]);
    assert_eq!(count(&[60, 58]), 1);
    let log = filters.log(2);
    let accepted: Vec<_> = log.records.iter().map(|one| one.accepted).collect();
    assert_eq!(accepted, [6, 0]);
    let first: Vec<_> =
        log.records[0].changes.iter().map(|one| (one.added, one.id, one.accepted)).collect();
    assert_eq!(first, [(false, 1, 0), (true, 2, 3), (true, 3, 3)]);
    assert_eq!(log.records[1].changes[0].accepted, 3);
}

#[test]
fn old_edits_are_forgotten_and_counted() {
    let (filters, alice) = (begun(), user(1, 10));
    for _ in 0..600 {
        let added = labeled(&filters, alice.clone(), "arp", Some("one"), None).unwrap();
        edit(&filters, &alice, &[Change::Remove(added.ids[0].unwrap())]);
    }
    let log = filters.log(usize::MAX);
    assert_eq!((log.records.len(), log.forgotten), (1_000, 201));
    let refused = filters.undo(Some(3), alice.clone()).unwrap_err().to_string();
    assert!(refused.contains("the log has epochs 202 to 1201"), "{refused}");
    // Texts of 64 MiB together are kept, not more.
    let long = format!("arp{}", " ".repeat(10 << 20));
    for _ in 0..5 {
        edit(&filters, &alice, &[Change::Set(&long)]);
    }
    let kept = filters.log(usize::MAX).records.len();
    assert!((1..=3).contains(&kept), "{kept}");
    filters.undo(None, alice).unwrap();
}

#[test]
fn a_name_belongs_to_one_filter() {
    let (filters, alice) = (begun(), user(1, 10));
    let add = |name: &str| labeled(&filters, alice.clone(), "arp", Some(name), None);
    let added = add("voip").unwrap().ids[0].unwrap();
    let refused = add("voip").unwrap_err().to_string();
    assert!(refused.contains("filter 2 has the name \"voip\" already"), "{refused}");
    for bad in ["", "7", "a b", "a\n", "-x", &"x".repeat(65)] {
        assert!(matches!(add(bad).unwrap_err().error, FilterError::Name(_)), "{bad:?}");
    }
    assert_eq!(texts(&filters).len(), 2);
    let changes = [Change::Remove(added), Change::Add("icmp"), Change::Add("tcp")];
    let name = |name: &str| Label { name: Some(name.into()), ..Label::default() };
    let labels = [Label::default(), name("voip"), name("voip")];
    let group = Edit { changes: &changes, labels: &labels, author: alice.clone() };
    assert_eq!(filters.edit_as(&group).unwrap_err().place, 2);
    let labels = [Label::default(), name("voip"), name("web")];
    filters.edit_as(&Edit { changes: &changes, labels: &labels, author: alice.clone() }).unwrap();
    assert_eq!(filters.labels().len(), 2);
    // The name comes back with the filter, unless another one has it now.
    filters.undo(None, alice.clone()).unwrap();
    let labels = filters.labels();
    assert_eq!(labels.values().next().unwrap().name.as_deref(), Some("voip"));
    edit(&filters, &alice, &[Change::Remove(*labels.keys().next().unwrap())]);
    let other = add("voip").unwrap().epoch;
    let refused = filters.undo(Some(other - 1), alice).unwrap_err().to_string();
    assert!(refused.contains("has the name \"voip\" already"), "{refused}");
}

/// Waits until a condition holds; the limit is no measurement.
fn wait(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never holds");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_filter_goes_at_the_end_of_its_time() {
    let (filters, alice) = (begun(), user(1, 10));
    let time = Some(Duration::from_millis(200));
    let added = labeled(&filters, alice.clone(), "arp", Some("short"), time).unwrap();
    let id = added.ids[0].unwrap();
    assert!(filters.labels()[&id].expires.is_some());
    wait(|| filters.len() == 1);
    assert_eq!(texts(&filters), ["ip"]);
    let log = filters.log(1);
    assert_eq!((&log.records[0].author, log.records[0].changes[0].id), (&Author::Expiry, id));
    let refused = filters.undo(Some(added.epoch), alice.clone()).unwrap_err().to_string();
    assert!(refused.contains("by the end of its time"), "{refused}");
    for bad in [Duration::ZERO, Duration::MAX] {
        let refused = labeled(&filters, alice.clone(), "arp", None, Some(bad)).unwrap_err();
        assert!(matches!(refused.error, FilterError::Time(_)));
    }
    // A later one gets a thread of its own.
    labeled(&filters, alice, "arp", None, time).unwrap();
    wait(|| filters.len() == 1);
}

#[test]
fn the_last_filter_stays_unless_every_frame_was_accepted_before() {
    let (filters, alice) = (FilterSet::new(Options::default()), user(1, 10));
    let time = Some(Duration::from_millis(300));
    labeled(&filters, alice.clone(), "tcp", None, time).unwrap();
    wait(|| filters.is_empty());
    let filters = begun();
    labeled(&filters, alice.clone(), "tcp", None, time).unwrap();
    edit(&filters, &alice, &[Change::Remove(1)]);
    wait(|| filters.labels().values().all(|label| label.expires.is_none()));
    assert_eq!(texts(&filters), ["tcp"]);
}

#[test]
fn equal_texts_are_found() {
    let filters = begun();
    let ids = |changes: &[Change<'_>]| -> Vec<u64> {
        filters.edit(changes).unwrap().into_iter().flatten().collect()
    };
    let new = ids(&[Change::Add("tcp"), Change::Add(" ip "), Change::Add("tcp")]);
    assert_eq!(filters.same_texts(&new), [(3, 1), (4, 2)]);
    let many: Vec<_> = (0..20).map(|n| format!("port {}", n % 19)).collect();
    let changes: Vec<_> = many.iter().map(|text| Change::Add(text)).collect();
    assert_eq!(filters.same_texts(&ids(&changes)), [(24, 5)]);
}
