//! The live compilation has the same meaning as libpcap's code for a live capture: the verdicts are equal on frames
//! with metadata (direction, interface, a VLAN tag that the device has removed from the bytes).
//!
//! libpcap compiles on a handle open on the loopback interface, which needs privilege. Its programs run in an
//! interpreter of this test, since libpcap's own has no metadata. The other tests compare that interpreter with
//! libpcap's on every frame without metadata.

#[allow(dead_code, reason = "each test file uses a part of it")]
mod filter_support;

use filter_support::machine::{self, Outcome};
use filter_support::{Tally, frames, libpcap, options, registers_clash_live, spoilt};
use fyke_filter::{Options, bpf};
use fyke_frame::{Direction, Frame, LinkType, Meta};
use fyke_lab::peers::libpcap::{Compile, Live, OwnedFrame};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::filter_text::{Values, filter_text};
use fyke_testkit::random::Random;

/// Terms that a live capture compiles differently.
#[rustfmt::skip]
const TERMS: &[&str] = &[
    "vlan", "vlan 5", "vlan 10", "inbound", "outbound", "ifindex 1", "ifindex 3", "vlan and tcp",
    "vlan and vlan", "(ip6 and vlan) or udp", "not vlan", "link[-4096 + 4] = 4", "link[-4088:4] = 3",
    "link[0 - 4096 + 44:2] & 0xfff = 5", "link[0xfffff030] = 1", "ip6", "ip", "mpls 5", "pppoes",
    "ether[12:2] = 0x8100", "tcp port 80", "arp", "ip[8] > 5", "not (vlan 5 or arp)",
];

/// Number of pairs of text and frame.
fn pairs() -> usize {
    std::env::var("FYKE_PAIRS").ok().and_then(|pairs| pairs.parse().ok()).unwrap_or(100_000)
}

/// Creates metadata as a device might give, and removes the tag that it contains from the bytes.
fn with_metadata(random: &mut Random, frame: &OwnedFrame) -> (OwnedFrame, Meta) {
    let mut frame = frame.clone();
    let mut meta = Meta {
        direction: random.pick(&[Direction::Inbound, Direction::Outbound, Direction::Broadcast]),
        ifindex: random.pick(&[1, 2, 3]),
        ..Meta::default()
    };
    let tagged = frame.link == LinkType::EN10MB && frame.data.get(12..14) == Some(&[0x81, 0]);
    if tagged && frame.data.len() >= 18 && !random.chance(3) {
        meta.vlan = Some(u16::from_be_bytes([frame.data[14], frame.data[15]]));
        frame.data.drain(12..16);
    } else if frame.link == LinkType::EN10MB && random.chance(4) {
        meta.vlan = Some(random.pick(&[0, 5, 0x2005, 10]));
    }
    (frame, meta)
}

fn live(link: LinkType, how: Live, seed: u64) -> usize {
    let (Some(libpcap), corpus) = (libpcap(), Corpus::open()) else { return 0 };
    let (mut random, seed) = Random::seeded(seed);
    let compile_for =
        Compile { link, snaplen: 262_144, netmask: None, optimize: true, swapped: false };
    let handle = match libpcap.live(&compile_for, how) {
        Ok(handle) => handle,
        Err(error) => {
            println!("skipped: {error}");
            return 0;
        }
    };
    let frames = frames(&libpcap, &corpus, link, 6);
    let frames = spoilt(&mut random, &frames);
    let mut values = Values::common();
    for frame in frames.iter().step_by(20) {
        values.learn(&frame.data);
    }
    let mut tally = Tally::default();
    let options = Options { live: true, ..options(link) };
    while tally.verdicts < pairs() && tally.texts < pairs() {
        values.terms = if random.chance(3) { &[] } else { TERMS };
        let text = filter_text(&mut random, &values);
        let reference = filter_support::Reference {
            plain: handle.compile(&text, false),
            optimized: handle.compile(&text, true),
        };
        let Some((predicate, plain, optimized)) = tally.text(&options, &text, &reference) else {
            continue;
        };
        if registers_clash_live(&predicate) {
            continue;
        }
        // Without the optimiser, byte expressions do not see the metadata.
        let reads_metadata =
            ["link[-4", "link[0 - 4", "fff030"].iter().any(|index| text.contains(index));
        // libpcap's optimiser adds the tag's four bytes before it tests if the tag is in the metadata, which is
        // wrong. The plain program is no reference here: it does not read metadata in byte expressions.
        let moves_wrongly = reads_metadata && text.contains("vlan");
        let programs = if reads_metadata { [optimized; 2] } else { [plain, optimized] };
        let program = bpf::lower(&predicate, options.snaplen).ok();
        let start = random.below(frames.len());
        for owned in frames.iter().cycle().skip(start).take(60) {
            let (owned, meta) = with_metadata(&mut random, owned);
            if moves_wrongly && meta.vlan.is_some() {
                continue;
            }
            let frame = Frame { meta, ..owned.frame() };
            let outcomes = programs.map(|one| machine::run(one.instructions(), &frame, true));
            let [Outcome::Verdict(first), Outcome::Verdict(second)] = outcomes else { continue };
            let ours = predicate.holds(&frame);
            // The optimiser moves loads, and there is no other program to compare with.
            if reads_metadata && ours.is_err() {
                continue;
            }
            let (ours, readable) = (ours == Ok(true), ours.is_ok());
            // Our program agrees on frames that have all bytes that it tests.
            if let Some(program) = &program
                && readable
                && frame.data.len() >= 250
            {
                let own = machine::run(program, &frame, true);
                assert_eq!(own, Outcome::Verdict(ours), "{text} on {:?} {:02x?}", meta, frame.data);
            }
            if !tally.verdict(&predicate, &frame, ours, [first, second]) {
                break;
            }
        }
    }
    tally.report(&format!("live on {link} (seed {seed})"))
}

#[test]
fn live_filters_mean_the_same_on_ethernet() {
    assert_eq!(live(LinkType::EN10MB, Live::Interface("lo"), 21), 0);
}

#[test]
fn live_filters_mean_the_same_on_other_links() {
    for (number, link) in [
        LinkType::RAW,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::NULL,
        LinkType(105),
        LinkType(127),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(live(link, Live::Any, 22 + number as u64), 0);
    }
}
