//! The pre-filter's programs against user space: frames of every kind, rules of every kind, edits during look-ups.

use fyke_frame::{Frame, LinkType};
use fyke_kernel::OpenError;
use fyke_kernel::direct::Access;
use fyke_kernel::prefilter::{Arrays, ArraysView, Dropper, Tap, Watcher};
use fyke_table::Seed;
use fyke_table::prefilter::shared;
use fyke_table::prefilter::{Answer, Prefilter, PrefilterOptions, PrefilterReader, Rule};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use fyke_testkit::skip::unless_missing;
use std::sync::atomic::{AtomicBool, Ordering};

const SIX: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// Small arrays, so that many keys share bits.
const OPTIONS: PrefilterOptions =
    PrefilterOptions { bits: 4096, hash_pairs: 1, max_spaces: 8, prefixes: None, max_rules: 1000 };

/// Frames that are judged while rules come and go; the environment's FYKE_FRAMES sets another number.
const FRAMES: u64 = 4_000_000;
/// Frames of one call.
const REPEAT: u32 = 10_000;

/// The programs, by their verdict: true rejects.
struct Programs {
    taps: Vec<Tap>,
    dropper: Dropper,
    watcher: Watcher,
    /// The arrays for look-ups in user space.
    view: ArraysView,
}

impl Programs {
    fn open(rules: &mut Prefilter) -> Option<Programs> {
        let arrays = Arrays::new(rules.options()).unwrap();
        arrays.follow(rules).unwrap();
        let open = |access| Tap::open_with(&arrays, 1500, access);
        let taps = [Access::best(), Access::Copied].map(open).into_iter().collect();
        let taps: Vec<Tap> = unless_missing::<_, OpenError>(taps, OpenError::is_unavailable)?;
        taps.iter().for_each(|tap| tap.set_on(true));
        let (dropper, watcher) = (Dropper::detached(&arrays), Watcher::detached(&arrays));
        let view = arrays.view().unwrap();
        Some(Programs { taps, dropper: dropper.unwrap(), watcher: watcher.unwrap(), view })
    }

    fn rejects(&self, frame: &[u8]) -> [bool; 3] {
        let tap = |n: usize| self.taps[n].test_run(frame, 1).unwrap().returned == 0;
        [tap(0), tap(1), self.dropper.test_run(frame, 1).unwrap().returned == 1]
    }
}

/// Frames of every kind that the header walk knows; true: the programs read its headers.
fn bases() -> Vec<(bool, Packet)> {
    let ethernet = Packet::ethernet;
    let v4 = |outer: Packet| outer.ipv4([10, 0, 0, 1], [192, 168, 0, 10]);
    let inner = |outer: Packet| v4(outer).udp(5000, 53).payload(&[7; 20]);
    vec![
        (true, v4(ethernet()).tcp(5000, 80)),
        (true, v4(ethernet()).udp(5000, 53).payload(&[7; 20])),
        (true, v4(ethernet()).fragment(9, 1480, true).ip_payload(17, &[0; 60])),
        (true, v4(ethernet()).icmp(8, 0, 0).payload(&[0; 30])),
        (true, v4(ethernet()).esp(77).payload(&[3; 40])),
        (true, v4(ethernet().vlan(7)).tcp(5000, 80)),
        (true, ethernet().vlan(8).ipv6(SIX, SIX).udp(7, 53).payload(&[1; 9])),
        (true, ethernet().ipv6(SIX, SIX).tcp(7, 8)),
        (true, ethernet().ipv6(SIX, SIX).icmpv6(128, 0, 0)),
        (true, ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2])),
        (false, v4(ethernet()).ip_options(&[1, 1, 1, 1, 7, 4, 4, 0]).tcp(5000, 80)),
        (false, v4(ethernet()).sctp(5000, 80)),
        (false, ethernet().ipv6(SIX, SIX).hop_by_hop().tcp(7, 8)),
        (false, inner(ethernet().qinq(5).vlan(7))),
        (false, inner(ethernet().mpls(100))),
        (false, inner(ethernet().ipv6(SIX, SIX).vxlan(9).ether())),
        (false, inner(ethernet().ipv4([1, 1, 1, 1], [2, 2, 2, 2]).gre())),
        (false, inner(v4(ethernet()))),
        (false, ethernet().payload(&[0x88, 0xcc, 2, 7, 4])),
    ]
}

/// A rule of random fields, half of them those of the frames.
fn rule(random: &mut Random, is_tagged: bool) -> Rule {
    let mut rule = Rule::default();
    let pick = |random: &mut Random| random.chance(2);
    if pick(random) {
        rule = match random.below(5) {
            0 => rule.with_net([10, 0, 0, random.below(2) as u8].into(), 32),
            1 => rule.with_net([192, 168, 0, 0].into(), [8, 16, 24][random.below(3)]),
            2 => rule.with_net(SIX.into(), [32, 64, 128][random.below(3)]),
            3 => rule.with_net([192, 168, 0, 10].into(), 32),
            _ => rule.with_net([8, 8, random.below(256) as u8, 8].into(), 32),
        };
    }
    if pick(random) {
        rule = rule.with_port([80, 53, 8, 5000, 9999][random.below(5)]);
    }
    if pick(random) {
        rule = rule.with_protocol([6, 17, 1, 50][random.below(4)]);
    }
    if is_tagged {
        rule = rule.with_vlan([7, 8, 9][random.below(3)]);
    }
    if rule == Rule::default() { rule.with_port(80) } else { rule }
}

/// Answer of user space.
fn answer(reader: &mut PrefilterReader, frame: &[u8]) -> Answer {
    reader.ask(&Frame::new(LinkType::EN10MB, frame))
}

/// The programs reject only frames that user space rejects with the same rules, in either sense, whatever the frame;
/// of frames with plain headers, all of them.
#[test]
fn programs_reject_what_user_space_rejects() {
    for hash_pairs in [1, 2] {
        check_programs(PrefilterOptions { hash_pairs, ..OPTIONS });
    }
}

fn check_programs(options: PrefilterOptions) {
    let (mut random, seed) = Random::seeded(19);
    println!("seed {seed}, {} pairs of hash functions", options.hash_pairs);
    let mut rules = Prefilter::new(options, Seed::fixed(random.number()));
    let Some(programs) = Programs::open(&mut rules) else { return };
    let mut reader = rules.reader();
    let (mut rejected, mut passed) = (0, 0);
    for _ in 0..60 {
        rules.reset();
        let (count, tagged) = (1 + random.below(20), random.chance(3));
        for _ in 0..count {
            // A refusal for lack of room changes nothing.
            let _full = rules.add(rule(&mut random, tagged));
        }
        let negative = random.chance(3);
        rules.set_negative(negative);
        for (is_plain, base) in bases() {
            let bytes = base.build();
            for round in 0..12 {
                let mut frame = bytes.clone();
                if round > 0 {
                    spoil(&mut random, &mut frame);
                }
                let answer = answer(&mut reader, &frame);
                let wanted = if negative { Answer::Maybe } else { Answer::No };
                let shared = shared::ask(&programs.view, &Frame::new(LinkType::EN10MB, &frame));
                assert_eq!(shared, answer, "in shared memory: {rules:?} {frame:02x?}");
                let before = programs.watcher.counts()[0].rejected;
                let run = programs.watcher.test_run(&frame, 1);
                let watched = programs.watcher.counts()[0].rejected - before;
                let verdicts = programs.rejects(&frame);
                match run {
                    Ok(run) => {
                        assert_eq!(run.returned as i32, -1, "every frame continues");
                        assert_eq!(watched == 1, verdicts[0], "as on a socket: {frame:02x?}");
                    }
                    // The kernel tests no frames at tcx that lack an IP header.
                    Err(error) => assert!(frame.len() < 54, "{error} {frame:02x?}"),
                }
                let shown = (negative, answer, verdicts, &rules, &frame);
                if answer != wanted {
                    assert_eq!(verdicts, [false; 3], "{shown:02x?}");
                } else if is_plain && round == 0 {
                    // A device may take a tag out of a frame, and XDP does not see it.
                    assert_eq!(verdicts[..2], [true; 2], "{shown:02x?}");
                    assert!(verdicts[2] || tagged, "{shown:02x?}");
                }
                *if verdicts[0] { &mut rejected } else { &mut passed } += 1;
            }
        }
    }
    println!("{rejected} rejected, {passed} passed");
    assert!(rejected > 1000 && passed > 1000);
    assert_eq!(programs.taps[0].rejected(), rejected, "every frame is counted once");
}

/// Changes up to three bytes after the link addresses, and cuts off some of the end.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = 12 + random.below(bytes.len() - 12);
        bytes[at] = random.number() as u8;
    }
    bytes.truncate(bytes.len() - random.below(24).min(bytes.len() - 14));
}

/// A rule in force is never missed while other rules come and go, with all arrays and probes in use.
#[test]
fn no_false_negative_while_rules_come_and_go() {
    let mut rules = Prefilter::new(OPTIONS, Seed::fixed(4));
    let Some(programs) = Programs::open(&mut rules) else { return };
    let frame = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 80).build();
    let other = Packet::ethernet().ipv4([10, 9, 0, 1], [10, 9, 0, 2]).tcp(1, 81).build();
    rules.add(Rule::parse("ip=10.0.0.2,port=80").unwrap()).unwrap();
    assert_eq!((programs.rejects(&frame), programs.rejects(&other)), ([false; 3], [true; 3]));
    let frames = std::env::var("FYKE_FRAMES").ok().and_then(|text| text.parse().ok());
    let (frames, over) = (frames.unwrap_or(FRAMES), AtomicBool::new(false));
    let before = programs.taps.iter().map(Tap::rejected).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..frames / u64::from(REPEAT) {
                // The counters tell if one of the runs rejected the frame.
                programs.taps[turn as usize % 2].test_run(&frame, REPEAT).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        let (mut random, seed) = Random::seeded(5);
        println!("seed {seed}");
        let mut there = Vec::new();
        let mut edits = 0_u64;
        while !over.load(Ordering::Relaxed) {
            if there.len() < 60 && random.chance(2) {
                let tagged = random.chance(3);
                let new = rule(&mut random, tagged);
                there.extend(rules.add(new).ok().map(|()| new));
            } else if !there.is_empty() {
                let gone = there.swap_remove(random.below(there.len()));
                rules.remove(&gone).unwrap();
            }
            edits += 1;
        }
        println!("{frames} frames, {edits} edits");
        assert!(edits > 1000);
        there.iter().for_each(|rule| rules.remove(rule).unwrap());
    });
    let after = programs.taps.iter().map(Tap::rejected).collect::<Vec<_>>();
    assert_eq!(after, before, "the frame matches a rule and was never rejected");
    assert_eq!((programs.rejects(&frame), programs.rejects(&other)), ([false; 3], [true; 3]));
}

/// Off, disabled, or without their writer, the programs pass every frame.
#[test]
fn without_rules_in_force_everything_passes() {
    let mut rules = Prefilter::new(OPTIONS, Seed::fixed(4));
    let Some(programs) = Programs::open(&mut rules) else { return };
    let frame = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 80).build();
    assert_eq!(programs.rejects(&frame), [false; 3], "enabled without a rule");
    let other = Rule::parse("ip=10.9.9.9").unwrap();
    rules.add(other).unwrap();
    assert_eq!(programs.rejects(&frame), [true; 3]);
    rules.remove(&other).unwrap();
    assert_eq!(programs.rejects(&frame), [false; 3], "without a rule again");
    rules.add(other).unwrap();
    programs.taps[0].set_on(false);
    assert_eq!(programs.rejects(&frame), [false, true, true]);
    rules.set_enabled(false);
    assert_eq!(programs.rejects(&frame), [false; 3]);
    rules.set_enabled(true);
    assert_eq!(programs.rejects(&frame), [false, true, true]);
    drop(rules);
    assert_eq!(programs.rejects(&frame), [false; 3]);
    assert_eq!(programs.taps[1].test_run(&frame, 1).unwrap().returned, 1500, "bytes to keep");
}

/// Sizes are parameters with limits: another process finds the arrays with their size.
#[test]
fn sizes_are_parameters_with_limits() {
    let too_large = PrefilterOptions { bits: 1 << 29, ..Default::default() };
    assert!(Arrays::new(&too_large).unwrap_err().to_string().contains("64 MiB"));
    let options = PrefilterOptions { max_spaces: 9, ..OPTIONS };
    let mut rules = Prefilter::new(options, Seed::fixed(4));
    let Some(programs) = Programs::open(&mut rules) else { return };
    let add = |rules: &mut Prefilter, text: &str| rules.add(Rule::parse(text).unwrap());
    let fields = ["", ",port=80", ",proto=6", ",vlan=3", ",port=80,proto=6", ",port=80,vlan=3"];
    for prefix in 1..=8 {
        for fields in fields.iter().chain(&[",proto=6,vlan=3", ",port=80,proto=6,vlan=3"]) {
            add(&mut rules, &format!("ip=10.0.0.0/{prefix}{fields}")).unwrap();
        }
    }
    let error = add(&mut rules, "ip=10.0.0.0/9").unwrap_err().to_string();
    assert!(error.contains("64 combinations"), "{error}");
    for fields in fields.iter().chain(&[",proto=6,vlan=3", ",port=80,proto=6,vlan=3"]) {
        rules.remove(&Rule::parse(&format!("ip=10.0.0.0/8{fields}")).unwrap()).unwrap();
    }
    add(&mut rules, "ip=10.0.0.0/9").unwrap();
    add(&mut rules, "ip=10.0.0.0/10").unwrap();
    let error = add(&mut rules, "ip=10.0.0.0/11").unwrap_err().to_string();
    assert!(error.contains("9 prefix lengths"), "{error}");
    let frame = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 80).build();
    assert_eq!(programs.rejects(&frame), [false; 3]);
    let number = Arrays::new(&OPTIONS).unwrap();
    let (own, found) = (number.number().unwrap(), Arrays::of_number(number.number().unwrap()));
    assert_eq!(found.unwrap().number().unwrap(), own);
    assert!(Arrays::of_number(u32::MAX).is_err());
}
