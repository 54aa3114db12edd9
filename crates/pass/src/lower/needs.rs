//! Needs: the bytes that a frame must have so that a filter can be judged without regard to order.
//!
//! A load out of bounds rejects the frame for the whole filter, so for short frames the order of a text is part of its
//! meaning. This module walks a condition in its order. For every load it collects the byte tests that must have held
//! before the load is made (*guards*) and the end of the load. A frame is **complete** if it contains every load whose
//! guards hold; then the ordered evaluation makes no load out of bounds, and any order gives its verdict. Frames that
//! are not complete go to the ordered evaluator.
//!
//! Only guards that are cheap to evaluate are kept (equality of one or two bytes at a fixed place). So a complete frame
//! may count as not complete, but never the other way round. Addresses are no guards: texts that differ only in their
//! addresses have the same needs, which are evaluated once for all of them. A frame of at least [`Needs::bound`] bytes
//! is complete without an evaluation. Building: O(loads); evaluating: O(needs) for frames below the bound.

use crate::isa::hash::{MixMap, MixSet};
use crate::isa::test;
use crate::lower::place::place;
use fyke_filter::Node;
use fyke_frame::condition::{
    Base, Compare, Expr, Load, Operator, OutOfBounds, Source, Visit, Width,
};
use fyke_frame::{Condition, Frame};
use std::sync::Arc;

/// Largest IPv4 header, in bytes.
pub(crate) const MAX_IPV4_HEADER: u32 = 60;
/// Largest number of guards that are kept for one load. Dropping further guards is safe.
const MAX_GUARDS: u32 = 12;

/// Largest offset of a guard. Guards beyond it are dropped as well, because batches do not load those places.
const MAX_GUARD_OFFSET: u32 = u16::MAX as u32;

/// A test of bytes at a fixed place: `P[offset..] & mask == value`, `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Guard {
    pub offset: u32,
    pub width: u8,
    pub mask: u32,
    pub value: u32,
}

/// End of a load, if it is quickly found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent<'n> {
    /// To this frame offset (exclusive).
    Fixed(u32),
    /// To this offset after the IPv4 header at `ip`.
    Behind { ip: u32, end: u32 },
    /// All bytes that the computation of this value reads.
    Value(&'n Arc<Expr>),
    /// Known only to [`Needs::complete`].
    Other,
}

/// End of a load.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Reach {
    /// To this frame offset (exclusive).
    Fixed(u32),
    /// To this offset after the IPv4 header at `ip`.
    Behind { ip: u32, end: u32 },
    /// An expression that has to have a value.
    Value(Arc<Expr>),
    /// No frame contains it.
    Never,
}

#[derive(Debug, Clone, PartialEq, Hash)]
struct Need {
    guards: Box<[Guard]>,
    reach: Reach,
    /// No frame without it is accepted.
    must: bool,
}

/// Result of a part that is necessary for a frame to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Is(bool),
    /// The part is evaluated, with any result.
    Some,
    /// Possibly the part is not evaluated.
    Nothing,
}

impl Want {
    /// The result that an operand must have if the whole is `holds` only when all operands are.
    fn of_operand(self, holds: bool, first: bool) -> Want {
        match self {
            Want::Is(wanted) if wanted == holds => self,
            Want::Is(_) | Want::Some if first => Want::Some,
            _ => Want::Nothing,
        }
    }

    fn negated(self) -> Want {
        match self {
            Want::Is(wanted) => Want::Is(!wanted),
            _ => self,
        }
    }
}

/// Bytes that frames must contain to be complete for one filter.
#[derive(Debug, Default, PartialEq, Hash)]
pub(crate) struct Needs {
    list: Vec<Need>,
    /// Frames of at least this many captured bytes are complete.
    bound: u32,
}

impl Needs {
    /// No frame is complete: all of them go to the ordered evaluator.
    pub fn never() -> Needs {
        Needs {
            list: vec![Need { guards: Box::default(), reach: Reach::Never, must: false }],
            bound: u32::MAX,
        }
    }

    /// True if no frame is complete.
    pub fn is_never(&self) -> bool {
        self.list.iter().any(|need| need.reach == Reach::Never && need.guards.is_empty())
    }

    /// Every frame of at least this length is complete; `u32::MAX` if there is no such length.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Needs that are incomplete for each frame for which one of these is, and perhaps for more. Loads with the same
    /// end become one, with the guards that all of them have.
    pub fn union<'n>(all: impl Iterator<Item = &'n Needs>) -> Needs {
        let mut union = Needs::default();
        for needs in all {
            union.bound = union.bound.max(needs.bound);
            for need in &needs.list {
                match union.list.iter_mut().find(|known| known.reach == need.reach) {
                    Some(known) if known.has_guards_of(need) => {}
                    Some(known) => {
                        let both = known.guards.iter().filter(|guard| need.guards.contains(guard));
                        known.guards = both.copied().collect();
                    }
                    None => union.list.push(Need { must: false, ..need.clone() }),
                }
            }
        }
        union
    }

    /// True if a frame that is complete here is complete for the others; may miss such needs.
    pub fn covers(&self, others: &Needs) -> bool {
        let covered = |need: &Need| {
            self.list.iter().any(|known| known.reach == need.reach && known.has_guards_of(need))
        };
        self.bound >= others.bound && others.list.iter().all(covered)
    }

    /// The parts of the needs: a frame must contain the whole extent, unless one of the guards does not hold. If the
    /// last value is true, no frame without the extent is accepted, whatever the guards.
    pub fn each(&self) -> impl Iterator<Item = (&[Guard], Extent<'_>, bool)> {
        self.list.iter().map(|need| {
            let extent = match &need.reach {
                Reach::Fixed(end) => Extent::Fixed(*end),
                Reach::Behind { ip, end } => Extent::Behind { ip: *ip, end: *end },
                Reach::Value(expr) => Extent::Value(expr),
                Reach::Never => Extent::Other,
            };
            (&*need.guards, extent, need.must)
        })
    }

    /// Tests if the frame is complete.
    pub fn complete(&self, frame: &Frame) -> bool {
        (frame.data.len() >= self.bound as usize && self.bound < u32::MAX)
            || self.list.iter().all(|need| need.reach.inside(frame) || !need.guarded(frame.data))
    }
}

impl Guard {
    fn holds(&self, data: &[u8]) -> bool {
        load(data, self.offset, self.width).is_some_and(|value| value & self.mask == self.value)
    }

    fn contradicts(&self, other: &Guard) -> bool {
        self.offset == other.offset
            && self.width == other.width
            && (self.value ^ other.value) & self.mask & other.mask != 0
    }
}

impl Need {
    /// True if all guards are guards of the other need, too, so that this one applies at least as often.
    fn has_guards_of(&self, other: &Need) -> bool {
        self.guards.iter().all(|guard| other.guards.contains(guard))
    }

    /// Tests if the ordered evaluation may reach this load. A guard of which bytes are missing does not hold: the
    /// guard's own need has already reported it.
    fn guarded(&self, data: &[u8]) -> bool {
        self.guards.iter().all(|guard| guard.holds(data))
    }
}

impl Reach {
    fn inside(&self, frame: &Frame) -> bool {
        let len = frame.data.len() as u64;
        match self {
            Reach::Fixed(end) => u64::from(*end) <= len,
            Reach::Behind { ip, end } => load(frame.data, *ip, 1)
                .is_some_and(|byte| u64::from(*ip) + u64::from(4 * (byte & 0xf) + end) <= len),
            Reach::Value(expr) => !matches!(expr.value(frame), Err(OutOfBounds)),
            Reach::Never => false,
        }
    }

    fn bound(&self) -> u32 {
        match self {
            Reach::Fixed(end) => *end,
            Reach::Behind { ip, end } => ip.saturating_add(MAX_IPV4_HEADER).saturating_add(*end),
            Reach::Value(_) | Reach::Never => u32::MAX,
        }
    }
}

fn load(data: &[u8], offset: u32, width: u8) -> Option<u32> {
    let start = offset as usize;
    let bytes = data.get(start..start.checked_add(usize::from(width))?)?;
    Some(bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

/// Collects the needs of a filter. Guards that hold together are a chain in an arena, so a walk over many similar
/// conditions makes few allocations.
pub(crate) struct NeedsBuilder {
    /// A guard, the chain it was added to and the length; chain 0 is empty.
    chains: Vec<(Guard, u32, u32)>,
    known: MixMap<(u32, Guard), u32>,
    seen: MixSet<(u32, Reach)>,
    order: Vec<(u32, Reach)>,
    /// Bytes without which no frame is accepted.
    musts: MixSet<Reach>,
}

impl NeedsBuilder {
    pub fn new() -> Self {
        NeedsBuilder {
            chains: Vec::new(),
            known: MixMap::default(),
            seen: MixSet::default(),
            order: Vec::new(),
            musts: MixSet::default(),
        }
    }

    /// Walks a condition.
    pub fn whole_condition(&mut self, condition: &Condition) {
        self.condition(condition, 0, Want::Is(true));
    }

    /// Walks a predicate.
    pub fn whole_predicate(&mut self, root: &Node) {
        self.node(root, 0, Want::Is(true));
    }

    /// Walks a condition that is evaluated when the guards of `chain` hold.
    fn condition(&mut self, condition: &Condition, chain: u32, want: Want) {
        match condition {
            Condition::Const(_) => {}
            Condition::All(operands) => self.operands(operands, true, chain, want),
            Condition::Any(operands) => self.operands(operands, false, chain, want),
            Condition::Not(inner) => self.condition(inner, chain, want.negated()),
            // The places that it reads depend on what it finds.
            Condition::Chain(_) => self.need(chain, Reach::Never, Want::Nothing),
            Condition::Load(load) => self.load(load, chain, want),
            Condition::Address6(address) => {
                let spare = (address.mask.trailing_zeros() / 32).min(4);
                if spare < 4 {
                    let end = address.offset.saturating_add(16 - 4 * spare);
                    // The first word that differs ends the comparison.
                    let want = if want == Want::Is(true) { want } else { Want::Nothing };
                    self.need(chain, Reach::Fixed(end), want);
                }
            }
            Condition::Relation(..) => condition.parts(&mut Loads { builder: self, chain, want }),
        }
    }

    fn operands(&mut self, operands: &[Condition], holds: bool, chain: u32, want: Want) {
        operands.iter().enumerate().fold(chain, |chain, (index, operand)| {
            self.condition(operand, chain, want.of_operand(holds, index == 0));
            self.assume(operand, holds, chain)
        });
    }

    /// Walks a predicate's node.
    fn node(&mut self, node: &Node, chain: u32, want: Want) {
        let holds = match node {
            Node::Const(_) => return,
            Node::Primitive(primitive) => return self.condition(&primitive.condition, chain, want),
            Node::Not(inner) => return self.node(inner, chain, want.negated()),
            Node::All(_) => true,
            Node::Any(_) => false,
        };
        node.children().iter().enumerate().fold(chain, |chain, (index, operand)| {
            self.node(operand, chain, want.of_operand(holds, index == 0));
            self.assume_node(operand, holds, chain)
        });
    }

    fn assume_node(&mut self, node: &Node, holds: bool, chain: u32) -> u32 {
        match (node, holds) {
            (Node::All(operands), true) | (Node::Any(operands), false) => operands
                .iter()
                .fold(chain, |chain, operand| self.assume_node(operand, holds, chain)),
            (Node::Not(inner), _) => self.assume_node(inner, !holds, chain),
            (Node::Primitive(primitive), _) => self.assume(&primitive.condition, holds, chain),
            _ => chain,
        }
    }

    /// The chain for which `condition` is known to be `holds`, in addition to the guards of `chain`.
    pub fn assume(&mut self, condition: &Condition, holds: bool, chain: u32) -> u32 {
        match (condition, holds) {
            (Condition::All(operands), true) | (Condition::Any(operands), false) => {
                operands.iter().fold(chain, |chain, operand| self.assume(operand, holds, chain))
            }
            (Condition::Not(inner), _) => self.assume(inner, !holds, chain),
            (Condition::Load(load), true) => match (&load.source, &load.compare) {
                (Source::Bytes { base: Base::Frame, offset, width }, Compare::Equal(value))
                    if *width != Width::Four && *offset <= MAX_GUARD_OFFSET =>
                {
                    let (offset, width) = (*offset, *width as u8);
                    self.chain(chain, Guard { offset, width, mask: load.mask, value: *value })
                }
                _ => chain,
            },
            _ => chain,
        }
    }

    /// Adds the need that every frame reaches to `end`.
    pub fn floor(&mut self, end: u32) {
        if end > 0 {
            self.need(0, Reach::Fixed(end), Want::Nothing);
        }
    }

    /// The needs, without those that others imply.
    pub fn finish(self) -> Needs {
        let mut found: Vec<(Vec<Guard>, Reach)> = Vec::new();
        for (chain, reach) in &self.order {
            let guards = self.guards(*chain);
            let clash = guards.iter().any(|a| guards.iter().any(|b| a.contradicts(b)));
            if !clash {
                found.push((guards, reach.clone()));
            }
        }
        // Fewest guards and largest end first, so that one look at earlier needs finds those that cover a need.
        found.sort_by_key(|(guards, reach)| (guards.len(), std::cmp::Reverse(reach.bound())));
        let mut list: Vec<Need> = Vec::new();
        for (guards, reach) in found {
            let covered = list.iter().any(|need| {
                need.guards.iter().all(|guard| guards.contains(guard))
                    && covers(&need.reach, &reach)
            });
            if !covered {
                let must = self.musts.contains(&reach);
                list.push(Need { guards: guards.into(), reach, must });
            }
        }
        let bound = list.iter().map(|need| need.reach.bound()).max().unwrap_or(0);
        Needs { list, bound }
    }

    fn load(&mut self, load: &Load, chain: u32, want: Want) {
        let Source::Bytes { base, offset, width } = &load.source else { return };
        let end = offset.saturating_add(*width as u32);
        let reach = match base {
            Base::Frame => Reach::Fixed(end),
            Base::IpHeaderEnd { ip } => Reach::Behind { ip: *ip, end },
            Base::Computed(place) => {
                let (index, offset, width) = (place.clone(), *offset, *width);
                Reach::Value(Arc::new(Expr::Load { index, offset, width }))
            }
        };
        self.need(chain, reach, want);
    }

    fn need(&mut self, chain: u32, reach: Reach, want: Want) {
        if want != Want::Nothing && !self.musts.contains(&reach) {
            self.musts.insert(reach.clone());
        }
        if self.seen.insert((chain, reach.clone())) {
            self.order.push((chain, reach));
        }
    }

    fn chain(&mut self, chain: u32, guard: Guard) -> u32 {
        let chains = &mut self.chains;
        let length = chain.checked_sub(1).map_or(0, |last| chains[last as usize].2) + 1;
        if length > MAX_GUARDS {
            return chain;
        }
        *self.known.entry((chain, guard)).or_insert_with(|| {
            chains.push((guard, chain, length));
            chains.len() as u32
        })
    }

    fn guards(&self, mut chain: u32) -> Vec<Guard> {
        let mut guards = Vec::new();
        while chain != 0 {
            let (guard, rest, _) = self.chains[chain as usize - 1];
            if !guards.contains(&guard) {
                guards.push(guard);
            }
            chain = rest;
        }
        guards
    }
}

/// The loads of expressions that are computed when the guards of `chain` hold.
struct Loads<'b> {
    builder: &'b mut NeedsBuilder,
    chain: u32,
    want: Want,
}

impl<'c> Visit<'c> for Loads<'_> {
    fn expression(&mut self, expr: &'c Arc<Expr>) {
        let reach = match &**expr {
            Expr::IpHeaderLen { ip } => Reach::Fixed(ip.saturating_add(1)),
            Expr::Load { index, offset, width } => {
                let width = *width as u32;
                match place(index, *offset) {
                    Some((test::Base::Direct, at)) => Reach::Fixed(at.saturating_add(width)),
                    Some((test::Base::L1 { header }, at)) => {
                        Reach::Behind { ip: header.into(), end: at.saturating_add(width) }
                    }
                    _ => Reach::Value(expr.clone()),
                }
            }
            Expr::Binary(Operator::Div | Operator::Mod, ..) | Expr::Select(..) => {
                Reach::Value(expr.clone())
            }
            Expr::Const(_) | Expr::WireLen | Expr::Meta(_) | Expr::Negate(_) | Expr::Binary(..) => {
                return expr.parts(self);
            }
        };
        self.builder.need(self.chain, reach, self.want);
    }
}

/// True if a frame that contains `wide` contains `narrow`.
fn covers(wide: &Reach, narrow: &Reach) -> bool {
    match (wide, narrow) {
        (Reach::Fixed(wide), Reach::Fixed(narrow)) => wide >= narrow,
        (Reach::Behind { ip: a, end: wide }, Reach::Behind { ip: b, end: narrow }) => {
            a == b && wide >= narrow
        }
        _ => wide == narrow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_frame::LinkType;

    fn equal(offset: u32, value: u32) -> Condition {
        Condition::Load(Load::equal(offset, Width::Two, 0xffff, value))
    }

    fn needs(condition: &Condition) -> Needs {
        let mut builder = NeedsBuilder::new();
        builder.whole_condition(condition);
        builder.finish()
    }

    #[test]
    fn a_guard_that_fails_frees_the_frame_from_the_need() {
        let guarded = |kind, offset| Condition::All(vec![equal(12, kind), equal(offset, 1)]);
        let condition = Condition::Any(vec![guarded(0x86dd, 54), guarded(0x0800, 26)]);
        let needs = needs(&condition);
        assert_eq!(needs.bound(), 56);
        let complete = |kind: u8, len| {
            let mut bytes = vec![0; len];
            if len > 13 {
                (bytes[12], bytes[13]) = if kind == 6 { (0x86, 0xdd) } else { (8, 0) };
            }
            needs.complete(&Frame::new(LinkType::EN10MB, &bytes))
        };
        assert!(complete(4, 28) && !complete(4, 27));
        assert!(complete(6, 56) && !complete(6, 55));
        assert!(!complete(4, 13));
    }

    #[test]
    fn many_similar_conditions_have_few_needs() {
        let one = |value| Condition::All(vec![equal(12, 0x0800), equal(26, value)]);
        let not = |condition| Condition::Not(Box::new(condition));
        assert_eq!(needs(&Condition::Any((0..1000).map(one).collect())).list.len(), 2);
        assert_eq!(needs(&Condition::All((0..1000).map(|v| not(one(v))).collect())).list.len(), 2);
    }

    #[test]
    fn what_every_accepted_frame_has_is_a_must() {
        let not = |condition| Condition::Not(Box::new(condition));
        let deep = |offset| Condition::All(vec![equal(12, 0x0800), equal(offset, 1)]);
        let musts = |condition: &Condition| -> Vec<u32> {
            let needs = needs(condition);
            let musts = needs.each().filter(|need| need.2).map(|(_, extent, _)| match extent {
                Extent::Fixed(end) => end,
                _ => 0,
            });
            musts.collect()
        };
        assert_eq!(musts(&deep(26)), [14, 28]);
        // Only the first alternative is always evaluated, and only the first test of it.
        assert_eq!(musts(&Condition::Any(vec![deep(26), deep(30)])), [14]);
        assert_eq!(musts(&not(deep(26))), [14]);
        assert_eq!(musts(&not(Condition::Any(vec![equal(26, 1), equal(30, 1)]))), [32]);
        assert_eq!(musts(&Condition::All(vec![not(deep(26)), equal(40, 2)])), [42]);
    }

    #[test]
    fn guards_that_cannot_hold_together_need_nothing() {
        let condition = Condition::All(vec![equal(12, 0x0800), equal(12, 0x86dd), equal(90, 1)]);
        assert_eq!(needs(&condition).bound(), 14);
    }

    #[test]
    fn a_union_is_asked_for_wherever_one_of_its_needs_is() {
        let tagged = |tag, end| {
            let tag = Condition::Load(Load::equal(14, Width::Two, 0xfff, tag));
            needs(&Condition::All(vec![equal(12, 0x8100), tag, equal(end, 1)]))
        };
        let all = [tagged(1, 30), tagged(2, 30), tagged(3, 40)];
        let union = Needs::union(all.iter());
        assert!(all.iter().all(|needs| union.covers(needs)) && !all[0].covers(&all[1]));
        assert!(union.covers(&tagged(9, 30)) && !union.covers(&tagged(9, 41)));
        for len in 0..50 {
            for (kind, tag) in [(0x81, 1), (0x81, 2), (0x81, 3), (0x81, 4), (8, 1)] {
                let mut bytes = [0; 50];
                (bytes[12], bytes[15]) = (kind, tag);
                let frame = Frame::new(LinkType::EN10MB, &bytes[..len]);
                let each = all.iter().all(|needs| needs.complete(&frame));
                assert!(each || !union.complete(&frame), "{len} bytes, tag {tag}");
            }
        }
    }
}
