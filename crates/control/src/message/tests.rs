//! Requests and responses as JSON, refused texts, and sums.

use super::*;

#[test]
fn requests_read_as_people_would_write_them() {
    let add = Request::Add { text: "port 80".into() };
    for (line, request) in [
        (r#"{"request":"show"}"#, Request::Show),
        (r#"{"request":"add","text":"port 80"}"#, add),
        (r#"{"interval_ms":5,"request":"watch"}"#, Request::Watch { interval_ms: 5 }),
    ] {
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
    }
}

#[test]
fn a_request_that_means_something_else_is_refused() {
    for line in [
        r#"{"request":"drop"}"#,
        r#"{"request":"add"}"#,
        r#"{"request":"delete","id":-1}"#,
        r#"{"request":"add","text":"port 80","place":3}"#,
        "show",
        "[]",
    ] {
        assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
    }
}

#[test]
fn changes_of_one_edit_are_read_strictly() {
    let read = |line: &str| serde_json::from_str::<Request>(line);
    let edit = r#"{"request":"edit","changes":[{"change":"add","text":"ip","name":"a","for_ms":9},
        {"change":"delete","id":1},{"change":"set","text":""}]}"#;
    let Request::Edit { changes } = read(edit).unwrap() else { panic!("an edit") };
    let name = Some("a".to_owned());
    assert_eq!(changes[0], Change::Add { text: "ip".into(), name, for_ms: Some(9), snaplen: None });
    assert_eq!(changes[1..], [Change::Delete { id: 1 }, Change::Set { text: String::new() }]);
    assert_eq!(read(r#"{"request":"undo"}"#).unwrap(), Request::Undo { epoch: None });
    let unknown = r#"{"request":"edit","changes":[{"change":"delete","id":1,"if":2}]}"#;
    assert!(read(unknown).is_err());
    let later: EditAuthor = serde_json::from_str(r#"{"kind":"robot","arms":2}"#).unwrap();
    assert_eq!(later, EditAuthor::Other);
}

#[test]
fn answers_of_other_versions_are_read() {
    let older = r#"{"epoch":1,"uptime_ms":2,"accounting":{"seen":3,"delivered":3,"rejected":0,
        "lost":{}},"filters":[{"id":1,"text":"ip","accepted":3}]}"#;
    let stats: Stats = serde_json::from_str(older).unwrap();
    assert!(stats.accounting.is_exact() && stats.nodes.is_empty());
    assert_eq!(stats.filters[0].kind, EntryKind::Filter);
    let newer = r#"{"id":0,"text":"?","kind":"of later","accepted":3,"more":1}"#;
    let entry: FilterCount = serde_json::from_str(newer).unwrap();
    assert_eq!(entry.kind, EntryKind::Other);
}

#[test]
fn responses_survive_the_way_with_unknown_fields() {
    let lost = BTreeMap::from([("kernel".to_owned(), 3)]);
    let rejected_in_kernel = Some(NOT_COUNTED.to_owned());
    let accounting =
        Accounting { seen: u64::MAX, delivered: 1, rejected: 2, ..Accounting::default() };
    let accounting =
        Accounting { rejected_by_rules: Some(1), lost, rejected_in_kernel, ..accounting };
    let kind = EntryKind::Tracker;
    let filters = vec![FilterCount { id: 1, text: "ip\n^".into(), kind, accepted: 1, label: None }];
    let counters = BTreeMap::from([("ratio".to_owned(), Number::from_f64(0.5).unwrap())]);
    let nodes = vec![NodeCount { id: 3, counters, ..NodeCount::default() }];
    let own_filter = Some(OwnFilter { text: None, sockets: Some(1) });
    let stats = Response::Stats(Stats {
        epoch: 9,
        uptime_ms: 5,
        accounting,
        filters,
        nodes,
        own_filter,
        no_counts: Some("no source".into()),
        kernel: Some("the filters run in the kernel, too".into()),
        paused: true,
        kept_at: Some(3),
        edits: Some(Box::new(EditTimes {
            edits: 1,
            within: vec![EditsWithin { ns: 50_000, edits: 1 }],
            ..EditTimes::default()
        })),
        readers: vec![ReaderCount { id: 4, program: "fyke dump".into(), ..ReaderCount::default() }],
    });
    let line = serde_json::to_string(&stats).unwrap();
    assert!(!line.contains('\n'));
    assert_eq!(serde_json::from_str::<Response>(&line).unwrap(), stats);
    let newer = r#"{"response":"ok","epoch":1,"ids":[2],"latency_ns":3,"more":[]}"#;
    let ok = Response::Ok { epoch: 1, ids: vec![2], latency_ns: 3, notes: vec![] };
    assert_eq!(serde_json::from_str::<Response>(newer).unwrap(), ok);
}

#[test]
fn accounting_is_exact_or_it_is_not() {
    let lost = BTreeMap::from([("kernel".to_owned(), 3), ("ring".to_owned(), 1)]);
    let (seen, delivered, rejected, taken) = (10, 3, 2, 1);
    let mut accounting =
        Accounting { seen, delivered, rejected, taken, lost, ..Accounting::default() };
    assert!(accounting.is_exact());
    accounting.delivered = u64::MAX;
    assert!(!accounting.is_exact());
}

#[test]
fn counts_are_read_in_one_step_and_in_any_order() {
    let node = NodeCount { id: 1, node: "filter".into(), arrived: 7, ..NodeCount::default() };
    let filter = FilterCount { id: 2, text: "udp \"x\"".into(), ..FilterCount::default() };
    let stats = Stats { epoch: 3, nodes: vec![node], filters: vec![filter], ..Stats::default() };
    let answer = Response::Stats(stats);
    let line = serde_json::to_vec(&answer).unwrap();
    assert!(line.starts_with(STATS), "the quick way is taken");
    assert_eq!(Response::from_line(&line).unwrap(), answer);
    // The names of a value are sorted.
    let sorted = serde_json::to_vec(&serde_json::to_value(&answer).unwrap()).unwrap();
    assert!(!sorted.starts_with(STATS));
    assert_eq!(Response::from_line(&sorted).unwrap(), answer);
    assert!(Response::from_line(b"{\"response\":\"stats\",\"epoch\":-1}").is_err());
}
