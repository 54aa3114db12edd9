//! The table of flows: their states, an index by both ends, and the order in which they are removed.
//!
//! States are in chunks, so growth moves nothing. The index has at least four buckets of 4 bytes per flow and never
//! grows: its pages are touched only if used. Keys come from packets, so they are hashed with a seed of this table.
//! Flows that have ended are removed first; then those that have had one segment so far, as those of a SYN flood, if
//! they are more than a quarter; of the others those without a segment since the last look at them, the oldest first
//! (second chance). Memory: 128 bytes a flow, and its share of the index; both are in large pages where the kernel has
//! some. Cost: a look-up is one load from the index and one from the chunk, and a segment that is next in order, or not
//! wanted any more, needs one cache line of it; O(1) per change. Look-ups of a batch overlap ([`Ahead`]).

use super::Segment;
use super::direction::{Direction, Head, Rest};
use fyke_frame::walk::view::tcp_flags::{FIN, RST, SYN};
use fyke_frame::{BATCH_CAPACITY, arch};
use of_connection::{ACTIVE, ENDED, IPV6, NEW, SECOND_IS_FORWARD};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

/// Flows of a chunk: 128 MiB, of which memory is used where flows are. Large pages need large chunks, because memory
/// does not begin at a page of them.
const CHUNK: usize = 1 << 20;
/// Segments between the load of a state and its use.
///
/// PERF: a million flows, ns a segment, on a busy machine with 350 ns a load: 5 → 52–59, 8 → 50–61, 16 → 56–70, 32 →
/// 63–67; two buckets per flow instead of four 50–61 against 45–53; pages of 4 KiB for a quarter of the states 69–95.
const AHEAD: usize = 8;
/// Most flows.
const MOST: usize = 1 << 25;
/// No flow.
const NONE: u32 = u32::MAX;

/// Both ends of a flow, the smaller first, and its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Key {
    /// The lower 64 bits of both addresses, and the upper ones.
    lower: [u64; 2],
    upper: [u64; 2],
    /// Port of the smaller end, and of the other.
    ports: u32,
    protocol: u8,
    /// Versions of the two addresses; 0 = both IPv4.
    kind: u8,
}

impl Key {
    /// Returns the key and the index of the sender in it: 0 if it is the smaller end.
    #[inline]
    pub fn new(protocol: u8, source: SocketAddr, destination: SocketAddr) -> (Key, usize) {
        if let (SocketAddr::V4(one), SocketAddr::V4(other)) = (source, destination) {
            return Key::of_ipv4(protocol, one, other);
        }
        let [one, other] = [source, destination].map(|end| (words(end.ip()), end.port()));
        let is_low = one <= other;
        let ((low, low_port), (high, high_port)) = if is_low { (one, other) } else { (other, one) };
        let kind = u8::from(source.is_ipv6()) | u8::from(destination.is_ipv6()) << 1;
        let ports = u32::from(low_port) << 16 | u32::from(high_port);
        let [upper, lower] = [[low[0], high[0]], [low[1], high[1]]];
        (Key { lower, upper, ports, protocol, kind }, usize::from(!is_low))
    }

    /// The same between IPv4 addresses. An end is one word, so the smaller one is chosen without a branch: which one
    /// it is depends on the direction, and that cannot be predicted.
    #[inline]
    fn of_ipv4(protocol: u8, source: SocketAddrV4, destination: SocketAddrV4) -> (Key, usize) {
        let [one, other] = [source, destination]
            .map(|end| u64::from(u32::from(*end.ip())) << 16 | u64::from(end.port()));
        let (low, high) = (one.min(other), one.max(other));
        let ports = ((low & 0xFFFF) << 16 | high & 0xFFFF) as u32;
        let lower = [low >> 16, high >> 16];
        (Key { lower, upper: [0; 2], ports, protocol, kind: 0 }, usize::from(one > other))
    }
}

#[inline]
fn words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, u64::from(u32::from(address))],
        IpAddr::V6(address) => {
            let all = u128::from(address);
            [(all >> 64) as u64, all as u64]
        }
    }
}

/// List of flows in the order of removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// Flows that have ended.
    Ended = 0,
    /// Flows that have had one segment.
    New = 1,
    /// Others.
    Open = 2,
}

impl List {
    /// All lists, in the order of removal.
    pub const ALL: [List; 3] = [List::Ended, List::New, List::Open];
}

/// A flow: the first cache line has all that a segment needs that is next in order, between IPv4 addresses.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Connection {
    lower: [u64; 2],
    pub number: u64,
    pub last_ns: u64,
    ports: u32,
    protocol: u8,
    /// Versions of the addresses, and bits of the connection.
    bits: u8,
    /// Directions from the smaller end, and from the other.
    pub heads: [Head; 2],
    upper: [u64; 2],
    older: u32,
    newer: u32,
    pub rests: [Rest; 2],
}

/// Bits of the connection.
mod of_connection {
    /// Versions of the two addresses, as in the key.
    pub const IPV6: u8 = 3;
    /// The second direction sent first.
    pub const SECOND_IS_FORWARD: u8 = 4;
    /// It is in the list of flows that have ended.
    pub const ENDED: u8 = 8;
    /// A segment arrived since the last look at it.
    pub const ACTIVE: u8 = 16;
    /// It has had one segment.
    pub const NEW: u8 = 32;
}

impl Connection {
    pub fn new(key: Key, number: u64, forward: usize, now_ns: u64) -> Connection {
        let Key { lower, upper, ports, protocol, kind } = key;
        let bits = kind | if forward == 0 { 0 } else { SECOND_IS_FORWARD };
        let (heads, rests) = Default::default();
        let (older, newer) = (NONE, NONE);
        let last_ns = now_ns;
        Connection {
            lower,
            number,
            last_ns,
            ports,
            protocol,
            bits,
            heads,
            upper,
            older,
            newer,
            rests,
        }
    }

    fn key(&self) -> Key {
        let Connection { lower, upper, ports, protocol, bits, .. } = *self;
        Key { lower, upper, ports, protocol, kind: bits & IPV6 }
    }

    #[inline]
    fn has_key(&self, key: &Key) -> bool {
        self.lower == key.lower
            && (self.ports, self.protocol, self.bits & IPV6) == (key.ports, key.protocol, key.kind)
            && (key.kind == 0 || self.upper == key.upper)
    }

    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    fn set(&mut self, bit: u8, value: bool) {
        self.bits = self.bits & !bit | if value { bit } else { 0 };
    }

    /// Runs an action on a direction.
    pub fn change<R>(&mut self, from: usize, act: impl FnOnce(&mut Direction<'_>) -> R) -> R {
        let mut direction = Direction::new(&mut self.heads[from], &mut self.rests[from]);
        let result = act(&mut direction);
        direction.note();
        result
    }

    /// True if both directions have ended.
    pub fn is_over(&self) -> bool {
        self.heads.iter().all(|head| head.is_over())
    }

    /// The index of the direction that sent first.
    pub fn forward(&self) -> usize {
        usize::from(self.has(SECOND_IS_FORWARD))
    }

    pub fn list(&self) -> List {
        match self.bits & (ENDED | NEW) {
            0 => List::Open,
            NEW => List::New,
            _ => List::Ended,
        }
    }

    /// True if a segment arrived since the last look at it.
    pub fn is_active(&self) -> bool {
        self.has(ACTIVE)
    }

    /// True if a segment changes nothing but the time: the pieces of its direction are not wanted any more, it neither
    /// begins nor ends anything, and the other direction learns nothing from it. Reads one cache line.
    #[inline]
    pub fn is_unwanted(
        &self,
        from: usize,
        segment: &Segment<'_>,
        now_ns: u64,
        idle_ns: u64,
    ) -> bool {
        let other = self.heads[1 - from];
        self.heads[from].is_settled()
            && segment.flags & (SYN | FIN | RST) == 0
            && (segment.acknowledged.is_none() || other.is_settled())
            && !self.has(NEW)
            && !self.heads[from].is_late()
            && !other.is_late()
            && now_ns.saturating_sub(self.last_ns) <= idle_ns
    }

    #[inline]
    pub fn note_segment(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
        self.bits |= ACTIVE;
    }
}

/// Segments that will arrive in this order, so that their states are found and loaded before.
#[derive(Debug)]
pub struct Ahead {
    /// Hashes of their keys, and the places of flows with such a hash.
    hashes: [u32; BATCH_CAPACITY],
    places: [u32; BATCH_CAPACITY],
    len: usize,
    next: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        let (hashes, places) = ([0; BATCH_CAPACITY], [NONE; BATCH_CAPACITY]);
        Ahead { hashes, places, len: 0, next: 0 }
    }
}

impl Ahead {
    /// Takes the hashes of the next segments, and begins to load the first states. Returns their number.
    pub fn begin(&mut self, table: &Table, hashes: impl Iterator<Item = u32>) -> usize {
        (self.len, self.next) = (0, 0);
        for (place, hash) in self.hashes.iter_mut().zip(hashes) {
            *place = hash;
            self.len += 1;
        }
        let first = &self.hashes[..self.len];
        first.iter().take(2 * AHEAD).for_each(|hash| table.load_bucket(*hash));
        for (place, hash) in self.places.iter_mut().zip(first).take(AHEAD) {
            *place = table.load_flow(*hash);
        }
        self.len
    }

    /// Loads what a later segment needs; returns the place where the flow of the next one probably is. If other
    /// segments arrive than were told, that is another flow's; it costs time only, because the key is compared.
    #[inline]
    pub fn step(&mut self, table: &Table) -> u32 {
        let (hashes, next) = (&self.hashes[..self.len], self.next);
        if next >= hashes.len() {
            return NONE;
        }
        if let Some(hash) = hashes.get(next + 2 * AHEAD) {
            table.load_bucket(*hash);
        }
        if let Some(hash) = hashes.get(next + AHEAD) {
            self.places[next + AHEAD] = table.load_flow(*hash);
        }
        self.next += 1;
        self.places[next]
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    chunks: Vec<Vec<Connection>>,
    /// Flows of the first chunk, for which it has room.
    chunk: usize,
    /// Places without a flow, which have been used before.
    free: Vec<u32>,
    /// Place + 1 of each flow and bits of its hash; 0 = empty.
    buckets: Vec<u32>,
    /// Bits of a bucket with the place + 1.
    places: u32,
    seeds: [u64; 4],
    len: usize,
    /// Oldest and newest flow of each list.
    ends: [(u32, u32); 3],
    /// Number of flows of each list.
    lens: [usize; 3],
}

fn fold(one: u64, other: u64) -> u64 {
    let wide = u128::from(one) * u128::from(other);
    wide as u64 ^ (wide >> 64) as u64
}

impl Table {
    /// A table for `capacity` flows.
    pub fn new(capacity: usize) -> Table {
        let capacity = capacity.clamp(8, MOST);
        let buckets = vec![0; (capacity * 4).next_power_of_two()];
        arch::prefer_huge_pages(&buckets);
        let random = RandomState::new();
        Table {
            chunks: Vec::new(),
            chunk: capacity.min(CHUNK),
            free: Vec::new(),
            buckets,
            places: (capacity + 1).next_power_of_two() as u32 - 1,
            seeds: [1, 2, 3, 4].map(|number: u64| random.hash_one(number)),
            len: 0,
            ends: [(NONE, NONE); 3],
            lens: [0; 3],
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Hash of a key.
    #[inline]
    pub fn hash(&self, key: &Key) -> u32 {
        let [a, b, c, d] = self.seeds;
        let tail = u64::from(key.ports) | u64::from(key.protocol) << 32 | u64::from(key.kind) << 40;
        let mut mixed = fold(key.lower[0] ^ a, key.lower[1] ^ b);
        if key.kind != 0 {
            mixed = fold(key.upper[0] ^ mixed ^ c, key.upper[1] ^ d);
        }
        let all = fold(mixed ^ c, tail ^ d);
        (all >> 32) as u32 ^ all as u32
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Begins to load the bucket of a hash.
    #[inline]
    fn load_bucket(&self, hash: u32) {
        arch::prefetch(&self.buckets[self.bucket(hash)]);
    }

    /// Begins to load the flow that most probably has a hash; returns its place.
    #[inline]
    fn load_flow(&self, hash: u32) -> u32 {
        let mut at = self.bucket(hash);
        while self.buckets[at] != 0 {
            let entry = self.buckets[at];
            if (entry ^ hash) & !self.places == 0 {
                let place = (entry & self.places) - 1;
                if let Some(known) = self.at(place) {
                    arch::prefetch(known);
                }
                return place;
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
        NONE
    }

    /// The flow at a place, if that has this key.
    #[inline]
    pub fn at_if(&mut self, place: u32, key: &Key) -> Option<&mut Connection> {
        // A place that has become free keeps its key, and has no number.
        self.at_mut(place).filter(|known| known.has_key(key) && known.number > 0)
    }

    /// Finds a flow.
    #[inline]
    pub fn find(&self, hash: u32, key: &Key) -> Option<u32> {
        let mut at = self.bucket(hash);
        loop {
            let entry = self.buckets[at];
            if entry == 0 {
                return None;
            }
            if (entry ^ hash) & !self.places == 0 {
                let place = (entry & self.places) - 1;
                if self.at(place).is_some_and(|known| known.has_key(key)) {
                    return Some(place);
                }
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    /// The flow at a place.
    #[inline]
    pub fn at(&self, place: u32) -> Option<&Connection> {
        self.chunks.get(place as usize / CHUNK)?.get(place as usize % CHUNK)
    }

    /// The flow at a place, mutable.
    #[inline]
    pub fn at_mut(&mut self, place: u32) -> Option<&mut Connection> {
        self.chunks.get_mut(place as usize / CHUNK)?.get_mut(place as usize % CHUNK)
    }

    /// Adds a flow that is not there, as the newest; the caller has made room.
    pub fn insert(&mut self, hash: u32, connection: Connection) -> u32 {
        let place = match self.free.pop() {
            Some(place) => {
                if let Some(old) = self.at_mut(place) {
                    *old = connection;
                }
                place
            }
            None => {
                if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
                    let room = if self.chunks.is_empty() { self.chunk } else { CHUNK };
                    let chunk = Vec::with_capacity(room);
                    arch::prefer_huge_pages(&chunk);
                    self.chunks.push(chunk);
                }
                let place = (self.chunks.len() - 1) * CHUNK;
                let last = self.chunks.last_mut();
                let within = last.map_or(0, |chunk| {
                    chunk.push(connection);
                    chunk.len() - 1
                });
                (place + within) as u32
            }
        };
        let mut at = self.bucket(hash);
        while self.buckets[at] != 0 {
            at = (at + 1) & (self.buckets.len() - 1);
        }
        self.buckets[at] = hash & !self.places | (place + 1);
        self.len += 1;
        self.link(place, List::New);
        place
    }

    /// Removes the flow at a place; its number is free then.
    pub fn remove(&mut self, place: u32) -> Option<Connection> {
        let key = self.at(place)?.key();
        let hash = self.hash(&key);
        self.unlink(place);
        self.vacate(hash, place);
        self.len -= 1;
        self.free.push(place);
        let empty = Connection::new(key, 0, 0, 0);
        self.at_mut(place).map(|known| std::mem::replace(known, empty))
    }

    /// Empties the bucket of a flow, and moves back those that follow it and are not at their own.
    fn vacate(&mut self, hash: u32, place: u32) {
        let last = self.buckets.len() - 1;
        let entry = hash & !self.places | (place + 1);
        let mut hole = self.bucket(hash);
        while self.buckets[hole] != entry {
            if self.buckets[hole] == 0 {
                return;
            }
            hole = (hole + 1) & last;
        }
        let mut at = (hole + 1) & last;
        while self.buckets[at] != 0 {
            let key = self.at((self.buckets[at] & self.places) - 1).map(Connection::key);
            let own = key.map_or(at, |key| self.bucket(self.hash(&key)));
            if at.wrapping_sub(own) & last >= at.wrapping_sub(hole) & last {
                self.buckets[hole] = self.buckets[at];
                hole = at;
            }
            at = (at + 1) & last;
        }
        self.buckets[hole] = 0;
    }

    /// Makes a flow the newest of a list.
    pub fn renew(&mut self, place: u32, list: List) {
        self.unlink(place);
        self.link(place, list);
    }

    /// The flow of a list that is removed first.
    pub fn oldest(&self, list: List) -> Option<u32> {
        Some(self.ends[list as usize].0).filter(|place| *place != NONE)
    }

    /// Number of flows of a list.
    pub fn len_of(&self, list: List) -> usize {
        self.lens[list as usize]
    }

    /// Places of all flows, in the order of their numbers.
    pub fn all(&self) -> Vec<u32> {
        let count = self.chunks.iter().map(Vec::len).sum::<usize>() as u32;
        let number = |place: &u32| self.at(*place).map_or(0, |known| known.number);
        let mut all: Vec<u32> = (0..count).filter(|place| number(place) > 0).collect();
        all.sort_by_key(number);
        all
    }

    fn link(&mut self, place: u32, list: List) {
        let newest = self.ends[list as usize].1;
        if let Some(known) = self.at_mut(place) {
            (known.older, known.newer) = (newest, NONE);
            known.set(ENDED, list == List::Ended);
            known.set(NEW, list == List::New);
            known.set(ACTIVE, false);
        }
        match self.at_mut(newest) {
            Some(before) => before.newer = place,
            None => self.ends[list as usize].0 = place,
        }
        self.ends[list as usize].1 = place;
        self.lens[list as usize] += 1;
    }

    fn unlink(&mut self, place: u32) {
        let Some(known) = self.at(place) else { return };
        let (older, newer, list) = (known.older, known.newer, known.list() as usize);
        self.lens[list] -= 1;
        match self.at_mut(older) {
            Some(before) => before.newer = newer,
            None => self.ends[list].0 = newer,
        }
        match self.at_mut(newer) {
            Some(after) => after.older = older,
            None => self.ends[list].1 = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_testkit::random::Random;
    use std::collections::HashMap;

    /// Memory of a flow without waiting bytes, with its share of the index.
    #[test]
    fn an_idle_flow_has_at_most_160_bytes() {
        let table = Table::new(1_000_000);
        let index = table.buckets.len() * size_of::<u32>();
        let each = size_of::<Connection>() + index.div_ceil(1_000_000);
        println!("{} and {} bytes", size_of::<Connection>(), each);
        assert!(each <= 160, "{each}");
        assert_eq!(size_of::<Connection>(), 128);
    }

    #[test]
    fn finds_what_a_map_finds() {
        let (mut random, seed) = Random::seeded(8);
        println!("seed {seed}");
        let mut table = Table::new(300);
        let mut model: HashMap<u16, (u32, u64)> = HashMap::new();
        let key = |port: u16| {
            let six = port.is_multiple_of(3);
            let end = |port: u16| -> SocketAddr {
                if six { ([port; 8], port).into() } else { ([10, 0, 0, 1], port).into() }
            };
            Key::new(6 + (port % 2) as u8, end(port), end(80)).0
        };
        let mut order = Vec::new();
        for number in 1..30_000 {
            let port = random.below(600) as u16;
            let key = key(port);
            let hash = table.hash(&key);
            let found = table.find(hash, &key);
            assert_eq!(found, model.get(&port).map(|(place, _)| *place));
            assert_eq!(found.and_then(|at| table.at(at)).map(|one| one.number), {
                model.get(&port).map(|(_, number)| *number)
            });
            match found {
                Some(place) if random.chance(2) => {
                    assert_eq!(table.remove(place).map(|one| one.number), Some(model[&port].1));
                    model.remove(&port);
                    order.retain(|one| *one != place);
                }
                Some(place) => {
                    table.renew(place, List::Open);
                    order.retain(|one| *one != place);
                    order.push(place);
                }
                None if table.len() < 300 => {
                    let place = table.insert(hash, Connection::new(key, number, 0, 0));
                    assert_eq!(
                        (table.oldest(List::New), table.len_of(List::New)),
                        (Some(place), 1)
                    );
                    table.renew(place, List::Open);
                    model.insert(port, (place, number));
                    order.push(place);
                }
                None => {}
            }
            assert_eq!(table.oldest(List::Open), order.first().copied());
            assert_eq!((table.len(), table.len_of(List::Open)), (model.len(), model.len()));
        }
        assert_eq!(table.all().len(), model.len());
    }
}
