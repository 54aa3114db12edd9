//! The programs of the MPF paper, as printed: Figure 3 and Appendices A, B and C accept the same packets; Table 1's
//! equivalence; the flow of fragments through Appendix B.

use fyke_frame::{Frame, LinkType};
use fyke_machine::bpf::run::{Outcome, Program};
use fyke_machine::bpf::{ALL, Dialect, assemble, pseudo};
use fyke_machine::cspf::{self, ByteOrder};
use fyke_machine::{
    AnyProgram, Delivery, Demultiplexer, Endpoints, GivenUp, Hashing, Limits, Options, Reprocess,
    Symbols, papers,
};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;

const FIGURE_3: &str = include_str!("../../../testdata/machine/figure3.mpf");
const APPENDIX_A: &str = include_str!("../../../testdata/machine/appendix_a.bpf");
const APPENDIX_B: &str = include_str!("../../../testdata/machine/appendix_b.mpf");
const APPENDIX_C: &str = include_str!("../../../testdata/machine/appendix_c.cspf");

const HERE: [u8; 4] = [10, 0, 0, 1];

/// A session: source address and ports; the destination is [`HERE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Session {
    source: [u8; 4],
    source_port: u16,
    destination_port: u16,
}

const SESSION: Session = Session { source: [10, 0, 0, 2], source_port: 4000, destination_port: 80 };

fn symbols(session: Session) -> Symbols {
    let mut symbols = papers::register_machine();
    for name in ["dst_addr", "dest_addr"] {
        symbols.define(name, u32::from_be_bytes(HERE));
    }
    symbols.define("src_addr", u32::from_be_bytes(session.source));
    symbols.define("src_port", session.source_port.into());
    symbols.define("dst_port", session.destination_port.into());
    symbols
}

fn register(text: &str, dialect: Dialect, session: Session) -> Program {
    let symbols = symbols(session);
    let assembled = match pseudo::is_pseudo(text) {
        true => pseudo::compile(text, &symbols).unwrap(),
        false => assemble::assemble(text, dialect, &symbols).unwrap(),
    };
    Program::new(assembled.program, dialect).unwrap()
}

fn stack(session: Session) -> cspf::Program {
    let order = ByteOrder::Little;
    let mut symbols = papers::stack_machine(order);
    let half = |bytes: [u8; 4], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]).into();
    symbols.define("dst_addr_hi", half(HERE, 0));
    symbols.define("dst_addr_lo", half(HERE, 2));
    symbols.define("src_addr_hi", half(session.source, 0));
    symbols.define("src_addr_lo", half(session.source, 2));
    symbols.define("src_port", session.source_port.swap_bytes().into());
    symbols.define("dst_port", session.destination_port.swap_bytes().into());
    cspf::Program::new(cspf::assemble::assemble(APPENDIX_C, &symbols).unwrap(), order).unwrap()
}

fn tcp(session: Session, to: [u8; 4]) -> Vec<u8> {
    let packet = Packet::ethernet().ipv4(session.source, to);
    packet.tcp(session.source_port, session.destination_port).payload(&[7; 10]).build()
}

/// The parts of a TCP packet (three or more), cut by hand after its header.
fn fragments(session: Session, id: u16, parts: u16) -> Vec<Vec<u8>> {
    let first = Packet::ethernet().ipv4(session.source, HERE).fragment(id, 0, true);
    let first = first.tcp(session.source_port, session.destination_port).payload(&[1; 4]).build();
    let rest = (1..parts).map(|part| {
        let packet = Packet::ethernet().ipv4(session.source, HERE);
        packet.fragment(id, part * 24, part + 1 < parts).ip_payload(6, &[2; 24]).build()
    });
    std::iter::once(first).chain(rest).collect()
}

fn frame(data: &[u8]) -> Frame<'_> {
    Frame::new(LinkType::EN10MB, data)
}

#[test]
fn all_programs_accept_the_session_and_nothing_else() {
    let (fig3, a, b, c) = (
        register(FIGURE_3, Dialect::Mpf, SESSION),
        register(APPENDIX_A, Dialect::Bpf, SESSION),
        register(APPENDIX_B, Dialect::Mpf, SESSION),
        stack(SESSION),
    );
    let options = Packet::ethernet().ipv4(SESSION.source, HERE).ip_options(&[1; 8]);
    let udp = Packet::ethernet().ipv4(SESSION.source, HERE);
    let cases = [
        (true, tcp(SESSION, HERE)),
        (true, options.tcp(4000, 80).payload(&[]).build()),
        (true, Packet::ethernet().ipv4(SESSION.source, HERE).dont_fragment().tcp(4000, 80).build()),
        (false, tcp(SESSION, [10, 0, 0, 9])),
        (false, tcp(Session { source: [10, 0, 0, 3], ..SESSION }, HERE)),
        (false, tcp(Session { source_port: 4001, ..SESSION }, HERE)),
        (false, tcp(Session { destination_port: 81, ..SESSION }, HERE)),
        (false, udp.udp(4000, 80).payload(&[0; 20]).build()),
        (false, vec![0; 60]),
        (false, tcp(SESSION, HERE)[..36].to_vec()),
        (false, Vec::new()),
    ];
    for (index, (wanted, bytes)) in cases.iter().enumerate() {
        let frame = frame(bytes);
        assert_eq!(fig3.run(&frame) != Outcome::Reject, *wanted, "figure 3, case {index}");
        assert_eq!(a.run(&frame) == Outcome::Accept { bytes: ALL }, *wanted, "A, case {index}");
        assert_eq!(b.run(&frame) != Outcome::Reject, *wanted, "B, case {index}");
        assert_eq!(c.run(&frame), *wanted, "C, case {index}");
    }
    let warnings = assemble::assemble(FIGURE_3, Dialect::Mpf, &symbols(SESSION)).unwrap().warnings;
    assert_eq!(warnings.len(), 2, "the two port loads are half words");
}

#[test]
fn a_match_is_its_equivalent_sequence_of_table_1() {
    let matching = "begin\nld [0]\nst M[0]\nld [4]\nst M[1]\nld [8]\nst M[2]\n";
    let short = format!("{matching}ret_match_imm #3, #ALL\nkey #1\nkey #2\nkey #3\n");
    let long = matching.replace("begin\n", "")
        + "ld M[0]\njeq #1, k1, fail\nk1: ld M[1]\njeq #2, k2, fail\nk2: ld M[2]\n\
           jeq #3, ok, fail\nok: ret #ALL\nfail: ret #0\n";
    let (short, long) =
        (register(&short, Dialect::Mpf, SESSION), register(&long, Dialect::Bpf, SESSION));
    let (mut random, seed) = Random::seeded(1);
    let mut accepted = 0;
    for _ in 0..2000 {
        let words: [u32; 3] = std::array::from_fn(|at| at as u32 + 1 - u32::from(random.chance(4)));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let (one, other) = (short.run(&frame(&bytes)), long.run(&frame(&bytes)));
        assert_eq!(one != Outcome::Reject, other != Outcome::Reject, "seed {seed}, {words:?}");
        accepted += u32::from(other != Outcome::Reject);
    }
    assert!(accepted > 100, "{accepted}");
}

/// Log of deliveries and dropped packets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    delivered: Vec<(u64, u32)>,
    given_up: Vec<(u64, GivenUp)>,
}

impl Endpoints for Log {
    fn deliver(&mut self, _: &Frame<'_>, delivery: Delivery) {
        self.delivered.push((delivery.sequence, delivery.recipient.0));
    }

    fn given_up(&mut self, sequence: u64, why: GivenUp) {
        self.given_up.push((sequence, why));
    }
}

fn session(number: u16) -> Session {
    let [low, high] = number.to_le_bytes();
    Session { source: [10, 1, high, low], source_port: 1000 + number, destination_port: 80 }
}

fn appendix_b(options: Options, sessions: u16) -> Demultiplexer {
    let mut machine = Demultiplexer::new(options);
    for number in 0..sessions {
        let program = register(APPENDIX_B, Dialect::Mpf, session(number));
        machine.install(AnyProgram::Register(program)).unwrap();
    }
    assert_eq!(machine.group_count(), usize::from(sessions > 0));
    machine
}

fn feed(machine: &mut Demultiplexer, log: &mut Log, bytes: &[u8], ms: u64) {
    machine.frame(&Frame { timestamp_ns: ms * 1_000_000, ..frame(bytes) }, log);
}

#[test]
fn a_collapsed_group_dispatches_like_its_programs() {
    for (hashing, translate) in
        [(Hashing::Seeded, false), (Hashing::Sum, false), (Hashing::Seeded, true)]
    {
        let mut mpf = Demultiplexer::new(Options { hashing, translate, ..Options::default() });
        let mut bpf = Demultiplexer::new(Options { translate, ..Options::default() });
        let mut cspf = Demultiplexer::new(Options::default());
        for number in 0..60 {
            let program = |text, dialect| register(text, dialect, session(number));
            mpf.install(AnyProgram::Register(program(FIGURE_3, Dialect::Mpf))).unwrap();
            bpf.install(AnyProgram::Register(program(APPENDIX_A, Dialect::Bpf))).unwrap();
            cspf.install(AnyProgram::Cspf(stack(session(number)))).unwrap();
        }
        assert_eq!((mpf.group_count(), bpf.group_count(), mpf.len()), (1, 0, 60));
        let (mut random, seed) = Random::seeded(2);
        let mut logs = [Log::default(), Log::default(), Log::default()];
        for _ in 0..2000 {
            let mut one = session(random.below(70) as u16);
            one.destination_port += random.chance(4) as u16;
            let packet = tcp(one, HERE);
            for (machine, log) in [&mut mpf, &mut bpf, &mut cspf].into_iter().zip(&mut logs) {
                feed(machine, log, &packet, 0);
            }
        }
        assert_eq!(logs[0], logs[1], "seed {seed}");
        assert_eq!(logs[0], logs[2], "seed {seed}");
        assert!(logs[0].delivered.len() > 500);
    }
}

#[test]
fn sessions_come_and_go_and_equal_ones_all_get_the_packet() {
    let mut machine = Demultiplexer::new(Options::default());
    let mut install = |number| {
        let program = register(FIGURE_3, Dialect::Mpf, session(number));
        machine.install(AnyProgram::Register(program)).unwrap()
    };
    let ids = [install(1), install(2), install(1), install(1)];
    let to = |machine: &mut Demultiplexer, number| {
        let mut log = Log::default();
        feed(machine, &mut log, &tcp(session(number), HERE), 0);
        let mut ids: Vec<u32> = log.delivered.iter().map(|&(_, recipient)| recipient).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(to(&mut machine, 1), [0, 2, 3]);
    let mut gone = Log::default();
    assert!(machine.remove(ids[2], &mut gone) && !machine.remove(ids[2], &mut gone));
    assert_eq!(to(&mut machine, 1), [0, 3]);
    assert!(machine.remove(ids[3], &mut gone));
    assert_eq!((to(&mut machine, 1), to(&mut machine, 2)), (vec![0], vec![1]));
    assert!(machine.remove(ids[0], &mut gone) && machine.remove(ids[1], &mut gone));
    assert_eq!((machine.group_count(), machine.len()), (0, 0));
    assert!(to(&mut machine, 1).is_empty());
}

#[test]
fn fragments_follow_their_first_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let mut machine = appendix_b(Options::default(), 5);
        let mut log = Log::default();
        let parts = fragments(session(3), 77, 3);
        for part in order {
            feed(&mut machine, &mut log, &parts[part], 0);
        }
        log.delivered.sort_unstable();
        assert_eq!(log.delivered, [(0, 3), (1, 3), (2, 3)], "{order:?}");
        assert_eq!((machine.waiting(), &log.given_up), (0, &Vec::new()));
    }
}

#[test]
fn postponed_packets_have_the_deadline_of_their_arrival() {
    let mut machine = appendix_b(Options::default(), 5);
    let mut log = Log::default();
    let parts = fragments(session(3), 77, 3);
    feed(&mut machine, &mut log, &parts[1], 0);
    feed(&mut machine, &mut log, &parts[2], 29_000);
    // The first part arrives after the deadline of the second, but before that of the third.
    feed(&mut machine, &mut log, &parts[0], 30_001);
    assert_eq!(log.delivered, [(2, 3), (1, 3)]);
    assert_eq!(log.given_up, [(0, GivenUp::Expired)]);
    // Registered data expires 30 s after the arrival of the first part.
    feed(&mut machine, &mut log, &parts[1], 60_001);
    assert_eq!(log.delivered.len(), 3);
    feed(&mut machine, &mut log, &parts[1], 60_002);
    machine.finish(&mut log);
    assert_eq!((log.delivered.len(), machine.counters().expired), (3, 2));
}

#[test]
fn a_session_that_comes_late_gets_what_waits() {
    let mut machine = appendix_b(Options::default(), 1);
    let mut log = Log::default();
    let parts = fragments(session(3), 77, 2);
    feed(&mut machine, &mut log, &parts[1], 0);
    let program = register(APPENDIX_B, Dialect::Mpf, session(3));
    machine.install(AnyProgram::Register(program)).unwrap();
    feed(&mut machine, &mut log, &parts[0], 1);
    assert_eq!(log.delivered, [(1, 1), (0, 1)]);
}

#[test]
fn looking_when_it_can_help_is_looking_every_time() {
    let (mut random, seed) = Random::seeded(3);
    for round in 0..30 {
        let every = Options { reprocess: Reprocess::EveryTime, ..Options::default() };
        let mut machines = [appendix_b(Options::default(), 8), appendix_b(every, 8)];
        let mut logs = [Log::default(), Log::default()];
        let mut packets: Vec<Vec<u8>> = (0..40)
            .flat_map(|id| fragments(session(random.below(10) as u16), id % 30, 1 + id % 5))
            .collect();
        for at in (1..packets.len()).rev() {
            packets.swap(at, random.below(at + 1));
        }
        let mut ms = 0;
        for packet in &packets {
            ms += random.below(1500) as u64;
            for (machine, log) in machines.iter_mut().zip(&mut logs) {
                feed(machine, log, packet, ms);
            }
        }
        for (machine, log) in machines.iter_mut().zip(&mut logs) {
            machine.finish(log);
            log.delivered.sort_unstable();
            log.given_up.sort_unstable_by_key(|&(sequence, _)| sequence);
        }
        assert_eq!(logs[0], logs[1], "seed {seed}, round {round}");
        let [help, every] = machines.map(|machine| machine.counters());
        assert!(help.reprocessed <= every.reprocessed);
    }
}

#[test]
fn a_flood_of_fragments_is_bounded_and_counted() {
    let postponed = fyke_flow::postponed::Limits { packets: 100, bytes: 1 << 20 };
    let limits = Limits { registered: 50, postponed, ..Limits::default() };
    let mut machine = appendix_b(Options { limits, ..Options::default() }, 5);
    let mut log = Log::default();
    for id in 0..20_000 {
        let parts = fragments(session(id % 8), id, 2);
        feed(&mut machine, &mut log, &parts[usize::from(id % 3 > 0)], u64::from(id));
        assert!(machine.waiting() <= 100);
    }
    machine.finish(&mut log);
    let counters = machine.counters();
    assert_eq!(machine.waiting(), 0);
    assert!(counters.no_room > 10_000 && counters.forgotten > 1000, "{counters:?}");
    let settled = counters.late + counters.expired + counters.no_room + counters.rejected_late;
    assert_eq!(counters.postponed, settled);
    assert_eq!(log.given_up.len() as u64, settled - counters.late);
    // A waiting packet is reprocessed when its data is registered, not once for each packet of the flood.
    assert!(counters.reprocessed < 20_000, "{counters:?}");
}

#[test]
fn a_tag_outside_the_bytes_is_loaded() {
    let symbols = Symbols::default();
    let load = |what: &str, vlan: Option<u16>| {
        let text = format!("ld {what}\nret a\n");
        let read = assemble::assemble(&text, Dialect::Bpf, &symbols).unwrap();
        let mut tagged = frame(&[0; 60]);
        tagged.meta.vlan = vlan;
        match Program::new(read.program, Dialect::Bpf).unwrap().run(&tagged) {
            Outcome::Accept { bytes } => bytes,
            _ => 0,
        }
    };
    for (what, with) in [("vlan_tci", 0x2005), ("vlan_avail", 1), ("vlan_tpid", 0x8100)] {
        assert_eq!((load(what, Some(0x2005)), load(what, None)), (with, 0), "{what}");
    }
}
