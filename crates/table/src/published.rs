//! Published value: a writer replaces it while readers hold it, for example a table by a larger one.
//!
//! A reader checks with one atomic load if there is a newer value. Only then it takes a lock, under which the writer
//! only swaps a pointer. The writer keeps a replaced value until no reader holds it, so readers never free memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
struct Shared<T> {
    generation: AtomicU64,
    current: Mutex<Arc<T>>,
}

/// Writer of the value.
#[derive(Debug)]
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
    current: Arc<T>,
    retired: Vec<Arc<T>>,
}

/// Reader of the value.
#[derive(Debug)]
pub struct Subscriber<T> {
    shared: Arc<Shared<T>>,
    generation: u64,
    current: Arc<T>,
}

impl<T> Publisher<T> {
    pub fn new(value: T) -> Self {
        let current = Arc::new(value);
        let shared =
            Shared { generation: AtomicU64::new(0), current: Mutex::new(Arc::clone(&current)) };
        Publisher { shared: Arc::new(shared), current, retired: Vec::new() }
    }

    #[inline]
    pub fn current(&self) -> &T {
        &self.current
    }

    /// Makes `value` the current one. Readers see it at their next refresh.
    pub fn publish(&mut self, value: T) {
        let new = Arc::new(value);
        let old = std::mem::replace(&mut self.current, Arc::clone(&new));
        {
            let mut current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
            *current = new;
            self.shared.generation.fetch_add(1, Ordering::Release);
        }
        self.retired.push(old);
        self.retired.retain(|old| Arc::strong_count(old) > 1);
    }

    pub fn subscribe(&self) -> Subscriber<T> {
        let current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        Subscriber {
            generation: self.shared.generation.load(Ordering::Acquire),
            current: Arc::clone(&current),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Clone for Subscriber<T> {
    fn clone(&self) -> Self {
        Subscriber {
            shared: Arc::clone(&self.shared),
            generation: self.generation,
            current: Arc::clone(&self.current),
        }
    }
}

impl<T> Subscriber<T> {
    /// Returns the newest value.
    #[inline]
    pub fn latest(&mut self) -> &T {
        self.refresh();
        &self.current
    }

    /// Takes the newest value; returns true if it changed.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        let newer = self.shared.generation.load(Ordering::Acquire) != self.generation;
        if newer {
            self.take_over();
        }
        newer
    }

    /// Returns the value that was the newest at the last refresh.
    #[inline]
    pub fn current(&self) -> &T {
        &self.current
    }

    #[cold]
    fn take_over(&mut self) {
        let current = self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation = self.shared.generation.load(Ordering::Acquire);
        self.current = Arc::clone(&current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_newest_and_never_free() {
        let mut publisher = Publisher::new(vec![1]);
        let mut reader = publisher.subscribe();
        let old = Arc::downgrade(&publisher.current);
        publisher.publish(vec![2]);
        assert_eq!(reader.latest(), &[2]);
        assert!(old.upgrade().is_some(), "the writer keeps what a reader may hold");
        publisher.publish(vec![3]);
        assert!(old.upgrade().is_none());
        assert_eq!(reader.latest(), &[3]);
    }
}
