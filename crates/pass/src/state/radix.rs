//! A map from numbers to rows; copies share everything that did not change.
//!
//! The writer keeps the current state in such maps, publishes copies and continues to change its own: a copy is one
//! reference, a change copies the path to one row. Sixteen-way tree, keys ascending, empty branches are dropped, so
//! ever-growing keys cost only their depth. Look-up and change O(log16 largest key); a row costs its size plus about 9
//! bytes. Source: Bagwell 2001 (ideal hash trees), without the hashing.

use std::sync::Arc;

const BITS: u32 = 4;
const WAYS: usize = 1 << BITS;

#[derive(Debug, Clone)]
enum Node<T> {
    Inner([Option<Arc<Node<T>>>; WAYS]),
    Leaf([Option<T>; WAYS]),
}

/// The map.
#[derive(Debug, Clone)]
pub(crate) struct RadixMap<T> {
    root: Option<Arc<Node<T>>>,
    /// Levels above the leaves.
    height: u32,
    len: usize,
}

impl<T> Default for RadixMap<T> {
    fn default() -> Self {
        RadixMap { root: None, height: 0, len: 0 }
    }
}

impl<T: Clone> Node<T> {
    fn inner() -> Node<T> {
        Node::Inner(std::array::from_fn(|_| None))
    }

    fn leaf() -> Node<T> {
        Node::Leaf(std::array::from_fn(|_| None))
    }

    fn is_empty(&self) -> bool {
        match self {
            Node::Inner(children) => children.iter().all(Option::is_none),
            Node::Leaf(rows) => rows.iter().all(Option::is_none),
        }
    }
}

impl<T: Clone> RadixMap<T> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The row with this key.
    pub fn get(&self, key: u64) -> Option<&T> {
        if !self.covers(key) {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut height = self.height;
        loop {
            match node {
                Node::Leaf(rows) => return rows[way(key, 0)].as_ref(),
                Node::Inner(children) => node = children[way(key, height)].as_deref()?,
            }
            height -= 1;
        }
    }

    /// The row with this key, for a change; copies the path if it is shared.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        // Look it up first, so that an absent key copies nothing.
        self.get(key)?;
        let mut node = Arc::make_mut(self.root.as_mut()?);
        let mut height = self.height;
        loop {
            match node {
                Node::Leaf(rows) => return rows[way(key, 0)].as_mut(),
                Node::Inner(children) => {
                    node = Arc::make_mut(children[way(key, height)].as_mut()?);
                }
            }
            height -= 1;
        }
    }

    /// Inserts a row and returns the old one.
    pub fn insert(&mut self, key: u64, row: T) -> Option<T> {
        while self.root.is_none() && !self.covers(key) {
            self.height += 1;
        }
        while !self.covers(key) {
            let mut top = Node::inner();
            if let Node::Inner(children) = &mut top {
                children[0] = self.root.take();
            }
            self.root = Some(Arc::new(top));
            self.height += 1;
        }
        let mut height = self.height;
        let fresh = |height| Arc::new(if height == 0 { Node::leaf() } else { Node::inner() });
        let mut node = Arc::make_mut(self.root.get_or_insert_with(|| fresh(height)));
        loop {
            match node {
                Node::Leaf(rows) => {
                    let old = rows[way(key, 0)].replace(row);
                    self.len += usize::from(old.is_none());
                    return old;
                }
                Node::Inner(children) => {
                    let child = &mut children[way(key, height)];
                    height -= 1;
                    node = Arc::make_mut(child.get_or_insert_with(|| fresh(height)));
                }
            }
        }
    }

    /// Removes and returns a row.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        self.get(key)?;
        let height = self.height;
        let root = self.root.as_mut()?;
        let row = take(Arc::make_mut(root), key, height);
        if root.is_empty() {
            self.root = None;
            self.height = 0;
        }
        self.len -= usize::from(row.is_some());
        row
    }

    /// All rows by ascending key.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let mut stack: Vec<(&Node<T>, u64, u32, usize)> = Vec::new();
        stack.extend(self.root.as_deref().map(|root| (root, 0, self.height, 0)));
        std::iter::from_fn(move || {
            loop {
                let (node, prefix, height, next) = stack.pop()?;
                if next < WAYS {
                    stack.push((node, prefix, height, next + 1));
                } else {
                    continue;
                }
                let key = prefix | (next as u64) << (BITS * height);
                match node {
                    Node::Leaf(rows) => {
                        if let Some(row) = &rows[next] {
                            return Some((key, row));
                        }
                    }
                    Node::Inner(children) => {
                        stack.extend(children[next].as_deref().map(|c| (c, key, height - 1, 0)));
                    }
                }
            }
        })
    }

    fn covers(&self, key: u64) -> bool {
        let bits = BITS * (self.height + 1);
        bits >= u64::BITS || key >> bits == 0
    }
}

/// Recursion depth is the height, at most 16.
fn take<T: Clone>(node: &mut Node<T>, key: u64, height: u32) -> Option<T> {
    match node {
        Node::Leaf(rows) => rows[way(key, 0)].take(),
        Node::Inner(children) => {
            let slot = &mut children[way(key, height)];
            let child = Arc::make_mut(slot.as_mut()?);
            let row = take(child, key, height - 1);
            if child.is_empty() {
                *slot = None;
            }
            row
        }
    }
}

fn way(key: u64, height: u32) -> usize {
    (key >> (BITS * height)) as usize & (WAYS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn behaves_like_a_tree_map_and_copies_stay_as_they_were() {
        let mut map = RadixMap::default();
        let mut model = BTreeMap::new();
        let mut copies = Vec::new();
        let mut seed = 99_u64;
        for step in 0..30_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (seed >> 33) % 3_000 * if seed >> 20 & 7 == 0 { 1 << 30 } else { 1 };
            match seed >> 60 {
                0..=8 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                9..=11 => assert_eq!(map.remove(key), model.remove(&key)),
                _ => {
                    assert_eq!(map.get_mut(key).copied(), model.get(&key).copied());
                    if let Some(row) = map.get_mut(key) {
                        *row += 1;
                        *model.get_mut(&key).unwrap() += 1;
                    }
                }
            }
            assert_eq!(map.len(), model.len());
            if step % 5_000 == 0 {
                copies.push((map.clone(), model.clone()));
            }
        }
        copies.push((map, model));
        for (map, model) in copies {
            assert!(map.iter().map(|(key, &row)| (key, row)).eq(model));
        }
    }

    #[test]
    fn keys_that_are_not_there() {
        let mut map: RadixMap<u8> = RadixMap::default();
        assert!(map.get(0).is_none() && map.remove(7).is_none());
        map.insert(3, 1);
        assert!(map.get(u64::MAX).is_none() && map.get_mut(1 << 40).is_none());
    }
}
