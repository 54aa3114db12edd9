//! The peer: elements that receive one packet at a time and pass it to the next by a virtual call, as in Click.
//!
//! Every element counts its packets, as every graph node does. The peer is not handicapped: no locks, no reference
//! counts, and the elements of a chain are contiguous in memory.

use fyke_frame::Frame;

/// An element.
trait Element {
    fn push(&mut self, frame: &Frame<'_>);
    fn seen(&self) -> u64;
    fn reset(&mut self);
}

/// An element that passes every packet on.
struct Pass {
    seen: u64,
    next: Option<Box<dyn Element>>,
}

impl Element for Pass {
    fn push(&mut self, frame: &Frame<'_>) {
        self.seen += 1;
        if let Some(next) = &mut self.next {
            next.push(frame);
        }
    }

    fn seen(&self) -> u64 {
        self.seen + self.next.as_ref().map_or(0, |next| next.seen())
    }

    fn reset(&mut self) {
        self.seen = 0;
        if let Some(next) = &mut self.next {
            next.reset();
        }
    }
}

/// A chain of elements, or several in parallel.
pub struct Pipeline(Vec<Box<dyn Element>>);

impl Pipeline {
    /// Creates a chain of elements.
    pub fn chain(length: usize) -> Pipeline {
        let mut first: Option<Box<dyn Element>> = None;
        for _ in 0..length {
            first = Some(Box::new(Pass { seen: 0, next: first.take() }));
        }
        Pipeline(first.into_iter().collect())
    }

    /// Creates parallel elements: each gets every packet.
    pub fn fan(width: usize) -> Pipeline {
        let one = || Box::new(Pass { seen: 0, next: None }) as Box<dyn Element>;
        Pipeline((0..width).map(|_| one()).collect())
    }

    /// Passes a packet to the first element, or to all parallel ones.
    pub fn push(&mut self, frame: &Frame<'_>) {
        self.0.iter_mut().for_each(|element| element.push(frame));
    }

    /// Number of packets that all elements together received.
    pub fn visits(&self) -> u64 {
        self.0.iter().map(|element| element.seen()).sum()
    }

    /// Resets the counters.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(|element| element.reset());
    }
}
