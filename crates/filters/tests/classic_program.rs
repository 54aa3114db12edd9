//! Programs of classic BPF for sockets: what a text accepts in user space passes, however short the frame or its copy
//! in the ring. The interpreter of `fyke-machine` runs them in place of the kernel.

use fyke_filter::{Options, compile};
use fyke_filters::{ClassicError, classic_program};
use fyke_frame::{Frame, LinkType};
use fyke_machine::bpf::Dialect;
use fyke_machine::bpf::run::{Outcome, Program};
use fyke_testkit::filter_text::{Values, filter_text};
use fyke_testkit::generate::mixed;
use fyke_testkit::packet::Packet;
use fyke_testkit::random::rounds;

const LIVE: Options = Options {
    link: LinkType::EN10MB,
    snaplen: 262_144,
    netmask: Some(0),
    swapped: false,
    live: true,
    incoming_only: false,
    resolve: None,
    reading: fyke_filter::Reading::Compat,
};

fn program(texts: &[&str]) -> Result<Program, ClassicError> {
    let code = classic_program(texts.iter().copied(), &LIVE, 90)?;
    Ok(Program::new(code, Dialect::Bpf).expect("the kernel takes it"))
}

fn passes(program: &Program, frame: &Frame<'_>) -> bool {
    match program.run(frame) {
        Outcome::Reject => false,
        Outcome::Accept { bytes } => {
            assert_eq!(bytes, 90);
            true
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_that_texts_accept_pass_and_most_others_do_not() {
    let scene = mixed::busy();
    let mut values = Values::common();
    scene.records.iter().take(200).for_each(|record| values.learn(&record.data));
    let (mut programs, mut rejected, mut passed) = (0, 0_u64, 0_u64);
    rounds(5, |random| {
        for _ in 0..400 {
            let count = 1 + random.below(4);
            let texts: Vec<_> = (0..count).map(|_| filter_text(random, &values)).collect();
            let compiled: Vec<_> = texts.iter().flat_map(|text| compile(text, &LIVE)).collect();
            let list: Vec<_> = texts.iter().map(String::as_str).collect();
            let Ok(program) = program(&list) else { continue };
            programs += 1;
            for _ in 0..40 {
                let whole = &scene.records[random.below(scene.records.len())].data;
                let end =
                    if random.chance(2) { whole.len() } else { random.below(whole.len() + 1) };
                let mut frame = Frame::new(LinkType::EN10MB, &whole[..end]);
                frame.meta.vlan = random.chance(5).then_some(5);
                let copied = if random.chance(3) { random.below(end + 1) } else { end };
                let copy = Frame { data: &whole[..copied], ..frame };
                let accepts = compiled.iter().any(|text| text.accepts(&copy));
                let passes = passes(&program, &frame);
                assert!(passes || !accepts, "{texts:?} {copied} of {end} bytes: {:x?}", frame.data);
                if !accepts && end == whole.len() {
                    rejected += u64::from(!passes);
                    passed += u64::from(passes);
                }
            }
        }
    });
    assert!(programs > 200, "{programs} programs");
    assert!(rejected > 4 * passed, "{rejected} frames are rejected, {passed} pass");
}

#[test]
fn a_frame_too_short_for_one_text_reaches_the_next_one() {
    let program = program(&["tcp port 80", "ip host 10.0.0.1", "ether[100] = 1"]).unwrap();
    let of = |packet: Packet| packet.build();
    let short = of(Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2));
    assert!(passes(&program, &Frame::new(LinkType::EN10MB, &short)));
    let long = Packet::ethernet().ipv4([10, 0, 0, 3], [10, 0, 0, 2]).udp(1, 2).payload(&[0; 90]);
    assert!(!passes(&program, &Frame::new(LinkType::EN10MB, &of(long))));
}

#[test]
fn texts_without_a_program_say_why() {
    let pairs: Vec<_> = (0..3_000).map(|n| format!("udp dst port {}", 2 * n + 1)).collect();
    let long = pairs.join(" or ");
    let cases: [(&[&str], &str); 5] = [
        (&["ip protochain 6"], "loop over headers"),
        (&[&long], "the kernel takes 4096"),
        (&["udp", "ip[ip[2:4]] = 1"], "computes a place"),
        (&["udp", "10 / (ip[8] - 3) = 1"], "divides"),
        (&["1 << ip[8] = 2"], "shifts"),
    ];
    for (texts, why) in cases {
        let error = program(texts).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(why), "{why}: {error:?}");
    }
    // Alone, a computed place is evaluated in the text's own order.
    assert!(program(&["ip[ip[2:4]] = 1"]).is_ok());
}

#[test]
fn fields_of_a_cooked_header_are_metadata() {
    let options = Options { link: LinkType::LINUX_SLL2, ..LIVE };
    let code = classic_program(["udp port 53"], &options, 90).unwrap();
    let loads: Vec<_> = code.iter().filter(|one| one.code & 7 == 0).map(|one| one.k).collect();
    // The protocol of the frame, that of the IPv4 header, and the length.
    assert!(loads.contains(&0xffff_f000) && loads.contains(&9) && loads.contains(&0), "{loads:x?}");
    let refused = classic_program(["ether[13] = 1"], &options, 90).unwrap_err();
    assert_eq!(refused, ClassicError::Cooked { offset: 13 });
}
