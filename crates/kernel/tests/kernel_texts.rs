//! Filter texts in the kernel: those that people use, over frames from the world and frames cut short anywhere, give
//! the verdict that the text's ordered evaluation gives in user space.

#[path = "../../pass/tests/support/mod.rs"]
mod support;

use fyke_filter::{Options as Reading, Predicate, compile};
use fyke_frame::{Direction, Frame, LinkType};
use fyke_kernel::{KernelEditError, Mirror, Options, Space};
use fyke_pass::{Opcode, PassSet};
use fyke_testkit::corpus::Corpus;
use support::Random;

/// Frames that each text judges, whole and cut.
const FRAMES: usize = 120;
/// `BPF_PROG_TEST_RUN` takes a page.
const LONGEST: usize = 2_000;

/// Texts of all kinds, for a machine without the shared ones.
const TEXTS: [&str; 24] = [
    "ip",
    "tcp port 80",
    "not port 80",
    "src host 10.0.0.1 or dst net 192.168.0.0/16",
    "ip[2:2] = 60",
    "ip[8] < 65 and tcp",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "ether[100] = 5 or arp",
    "arp or ether[100] = 5",
    "(ether[60] = 0 and ip) or arp",
    "not ether[60:4] = 0",
    "len > 60 and len - 14 != ip[2:2]",
    "ip[0] / (ip[1] - 16) > 2",
    "ether[0] & 1 = 0 and ip[16] >= 224",
    "ip6 host 2001:db8::1 or ip6 host 2001:db8::2 or ip6 host fe80::1",
    "not ip6 net 2001:db8::/32 and not ip6 net fe80::/10 and not ip6 net ff00::/8",
    "ip6[6] = 17 and ip6[40:2] = 53",
    "vlan 10 and tcp port 80",
    "vlan and vlan and ip",
    "mpls 5 and ip",
    "portrange 1000-2000 and not udp",
    "(udp or tcp) and (port 53 or port 80 or portrange 5000-6000) and not host 10.0.0.9",
    "1 = 1 and ip[6:2] & 0x1fff = 0",
];

/// A space, or `None` with a printed reason.
fn space() -> Option<Space> {
    Space::open(Options::default()).map_err(|error| println!("skipped: {error}")).ok()
}

fn read(text: &str) -> Predicate {
    compile(text, &Reading::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A set of one text.
fn set_of(predicate: &Predicate) -> PassSet {
    let mut set = PassSet::new(predicate.link());
    let mut edit = set.edit();
    edit.add_filter(predicate).unwrap();
    edit.commit();
    set
}

/// Frames to judge: of the traces where they are there, and made here.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Random(3);
    let mut all: Vec<Vec<u8>> =
        (0..4 * FRAMES).map(|_| support::frame_bytes(&mut random)).collect();
    if let Some(corpus) = Corpus::open() {
        let files = corpus.traces("").into_iter();
        let read = files.filter_map(|path| Corpus::frames(&path, 40));
        read.filter(|(link, _)| *link == LinkType::EN10MB.0).for_each(|(_, read)| all.extend(read));
    }
    all.retain(|frame| (14..LONGEST).contains(&frame.len()));
    all
}

#[derive(Debug, Default)]
struct Tally {
    texts: usize,
    /// Texts that passes alone could not judge.
    beyond_passes: usize,
    refused: Vec<String>,
    judged: usize,
    cut: usize,
    accepted: usize,
}

/// Judges frames by one text in the kernel, every third time by the specialised program.
fn compare(space: &mut Space, predicate: &Predicate, frames: &[Vec<u8>], tally: &mut Tally) {
    let set = set_of(predicate);
    tally.texts += 1;
    let beyond =
        |one: &fyke_pass::Instruction| matches!(one.opcode(), Some(Opcode::Cond | Opcode::DSet6));
    let mut instructions = set.passes().flat_map(|pass| pass.instructions);
    tally.beyond_passes += usize::from(instructions.any(beyond));
    let mut mirror = Mirror::default();
    if let Err(error) = mirror.sync(space.passes(), &set) {
        assert!(matches!(error, KernelEditError::Text { .. }), "{}: {error}", predicate.text());
        tally.refused.push(error.to_string());
        return;
    }
    let specialised = tally.texts.is_multiple_of(3) && cfg!(target_arch = "x86_64");
    if specialised {
        let made = space.snapshot().unwrap().specialise().unwrap();
        space.adopt(made).unwrap();
    }
    let mut random = Random(tally.texts as u64 + 7);
    for _ in 0..FRAMES {
        let whole = &frames[random.below(frames.len() as u64) as usize];
        let cut = random.below(3) > 0;
        let most = (whole.len() - 13).min(90) as u64;
        let len = if cut { 14 + random.below(most) as usize } else { whole.len() };
        let bytes = &whole[..len];
        let mut frame = Frame::new(LinkType::EN10MB, bytes);
        (frame.meta.direction, frame.meta.ifindex) = (Direction::Inbound, 1);
        let expected = predicate.accepts(&frame);
        let returned = space.test_run(bytes, 1).unwrap().returned;
        let text = predicate.text();
        assert_eq!(returned != 0, expected, "{text} (specialised: {specialised}) {bytes:02x?}");
        tally.judged += 1;
        tally.cut += usize::from(cut);
        tally.accepted += usize::from(expected);
    }
    if specialised {
        space.forget_specialised().unwrap();
    }
    let none = PassSet::new(LinkType::EN10MB);
    mirror.sync(space.passes(), &none).unwrap();
}

#[test]
fn texts_of_all_kinds_have_the_verdict_of_their_own_order() {
    let Some(mut space) = space() else { return };
    let (frames, mut tally) = (frames(), Tally::default());
    for text in TEXTS {
        compare(&mut space, &read(text), &frames, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.refused.is_empty() && tally.accepted > tally.judged / 20);
}

#[test]
fn texts_that_people_use_run_in_the_kernel() {
    let (Some(mut space), Some(corpus)) = (space(), Corpus::open()) else { return };
    let (frames, mut tally) = (frames(), Tally::default());
    for (text, link) in corpus.real_filters() {
        let reading = Reading { netmask: Some(0xffff_ff00), ..Reading::default() };
        if let (Ok(predicate), "EN10MB") = (compile(&text, &reading), link.as_str()) {
            compare(&mut space, &predicate, &frames, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.texts > 100 && tally.refused.len() < 3);
}

#[test]
fn generated_texts_have_the_verdict_of_their_own_order() {
    let Some(mut space) = space() else { return };
    let (frames, mut tally) = (frames(), Tally::default());
    let mut values = fyke_testkit::filter_text::Values::common();
    frames.iter().step_by(7).for_each(|frame| values.learn(frame));
    let mut random = fyke_testkit::random::Random::new(29);
    for _ in 0..400 {
        let text = fyke_testkit::filter_text::filter_text(&mut random, &values);
        if let Ok(predicate) = compile(&text, &Reading::default()) {
            compare(&mut space, &predicate, &frames, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.texts > 100 && tally.accepted > 0 && tally.refused.len() * 20 < tally.texts);
}
