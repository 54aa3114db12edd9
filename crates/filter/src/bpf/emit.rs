//! Turns the graph into instructions: orders the nodes so that all jumps lead forward, emits loads
//! where the accumulator does not have the value already, and inserts a jump instruction where a
//! distance does not fit into a byte.

use super::compute::{Computation, Kept};
use super::graph::{Code, ENDS, Graph, Node, Value, full_mask};
use super::share::{Plan, Unit};
use super::{Instruction, LowerError, MAX_LEN};
use fyke_frame::bpf::code::{self, ALU, AND, JMP, RET_K, X};
use fyke_frame::condition::Source;
use std::collections::HashMap;

/// Longest conditional jump.
const MAX_JUMP: usize = 255;

/// Contents of the registers on every path to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct State {
    /// The accumulator: a masked field.
    pub(super) a: Option<(Source, u32)>,
    /// The index register.
    pub(super) x: Option<Index>,
    /// Memory words that hold their place, one bit each.
    pub(super) held: u16,
}

/// Contents of the index register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Index {
    /// The length of the IPv4 header at this offset.
    IpHeaderLen(u32),
    /// The place of this memory word.
    Word(usize),
}

/// The instructions of one unit: its loads, and the jump; a unit that is only a load has no jump.
struct Block {
    unit: Unit,
    loads: Vec<Instruction>,
    jump: Option<(u16, u32)>,
    next: [Unit; 2],
}

pub(super) fn program(
    graph: &Graph,
    plan: &Plan,
    snaplen: u32,
) -> Result<Vec<Instruction>, LowerError> {
    let order = order(graph, plan);
    let nodes: Vec<usize> = order.iter().filter_map(|unit| node_of(*unit)).collect();
    let kept = Kept::of(graph, &nodes);
    let mut states: HashMap<Unit, State> = HashMap::new();
    let mut blocks = Vec::with_capacity(order.len());
    for &unit in &order {
        let (Some(node), Some(&next)) =
            (node_of(unit).and_then(|at| graph.node(at)), plan.next.get(&unit))
        else {
            continue;
        };
        let mut state = states.remove(&unit).unwrap_or_default();
        let (loads, jump) = match unit {
            // The value may come from any of the places.
            Unit::Shared(_) => {
                state.a = None;
                (Vec::new(), Some(jump(node, JMP)))
            }
            Unit::Load(_) => (test(graph, node, &kept, &mut state)?.0, None),
            _ => {
                let (loads, jump) = test(graph, node, &kept, &mut state)?;
                (loads, Some(jump))
            }
        };
        for successor in next {
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
        blocks.push(Block { unit, loads, jump, next });
    }
    lay_out(plan, &blocks, snaplen)
}

/// The node of a unit's test or load.
fn node_of(unit: Unit) -> Option<usize> {
    match unit {
        Unit::End(_) => None,
        Unit::Test(index) | Unit::Load(index) | Unit::Shared(index) => Some(index),
    }
}

/// The units in order: each before its successors and, where possible, right before one that tests
/// the same value.
fn order(graph: &Graph, plan: &Plan) -> Vec<Unit> {
    let mut waiting: HashMap<Unit, usize> = HashMap::new();
    for successor in plan.next.values().flatten() {
        *waiting.entry(*successor).or_default() += 1;
    }
    let value = |unit: Unit| Some(graph.node(node_of(unit)?)?.test.value);
    let mut order = Vec::with_capacity(plan.next.len());
    let mut ready = vec![plan.root];
    while let Some(unit) = ready.pop() {
        let Some(next) = plan.next.get(&unit) else { continue };
        order.push(unit);
        let mut freed = Vec::new();
        for successor in next {
            let Some(count) = waiting.get_mut(successor) else { continue };
            *count -= 1;
            if *count == 0 {
                freed.push(*successor);
            }
        }
        let own = value(unit);
        freed.sort_by_key(|&below| matches!(unit, Unit::Load(_)) || value(below) == own);
        ready.extend(freed);
    }
    order
}

/// The instructions before the jump of a test, and the jump.
fn test(
    graph: &Graph,
    node: Node,
    kept: &Kept,
    state: &mut State,
) -> Result<(Vec<Instruction>, (u16, u32)), LowerError> {
    let mut loads = Vec::new();
    let mut by = JMP;
    match &graph.values[node.test.value] {
        Value::Field(source, mask) => field(source, *mask, kept, state, &mut loads)?,
        Value::Computed(left, right) => {
            let mut computation = Computation::new(&mut loads, kept, state);
            if computation.sides(left, right.as_deref())? {
                by |= X;
            }
        }
    }
    Ok((loads, jump(node, by)))
}

fn jump(node: Node, by: u16) -> (u16, u32) {
    let (code, operand) = operation_of(node.test.code);
    (by | code, if by & X != 0 { 0 } else { operand })
}

pub(super) fn operation_of(code: Code) -> (u16, u32) {
    match code {
        Code::Equal(operand) => (code::JEQ, operand),
        Code::Greater(operand) => (code::JGT, operand),
        Code::GreaterOrEqual(operand) => (code::JGE, operand),
        Code::AnyBit(operand) => (code::JSET, operand),
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
            into.push(Instruction::new(ALU | AND, mask));
        }
    }
    state.a = Some((source.clone(), mask));
    Ok(())
}

/// Places the blocks and fills in the jumps; a jump that is too long gets a jump instruction right
/// after it, and so does a load that is not followed by its test.
fn lay_out(plan: &Plan, blocks: &[Block], snaplen: u32) -> Result<Vec<Instruction>, LowerError> {
    let mut steps = vec![[false; 2]; blocks.len()];
    for (index, block) in blocks.iter().enumerate().filter(|(_, block)| block.jump.is_none()) {
        let follows = blocks.get(index + 1).is_some_and(|after| after.unit == block.next[0]);
        steps[index][0] = !follows;
    }
    let used = |end: Unit| plan.root == end || blocks.iter().any(|block| block.next.contains(&end));
    let ends: Vec<usize> = ENDS.into_iter().rev().filter(|&end| used(Unit::End(end))).collect();
    let places = loop {
        let mut places = HashMap::new();
        let mut at = 0;
        for (block, steps) in blocks.iter().zip(&steps) {
            places.insert(block.unit, at);
            let own = usize::from(block.jump.is_some());
            at += block.loads.len() + own + steps.iter().filter(|step| **step).count();
        }
        for end in &ends {
            places.insert(Unit::End(*end), at);
            at += 1;
        }
        if at > MAX_LEN {
            return Err(LowerError::TooLong { given: at, limit: MAX_LEN });
        }
        let mut grown = false;
        for (block, steps) in blocks.iter().zip(&mut steps).filter(|(one, _)| one.jump.is_some()) {
            let from = places[&block.unit] + block.loads.len() + 1;
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
        let Some((code, k)) = block.jump else {
            if steps[0] {
                program.push(Instruction::new(
                    JMP,
                    (places[&block.next[0]] - program.len() - 1) as u32,
                ));
            }
            continue;
        };
        let from = program.len() + 1;
        let mut far = Vec::new();
        let mut skip = |side: usize| {
            if !steps[side] {
                return (places[&block.next[side]] - from) as u8;
            }
            let at = from + far.len();
            far.push(Instruction::new(JMP, (places[&block.next[side]] - at - 1) as u32));
            (at - from) as u8
        };
        let (jt, jf) = (skip(1), skip(0));
        program.push(Instruction { code, jt, jf, k });
        program.extend(far);
    }
    for end in ends {
        program.push(Instruction::new(RET_K, if end == ENDS[1] { snaplen } else { 0 }));
    }
    Ok(program)
}
