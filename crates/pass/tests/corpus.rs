//! Common expressions, and texts of all kinds, against the captures of the corpus: the passes give the verdict of the
//! ordered evaluation for every frame, whole, truncated, and generated.

mod support;

use fyke_filter::{Options, Predicate, compile};
use fyke_frame::{BATCH_CAPACITY, Frame, LinkType};
use fyke_pass::{MatchMode, Matches, PassSet};
use fyke_testkit::corpus::{Corpus, Expression};
use std::collections::HashMap;
use support::Random;

fn frames(corpus: &Corpus) -> HashMap<LinkType, Vec<Vec<u8>>> {
    let mut random = Random(2_024);
    let mut frames: HashMap<LinkType, Vec<Vec<u8>>> = HashMap::new();
    for path in corpus.traces("") {
        let is_mixed = path.ends_with("dev-mix.pcap") || path.ends_with("busy.pcap");
        let limit = if is_mixed { 1_500 } else { 6 };
        if let Some((link, read)) = Corpus::frames(&path, limit) {
            frames.entry(LinkType(link)).or_default().extend(read);
        }
    }
    let made = frames.entry(LinkType::EN10MB).or_default();
    made.extend((0..600).map(|_| support::frame_bytes(&mut random)));
    for list in frames.values_mut() {
        for index in 0..list.len() {
            if random.chance(20) {
                let keep = random.below(list[index].len().min(90) as u64 + 1) as usize;
                let short = list[index][..keep].to_vec();
                list.push(short);
            }
        }
    }
    frames
}

/// Count of each outcome.
#[derive(Default, Debug)]
struct Tally {
    compared: usize,
    accepted: usize,
    in_order: usize,
    passes: usize,
    instructions: usize,
    ordered: u64,
}

fn compare(predicate: &Predicate, bytes: &[Vec<u8>], link: LinkType, tally: &mut Tally) {
    let mut set = PassSet::new(link);
    let mut edit = set.edit();
    edit.add_filter(predicate).unwrap();
    edit.commit();
    if let Some(reason) = set.filters().find_map(|filter| filter.too_large()) {
        println!("in order: {}: {reason}", predicate.text());
        tally.in_order += 1;
    }
    let mut reader = set.reader();
    let mut matches = Matches::new(MatchMode::First);
    for chunk in bytes.chunks(BATCH_CAPACITY) {
        let frames: Vec<Frame> = chunk.iter().map(|bytes| Frame::new(link, bytes)).collect();
        let batch = support::batch(&frames);
        let verdicts = reader.evaluate_matches(&batch, batch.all(), &mut matches);
        for (index, frame) in frames.iter().enumerate() {
            let expected = predicate.accepts(frame);
            let show = || set.passes().map(|pass| format!("{pass}\n")).collect::<String>();
            assert_eq!(
                verdicts.get(index),
                expected,
                "{}: {:02x?}\n{}",
                predicate.text(),
                frame.data,
                show()
            );
            assert_eq!(matches.of(index).count(), usize::from(expected));
            tally.compared += 1;
            tally.accepted += usize::from(expected);
        }
    }
    tally.passes += set.pass_count();
    tally.instructions += set.passes().map(|pass| pass.instructions.len()).sum::<usize>();
    tally.ordered += reader.work().ordered;
}

#[test]
fn expressions_that_people_use() {
    let corpus = Corpus::open();
    let frames = frames(&corpus);
    let mut tally = Tally::default();
    let mut texts = 0;
    for (text, link) in corpus.real_filters() {
        let Some(link) = LinkType::from_name(&link) else { continue };
        let Some(bytes) = frames.get(&link) else { continue };
        let options = Options { link, netmask: Some(0xffff_ff00), ..Options::default() };
        let Ok(predicate) = compile(&text, &options) else { continue };
        texts += 1;
        compare(&predicate, bytes, link, &mut tally);
    }
    println!("{texts} texts: {tally:?}");
    assert!(texts > 100 && tally.in_order == 0);
}

#[test]
fn texts_of_all_kinds() {
    let corpus = Corpus::open();
    let frames = frames(&corpus);
    let mut tally = Tally::default();
    let mut texts = 0;
    for Expression { text, link, .. } in corpus.expressions() {
        let Some(link) = LinkType::from_name(&link) else { continue };
        let Some(bytes) = frames.get(&link) else { continue };
        let options = Options { link, netmask: Some(0xffff_ff00), ..Options::default() };
        let Ok(predicate) = compile(&text, &options) else { continue };
        texts += 1;
        compare(&predicate, &bytes[..bytes.len().min(1_500)], link, &mut tally);
    }
    println!("{texts} texts: {tally:?}");
    assert!(texts > 1_000 && tally.accepted > 10_000);
}

/// Generated texts with values from the frames; FYKE_ROUNDS=100 takes a hundred times as many.
#[test]
fn generated_texts() {
    let mut frames: HashMap<LinkType, Vec<Vec<u8>>> = HashMap::new();
    let mut seed = Random(9);
    frames.insert(LinkType::EN10MB, (0..600).map(|_| support::frame_bytes(&mut seed)).collect());
    let real = self::frames(&Corpus::open()).remove(&LinkType::EN10MB).unwrap_or_default();
    frames.get_mut(&LinkType::EN10MB).unwrap().extend(real.into_iter().step_by(9));
    let bytes = &frames[&LinkType::EN10MB];
    let mut values = fyke_testkit::filter_text::Values::common();
    bytes.iter().step_by(7).for_each(|frame| values.learn(frame));
    let rounds: u64 =
        std::env::var("FYKE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let mut random = fyke_testkit::random::Random::new(17);
    let mut tally = Tally::default();
    let mut texts = 0;
    for _ in 0..600 * rounds {
        let text = fyke_testkit::filter_text::filter_text(&mut random, &values);
        let Ok(predicate) = compile(&text, &Options::default()) else { continue };
        texts += 1;
        compare(&predicate, bytes, LinkType::EN10MB, &mut tally);
    }
    println!("{texts} texts: {tally:?}");
    assert!(texts > 100 && tally.accepted > 0);
}
