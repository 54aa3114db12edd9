//! Computed values: arithmetic over bytes of a frame, and words at computed places.
//!
//! `tcp[(tcp[12] >> 2):4]` has no place that is known when a plan is laid out. It is computed by a program. The words
//! from which the program starts are columns like any other, every operator is applied to 64 frames side by side, and a
//! load at a computed place handles the frames one after the other, with a check of its bounds. The result is a column,
//! which tests and the needs of filters share.
//!
//! The twin of a program is the expression itself ([`Program::value`]), which the column tier and short queues use. A
//! frame has no value if a load is out of its bounds or a divisor is zero. Cost: about ten machine instructions for an
//! operator and 64 frames, about ten for each frame of a load at a computed place. All other places are found as in
//! `columns.rs`.

use crate::isa::test::{Base, Place};
use crate::lower::place::{constant, place};
use fyke_frame::condition::{Expr, MetaField, Operator, OutOfBounds, Width};
use fyke_frame::{Batch, Frame};
use std::collections::HashMap;
use std::sync::Arc;

/// Values of 64 frames.
pub(crate) type FrameValues = [u32; 64];
/// Largest number of values on the stack.
const DEPTH: usize = 6;
/// Largest number of steps of a program.
const MAX_STEPS: usize = 64;

/// Source of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A word.
    Place(Place),
    /// The value of an expression.
    Value(Arc<Expr>),
}

/// A step; its operands are the results of the last steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Const(u32),
    /// A column, as a number.
    Word {
        column: u32,
        mask: u32,
    },
    WireLen,
    Meta(MetaField),
    /// The bytes at the value plus `offset`.
    Load {
        offset: u32,
        width: Width,
    },
    Negate,
    Apply(Operator),
    /// The operator with a constant as its second operand.
    With(Operator, u32),
}

/// Computation of a column.
#[derive(Debug)]
pub(crate) struct Program {
    source: Source,
    /// None if the source needs too deep a stack for 64 frames, or contains conditions.
    pub steps: Box<[Step]>,
}

/// The columns that a plan needs, each once.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    known: HashMap<Source, u32>,
    pub list: Vec<Draft>,
}

/// A column that has no location in a chunk yet.
#[derive(Debug)]
pub(crate) enum Draft {
    Word(Place),
    Computed(Program),
}

impl Source {
    /// The value of an expression; a word after two headers is one, in whatever form it is written.
    pub fn of(expr: &Arc<Expr>) -> Source {
        if let Expr::Load { index, offset, width: width @ (Width::Two | Width::Four) } = &**expr
            && let Some((base @ Base::L2 { .. }, offset)) = place(index, *offset)
        {
            return Source::Place(Place::new(base, offset, *width == Width::Four, u32::MAX));
        }
        Source::Value(expr.clone())
    }
}

impl Sources {
    /// The number of a column.
    pub fn column(&mut self, source: Source) -> u32 {
        if let Some(&column) = self.known.get(&source) {
            return column;
        }
        let draft = match &source {
            Source::Place(place) if !matches!(place.base, Base::L2 { .. }) => Draft::Word(*place),
            _ => {
                let mut word = |place| self.column(Source::Place(place));
                Draft::Computed(Program::new(source.clone(), &mut word))
            }
        };
        self.list.push(draft);
        let column = self.list.len() as u32 - 1;
        self.known.insert(source, column);
        column
    }
}

impl Program {
    /// The program of a source; `column` numbers the words from which it starts.
    fn new(source: Source, column: &mut dyn FnMut(Place) -> u32) -> Program {
        let mut writer = Writer { steps: Vec::new(), height: 0, column };
        let written = match &source {
            Source::Place(place) => writer.place(place),
            Source::Value(expr) => writer.expression(expr),
        };
        let steps = written.map_or(Box::default(), |()| writer.steps.into());
        Program { source, steps }
    }

    /// The value of one frame.
    pub fn value(&self, frame: &Frame) -> Result<u32, OutOfBounds> {
        match &self.source {
            Source::Place(place) => place.load(frame.data),
            Source::Value(expr) => expr.value(frame),
        }
    }
}

struct Writer<'a> {
    steps: Vec<Step>,
    /// Number of values on the stack.
    height: usize,
    column: &'a mut dyn FnMut(Place) -> u32,
}

impl Writer<'_> {
    fn push(&mut self, step: Step) -> Option<()> {
        self.height += 1;
        self.then(step)
    }

    fn then(&mut self, step: Step) -> Option<()> {
        self.steps.push(step);
        (self.height <= DEPTH && self.steps.len() <= MAX_STEPS).then_some(())
    }

    fn apply(&mut self, operator: Operator) -> Option<()> {
        self.height -= 1;
        let step = match self.steps.last() {
            Some(&Step::Const(right)) => {
                self.steps.pop();
                Step::With(operator, right)
            }
            _ => Step::Apply(operator),
        };
        self.then(step)
    }

    fn word(&mut self, base: Base, offset: u32, width: Width) -> Option<()> {
        if offset > u16::MAX.into() {
            return None;
        }
        let bytes = width as u8;
        let place = Place { base, offset, width: bytes, needed: bytes };
        let column = (self.column)(place);
        self.push(Step::Word { column, mask: width.full_mask() })
    }

    /// Four times a nibble of the last value.
    fn header_len(&mut self, shift: u32) -> Option<()> {
        for (operator, operand) in
            [(Operator::Shr, shift), (Operator::And, 0xf), (Operator::Shl, 2)]
        {
            if (operator, operand) != (Operator::Shr, 0) {
                self.push(Step::Const(operand))?;
                self.apply(operator)?;
            }
        }
        Some(())
    }

    /// A word after a second header.
    fn place(&mut self, place: &Place) -> Option<()> {
        let Base::L2 { header, field } = place.base else { return None };
        let width = match (place.width, place.needed) {
            (4, 4) => Width::Four,
            (2, 2) => Width::Two,
            _ => return None,
        };
        self.word(Base::Direct, header.into(), Width::One)?;
        self.header_len(0)?;
        self.word(Base::L1 { header }, field.into(), Width::One)?;
        self.header_len(4)?;
        self.apply(Operator::Add)?;
        self.then(Step::Load { offset: u32::from(header).checked_add(place.offset)?, width })
    }

    fn expression(&mut self, expr: &Expr) -> Option<()> {
        if let Some(value) = constant(expr) {
            return self.push(Step::Const(value));
        }
        match expr {
            Expr::Const(value) => self.push(Step::Const(*value)),
            Expr::WireLen => self.push(Step::WireLen),
            Expr::Meta(field) => self.push(Step::Meta(*field)),
            Expr::IpHeaderLen { ip } => {
                self.word(Base::Direct, *ip, Width::One)?;
                self.header_len(0)
            }
            Expr::Load { index, offset, width } => match place(index, *offset) {
                Some((base @ (Base::Direct | Base::L1 { .. }), offset)) => {
                    self.word(base, offset, *width)
                }
                _ => {
                    self.expression(index)?;
                    self.then(Step::Load { offset: *offset, width: *width })
                }
            },
            Expr::Negate(inner) => {
                self.expression(inner)?;
                self.then(Step::Negate)
            }
            Expr::Binary(operator, left, right) => {
                self.expression(left)?;
                self.expression(right)?;
                self.apply(*operator)
            }
            Expr::Select(..) => None,
        }
    }
}

/// Values of 64 frames that are operands of later operators; values of frames without a value are undefined.
pub(crate) struct Stack {
    values: [FrameValues; DEPTH],
    height: usize,
}

impl Stack {
    pub fn new() -> Stack {
        Stack { values: [[0; 64]; DEPTH], height: 0 }
    }

    /// Adds values.
    #[inline]
    pub fn push(&mut self, value: impl Fn(usize) -> u32) {
        // A program needs no more, see `Writer`.
        let top = &mut self.values[self.height % DEPTH];
        top.iter_mut().enumerate().for_each(|(at, one)| *one = value(at));
        self.height += 1;
    }

    /// The last values.
    #[inline]
    pub fn last(&mut self) -> &mut FrameValues {
        &mut self.values[(self.height - 1) % DEPTH]
    }

    /// Runs a step, after its operands are on the stack, for 64 frames of a batch from `first` on. Returns the frames
    /// of `among` that still have a value.
    pub fn step(&mut self, step: Step, batch: &Batch, first: usize, among: u64) -> u64 {
        let frames = batch.frames().get(first..).unwrap_or(&[]);
        let each = |value: &dyn Fn(&Frame) -> u32| {
            let mut values = [0; 64];
            values.iter_mut().zip(frames).for_each(|(own, frame)| *own = value(frame));
            values
        };
        match step {
            Step::Const(value) => self.push(|_| value),
            // The caller pushes columns.
            Step::Word { .. } => {}
            Step::WireLen => {
                let values = each(&|frame| frame.wire_len);
                self.push(|at| values[at]);
            }
            Step::Meta(field) => {
                let values = each(&|frame| field.value(frame));
                self.push(|at| values[at]);
            }
            Step::Negate => self.last().iter_mut().for_each(|value| *value = value.wrapping_neg()),
            Step::Load { offset, width } => {
                return self.load(offset, width, &batch.bytes()[first..], among);
            }
            Step::Apply(operator) => {
                let right = *self.last();
                self.height -= 1;
                return apply(self.last(), operator, |at| right[at], among);
            }
            Step::With(operator, right) => return apply(self.last(), operator, |_| right, among),
        }
        among
    }

    fn load(&mut self, offset: u32, width: Width, frames: &[&[u8]], among: u64) -> u64 {
        let places = self.last();
        let (mut rest, mut inside) = (among, 0);
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if let Some(value) = load(frames[at], u64::from(places[at]) + u64::from(offset), width)
            {
                places[at] = value;
                inside |= 1 << at;
            }
        }
        inside
    }
}

/// Applies an operator to 64 values and others; returns the frames of `among` that still have a value.
#[inline]
fn apply(
    left: &mut FrameValues,
    operator: Operator,
    right: impl Fn(usize) -> u32,
    among: u64,
) -> u64 {
    let both = |left: &mut FrameValues, apply: fn(u32, u32) -> u32| {
        left.iter_mut().enumerate().for_each(|(at, left)| *left = apply(*left, right(at)));
    };
    match operator {
        Operator::Add => both(left, u32::wrapping_add),
        Operator::Sub => both(left, u32::wrapping_sub),
        Operator::Mul => both(left, u32::wrapping_mul),
        Operator::And => both(left, |left, right| left & right),
        Operator::Or => both(left, |left, right| left | right),
        Operator::Xor => both(left, |left, right| left ^ right),
        Operator::Shl => both(left, |left, right| left.checked_shl(right).unwrap_or(0)),
        Operator::Shr => both(left, |left, right| left.checked_shr(right).unwrap_or(0)),
        Operator::Div => both(left, |left, right| left.checked_div(right).unwrap_or(0)),
        Operator::Mod => both(left, |left, right| left.checked_rem(right).unwrap_or(0)),
    }
    match operator {
        Operator::Div | Operator::Mod => {
            let zero = |at: usize| u64::from(right(at) == 0) << at;
            among & !(0..64).fold(0, |none, at| none | zero(at))
        }
        _ => among,
    }
}

/// The bytes at a place, in network order.
#[inline]
fn load(data: &[u8], at: u64, width: Width) -> Option<u32> {
    let rest = data.get(usize::try_from(at).ok()?..)?;
    Some(match width {
        Width::One => (*rest.first()?).into(),
        Width::Two => u16::from_be_bytes(*rest.first_chunk()?).into(),
        Width::Four => u32::from_be_bytes(*rest.first_chunk()?),
    })
}
