//! From the graph to instructions: nodes in an order in which all jumps lead forward, loads where the accumulator does
//! not have the value already, and steps in between where a jump is longer than a byte can say.

use super::graph::{Code, ENDS, Graph, Node, Value, full_mask};
use super::{Instruction, LowerError, MAX_LEN};
use fyke_frame::Condition;
use fyke_frame::condition::{Base, Compare, Expr, Load, MetaField, Operator, Source, Width};
use std::collections::HashMap;

/// Words of the machine's memory.
const MEMORY: usize = 16;
/// Longest conditional jump.
const MAX_JUMP: usize = 255;

// Operations of classic BPF.
const LD: u16 = 0x00;
const LDX_MSH: u16 = 0xb1;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const LEN: u16 = 0x80;
const AND: u16 = 0x50;
const NEG: u16 = 0x80;
const BY_X: u16 = 0x08;
/// Linux's metadata.
const METADATA: u32 = 0_u32.wrapping_sub(0x1000);

/// What the registers hold on every way to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct State {
    /// The accumulator: a masked field.
    a: Option<(Source, u32)>,
    /// The index register: the length of the IPv4 header there.
    x: Option<u32>,
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
    let mut states: HashMap<usize, State> = HashMap::new();
    let mut blocks = Vec::with_capacity(order.len());
    for &index in &order {
        let Some(node) = graph.node(index) else { continue };
        let mut state = states.get(&index).cloned().unwrap_or_default();
        let block = block(graph, node, &mut state)?;
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

fn block(graph: &Graph, node: Node, state: &mut State) -> Result<Block, LowerError> {
    let mut loads = Vec::new();
    let mut jump = JMP;
    match &graph.values[node.test.value] {
        Value::Field(source, mask) => field(source, *mask, state, &mut loads)?,
        Value::Computed(left, right) => {
            *state = State::default();
            if let Some(right) = right {
                Computation { into: &mut loads, words: 1 }.value(right)?;
                loads.push(plain(ST, 0));
                Computation { into: &mut loads, words: 1 }.value(left)?;
                loads.push(plain(LDX_MEM, 0));
                jump |= BY_X;
            } else {
                Computation { into: &mut loads, words: 0 }.value(left)?;
            }
        }
    }
    let (code, operand) = match node.test.code {
        Code::Equal(operand) => (0x10, operand),
        Code::Greater(operand) => (0x20, operand),
        Code::GreaterOrEqual(operand) => (0x30, operand),
        Code::AnyBit(operand) => (0x40, operand),
    };
    let operand = if jump & BY_X != 0 { 0 } else { operand };
    Ok(Block { loads, jump: jump | code, operand, next: node.next })
}

/// Brings a masked field into the accumulator.
fn field(
    source: &Source,
    mask: u32,
    state: &mut State,
    into: &mut Vec<Instruction>,
) -> Result<(), LowerError> {
    let full = full_mask(source);
    if state.a.as_ref() != Some(&(source.clone(), mask)) {
        if state.a.as_ref() != Some(&(source.clone(), full)) {
            load(source, 0, state, into)?;
        }
        if mask != full {
            into.push(plain(ALU | AND, mask));
        }
    }
    state.a = Some((source.clone(), mask));
    Ok(())
}

/// Loads a field; memory words from `words` on are free.
fn load(
    source: &Source,
    words: usize,
    state: &mut State,
    into: &mut Vec<Instruction>,
) -> Result<(), LowerError> {
    match source {
        Source::WireLen => into.push(plain(LD | LEN, 0)),
        Source::Meta(field) => into.push(metadata(*field)),
        Source::Bytes { base: Base::Frame, offset, width } => {
            into.push(plain(LD | ABS | size(*width), *offset));
        }
        Source::Bytes { base: Base::IpHeaderEnd { ip }, offset, width } => {
            if state.x != Some(*ip) {
                into.push(plain(LDX_MSH, *ip));
                state.x = Some(*ip);
            }
            into.push(plain(LD | IND | size(*width), ip.wrapping_add(*offset)));
        }
        Source::Bytes { base: Base::Computed(place), offset, width } => {
            Computation { into, words }.value(place)?;
            into.push(plain(TAX, 0));
            into.push(plain(LD | IND | size(*width), *offset));
            state.x = None;
        }
    }
    Ok(())
}

/// Computes expressions into the accumulator; what waits for its other half is in memory.
struct Computation<'i> {
    into: &'i mut Vec<Instruction>,
    words: usize,
}

impl Computation<'_> {
    fn value(&mut self, expr: &Expr) -> Result<(), LowerError> {
        if let Some(value) = constant(expr) {
            self.into.push(plain(LD | IMM, value));
            return Ok(());
        }
        match expr {
            Expr::Const(value) => self.into.push(plain(LD | IMM, *value)),
            Expr::WireLen => self.into.push(plain(LD | LEN, 0)),
            Expr::Meta(field) => self.into.push(metadata(*field)),
            Expr::IpHeaderLen { ip } => {
                self.into.extend([plain(LDX_MSH, *ip), plain(TXA, 0)]);
            }
            Expr::Load { index, offset, width } => self.load(index, *offset, *width)?,
            Expr::Negate(inner) => {
                self.value(inner)?;
                self.into.push(plain(ALU | NEG, 0));
            }
            Expr::Binary(operator, left, right) => match &**right {
                Expr::IpHeaderLen { ip } => {
                    self.value(left)?;
                    self.into.push(plain(LDX_MSH, *ip));
                    self.into.push(plain(ALU | operation(*operator) | BY_X, 0));
                }
                // The machine's checker refuses a division by a zero that it can see, and long shifts.
                right if constant(right).is_some_and(|number| fits(*operator, number)) => {
                    self.value(left)?;
                    let number = constant(right).unwrap_or_default();
                    self.into.push(plain(ALU | operation(*operator), number));
                }
                _ => {
                    let word = self.words;
                    if word >= MEMORY {
                        return Err(LowerError::Memory { limit: MEMORY });
                    }
                    self.value(right)?;
                    self.into.push(plain(ST, word as u32));
                    self.words += 1;
                    self.value(left)?;
                    self.words -= 1;
                    self.into.push(plain(LDX_MEM, word as u32));
                    self.into.push(plain(ALU | operation(*operator) | BY_X, 0));
                }
            },
            Expr::Select(condition, then, otherwise) => self.choice(condition, then, otherwise)?,
        }
        Ok(())
    }

    /// One of two values, where one test of metadata or bytes decides and the jumps are short.
    fn choice(
        &mut self,
        condition: &Condition,
        then: &Expr,
        otherwise: &Expr,
    ) -> Result<(), LowerError> {
        let Condition::Load(Load { source, mask, compare: Compare::Equal(number) }) = condition
        else {
            return Err(LowerError::Choice);
        };
        let branch = |words: usize, value: &Expr| -> Result<Vec<Instruction>, LowerError> {
            let mut into = Vec::new();
            Computation { into: &mut into, words }.value(value)?;
            Ok(into)
        };
        let (then, otherwise) = (branch(self.words, then)?, branch(self.words, otherwise)?);
        let over = u8::try_from(then.len() + 1).map_err(|_| LowerError::Choice)?;
        load(source, self.words, &mut State::default(), self.into)?;
        self.into.push(plain(ALU | AND, *mask));
        self.into.push(Instruction { code: JMP | 0x10, jt: 0, jf: over, k: *number });
        self.into.extend(then);
        self.into.push(plain(JMP, otherwise.len() as u32));
        self.into.extend(otherwise);
        Ok(())
    }
}

impl Computation<'_> {
    /// Bytes behind a computed place.
    fn load(&mut self, index: &Expr, offset: u32, width: Width) -> Result<(), LowerError> {
        if let Some(index) = constant(index) {
            // A place beyond all frames is found by the index, as the constant could mean metadata.
            if let Some(place) = index.checked_add(offset).filter(|place| *place < METADATA) {
                self.into.push(plain(LD | ABS | size(width), place));
                return Ok(());
            }
        }
        match index {
            Expr::Binary(Operator::Add, more, header)
                if matches!(**header, Expr::IpHeaderLen { .. })
                    && constant(more).and_then(|more| more.checked_add(offset)).is_some() =>
            {
                let Expr::IpHeaderLen { ip } = **header else { return Ok(()) };
                let more = constant(more).unwrap_or_default();
                self.into.push(plain(LDX_MSH, ip));
                self.into.push(plain(LD | IND | size(width), more + offset));
            }
            _ => {
                self.value(index)?;
                self.into.push(plain(TAX, 0));
                self.into.push(plain(LD | IND | size(width), offset));
            }
        }
        Ok(())
    }
}

/// The value of an expression that looks at nothing.
fn constant(expr: &Expr) -> Option<u32> {
    match expr {
        Expr::Const(value) => Some(*value),
        Expr::Negate(inner) => Some(constant(inner)?.wrapping_neg()),
        Expr::Binary(operator, left, right) => {
            operator.apply(constant(left)?, constant(right)?).ok()
        }
        _ => None,
    }
}

fn fits(operator: Operator, number: u32) -> bool {
    match operator {
        Operator::Div | Operator::Mod => number != 0,
        Operator::Shl | Operator::Shr => number < 32,
        _ => true,
    }
}

fn operation(operator: Operator) -> u16 {
    match operator {
        Operator::Add => 0x00,
        Operator::Sub => 0x10,
        Operator::Mul => 0x20,
        Operator::Div => 0x30,
        Operator::Or => 0x40,
        Operator::And => AND,
        Operator::Shl => 0x60,
        Operator::Shr => 0x70,
        Operator::Mod => 0x90,
        Operator::Xor => 0xa0,
    }
}

fn metadata(field: MetaField) -> Instruction {
    let at = match field {
        MetaField::Direction | MetaField::PacketType => 4,
        MetaField::IfIndex => 8,
        MetaField::VlanTag => 44,
        MetaField::VlanPresent => 48,
    };
    plain(LD | ABS | size(Width::Four), METADATA + at)
}

fn size(width: Width) -> u16 {
    match width {
        Width::One => 0x10,
        Width::Two => 0x08,
        Width::Four => 0x00,
    }
}

fn plain(code: u16, k: u32) -> Instruction {
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
