//! The conformance corpus on the oracle.

use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType};
use fyke_testkit::conformance::Conformance;

fn options(link: &str) -> Options {
    let link = LinkType::from_name(link).expect("the corpus names known link types");
    Options { link, ..Options::default() }
}

#[test]
fn every_case_has_its_verdicts() {
    let corpus = Conformance::load();
    for case in &corpus.cases {
        let options = options(&case.link);
        let predicate = compile(&case.text, &options).unwrap_or_else(|error| panic!("{error}"));
        for verdict in corpus.verdicts(case) {
            let mut frame = Frame::new(options.link, &verdict.data);
            frame.wire_len = verdict.wire_len;
            let accepted = predicate.accepts(&frame);
            assert_eq!(
                accepted, verdict.accepted,
                "{}: {:?} on {}",
                case.name, case.text, verdict.frame
            );
        }
    }
}

#[test]
fn wrong_texts_are_refused_for_their_reason() {
    for case in Conformance::load().refused {
        let error = compile(&case.text, &options(&case.link)).expect_err(&case.text);
        let shown = error.to_string();
        assert!(shown.contains(&case.message), "{:?}: {shown}", case.text);
    }
}
