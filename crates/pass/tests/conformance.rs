//! The conformance corpus on the pass engine: batch and reference evaluator.

mod support;

use fyke_filter::{Options, compile};
use fyke_frame::{Frame, LinkType};
use fyke_pass::PassSet;
use fyke_testkit::conformance::Conformance;

#[test]
fn every_case_has_its_verdicts() {
    let corpus = Conformance::load();
    for case in &corpus.cases {
        let link = LinkType::from_name(&case.link).expect("the corpus names known link types");
        let predicate = compile(&case.text, &Options { link, ..Options::default() }).unwrap();
        let mut set = PassSet::new(link);
        let mut edit = set.edit();
        edit.add_filter(&predicate).unwrap();
        edit.commit();
        let mut reader = set.reader();
        for verdict in corpus.verdicts(case) {
            let mut frame = Frame::new(link, &verdict.data);
            frame.wire_len = verdict.wire_len;
            let batch = support::batch(&[frame]);
            let accepted = reader.evaluate(&batch, batch.all()).get(0);
            let shown = || format!("{}: {:?} on {}", case.name, case.text, verdict.frame);
            assert_eq!(accepted, verdict.accepted, "{}", shown());
            assert_eq!(reader.judge_one(&frame).accepted, verdict.accepted, "{}", shown());
        }
    }
}
