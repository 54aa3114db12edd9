//! The papers' filters F1–F6 (Swift, table 5) and sets of (host, port) passes, D10 to D100000.
//!
//! A set is `tcp port 21 or (ip host A and tcp port X) or …`. Half of the pairs, at most 5,000, are ends of flows
//! of the generated traffic; the others are near misses: the host of one flow with the port of another, and hosts
//! that never occur. So a comparison of the host alone does not decide.

use super::traffic::{End, Random, Traffic};
use std::collections::HashSet;
use std::fmt::Write;

/// The 38 hosts of F6.
pub const HOSTS_38: [[u8; 4]; 38] = {
    let mut hosts = [[0; 4]; 38];
    let mut at = 0;
    while at < 38 {
        let n = at as u8;
        hosts[at] = match at {
            0..10 => [192, 168, 2, 10 + n],
            10..15 => [192, 168, 2, 31 + 2 * (n - 10)],
            15..17 => [192, 168, 7, 44 + n - 15],
            17..19 => [192, 168, 9, 77 + n - 17],
            19..35 => [10, 1, n - 19, 7],
            35..37 => [172, 16, 3 + n - 35, 9],
            _ => [130, 225, 1, 1],
        };
        at += 1;
    }
    hosts
};

/// The static filters with their names.
pub fn static_filters() -> Vec<(&'static str, String)> {
    let hosts: Vec<String> =
        HOSTS_38.iter().map(|host| host.map(|b| b.to_string()).join(".")).collect();
    let f6 =
        format!("ip and (not tcp port (80 or 25 or 143) and not ip host ({}))", hosts.join(" or "));
    vec![
        ("F1", String::new()),
        ("F2", "ip".to_owned()),
        ("F3", "ip src net 192.168.2.0/24 and dst net 10.0.0.0/8".to_owned()),
        ("F4", "ip src or dst net 192.168.2.0/24".to_owned()),
        ("F5", "ip and tcp port (22 or 80 or 143 or 25 or 110 or 21)".to_owned()),
        ("F6", f6),
    ]
}

/// Sizes of the sets.
pub const SET_SIZES: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];

/// Creates `size` different pairs of host and port.
pub fn pairs(traffic: &Traffic, size: usize) -> Vec<End> {
    let mut random = Random::new(12_345 + size as u64);
    let eligible: Vec<_> =
        traffic.flows().iter().filter(|flow| !flow.ipv6 && flow.protocol == 6).collect();
    let mut known = HashSet::with_capacity(size);
    let mut pairs = Vec::with_capacity(size);
    let hits = (size / 2).min(5_000);
    while pairs.len() < size {
        let one = eligible[random.below(eligible.len())].ends[random.below(2)];
        let other = eligible[random.below(eligible.len())].ends[random.below(2)];
        let pair = match pairs.len() {
            n if n < hits => one,
            n if n % 2 == 0 => (one.0, other.1),
            _ => (random.number() as u32 | 0x0100_0000, 1024 + random.below(64_000) as u16),
        };
        if known.insert(pair) {
            pairs.push(pair);
        }
    }
    random.shuffle(&mut pairs);
    pairs
}

/// The text of one pair.
pub fn pair_text((host, port): End) -> String {
    let host = std::net::Ipv4Addr::from(host);
    format!("ip host {host} and tcp port {port}")
}

/// The text of a set.
pub fn set_text(pairs: &[End]) -> String {
    let mut text = "tcp port 21".to_owned();
    for &pair in pairs {
        // A write to a string cannot fail.
        let _ = write!(text, " or ({})", pair_text(pair));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_differ_and_the_texts_are_understood() {
        let traffic = Traffic::new(1);
        let pairs = pairs(&traffic, 1_000);
        assert_eq!(pairs.iter().collect::<HashSet<_>>().len(), 1_000);
        for (name, text) in static_filters() {
            assert!(fyke_filter::compile(&text, &Default::default()).is_ok(), "{name}");
        }
        assert!(fyke_filter::compile(&set_text(&pairs[..10]), &Default::default()).is_ok());
        assert_eq!(HOSTS_38.iter().collect::<HashSet<_>>().len(), 38);
    }
}
