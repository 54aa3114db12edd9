//! Postponed packets under random MPF programs, with the paper's rule as oracle: reprocessing all of them after
//! every packet, and reprocessing only those that can change, have the same results, also while programs are
//! installed and removed.
//!
//! Programs have several matches, several `ret_match_data` and several `register_data`. None registers data on a
//! path to `postpone`: under the paper's rule such a packet would register again with every new packet.

use fyke_frame::{Batch, Frame, LinkType, Mask};
use fyke_machine::bpf::{Dialect, Instruction, code, run::Program};
use fyke_machine::{
    AnyProgram, Counters, Delivery, Demultiplexer, Endpoints, GivenUp, Options, RecipientId,
    Reprocess,
};
use fyke_testkit::random::Random;

/// Log of deliveries and dropped packets, in the order of packets; packets still waiting are counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Log {
    delivered: Vec<(u64, u32)>,
    given_up: Vec<(u64, GivenUp)>,
    open: i64,
}

impl Endpoints for Log {
    fn deliver(&mut self, _: &Frame<'_>, delivery: Delivery) {
        self.delivered.push((delivery.sequence, delivery.recipient.0));
    }

    fn postponed(&mut self, _: u64) {
        self.open += 1;
    }

    fn given_up(&mut self, sequence: u64, why: GivenUp) {
        self.given_up.push((sequence, why));
    }

    fn settled(&mut self, _: &Frame<'_>, _: u64) {
        self.open -= 1;
    }
}

/// Packets of six bytes: kind, key, and four that name data.
const BYTES: u32 = 6;

/// `M[to] = P[at]`
fn store(program: &mut Vec<Instruction>, at: u32, to: u32) {
    program.push(Instruction::new(code::LD_B_ABS, at));
    program.push(Instruction::new(code::ST, to));
}

/// Builds a program of blocks. Block `n` is for packets that begin with the byte `n`, the last one for all others. A
/// block that registers data first matches the key in byte 1, and a block that recalls data ends with `postpone` or
/// a rejection.
fn program(random: &mut Random, key: u32) -> Program {
    let mut program = vec![Instruction::new(code::BEGIN, 0)];
    let blocks = 2 + random.below(3) as u32;
    for kind in 0..blocks {
        let mut block = Vec::new();
        if random.chance(2) {
            store(&mut block, 1, 0);
            block.push(Instruction::jump(code::JMP_MATCH_IMM, 2, 1, 1));
            block.push(Instruction::new(code::KEY, key));
            block.push(Instruction::new(code::RET_K, 0));
            for _ in 0..random.below(4) {
                store(&mut block, 2 + random.below(4) as u32, 1);
                let ms = [1, 5, 40, 400][random.below(4)];
                block.push(Instruction::new(code::LD_IMM, random.below(4) as u32));
                block.push(Instruction::new(code::ST, 0));
                block.push(Instruction::jump(code::REGISTER_DATA, 2, 0, ms));
            }
            block.push(Instruction::new(code::RET_K, random.below(3) as u32));
        } else {
            if random.chance(3) {
                // A session with the key postpones the packet until the session is removed.
                store(&mut block, 1, 0);
                block.push(Instruction::jump(code::JMP_MATCH_IMM, 1, 2, 1));
                block.push(Instruction::new(code::KEY, key));
                block.push(Instruction::new(code::POSTPONE, 500));
            }
            let most = if random.chance(4) { 24 } else { 4 };
            for _ in 0..random.below(most) {
                store(&mut block, 2 + random.below(4) as u32, 1);
                block.push(Instruction::new(code::LD_IMM, random.below(4) as u32));
                block.push(Instruction::new(code::ST, 0));
                let bytes = random.below(4) as u32;
                block.push(Instruction::jump(code::RET_MATCH_DATA, 2, 0, bytes));
            }
            match random.below(4) {
                0 => {
                    store(&mut block, 1, 0);
                    block.push(Instruction::jump(code::RET_MATCH_IMM, 1, 0, 9));
                    block.push(Instruction::new(code::KEY, key));
                }
                _ => block.push(Instruction::new(code::POSTPONE, [2, 30, 500][random.below(3)])),
            }
        }
        program.push(Instruction::new(code::LD_B_ABS, 0));
        program.push(Instruction::jump(code::JEQ, 0, block.len() as u8, kind));
        program.extend(block);
    }
    program.push(Instruction::new(code::RET_K, 0));
    Program::new(program, Dialect::Mpf).unwrap_or_else(|error| panic!("{error}"))
}

/// The same program for another key.
fn keyed(program: &Program, key: u32) -> AnyProgram {
    let keyed = |one: &Instruction| match one.code {
        code::KEY => Instruction { k: key, ..*one },
        _ => *one,
    };
    let instructions = program.instructions().iter().map(keyed).collect();
    AnyProgram::Register(Program::new(instructions, Dialect::Mpf).unwrap())
}

fn packet(random: &mut Random) -> Vec<u8> {
    (0..BYTES).map(|at| random.below(if at == 0 { 5 } else { 3 }) as u8).collect()
}

#[test]
fn looking_when_it_can_help_is_looking_every_time_for_any_program() {
    let (mut random, seed) = Random::seeded(41);
    let (mut late, mut several, mut saved) = (0, 0, 0);
    for round in 0..400 {
        let every = Options { reprocess: Reprocess::EveryTime, ..Options::default() };
        let mut machines = [Demultiplexer::new(Options::default()), Demultiplexer::new(every)];
        let mut logs = [Log::default(), Log::default()];
        let shapes: Vec<Program> =
            (0..1 + random.below(3)).map(|_| program(&mut random, 0)).collect();
        let mut now_ns = 0;
        for _ in 0..120 {
            let (edit, at, key) = (random.below(12), random.below(shapes.len()), random.below(3));
            let victim = RecipientId(random.below(6) as u32);
            let bytes = packet(&mut random);
            now_ns += random.below(12) as u64 * 1_000_000;
            for (machine, log) in machines.iter_mut().zip(&mut logs) {
                match edit {
                    0 | 1 => drop(machine.install(keyed(&shapes[at], key as u32)).unwrap()),
                    2 => drop(machine.remove(victim, log)),
                    _ => {}
                }
                let frame = Frame::new(LinkType::EN10MB, &bytes);
                machine.frame(&Frame { timestamp_ns: now_ns, ..frame }, log);
            }
        }
        for (machine, log) in machines.iter_mut().zip(&mut logs) {
            machine.finish(log);
            log.delivered.sort_unstable();
            log.given_up.sort_unstable_by_key(|&(sequence, why)| (sequence, why as u8));
            assert_eq!(log.open, 0, "seed {seed}, round {round}");
        }
        assert_eq!(logs[0], logs[1], "seed {seed}, round {round}: {shapes:?}");
        let [help, always] = machines.map(|machine| machine.counters());
        assert_eq!(settled(&help), help.postponed, "seed {seed}, round {round}");
        late += help.late;
        saved += always.reprocessed - help.reprocessed;
        let recalls = |one: &&Instruction| one.code == code::RET_MATCH_DATA;
        several += u64::from(
            shapes.iter().any(|one| one.instructions().iter().filter(recalls).count() > 1),
        );
    }
    assert!(late > 1000 && several > 200 && saved > 10_000, "{late} {several} {saved}");
}

fn settled(counters: &Counters) -> u64 {
    let Counters { late, expired, no_room, rejected_late, abandoned, .. } = *counters;
    late + expired + no_room + rejected_late + abandoned
}

#[test]
fn some_frames_of_a_batch_go_where_they_would_go_one_by_one() {
    let (mut random, seed) = Random::seeded(42);
    for round in 0..200 {
        let shapes: Vec<Program> = (0..3).map(|_| program(&mut random, 1)).collect();
        let packets: Vec<Vec<u8>> = (0..90).map(|_| packet(&mut random)).collect();
        let wanted: Vec<bool> = packets.iter().map(|_| random.below(3) > 0).collect();
        let translated = Options { translate: true, ..Options::default() };
        let mut machines = [Demultiplexer::new(Options::default()), Demultiplexer::new(translated)];
        let mut logs = [Log::default(), Log::default()];
        for machine in &mut machines {
            let programs = shapes.iter().map(|shape| keyed(shape, 1));
            programs.for_each(|program| {
                machine.install(program).unwrap();
            });
        }
        for (part, chunk) in packets.chunks(30).enumerate() {
            let (mut batch, mut mask) = (Batch::new(), Mask::EMPTY);
            for (index, bytes) in chunk.iter().enumerate() {
                let timestamp_ns = (part * 30 + index) as u64 * 4_000_000;
                let frame = Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, bytes) };
                batch.push(frame).unwrap_or_else(|_| panic!("there is room"));
                if wanted[part * 30 + index] {
                    mask.set(index);
                    machines[0].frame(&frame, &mut logs[0]);
                }
            }
            machines[1].batch_of(&batch, mask, &mut logs[1]);
        }
        for (machine, log) in machines.iter_mut().zip(&mut logs) {
            machine.finish(log);
            log.delivered.sort_unstable();
            log.given_up.sort_unstable_by_key(|&(sequence, why)| (sequence, why as u8));
        }
        assert_eq!(logs[0], logs[1], "seed {seed}, round {round}");
        assert_eq!(machines[0].counters(), machines[1].counters(), "seed {seed}, round {round}");
    }
}
