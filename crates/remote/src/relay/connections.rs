//! The connections of a relay, counted: before their greeting by address, then by the name in their certificate.
//!
//! Every program that reaches the port can open connections. So those without a greeting have places of their own, of
//! which an address has a few: they take no place of a client.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most clients at a time.
pub const MAX_CLIENTS: usize = 64;
/// Most connections that have not greeted yet.
const MAX_GREETING: usize = 64;
/// Most of them of one address.
const MAX_OF_ADDRESS: usize = 16;

/// All connections.
#[derive(Debug, Default)]
pub struct Connections(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    greeting: HashMap<IpAddr, usize>,
    clients: HashMap<String, usize>,
}

/// One of the connections; its count ends with it.
#[derive(Debug)]
pub struct Counted {
    all: Arc<Connections>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Greets(IpAddr),
    Client(String),
}

impl Connections {
    /// Counts a connection of an address.
    ///
    /// # Errors
    /// The reason, if there are too many.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Counted, String> {
        let mut counts = self.lock();
        let greeting = &mut counts.greeting;
        if greeting.values().sum::<usize>() >= MAX_GREETING {
            return Err(format!("{MAX_GREETING} connections have not greeted yet"));
        }
        let count = greeting.entry(address).or_default();
        if *count >= MAX_OF_ADDRESS {
            return Err(format!("{count} connections of this address have not greeted yet"));
        }
        *count += 1;
        drop(counts);
        Ok(Counted { all: Arc::clone(self), stage: Stage::Greets(address) })
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        let counts = self.lock();
        counts.greeting.is_empty() && counts.clients.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Counts the connection as a client of this name from now on.
    ///
    /// # Errors
    /// The reason, if there are too many clients, or `most` of this name.
    pub fn named(&mut self, name: &str, most: usize) -> Result<(), String> {
        let counts = &mut *self.all.lock();
        if counts.clients.values().sum::<usize>() >= MAX_CLIENTS {
            return Err(format!("there are {MAX_CLIENTS} clients already"));
        }
        let count = counts.clients.get(name).copied().unwrap_or(0);
        if count >= most {
            return Err(format!("{name} has {count} connections already; at most {most}"));
        }
        counts.clients.insert(name.to_owned(), count + 1);
        let before = std::mem::replace(&mut self.stage, Stage::Client(name.to_owned()));
        before.leave(counts);
        Ok(())
    }
}

impl Stage {
    fn leave(&self, counts: &mut Counts) {
        match self {
            Stage::Greets(address) => less(&mut counts.greeting, address),
            Stage::Client(name) => less(&mut counts.clients, name),
        }
    }
}

fn less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.stage.leave(&mut self.all.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_a_greeting_take_no_place_of_a_client() {
        let all = Arc::new(Connections::default());
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<_> =
            (0..MAX_OF_ADDRESS).map(|_| all.enter(address(1)).unwrap()).collect();
        assert!(all.enter(address(1)).unwrap_err().contains("of this address"));
        let mut clients: Vec<_> = (0..MAX_CLIENTS)
            .map(|number| {
                let mut one = all.enter(address(2)).unwrap();
                one.named(["a", "b"][number % 2], MAX_CLIENTS).unwrap();
                one
            })
            .collect();
        assert!(held[0].named("c", 1).unwrap_err().contains("64 clients"));
        clients.truncate(2);
        assert!(held[0].named("a", 1).unwrap_err().contains("a has 1 connections"));
        held[0].named("a", 2).unwrap();
        all.enter(address(1)).unwrap();
        held.extend(
            (0..MAX_GREETING + 1 - held.len())
                .map(|number| all.enter(address(10 + (number % 4) as u8)).unwrap()),
        );
        assert_eq!(all.enter(address(99)).unwrap_err(), "64 connections have not greeted yet");
        drop((held, clients));
        assert!(all.is_empty());
    }
}
