//! Literals: single tests in the form that lowering works on, before they become instructions.
//!
//! All byte tests have one form. An equality of masked bytes is [`Literal::Bytes`] whatever its width, so that
//! neighbours can be fused and contradictions found. One-byte loads become masked 16-bit tests, as no instruction has
//! that width. A condition without an instruction of its own stays [`Literal::Other`]. Relations between one load and a
//! number (`tcp[13] & 2 != 0`) are recognised as byte tests.

use super::facts::Facts;
use super::place::{constant, place};
use crate::isa::test::Base;
use fyke_frame::Condition;
use fyke_frame::condition::{
    self as frame, Address6, Compare, Expr, Load, MetaField, Operator, Relation, Source, Width,
};
use std::sync::Arc;

/// Bytes that one fused test spans at most: three words (`D_LEQ_M`).
pub(super) const SPAN: u16 = 12;
/// Places beyond this offset have no instruction of their own.
const MAX_OFFSET: u32 = 0xff00;

/// Up to [`SPAN`] bytes; the first one is the top byte of [`Bits::all`]. Stored as three words, because there are many
/// literals and a `u128` would make each of them half as large again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Bits([u32; 3]);

impl Bits {
    pub fn new(bits: u128) -> Bits {
        debug_assert!(bits as u32 == 0);
        Bits([96, 64, 32].map(|shift| (bits >> shift) as u32))
    }

    pub fn all(self) -> u128 {
        self.0.iter().fold(0, |bits, &word| bits << 32 | u128::from(word)) << 32
    }

    pub fn byte(self, index: u16) -> u8 {
        (self.0[usize::from(index / 4)] >> (24 - 8 * (index % 4))) as u8
    }
}

/// A word of the frame that a literal tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Word {
    pub base: Base,
    pub at: u16,
    /// 32 bits; else 16.
    pub wide: bool,
    pub mask: u32,
}

impl Word {
    pub fn width(self) -> u16 {
        if self.wide { 4 } else { 2 }
    }
}

/// A test that is true or false for a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Literal {
    /// The masked bytes from `at` on have this value; byte 0 is the most significant, at most [`SPAN`] bytes count.
    Bytes { base: Base, at: u16, mask: Bits, value: Bits },
    /// The word, or the one `second` bytes later (0 = none), is one of the values (sorted; at least two values, or a
    /// second place).
    OneOf { word: Word, second: u16, values: Arc<[u32]> },
    /// The word, or the one right after it, lies in the interval.
    Range { word: Word, either: bool, low: u32, high: u32 },
    /// The first `bits` bits of 16 bytes, at this place or `second` bytes later, are one of the prefixes (sorted).
    Prefix { at: u16, second: u16, bits: u8, values: Arc<[u128]> },
    /// The length on the wire lies in the interval.
    Length { low: u32, high: u32 },
    /// Metadata is one of the values.
    Meta { field: u16, mask: u32, values: Arc<[u32]> },
    /// One of the conjunctions holds.
    Passes(Alternatives),
    /// Anything else.
    Other(Arc<Condition>),
}

/// Conjunctions of which at least one must hold, as one literal. It is equal only to itself: making it again is cheaper
/// than comparing it.
#[derive(Debug, Clone)]
pub(super) struct Alternatives(Arc<Vec<Facts>>);

impl Alternatives {
    pub fn new(passes: Vec<Facts>) -> Alternatives {
        Alternatives(Arc::new(passes))
    }

    pub fn passes(&self) -> &[Facts] {
        &self.0
    }

    /// Its address, which identifies it while it exists.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl PartialEq for Alternatives {
    fn eq(&self, other: &Alternatives) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Alternatives {}

impl std::hash::Hash for Alternatives {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.address().hash(hasher);
    }
}

/// A literal, a constant, or a literal to be negated.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Leaf {
    Const(bool),
    Is(Literal),
    Not(Literal),
}

impl Literal {
    /// The equality of one masked word.
    pub fn equal(word: Word, value: u32) -> Literal {
        let shift = if word.wide { 96 } else { 112 };
        let (mask, value) = (u128::from(word.mask) << shift, u128::from(value) << shift);
        // Cut off leading bytes that do not count, so that equal tests compare equal whatever their width was.
        let spare = (mask.leading_zeros() / 8) as u16;
        Literal::Bytes {
            base: word.base,
            at: word.at + spare,
            mask: Bits::new(mask << (8 * spare)),
            value: Bits::new(value << (8 * spare)),
        }
    }

    /// The word and value of an equality that fits a word of 16 or 32 bits. `None` for tests after two headers: no
    /// instruction has lists of masked values there.
    pub fn as_equal(&self) -> Option<(Word, u32)> {
        let Literal::Bytes { base, at, mask, value } = *self else { return None };
        if matches!(base, Base::L2 { .. }) {
            return None;
        }
        let (mask, value) = (mask.all(), value.all());
        let bytes = 16 - (mask.trailing_zeros() / 8) as u16;
        // An odd single byte is the low half of the word before it.
        let at_even = if bytes == 1 { at & !1 } else { at };
        let (mask, value) = (mask >> (8 * (at - at_even)), value >> (8 * (at - at_even)));
        let bytes = bytes + at - at_even;
        let wide = bytes > 2;
        let shift = if wide { 96 } else { 112 };
        let part = |bits: u128| (bits >> shift) as u32;
        (bytes <= 4).then(|| (Word { base, at: at_even, wide, mask: part(mask) }, part(value)))
    }

    /// Frame offset after the last byte that counts, for tests of bytes at a fixed place.
    pub fn fixed_end(&self) -> Option<u32> {
        match self {
            Literal::Bytes { base: Base::Direct, at, mask, .. } => {
                Some(u32::from(*at) + 16 - mask.all().trailing_zeros() / 8)
            }
            _ => None,
        }
    }
}

/// A byte test as a literal.
pub(super) fn from_load(load: &Load) -> Leaf {
    let other = || Leaf::Is(Literal::Other(Arc::new(Condition::Load(load.clone()))));
    match &load.source {
        Source::Bytes { base, offset, width } => match word_of(base, *offset, *width, load.mask) {
            Some((word, shift)) => compare(word, shift, &load.compare),
            None => other(),
        },
        Source::WireLen if load.mask == u32::MAX => match load.compare {
            Compare::Equal(value) => length(value, value),
            Compare::Range(low, high) => length(low, high),
            Compare::OneOf(_) => other(),
        },
        Source::WireLen => other(),
        Source::Meta(field) => {
            let field = match field {
                MetaField::Direction => crate::isa::layout::META_DIRECTION,
                MetaField::IfIndex => crate::isa::layout::META_IFINDEX,
                MetaField::PacketType | MetaField::VlanPresent | MetaField::VlanTag => {
                    return other();
                }
            };
            let values: Arc<[u32]> = match &load.compare {
                Compare::Equal(value) => [*value].into(),
                Compare::OneOf(values) if values.len() <= 6 => values.clone(),
                _ => return other(),
            };
            let possible: Arc<[u32]> =
                values.iter().copied().filter(|value| value & !load.mask == 0).collect();
            match possible.is_empty() {
                true => Leaf::Const(false),
                false => Leaf::Is(Literal::Meta { field, mask: load.mask, values: possible }),
            }
        }
    }
}

/// An IPv6 address or prefix as a literal.
pub(super) fn from_address(address: &Address6) -> Leaf {
    let bits = address.mask.leading_ones() as u8;
    if address.value & !address.mask != 0 {
        return Leaf::Const(false);
    }
    if address.mask == 0 {
        return Leaf::Const(true);
    }
    let prefix = address.mask.count_ones() == u32::from(bits);
    if !prefix || address.offset > MAX_OFFSET {
        return Leaf::Is(Literal::Other(Arc::new(Condition::Address6(*address))));
    }
    let values = [address.value].into();
    Leaf::Is(Literal::Prefix { at: address.offset as u16, second: 0, bits, values })
}

/// A comparison of two expressions as a literal.
pub(super) fn from_relation(relation: Relation, left: &Arc<Expr>, right: &Arc<Expr>) -> Leaf {
    let simple = match (constant(left), constant(right)) {
        (Some(a), Some(b)) => Some(Leaf::Const(match relation {
            Relation::Equal => a == b,
            Relation::Greater => a > b,
            Relation::GreaterOrEqual => a >= b,
        })),
        _ => against_constant(relation, left, right)
            .and_then(|(expr, interval)| against(expr, interval)),
    };
    simple.unwrap_or_else(|| {
        let whole = Condition::Relation(relation, left.clone(), right.clone());
        Leaf::Is(Literal::Other(Arc::new(whole)))
    })
}

/// "The expression lies in the interval", or in none, if one side of a comparison is a constant.
#[expect(clippy::type_complexity, reason = "an expression and, if it can be, an interval")]
pub(crate) fn against_constant<'e>(
    relation: Relation,
    left: &'e Arc<Expr>,
    right: &'e Arc<Expr>,
) -> Option<(&'e Arc<Expr>, Option<(u32, u32)>)> {
    Some(match (constant(left), constant(right)) {
        (_, Some(limit)) => {
            let interval = match relation {
                Relation::Equal => Some((limit, limit)),
                Relation::Greater => limit.checked_add(1).map(|low| (low, u32::MAX)),
                Relation::GreaterOrEqual => Some((limit, u32::MAX)),
            };
            (left, interval)
        }
        (Some(limit), None) => {
            let interval = match relation {
                Relation::Equal => Some((limit, limit)),
                Relation::Greater => limit.checked_sub(1).map(|high| (0, high)),
                Relation::GreaterOrEqual => Some((0, limit)),
            };
            (right, interval)
        }
        (None, None) => return None,
    })
}

/// "One masked load lies in the interval"; `None` if the expression is something else.
fn against(expr: &Expr, interval: Option<(u32, u32)>) -> Option<Leaf> {
    let (expr, mask) = match expr {
        Expr::Binary(Operator::And, left, right) => match (constant(left), constant(right)) {
            (None, Some(mask)) => (&**left, mask),
            (Some(mask), None) => (&**right, mask),
            _ => return None,
        },
        _ => (expr, u32::MAX),
    };
    let (base, offset, width) = match expr {
        Expr::WireLen if mask == u32::MAX => {
            return Some(interval.map_or(Leaf::Const(false), |(low, high)| length(low, high)));
        }
        Expr::Load { index, offset, width } => {
            let (base, offset) = place(index, *offset)?;
            (base, offset, *width)
        }
        _ => return None,
    };
    let (word, shift) = word_at(base, offset, width, mask)?;
    let leaf = match interval {
        None => Leaf::Const(false),
        Some((low, high)) if low == high => compare(word, shift, &Compare::Equal(low)),
        Some((low, high)) => compare(word, shift, &Compare::Range(low, high)),
    };
    // No instruction has masked intervals after two headers.
    let possible = match &leaf {
        Leaf::Is(Literal::Range { word, .. }) | Leaf::Not(Literal::Range { word, .. }) => {
            !matches!(word.base, Base::L2 { .. }) || (!word.wide && word.mask == 0xffff)
        }
        _ => true,
    };
    possible.then_some(leaf)
}

/// The word that a load reads, and the number of bits by which its value is shifted left in that word.
fn word_of(base: &frame::Base, offset: u32, width: Width, mask: u32) -> Option<(Word, u32)> {
    let base = match base {
        frame::Base::Frame => Base::Direct,
        frame::Base::IpHeaderEnd { ip } => Base::L1 { header: u16::try_from(*ip).ok()? },
        frame::Base::Computed(_) => return None,
    };
    word_at(base, offset, width, mask)
}

fn word_at(base: Base, offset: u32, width: Width, mask: u32) -> Option<(Word, u32)> {
    if offset > MAX_OFFSET {
        return None;
    }
    let at = offset as u16;
    let mask = mask & width.full_mask();
    Some(match width {
        Width::Four => (Word { base, at, wide: true, mask }, 0),
        Width::Two => (Word { base, at, wide: false, mask }, 0),
        Width::One if at % 2 == 1 => (Word { base, at: at - 1, wide: false, mask }, 0),
        Width::One => (Word { base, at, wide: false, mask: mask << 8 }, 8),
    })
}

/// A comparison of a word; the values of `compare` are shifted right by `shift` bits against the word.
fn compare(word: Word, shift: u32, compare: &Compare) -> Leaf {
    let mask = word.mask >> shift;
    match compare {
        Compare::Equal(value) if value & !mask != 0 => Leaf::Const(false),
        Compare::Equal(_) if mask == 0 => Leaf::Const(true),
        Compare::Equal(value) => Leaf::Is(Literal::equal(word, value << shift)),
        Compare::Range(low, high) => range(word, shift, *low, *high),
        Compare::OneOf(values) => {
            let possible: Vec<u32> =
                values.iter().copied().filter(|value| value & !mask == 0).collect();
            match possible[..] {
                [] => Leaf::Const(false),
                [_] if mask == 0 => Leaf::Const(true),
                [value] => Leaf::Is(Literal::equal(word, value << shift)),
                _ => {
                    let values = possible.iter().map(|value| value << shift).collect();
                    Leaf::Is(Literal::OneOf { word, second: 0, values })
                }
            }
        }
    }
}

fn range(word: Word, shift: u32, low: u32, high: u32) -> Leaf {
    let mask = word.mask >> shift;
    let high = high.min(mask);
    if low > high {
        return Leaf::Const(false);
    }
    if low == 0 && high == mask {
        return Leaf::Const(true);
    }
    // "Not zero under the mask" is the usual test of flags: a negated equality can be fused with its neighbours.
    if low == 1 && high == mask {
        return Leaf::Not(Literal::equal(word, 0));
    }
    if low == high {
        return if low & !mask == 0 {
            Leaf::Is(Literal::equal(word, low << shift))
        } else {
            Leaf::Const(false)
        };
    }
    Leaf::Is(Literal::Range { word, either: false, low: low << shift, high: high << shift })
}

fn length(low: u32, high: u32) -> Leaf {
    match (low, high) {
        _ if low > high => Leaf::Const(false),
        (0, u32::MAX) => Leaf::Const(true),
        _ => Leaf::Is(Literal::Length { low, high }),
    }
}
