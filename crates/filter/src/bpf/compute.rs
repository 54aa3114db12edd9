//! Loads and expressions as instructions: values are computed in the accumulator; the first operand
//! is saved in memory while the second is computed.
//!
//! A place from which more than one load counts ([`Kept`]) has a memory word, which is filled where
//! a path first needs it and read afterwards. A value that depends on a choice (`Select`: 802.11,
//! Geneve, a tag that may be in the metadata) is computed on two paths that join again; the jumps
//! between them stay within the loads of one test.

use super::decided::Decided;
use super::emit::{Index, State, operation_of};
use super::graph::{Code, Graph, Value, constant, full_mask};
use super::{Instruction, LowerError};
use fyke_frame::Condition;
use fyke_frame::bpf::code::{
    self, ABS, ALU, AND, IMM, IND, JMP, LD, LDX_MEM, LDX_MSH, LEN, MEM, NEG, ST, TAX, TXA, X,
};
use fyke_frame::condition::{
    Base, Compare, Expr, Load, MetaField, Operator, Relation, Source, Visit, Width,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Words of the machine's memory.
pub(super) const MEMORY: usize = 16;
/// Most words that places use; the others are for expressions.
const MAX_KEPT: usize = 8;

/// Start of Linux's metadata.
const METADATA: u32 = 0_u32.wrapping_sub(0x1000);

/// The computed places that have a memory word, allocated from the last word downwards.
pub(super) struct Kept<'g> {
    pub(super) words: HashMap<&'g Expr, usize>,
}

impl<'g> Kept<'g> {
    /// The places that the tests of these nodes use more than once.
    pub(super) fn of(graph: &'g Graph, order: &[usize]) -> Kept<'g> {
        let mut uses = Uses::default();
        let mut values: Vec<usize> =
            order.iter().filter_map(|&index| Some(graph.node(index)?.test.value)).collect();
        values.sort_unstable();
        values.dedup();
        for value in values {
            match &graph.values[value] {
                Value::Field(source, _) => source.parts(&mut uses),
                Value::Computed(left, right) => {
                    uses.expression(left);
                    right.iter().for_each(|right| uses.expression(right));
                }
            }
        }
        let often = uses.order.into_iter().filter(|place| uses.counts[place] > 1);
        Kept { words: often.zip((MEMORY - MAX_KEPT..MEMORY).rev()).collect() }
    }
}

/// The number of uses of each computed place, in the order of first use.
#[derive(Default)]
struct Uses<'g> {
    order: Vec<&'g Expr>,
    counts: HashMap<&'g Expr, usize>,
}

impl<'g> Uses<'g> {
    /// Counts a use; true if there was one before.
    fn again(&mut self, expr: &'g Expr) -> bool {
        let count = self.counts.entry(expr).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.order.push(expr);
        }
        *count > 1
    }
}

impl<'g> Visit<'g> for Uses<'g> {
    fn place(&mut self, place: &'g Arc<Expr>) {
        if matches!(**place, Expr::IpHeaderLen { .. }) || constant(place).is_some() {
            return;
        }
        if !self.again(place) {
            place.parts(self);
        }
    }

    /// Counts uses in an expression. A sum of two computed parts is cached as well.
    fn expression(&mut self, expr: &'g Arc<Expr>) {
        let sum = match &**expr {
            Expr::Binary(_, left, right) => constant(left).or_else(|| constant(right)).is_none(),
            _ => false,
        };
        if !sum || !self.again(expr) {
            expr.parts(self);
        }
    }
}

/// Computes into the accumulator.
pub(super) struct Computation<'c> {
    into: &'c mut Vec<Instruction>,
    kept: &'c Kept<'c>,
    state: &'c mut State,
    /// Memory words that hold first operands.
    words: usize,
    /// Jumps to places that are not known yet: instruction, branch, and label.
    jumps: Vec<(usize, Way, usize)>,
    /// Positions of the labels.
    labels: Vec<usize>,
    /// Words that were filled before the first jump of a choice, and therefore on each of its
    /// paths.
    certain: Option<u16>,
}

/// A branch of a jump.
#[derive(Debug, Clone, Copy)]
enum Way {
    Held,
    Failed,
    Always,
}

impl<'c> Computation<'c> {
    pub(super) fn new(
        into: &'c mut Vec<Instruction>,
        kept: &'c Kept<'c>,
        state: &'c mut State,
    ) -> Computation<'c> {
        let (jumps, labels) = (Vec::new(), Vec::new());
        Computation { into, kept, state, words: 0, jumps, labels, certain: None }
    }

    /// Loads a field, unmasked.
    pub(super) fn source(&mut self, source: &Source) -> Result<(), LowerError> {
        self.field_of(source)?;
        self.resolve()
    }

    fn field_of(&mut self, source: &Source) -> Result<(), LowerError> {
        match source {
            Source::WireLen => self.into.push(Instruction::new(LD | LEN, 0)),
            Source::Meta(field) => self.into.push(metadata(*field)),
            Source::Bytes { base: Base::Frame, offset, width } => {
                self.into.push(Instruction::new(LD | ABS | size(*width), *offset));
            }
            Source::Bytes { base: Base::IpHeaderEnd { ip }, offset, width } => {
                self.header_len_into_x(*ip);
                self.into.push(Instruction::new(LD | IND | size(*width), ip.wrapping_add(*offset)));
            }
            Source::Bytes { base: Base::Computed(place), offset, width } => {
                self.load(place, *offset, *width)?;
            }
        }
        Ok(())
    }

    /// Computes both sides of a comparison: the left one in the accumulator and, if there is one,
    /// the right one in the index register. True if there is a right side.
    pub(super) fn sides(&mut self, left: &Expr, right: Option<&Expr>) -> Result<bool, LowerError> {
        self.state.a = None;
        match right {
            None => self.value(left)?,
            Some(right) => self.pair(left, right)?,
        }
        self.resolve()?;
        Ok(right.is_some())
    }

    /// Computes the left operand in the accumulator, the right one in the index register.
    fn pair(&mut self, left: &Expr, right: &Expr) -> Result<(), LowerError> {
        if let Some(&word) = self.kept.words.get(right) {
            if self.state.held >> word & 1 == 0 {
                self.value(right)?;
            }
            self.value(left)?;
            self.word_into_x(word);
            return Ok(());
        }
        let word = self.words;
        if word >= MEMORY - self.kept.words.len() {
            return Err(LowerError::Memory { limit: MEMORY });
        }
        self.value(right)?;
        self.into.push(Instruction::new(ST, word as u32));
        self.words += 1;
        self.value(left)?;
        self.words -= 1;
        self.into.push(Instruction::new(LDX_MEM, word as u32));
        self.state.x = None;
        Ok(())
    }

    fn header_len_into_x(&mut self, ip: u32) {
        let there = Some(Index::IpHeaderLen(ip));
        if self.state.x != there {
            self.into.push(Instruction::new(LDX_MSH, ip));
            self.state.x = there;
        }
    }

    /// Computes a value; cached places are computed once on each path.
    fn value(&mut self, expr: &Expr) -> Result<(), LowerError> {
        let simple = !matches!(expr, Expr::Binary(..) | Expr::Select(..) | Expr::Load { .. });
        let word = if simple { None } else { self.kept.words.get(expr) };
        let Some(&word) = word else { return self.compute(expr) };
        if self.state.held >> word & 1 == 1 {
            self.into.push(Instruction::new(LD | MEM, word as u32));
            return Ok(());
        }
        self.compute(expr)?;
        self.into.push(Instruction::new(ST, word as u32));
        self.state.held |= 1 << word;
        Ok(())
    }

    fn compute(&mut self, expr: &Expr) -> Result<(), LowerError> {
        if let Some(value) = constant(expr) {
            self.into.push(Instruction::new(LD | IMM, value));
            return Ok(());
        }
        match expr {
            Expr::Const(value) => self.into.push(Instruction::new(LD | IMM, *value)),
            Expr::WireLen => self.into.push(Instruction::new(LD | LEN, 0)),
            Expr::Meta(field) => self.into.push(metadata(*field)),
            Expr::IpHeaderLen { ip } => {
                self.header_len_into_x(*ip);
                self.into.push(Instruction::new(TXA, 0));
            }
            Expr::Load { index, offset, width } => self.load(index, *offset, *width)?,
            Expr::Negate(inner) => {
                self.value(inner)?;
                self.into.push(Instruction::new(NEG, 0));
            }
            Expr::Binary(operator, left, right) => match &**right {
                Expr::IpHeaderLen { ip } => {
                    self.value(left)?;
                    self.header_len_into_x(*ip);
                    self.into.push(Instruction::new(ALU | operation(*operator) | X, 0));
                }
                // The kernel's checker refuses a constant division by zero, and constant shifts
                // that are too long.
                right if constant(right).is_some_and(|number| fits(*operator, number)) => {
                    self.value(left)?;
                    let number = constant(right).unwrap_or_default();
                    self.into.push(Instruction::new(ALU | operation(*operator), number));
                }
                right => {
                    self.pair(left, right)?;
                    self.into.push(Instruction::new(ALU | operation(*operator) | X, 0));
                }
            },
            Expr::Select(condition, then, otherwise) => self.choice(condition, then, otherwise)?,
        }
        Ok(())
    }

    /// Loads bytes at an offset from a computed place.
    fn load(&mut self, index: &Expr, offset: u32, width: Width) -> Result<(), LowerError> {
        if let Some(index) = constant(index) {
            // A large constant place is loaded through the index register, since the constant could
            // mean metadata.
            if let Some(place) = index.checked_add(offset).filter(|place| *place < METADATA) {
                self.into.push(Instruction::new(LD | ABS | size(width), place));
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
                self.header_len_into_x(ip);
                self.into.push(Instruction::new(LD | IND | size(width), more + offset));
            }
            _ => {
                self.place_into_x(index)?;
                self.into.push(Instruction::new(LD | IND | size(width), offset));
            }
        }
        Ok(())
    }

    fn place_into_x(&mut self, place: &Expr) -> Result<(), LowerError> {
        let word = self.kept.words.get(place).copied();
        match word.filter(|word| self.state.held >> word & 1 == 1) {
            Some(word) => self.word_into_x(word),
            None => {
                self.value(place)?;
                self.into.push(Instruction::new(TAX, 0));
                self.state.x = word.map(Index::Word);
            }
        }
        Ok(())
    }

    fn word_into_x(&mut self, word: usize) {
        if self.state.x != Some(Index::Word(word)) {
            self.into.push(Instruction::new(LDX_MEM, word as u32));
            self.state.x = Some(Index::Word(word));
        }
    }

    /// Computes one of two values, and the cached places that depend on the same condition. A word
    /// filled on only one path is unknown after the join, so places that both paths need are
    /// computed before.
    fn choice(
        &mut self,
        condition: &Condition,
        then: &Expr,
        otherwise: &Expr,
    ) -> Result<(), LowerError> {
        let kept = self.kept;
        let others = Decided::along(kept, condition, [otherwise, then], self.state.held);
        for place in others.needed_by_both(kept, [otherwise, then]) {
            self.value(place)?;
        }
        let around = self.certain.take();
        let [failed, holds, end] = [self.label(), self.label(), self.label()];
        self.test(condition, [failed, holds])?;
        let mut held = self.certain.unwrap_or(self.state.held);
        self.place(holds, held);
        self.way(&others, 1, then)?;
        self.jump(Instruction::new(JMP, 0), Way::Always, end);
        self.place(failed, held);
        self.way(&others, 0, otherwise)?;
        held |= others.words();
        self.place(end, held);
        self.certain = around;
        Ok(())
    }

    /// Computes one path of a choice: first the places that depend on it, then its own value.
    fn way(&mut self, others: &Decided, side: usize, own: &Expr) -> Result<(), LowerError> {
        for (word, sides) in &others.places {
            self.value(sides[side])?;
            self.into.push(Instruction::new(ST, *word as u32));
        }
        self.value(own)
    }

    /// Jumps to the second label when a condition holds, else to the first.
    fn test(&mut self, condition: &Condition, labels: [usize; 2]) -> Result<(), LowerError> {
        match condition {
            Condition::Const(value) => {
                self.jump(Instruction::new(JMP, 0), Way::Always, labels[usize::from(*value)]);
                Ok(())
            }
            Condition::Not(inner) => self.test(inner, [labels[1], labels[0]]),
            Condition::All(operands) => self.chain(operands, labels, 1),
            Condition::Any(operands) => self.chain(operands, labels, 0),
            Condition::Load(load) => self.field(load, labels),
            Condition::Relation(relation, left, right) => {
                let number = constant(right);
                let (code, operand) = operation_of(match relation {
                    Relation::Equal => Code::Equal(number.unwrap_or(0)),
                    Relation::Greater => Code::Greater(number.unwrap_or(0)),
                    Relation::GreaterOrEqual => Code::GreaterOrEqual(number.unwrap_or(0)),
                });
                let by = match number {
                    Some(_) => {
                        self.value(left)?;
                        0
                    }
                    None => {
                        self.pair(left, right)?;
                        X
                    }
                };
                self.fork(Instruction::new(code | by, operand), labels);
                Ok(())
            }
            Condition::Address6(_) | Condition::Chain(_) => Err(LowerError::Choice),
        }
    }

    /// Tests the operands in order; `on` is the outcome that leads to the next operand.
    fn chain(
        &mut self,
        operands: &[Condition],
        labels: [usize; 2],
        on: usize,
    ) -> Result<(), LowerError> {
        let Some((last, before)) = operands.split_last() else {
            self.jump(Instruction::new(JMP, 0), Way::Always, labels[on]);
            return Ok(());
        };
        for operand in before {
            let next = self.label();
            let mut ways = labels;
            ways[on] = next;
            self.test(operand, ways)?;
            self.place(next, self.certain.unwrap_or(self.state.held));
        }
        self.test(last, labels)
    }

    /// A masked field compared with numbers.
    fn field(&mut self, load: &Load, labels: [usize; 2]) -> Result<(), LowerError> {
        let Load { source, mask, compare } = load;
        self.field_of(source)?;
        let masked = mask & full_mask(source);
        if masked != full_mask(source) {
            self.into.push(Instruction::new(ALU | AND, masked));
        }
        let test = |code: Code| {
            let (code, operand) = operation_of(code);
            Instruction::new(code, operand)
        };
        match compare {
            Compare::Equal(value) => {
                self.fork(test(Code::Equal(meta_number(source, *value))), labels)
            }
            Compare::Range(low, high) => {
                let next = self.label();
                self.fork(test(Code::Greater(*high)), [next, labels[0]]);
                self.place(next, self.state.held);
                self.fork(test(Code::GreaterOrEqual(*low)), labels);
            }
            Compare::OneOf(values) => {
                for value in values.iter() {
                    let next = self.label();
                    self.fork(test(Code::Equal(*value)), [next, labels[1]]);
                    self.place(next, self.state.held);
                }
                self.jump(Instruction::new(JMP, 0), Way::Always, labels[0]);
            }
        }
        Ok(())
    }

    fn label(&mut self) -> usize {
        self.labels.push(usize::MAX);
        self.labels.len() - 1
    }

    /// Places a label where paths join: only these words are known to be filled.
    fn place(&mut self, label: usize, held: u16) {
        self.labels[label] = self.into.len();
        (self.state.x, self.state.held) = (None, held);
    }

    fn jump(&mut self, instruction: Instruction, way: Way, label: usize) {
        self.certain.get_or_insert(self.state.held);
        self.jumps.push((self.into.len(), way, label));
        self.into.push(instruction);
    }

    fn fork(&mut self, instruction: Instruction, [failed, holds]: [usize; 2]) {
        self.jumps.push((self.into.len(), Way::Failed, failed));
        self.jump(instruction, Way::Held, holds);
    }

    /// Fills in the jump distances. All jumps lead forward.
    fn resolve(&mut self) -> Result<(), LowerError> {
        for (at, way, label) in std::mem::take(&mut self.jumps) {
            let distance = self.labels[label].saturating_sub(at + 1);
            let instruction = &mut self.into[at];
            let short = || u8::try_from(distance).map_err(|_| LowerError::Choice);
            match way {
                Way::Held => instruction.jt = short()?,
                Way::Failed => instruction.jf = short()?,
                Way::Always => instruction.k = distance as u32,
            }
        }
        Ok(())
    }
}

/// The number of a metadata value: Linux numbers packet types from zero, directions from one.
fn meta_number(source: &Source, value: u32) -> u32 {
    match source {
        Source::Meta(MetaField::Direction) => value.wrapping_sub(1),
        _ => value,
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
        Operator::Add => code::ADD,
        Operator::Sub => code::SUB,
        Operator::Mul => code::MUL,
        Operator::Div => code::DIV,
        Operator::Or => code::OR,
        Operator::And => AND,
        Operator::Shl => code::LSH,
        Operator::Shr => code::RSH,
        Operator::Mod => code::MOD,
        Operator::Xor => code::XOR,
    }
}

fn metadata(field: MetaField) -> Instruction {
    let at = match field {
        MetaField::Direction | MetaField::PacketType => 4,
        MetaField::IfIndex => 8,
        MetaField::VlanTag => 44,
        MetaField::VlanPresent => 48,
    };
    Instruction::new(LD | ABS | size(Width::Four), METADATA + at)
}

fn size(width: Width) -> u16 {
    match width {
        Width::One => code::B,
        Width::Two => code::H,
        Width::Four => code::W,
    }
}
