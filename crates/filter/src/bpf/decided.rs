//! Places that depend on the same choice. After Geneve, the places of the EtherType and of the
//! payload both depend on whether an Ethernet header follows, so they are computed on the same two
//! paths; places that both paths need are computed before.
//!
//! A place that may not be needed later is computed with the choice only if it reads no further
//! than the choice itself: otherwise it could reach the end of a frame that is never tested there.

use super::compute::{Kept, MEMORY};
use super::graph::constant;
use fyke_frame::Condition;
use fyke_frame::condition::Expr;

/// The cached places that a condition decides besides the requested one.
pub(super) struct Decided<'g> {
    /// Memory word, and the place when the condition fails and when it holds.
    pub(super) places: Vec<(usize, [&'g Expr; 2])>,
    held: u16,
}

impl<'g> Decided<'g> {
    /// The places that no word holds yet, except the choice between these two.
    pub(super) fn along(
        kept: &Kept<'g>,
        condition: &Condition,
        own: [&Expr; 2],
        held: u16,
    ) -> Decided<'g> {
        let mut read = Vec::new();
        if let Condition::Relation(_, left, right) = condition {
            for side in [left, right] {
                reads(side, &mut read);
            }
        }
        let within = |sides: [&Expr; 2]| sides.iter().all(|side| is_within(side, &read));
        let mut places: Vec<_> = kept
            .words
            .iter()
            .filter(|(_, word)| held >> **word & 1 == 0)
            .filter_map(|(place, word)| match place {
                Expr::Select(by, then, otherwise) if **by == *condition => {
                    let sides: [&Expr; 2] = [otherwise, then];
                    (sides != own && within(sides)).then_some((*word, sides))
                }
                _ => None,
            })
            .collect();
        places.sort_by_key(|(word, _)| MEMORY - word);
        Decided { places, held }
    }

    /// Cached places that are computed on both paths and that no word holds yet.
    pub(super) fn needed_by_both(&self, kept: &Kept<'g>, own: [&Expr; 2]) -> Vec<&'g Expr> {
        let needed = [0, 1].map(|side| {
            let mut parts = Vec::new();
            for (_, sides) in &self.places {
                parts_of(sides[side], &mut parts);
            }
            parts_of(own[side], &mut parts);
            parts
        });
        let mut both: Vec<_> = kept
            .words
            .iter()
            .filter(|(_, word)| self.held >> **word & 1 == 0)
            .filter(|(place, _)| needed.iter().all(|parts| parts.contains(place)))
            .map(|(place, word)| (MEMORY - word, *place))
            .collect();
        both.sort_by_key(|(rank, _)| *rank);
        both.into_iter().map(|(_, place)| place).collect()
    }

    /// Their memory words, one bit each.
    pub(super) fn words(&self) -> u16 {
        self.places.iter().fold(0, |words, (word, _)| words | 1 << word)
    }
}

/// Adds the bytes that an expression always reads: the place from which they count, and their end.
fn reads<'e>(expr: &'e Expr, into: &mut Vec<(&'e Expr, u32)>) {
    match expr {
        Expr::Load { index, offset, width } => {
            into.push((index, offset.saturating_add(*width as u32)));
        }
        Expr::Negate(inner) => reads(inner, into),
        Expr::Binary(_, left, right) => {
            reads(left, into);
            reads(right, into);
        }
        _ => {}
    }
}

/// True if an expression reads nothing beyond these bytes.
fn is_within(expr: &Expr, read: &[(&Expr, u32)]) -> bool {
    match expr {
        known if read.iter().any(|(place, _)| *place == known) => true,
        Expr::Const(_) | Expr::WireLen | Expr::Meta(_) => true,
        Expr::IpHeaderLen { .. } | Expr::Select(..) => false,
        Expr::Load { index, offset, width } => {
            let end = offset.saturating_add(*width as u32);
            read.iter().any(|(place, far)| **place == **index && *far >= end)
        }
        Expr::Negate(inner) => is_within(inner, read),
        Expr::Binary(_, left, right) => is_within(left, read) && is_within(right, read),
    }
}

/// Adds the parts of an expression that are computed whenever it is.
fn parts_of<'e>(expr: &'e Expr, into: &mut Vec<&'e Expr>) {
    if constant(expr).is_some() {
        return;
    }
    into.push(expr);
    match expr {
        Expr::Load { index: inner, .. } | Expr::Negate(inner) => parts_of(inner, into),
        Expr::Binary(_, left, right) => {
            parts_of(left, into);
            parts_of(right, into);
        }
        _ => {}
    }
}
