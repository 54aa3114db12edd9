//! Filter texts in the kernel give the verdict of the text's ordered evaluation in user space. The texts are common
//! ones; the frames come from captures and are truncated at any length.

#[path = "../../pass/tests/support/mod.rs"]
mod support;

use fyke_filter::{Options as Reading, Predicate, compile};
use fyke_frame::{Direction, Frame, LinkType};
use fyke_kernel::{Form, KernelEditError, Mirror, OpenError, Options, Space};
use fyke_pass::{Opcode, PassSet, primitive};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::skip::unless_missing;
use std::time::Instant;
use support::Random;

/// Frames that each text evaluates, whole and truncated.
const FRAMES: usize = 120;
/// Longest frame; `BPF_PROG_TEST_RUN` takes at most a page.
const LONGEST: usize = 2_000;

/// Texts of all kinds.
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
    space_of(None)
}

fn space_of(form: Option<Form>) -> Option<Space> {
    match Space::open(Options { form, ..Options::default() }) {
        Err(error) if form.is_some() && error.is_by_verifier() => {
            println!("skipped: the loop needs Linux 6.9, and not 6.12");
            None
        }
        opened => unless_missing(opened, OpenError::is_unavailable),
    }
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

/// Frames to evaluate, from the corpus and generated.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Random(3);
    let mut all: Vec<Vec<u8>> =
        (0..4 * FRAMES).map(|_| support::frame_bytes(&mut random)).collect();
    let files = Corpus::open().traces("").into_iter();
    let read = files.filter_map(|path| Corpus::frames(&path, 40));
    read.filter(|(link, _)| *link == LinkType::EN10MB.0).for_each(|(_, read)| all.extend(read));
    all.retain(|frame| (14..LONGEST).contains(&frame.len()));
    all
}

#[derive(Debug, Default)]
struct Tally {
    texts: usize,
    /// Texts that passes alone could not evaluate.
    beyond_passes: usize,
    refused: Vec<String>,
    judged: usize,
    cut: usize,
    accepted: usize,
}

/// Evaluates frames by one text in the kernel, every third time by the specialised program.
fn compare(space: &mut Space, predicate: &Predicate, frames: &[Vec<u8>], tally: &mut Tally) {
    let set = set_of(predicate);
    tally.texts += 1;
    let beyond = |one: &fyke_pass::Instruction| {
        matches!(one.opcode(), Some(Opcode::Cond | Opcode::DSet6 | Opcode::Passes))
    };
    let mut instructions = set.passes().flat_map(|pass| pass.instructions);
    tally.beyond_passes += usize::from(instructions.any(beyond));
    let mut mirror = Mirror::default();
    if let Err(error) = mirror.sync(space.passes(), &set) {
        assert!(matches!(error, KernelEditError::Text { .. }), "{}: {error}", predicate.text());
        tally.refused.push(error.to_string());
        return;
    }
    let cooked = predicate.link() == LinkType::LINUX_SLL2;
    let specialised = tally.texts.is_multiple_of(3)
        && cfg!(target_arch = "x86_64")
        && !cooked
        && !space.is_at_driver();
    if specialised {
        let made = space.snapshot().unwrap().specialise().unwrap();
        space.adopt(made).unwrap();
    }
    let mut random = Random(tally.texts as u64 + 7);
    for _ in 0..FRAMES.min(frames.len()) {
        let whole = &frames[random.below(frames.len() as u64) as usize];
        let cut = random.below(3) > 0;
        let most = (whole.len() - 13).min(90) as u64;
        let len = if cut { 14 + random.below(most) as usize } else { whole.len() };
        let bytes = &whole[..len.max(least_of(predicate.link()))];
        let mut frame = Frame::new(predicate.link(), bytes);
        (frame.meta.direction, frame.meta.ifindex) = (Direction::Inbound, 1);
        // In the kernel `len` leaves out the header that a cooked capture adds, with libpcap, too.
        frame.wire_len -= if cooked { COOKED_HEADER } else { 0 };
        let expected = predicate.accepts(&frame);
        let before = space.tallies();
        let returned = space.test_run(bytes, 1).unwrap().returned;
        let accepted = match space.is_at_driver() {
            // The program at XDP returns the same, whether another one follows or not.
            true => space.tallies().rejected == before.rejected,
            false => returned != 0,
        };
        let text = predicate.text();
        assert_eq!(accepted, expected, "{text} (specialised: {specialised}) {bytes:02x?}");
        tally.judged += 1;
        tally.cut += usize::from(cut);
        tally.accepted += usize::from(expected);
    }
    if specialised {
        space.forget_specialised().unwrap();
    }
    let none = PassSet::new(predicate.link());
    mirror.sync(space.passes(), &none).unwrap();
}

/// Length of the header LINUX_SLL2.
const COOKED_HEADER: u32 = 20;

/// Fewest bytes that `BPF_PROG_TEST_RUN` requires of a frame: with a protocol, the whole header of that protocol.
fn least_of(link: LinkType) -> usize {
    if link == LinkType::LINUX_SLL2 { 60 } else { 14 }
}

#[test]
fn texts_of_all_kinds_have_the_verdict_of_their_own_order() {
    for form in [Form::Callbacks, Form::Loop] {
        let Some(mut space) = space_of(Some(form)) else { return };
        assert_eq!(space.form(), form);
        let (frames, mut tally) = (frames(), Tally::default());
        for text in TEXTS {
            compare(&mut space, &read(text), &frames, &mut tally);
        }
        println!("{form:?}: {tally:?}");
        assert!(tally.refused.is_empty() && tally.accepted > tally.judged / 20);
    }
}

/// The same at XDP, where the program reads frames by other calls.
#[test]
fn texts_have_the_same_verdict_at_the_driver() {
    let opened = Space::open(Options::at_driver([2, 0, 0, 0, 0, 1]));
    if opened.as_ref().is_err_and(OpenError::is_by_verifier) {
        println!("skipped: the loop needs Linux 6.9, and not 6.12");
        return;
    }
    let Some(mut space) = unless_missing(opened, OpenError::is_unavailable) else { return };
    let (frames, mut tally) = (frames(), Tally::default());
    for text in TEXTS {
        compare(&mut space, &read(text), &frames, &mut tally);
    }
    let mut values = fyke_testkit::filter_text::Values::common();
    frames.iter().step_by(7).for_each(|frame| values.learn(frame));
    let mut random = fyke_testkit::random::Random::new(31);
    for _ in 0..200 {
        let text = fyke_testkit::filter_text::filter_text(&mut random, &values);
        if let Ok(predicate) = compile(&text, &Reading::default()) {
            compare(&mut space, &predicate, &frames, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.accepted > 0 && tally.accepted < tally.judged);
}

/// Exceptions, and texts that are too large for passes, become programs in their own order. A text that is too long for
/// a program is refused with its length.
#[test]
fn lists_of_exceptions_run_in_their_own_order() {
    let Some(mut space) = space() else { return };
    let (frames, mut tally) = (frames(), Tally::default());
    let list = |count: usize| {
        let term = |n: usize| format!("not (host 10.0.0.{} and port {})", n % 9, 20 + n);
        (0..count).map(term).collect::<Vec<_>>().join(" and ")
    };
    let choice = |n: usize| {
        let one = |len: usize, at: usize| format!("len > {len} and ip[{at}] != {n}");
        format!("({} or ({}) or ({}))", one(20 + n, 8), one(60 + n, 9), one(90 + n, 6))
    };
    let product = (0..10).map(choice).collect::<Vec<_>>().join(" and ");
    assert!(set_of(&read(&product)).filters().all(|filter| filter.is_in_order()));
    for text in [list(2), list(8), list(39), product] {
        compare(&mut space, &read(&text), &frames, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.refused.is_empty() && tally.accepted > 0 && tally.accepted < tally.judged);
    compare(&mut space, &read(&list(1_000)), &frames, &mut tally);
    assert!(tally.refused.concat().contains("instructions in its own order"), "{tally:?}");
}

#[test]
fn texts_that_people_use_run_in_the_kernel() {
    let Some(mut space) = space() else { return };
    let (frames, mut tally) = (frames(), Tally::default());
    for (text, link) in Corpus::open().real_filters() {
        let reading = Reading { netmask: Some(0xffff_ff00), ..Reading::default() };
        if let (Ok(predicate), "EN10MB") = (compile(&text, &reading), link.as_str()) {
            compare(&mut space, &predicate, &frames, &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.texts > 200);
    // Only loops over headers are refused: they run in user space.
    let only_loops = tally.refused.iter().all(|text| text.contains("protochain"));
    assert!(only_loops && tally.refused.len() <= 3, "{:?}", tally.refused);
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
    assert!(tally.texts > 100 && tally.accepted > 0);
    let only_loops = tally.refused.iter().all(|text| text.contains("protochain"));
    assert!(only_loops, "{:?}", tally.refused);
}

/// A cooked socket delivers packets without a link header; texts use the header that such packets have in files.
#[test]
fn texts_for_cooked_sockets_look_at_the_right_places() {
    let Some(mut space) = space() else { return };
    let mut tally = Tally::default();
    let mut frames = Vec::new();
    for frame in self::frames() {
        // Protocol, interface 1, received for this host.
        let mut cooked = vec![0; 20];
        cooked[..2].copy_from_slice(&frame[12..14]);
        cooked[7] = 1;
        cooked.extend_from_slice(&frame[14..]);
        if cooked.len() >= least_of(LinkType::LINUX_SLL2) {
            frames.push(cooked);
        }
    }
    let texts =
        ["ip", "tcp port 80", "host 10.0.0.1 or ip6", "udp[4:2] > 20", "not port 53", "arp"];
    let texts = texts.iter().chain(&["inbound and ip", "outbound", "len > 80", "tcp[13] & 2 != 0"]);
    for text in texts {
        let reading = Reading { link: LinkType::LINUX_SLL2, live: true, ..Reading::default() };
        let predicate = compile(text, &reading).unwrap_or_else(|error| panic!("{text}: {error}"));
        compare(&mut space, &predicate, &frames, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.refused.is_empty() && tally.accepted > tally.judged / 20);
    let reading = Reading { link: LinkType::LINUX_SLL2, ..Reading::default() };
    let address = compile("link[12] = 5", &reading).unwrap();
    compare(&mut space, &address, &frames, &mut tally);
    assert!(tally.refused[0].contains("byte 12 of a cooked"), "{:?}", tally.refused);
}

/// Many (host, port) pairs of one text become rows, and an edit of the text is an edit of rows. FYKE_PAIRS=100000 uses
/// more pairs.
#[test]
fn many_passes_of_one_form_become_rows() {
    let Some(mut space) = space() else { return };
    let asked_for = std::env::var("FYKE_PAIRS").ok().and_then(|pairs| pairs.parse().ok());
    let pairs: u32 = asked_for.unwrap_or(3_000);
    let end = |number: u32| (0x0a00_0000 + number * 7, 1_024 + number % 50_000);
    let text = |from: u32, to: u32| {
        let one = |number: u32| {
            let (host, port) = end(number);
            format!("(host {} and tcp port {port})", std::net::Ipv4Addr::from(host))
        };
        (from..to).map(one).collect::<Vec<_>>().join(" or ")
    };
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut mirror = Mirror::default();
    let accepts = |space: &Space, number: u32, off: u32| {
        let (host, port) = end(number);
        let mut bytes = vec![0; 60];
        (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 6);
        bytes[26..30].copy_from_slice(&host.to_be_bytes());
        bytes[36..38].copy_from_slice(&((port + off) as u16).to_be_bytes());
        space.test_run(&bytes, 1).unwrap().returned != 0
    };
    let mut last = None;
    for (from, to) in [(0, pairs), (pairs / 2, pairs * 3 / 2), (pairs, pairs + 5)] {
        let mut edit = set.edit();
        if let Some(last) = last {
            edit.remove_filter(last).unwrap();
        }
        let started = Instant::now();
        let predicate = read(&text(from, to));
        let read = started.elapsed();
        last = Some(edit.add_filter(&predicate).unwrap());
        edit.commit();
        let committed = started.elapsed();
        let edits = space.passes().edit_count();
        mirror.sync(space.passes(), &set).unwrap();
        let all = started.elapsed();
        println!("{} pairs: read {read:?}, set {committed:?}, kernel {all:?}", to - from);
        let rows = mirror.rows(space.view());
        if to - from > 100 {
            assert_eq!((rows.len(), rows[0].rows as u32), (1, to - from));
            assert_eq!((rows[0].filter, rows[0].accepted), (last, 0));
            assert_eq!(space.view().len(), 1);
            assert_eq!(space.passes().rows().used() as u32, to - from);
        } else {
            assert!(rows.is_empty(), "five passes are no table");
        }
        // The second text reuses the table of the first: no pass is written.
        assert!(from != pairs / 2 || space.passes().edit_count() - edits <= 1);
        for number in (0..pairs * 3 / 2).step_by(61) {
            assert_eq!(accepts(&space, number, 0), (from..to).contains(&number), "{number}");
            assert!(!accepts(&space, number, 1), "{number}");
        }
    }
}

/// Hundreds of texts with one pass each share a table, too, and their edits are edits of its rows.
#[test]
fn many_small_texts_of_one_form_share_a_table() {
    let Some(mut space) = space() else { return };
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut mirror = Mirror::default();
    let text = |number: u32| {
        let host = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        read(&format!("src host {host} and udp dst port {}", 1_024 + number))
    };
    let mut edit = set.edit();
    let ids: Vec<_> = (0..700).map(|number| edit.add_filter(&text(number)).unwrap()).collect();
    edit.commit();
    mirror.sync(space.passes(), &set).unwrap();
    let rows = mirror.rows(space.view());
    assert_eq!((rows.len(), rows[0].rows, rows[0].filter), (1, 700, None));
    let accepts = |space: &Space, number: u32| {
        let mut bytes = vec![0; 60];
        (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
        bytes[26..30].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
        bytes[36..38].copy_from_slice(&(1_024 + number as u16).to_be_bytes());
        space.test_run(&bytes, 1).unwrap().returned != 0
    };
    assert!((0..700).step_by(13).all(|number| accepts(&space, number)));
    let edits = space.view().edit_count();
    let mut edit = set.edit();
    edit.remove_filter(ids[7]).unwrap();
    edit.add_filter(&text(900)).unwrap();
    edit.commit();
    mirror.sync(space.passes(), &set).unwrap();
    assert_eq!(space.view().edit_count(), edits, "an edit of rows writes no pass");
    assert!(accepts(&space, 900) && accepts(&space, 8) && !accepts(&space, 7));
    assert!(mirror.rows(space.view())[0].accepted > 50);
}

/// Rows of a shape that a program has declared are copied to the kernel with the passes of a set.
#[test]
fn declared_rows_are_carried() {
    let Some(mut space) = space() else { return };
    let mut set = PassSet::new(LinkType::EN10MB);
    let (host, port) = (primitive::ip_dst_host(0), primitive::ip_port_dst(&[0]).unwrap());
    let shape = set.new_shape(&[primitive::ether_ip_udp_nonfrag(), host, port], &[1, 2]).unwrap();
    let mut edit = set.edit();
    let add = |number: u32, edit: &mut fyke_pass::Edit<'_>| {
        edit.add_row(shape, &[0x0a00_0000 + number, 5_000 + number]).unwrap()
    };
    let rows: Vec<_> = (0..40).map(|number| add(number, &mut edit)).collect();
    edit.commit();
    let mut mirror = Mirror::default();
    mirror.sync(space.passes(), &set).unwrap();
    assert_eq!((mirror.rows(space.view())[0].rows, space.view().len()), (40, 1));
    // Verdict of the kernel for the frame of a row, after a check that user space gives the same.
    let accepts = |space: &Space, set: &PassSet, number: u32, off: u16| {
        let mut bytes = vec![0; 60];
        (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
        bytes[30..34].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
        bytes[36..38].copy_from_slice(&(5_000 + number as u16 + off).to_be_bytes());
        let kernel = space.test_run(&bytes, 1).unwrap().returned != 0;
        let frame = Frame::new(LinkType::EN10MB, &bytes);
        assert_eq!(kernel, set.reader().judge_one(&frame).accepted);
        kernel
    };
    assert!((0..40).all(|n| accepts(&space, &set, n, 0) && !accepts(&space, &set, n, 1)));
    let mut edit = set.edit();
    rows[..35].iter().for_each(|&row| edit.remove_row(row).unwrap());
    edit.commit();
    mirror.sync(space.passes(), &set).unwrap();
    assert_eq!((0..40).filter(|&n| accepts(&space, &set, n, 0)).count(), 5);
}
