//! From the graph to instructions: nodes in an order in which all jumps lead forward, loads where the accumulator does
//! not have the value already, and steps in between where a jump is longer than a byte can say.

use super::compute::{AND, BY_X, Computation, Kept};
use super::graph::{Code, ENDS, Graph, Node, Value, full_mask};
use super::{Instruction, LowerError, MAX_LEN};
use fyke_frame::condition::Source;
use std::collections::HashMap;

/// Longest conditional jump.
const MAX_JUMP: usize = 255;

// Operations of classic BPF.
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;

/// What the registers hold on every way to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct State {
    /// The accumulator: a masked field.
    pub(super) a: Option<(Source, u32)>,
    /// The index register.
    pub(super) x: Option<Index>,
    /// Memory words that hold the place they are for, a bit each.
    pub(super) held: u16,
}

/// What the index register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Index {
    /// The length of the IPv4 header there.
    IpHeaderLen(u32),
    /// The place that this memory word is for.
    Word(usize),
}

/// The instructions of one node: its loads, and the jump.
struct Block {
    loads: Vec<Instruction>,
    jump: u16,
    operand: u32,
    next: [usize; 2],
}

pub(super) fn program(graph: &Graph, snaplen: u32) -> Result<Vec<Instruction>, LowerError> {
    let order = order(graph);
    let kept = Kept::of(graph, &order);
    let mut states: HashMap<usize, State> = HashMap::new();
    let mut blocks = Vec::with_capacity(order.len());
    for &index in &order {
        let Some(node) = graph.node(index) else { continue };
        let mut state = states.get(&index).cloned().unwrap_or_default();
        let block = block(graph, node, &kept, &mut state)?;
        for successor in node.next {
            states
                .entry(successor)
                .and_modify(|known| {
                    if known.a != state.a {
                        known.a = None;
                    }
                    if known.x != state.x {
                        known.x = None;
                    }
                    known.held &= state.held;
                })
                .or_insert_with(|| state.clone());
        }
        blocks.push(block);
    }
    lay_out(graph, &order, &blocks, snaplen)
}

/// Each node before its successors, and where possible right before one that tests the same value.
fn order(graph: &Graph) -> Vec<usize> {
    let reached = graph.reached();
    let mut waiting: HashMap<usize, usize> = HashMap::new();
    for node in reached.iter().filter_map(|&index| graph.node(index)) {
        for successor in node.next {
            *waiting.entry(successor).or_default() += 1;
        }
    }
    let mut order = Vec::with_capacity(reached.len());
    let mut ready = vec![graph.root];
    while let Some(index) = ready.pop() {
        let Some(node) = graph.node(index) else { continue };
        order.push(index);
        let mut freed = Vec::new();
        for successor in node.next {
            let Some(count) = waiting.get_mut(&successor) else { continue };
            *count -= 1;
            if *count == 0 {
                freed.push(successor);
            }
        }
        let same = |index: usize| {
            graph.node(index).is_some_and(|below| below.test.value == node.test.value)
        };
        freed.sort_by_key(|&index| same(index));
        ready.extend(freed);
    }
    order
}

fn block(graph: &Graph, node: Node, kept: &Kept, state: &mut State) -> Result<Block, LowerError> {
    let mut loads = Vec::new();
    let mut jump = JMP;
    match &graph.values[node.test.value] {
        Value::Field(source, mask) => field(source, *mask, kept, state, &mut loads)?,
        Value::Computed(left, right) => {
            let mut computation = Computation::new(&mut loads, kept, state);
            if computation.sides(left, right.as_deref())? {
                jump |= BY_X;
            }
        }
    }
    let (code, operand) = operation_of(node.test.code);
    let operand = if jump & BY_X != 0 { 0 } else { operand };
    Ok(Block { loads, jump: jump | code, operand, next: node.next })
}

pub(super) fn operation_of(code: Code) -> (u16, u32) {
    match code {
        Code::Equal(operand) => (0x10, operand),
        Code::Greater(operand) => (0x20, operand),
        Code::GreaterOrEqual(operand) => (0x30, operand),
        Code::AnyBit(operand) => (0x40, operand),
    }
}

/// Brings a masked field into the accumulator.
fn field(
    source: &Source,
    mask: u32,
    kept: &Kept,
    state: &mut State,
    into: &mut Vec<Instruction>,
) -> Result<(), LowerError> {
    let full = full_mask(source);
    if state.a.as_ref() != Some(&(source.clone(), mask)) {
        if state.a.as_ref() != Some(&(source.clone(), full)) {
            Computation::new(into, kept, state).source(source)?;
        }
        if mask != full {
            into.push(plain(ALU | AND, mask));
        }
    }
    state.a = Some((source.clone(), mask));
    Ok(())
}

pub(super) fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

/// Places the blocks and fills the jumps in; a jump that is too long gets a step right behind it.
fn lay_out(
    graph: &Graph,
    order: &[usize],
    blocks: &[Block],
    snaplen: u32,
) -> Result<Vec<Instruction>, LowerError> {
    let mut steps = vec![[false; 2]; blocks.len()];
    let used =
        |end: usize| graph.root == end || blocks.iter().any(|block| block.next.contains(&end));
    let ends: Vec<usize> = ENDS.into_iter().rev().filter(|&end| used(end)).collect();
    let places = loop {
        let mut places = HashMap::new();
        let mut at = 0;
        for ((index, block), steps) in order.iter().zip(blocks).zip(&steps) {
            places.insert(*index, at);
            at += block.loads.len() + 1 + steps.iter().filter(|step| **step).count();
        }
        for end in &ends {
            places.insert(*end, at);
            at += 1;
        }
        if at > MAX_LEN {
            return Err(LowerError::TooLong { given: at, limit: MAX_LEN });
        }
        let mut grown = false;
        for ((index, block), steps) in order.iter().zip(blocks).zip(&mut steps) {
            let from = places[index] + block.loads.len() + 1;
            for side in [0, 1] {
                let far = places[&block.next[side]].saturating_sub(from) > MAX_JUMP;
                grown |= far && !steps[side];
                steps[side] |= far;
            }
        }
        if !grown {
            break places;
        }
    };
    let mut program = Vec::new();
    for (block, steps) in blocks.iter().zip(&steps) {
        program.extend(&block.loads);
        let from = program.len() + 1;
        let mut far = Vec::new();
        let mut skip = |side: usize| {
            if !steps[side] {
                return (places[&block.next[side]] - from) as u8;
            }
            let at = from + far.len();
            far.push(plain(JMP, (places[&block.next[side]] - at - 1) as u32));
            (at - from) as u8
        };
        let (jt, jf) = (skip(1), skip(0));
        program.push(Instruction { code: block.jump, jt, jf, k: block.operand });
        program.extend(far);
    }
    for end in ends {
        program.push(plain(RET, if end == ENDS[1] { snaplen } else { 0 }));
    }
    Ok(program)
}
