//! The table of ends against a model, and expectations with and without loading ahead.

use super::*;
use crate::Cause;
use fyke_testkit::random::Random;
use std::collections::BTreeMap;

fn wanted(port: u16, call: u64, now_ns: u64) -> Wanted {
    let server = IpAddr::from([10, 0, 0, 1]);
    let connection = Connection {
        id: 0,
        server,
        port,
        client: server,
        protocol: Protocol::Udp,
        pair: false,
        call,
        label: "RTP audio",
        cause: Cause::new("test"),
        announced_ns: now_ns,
    };
    Wanted { connection, origin: 0, lifetime_ns: 1_000_000, follows_call: false }
}

#[test]
fn ends_are_found_as_in_a_model_while_expectations_come_and_go() {
    let (mut random, seed) = Random::seeded(126);
    println!("seed {seed}");
    let limits = Limits { data_connections: 64, ..Limits::default() };
    let (mut table, mut events, mut now_ns) = (Expectations::new(limits), Vec::new(), 0);
    let mut model: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for _ in 0..20_000 {
        now_ns += random.below(60_000) as u64;
        let port = 2_000 + random.below(50) as u16;
        match random.below(8) {
            0 => table.cancel(random.below(9) as u64, now_ns, 0),
            _ => {
                table.expect(wanted(port, random.below(9) as u64, now_ns), &mut events);
            }
        }
        table.expire(now_ns, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Open(one) => model.entry(one.port).or_default().push(one.id),
                Event::Close(closed) => {
                    let at = model.get_mut(&closed.connection.port).unwrap();
                    at.retain(|id| *id != closed.connection.id);
                }
            }
        }
        for port in 2_000..2_050 {
            let end = SocketAddr::from(([10, 0, 0, 1], port));
            let found: Vec<_> = table.at(Protocol::Udp, end).map(|one| one.connection.id).collect();
            assert_eq!(found, model.get(&port).cloned().unwrap_or_default(), "{port}");
        }
    }
    assert_eq!(table.len(), model.values().map(Vec::len).sum::<usize>());
}

#[test]
fn loading_ahead_changes_nothing() {
    let limits = Limits { data_connections: 8_192, ..Limits::default() };
    let (mut table, mut events) = (Expectations::new(limits), Vec::new());
    for n in 0..4_000 {
        table.expect(wanted(2_000 + n, n.into(), 1), &mut events);
    }
    let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
    let other = SocketAddr::from(([10, 0, 0, 2], 9));
    for port in [1_999, 2_000, 5_999, 6_000] {
        for ends in [(end(port), other), (other, end(port))] {
            let packets = std::iter::repeat_n((Protocol::Udp, ends.0, ends.1), 3 * BATCH_CAPACITY);
            table.load(packets);
            let hit = table.datagram(ends.0, ends.1, 60, 2);
            assert_eq!(hit.is_some(), (2_000..6_000).contains(&port), "{port}");
        }
    }
}
