//! The peer: elements that get one packet at a time and hand it to the next by a virtual call, as in Click.
//!
//! Every element counts what it sees, as every node of a graph does. Nothing is left out to look bad: no locks, no
//! reference counts, and the elements of a chain lie one behind the other in memory.

use fyke_frame::Frame;

/// An element.
trait Element {
    fn push(&mut self, frame: &Frame<'_>);
    fn seen(&self) -> u64;
    fn reset(&mut self);
}

/// Passes everything on.
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

/// A chain of elements, or several side by side.
pub struct Pipeline(Vec<Box<dyn Element>>);

impl Pipeline {
    /// Elements one behind the other.
    pub fn chain(length: usize) -> Pipeline {
        let mut first: Option<Box<dyn Element>> = None;
        for _ in 0..length {
            first = Some(Box::new(Pass { seen: 0, next: first.take() }));
        }
        Pipeline(first.into_iter().collect())
    }

    /// Elements side by side: each gets every packet.
    pub fn fan(width: usize) -> Pipeline {
        let one = || Box::new(Pass { seen: 0, next: None }) as Box<dyn Element>;
        Pipeline((0..width).map(|_| one()).collect())
    }

    /// Hands a packet in.
    pub fn push(&mut self, frame: &Frame<'_>) {
        self.0.iter_mut().for_each(|element| element.push(frame));
    }

    /// How many packets all elements have seen together.
    pub fn visits(&self) -> u64 {
        self.0.iter().map(|element| element.seen()).sum()
    }

    /// Begins counting anew.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(|element| element.reset());
    }
}
