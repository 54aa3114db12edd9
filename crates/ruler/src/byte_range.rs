//! Numbers as bytes: `V~N`, and ranges of them as sets of bytes per position.

use crate::byte_set::ByteSet;
use crate::node::Node;

/// Encodes `value` in `size` bytes, the highest first; returns none if it does not fit.
pub fn big_endian(value: u64, size: usize) -> Option<Vec<u8>> {
    let bytes = value.to_be_bytes();
    if size >= bytes.len() {
        let mut wide = vec![0; size - bytes.len()];
        wide.extend(bytes);
        return Some(wide);
    }
    let (high, low) = bytes.split_at(bytes.len() - size);
    high.iter().all(|byte| *byte == 0).then(|| low.to_vec())
}

/// Builds the pattern of the numbers from `low` to `high` (as bytes of one length). The first byte that differs
/// splits the range into three: the lowest first byte, those between, and the highest. At most two branches per
/// byte.
pub fn range(low: &[u8], high: &[u8]) -> Node {
    debug_assert!(low.len() == high.len() && low <= high);
    let Some((first_low, first_high)) = low.first().zip(high.first()) else { return Node::Empty };
    let (rest_low, rest_high) = (&low[1..], &high[1..]);
    let any = |len: usize| vec![Node::Set(ByteSet::ALL); len];
    let with = |first: ByteSet, rest: Node| Node::Sequence(vec![Node::Set(first), rest]);
    if first_low == first_high {
        return with(ByteSet::one(*first_low), range(rest_low, rest_high));
    }
    let (mut from, mut to) = (*first_low, *first_high);
    let mut branches = Vec::new();
    if rest_low.iter().any(|byte| *byte != 0) {
        branches.push(with(ByteSet::one(from), range(rest_low, &vec![0xff; rest_low.len()])));
        from += 1;
    }
    let mut last = None;
    if rest_high.iter().any(|byte| *byte != 0xff) {
        last = Some(with(ByteSet::one(to), range(&vec![0; rest_high.len()], rest_high)));
        to -= 1;
    }
    if from <= to {
        branches.push(with(ByteSet::range(from, to), Node::Sequence(any(rest_low.len()))));
    }
    branches.extend(last);
    match branches.len() {
        1 => branches.remove(0),
        _ => Node::Alternation(branches),
    }
}
