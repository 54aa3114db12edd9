//! The demonstration at small size: it succeeds if all edits are made, and reports a missing one, on a wire (if the
//! system permits namespaces, as root or not) and from memory.

use fyke_lab::demo::{DemoError, Mode, Options, Outcome, run};

fn small() -> Options {
    Options {
        servers: 3,
        connections: 14,
        size_bytes: 60_000,
        seconds: 2.0,
        background_pps: 5_000,
        write: None,
        ..Options::default()
    }
}

fn demo(options: Options) -> (Outcome, String) {
    let mut text = Vec::new();
    let outcome = run(options, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    println!("{text}");
    (outcome, text)
}

#[test]
fn nothing_of_a_data_connection_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ftp.pcapng");
    let (outcome, text) = demo(Options { write: Some(path.clone()), ..small() });
    assert!(outcome.is_good(), "{:?}", outcome.problems);
    assert_eq!((outcome.fyke.whole(), outcome.fyke.missed()), (42, 0));
    assert_eq!(outcome.fyke.announced, 42);
    let edits = outcome.fyke.updates.len();
    assert!(
        (43..=84).contains(&edits),
        "an edit for each opening; closings may share one: {edits}"
    );
    assert!(outcome.is_accounted_for() && outcome.accounting.rejected > 5_000);
    assert!(path.metadata().unwrap().len() > 42 * 60_000, "the data is in the file");
    assert!(text.contains("nothing of a data connection was missed"));
    if let Mode::Memory { reason } = &outcome.mode {
        println!("skipped: the wire, because {reason}");
        assert!(text.contains("REPLAYED FROM MEMORY"));
    }
    match (&outcome.old_way, &outcome.no_old_way) {
        (Some(old), _) => {
            assert!(old.missed() > 0, "the old way misses some packets");
            assert!(old.updates.percentile(50) > outcome.fyke.updates.percentile(50));
        }
        (None, Some(reason)) => println!("skipped: the old way, because {reason}"),
        (None, None) => panic!("the old way neither ran nor was it explained"),
    }
}

#[test]
fn a_suppressed_edit_is_noticed() {
    for from_memory in [false, true] {
        let options = Options { skip_edit: Some(20), old_way: false, from_memory, ..small() };
        let (outcome, text) = demo(options);
        assert!(!outcome.is_good());
        assert_eq!(outcome.fyke.whole(), 41);
        let missed = outcome.fyke.data.iter().find(|connection| !connection.frames.is_whole());
        let missed = missed.unwrap();
        assert_eq!(missed.frames.captured, 0, "without its edit nothing of it is seen");
        assert!(text.contains("MISSED") && text.contains(&missed.server.to_string()), "{text}");
    }
}

#[test]
fn from_memory_it_says_so_and_misses_nothing() {
    let (outcome, text) = demo(Options { from_memory: true, ..small() });
    assert!(outcome.is_good(), "{:?}", outcome.problems);
    assert!(text.contains("REPLAYED FROM MEMORY"));
    assert_eq!(outcome.fyke.whole(), 42);
}

#[test]
fn programs_get_one_json_object() {
    let options = Options { from_memory: true, json: true, old_way: false, ..small() };
    let (_, text) = demo(options);
    assert_eq!(text.lines().count(), 1);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["fyke"]["connections_whole"], 42);
    assert_eq!(value["accounting_exact"], true);
    assert_eq!(value["mode"], "memory");
}

#[test]
fn options_out_of_range_are_refused() {
    for options in [
        Options { servers: 0, ..small() },
        Options { servers: 251, ..small() },
        Options { connections: 0, ..small() },
        Options { servers: 100, connections: 21, ..small() },
        Options { seconds: f64::NAN, ..small() },
        Options { seconds: 60.0, ..small() },
        Options { size_bytes: 0, ..small() },
        Options { size_bytes: 10_000_000, ..small() },
    ] {
        let refused = run(options, &mut Vec::new());
        assert!(matches!(refused, Err(DemoError::Option { .. })), "{refused:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_the_traffic() {
    for from_memory in [false, true] {
        let write = Some("/nonexistent/folder/ftp.pcapng".into());
        let begin = std::time::Instant::now();
        let refused = run(Options { write, from_memory, ..small() }, &mut Vec::new());
        let Err(DemoError::Part { message, .. }) = refused else { panic!("{refused:?}") };
        assert!(message.contains("/nonexistent/folder"), "{message}");
        assert!(begin.elapsed().as_secs_f64() < 1.5);
    }
}

#[test]
fn an_edit_that_does_not_come_up_cannot_be_suppressed() {
    let options = Options { skip_edit: Some(43), from_memory: true, old_way: false, ..small() };
    let (outcome, _) = demo(options);
    assert_eq!(outcome.problems, ["there was no edit 43 to suppress"]);
}
