//! Measures edits of filter texts: `cargo run --release -p fyke-filters --example edits [pairs|loose|growth]`.
//!
//! `pairs`: one text of 100,000 pairs (host, port), its phases apart. `loose`: texts that are in no table, up to 3,000,
//! one added and removed. `growth`: texts that become rows, added one by one, at several sizes; half of them with a
//! condition of their own. Medians.

use fyke_filter::Options;
use fyke_filters::FilterSet;
use fyke_frame::{Batch, Frame, LinkType};
use fyke_pass::{LoweredFilter, PassSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn pair(number: u32) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b1);
    let host = Ipv4Addr::from(0x0a00_0000 | mixed >> 8);
    format!("ip host {host} and tcp port {}", 1024 + (mixed & 0x7fff))
}

fn pairs() {
    let parts: Vec<String> = (0..100_000).map(|number| format!("({})", pair(number))).collect();
    let text = parts.join(" or ");
    for _ in 0..5 {
        let start = Instant::now();
        let predicate = fyke_filter::compile(&text, &Options::default()).expect("a text");
        let parsed = start.elapsed();
        let lowered = LoweredFilter::new(&predicate).expect("passes");
        let done = start.elapsed();
        let mut set = PassSet::new(LinkType::EN10MB);
        let mut edit = set.edit();
        edit.add_lowered(lowered).expect("room");
        let applied = start.elapsed();
        edit.commit();
        let all = start.elapsed();
        println!(
            "pairs: parse {parsed:.0?}, lower {:.0?}, add {:.0?}, commit {:.0?}, all {all:.0?}",
            done - parsed,
            applied - done,
            all - applied
        );
    }
}

fn edits(name: &str, size: u32, text: impl Fn(u32) -> String) {
    let set = FilterSet::new(Options::default());
    let mut reader = set.reader();
    let frame = [0; 60];
    let mut batch = Batch::new();
    batch.push(Frame::new(LinkType::EN10MB, &frame)).expect("room");
    let start = Instant::now();
    for number in 0..size {
        set.add(&text(number)).expect("a filter");
    }
    let load = start.elapsed();
    reader.evaluate(&batch, batch.all()).expect("filters");
    let (mut add, mut remove) = (Vec::new(), Vec::new());
    for number in size..size + 100 {
        let text = text(number);
        let start = Instant::now();
        let id = set.add(&text).expect("a filter");
        add.push(start.elapsed());
        reader.evaluate(&batch, batch.all()).expect("filters");
        let start = Instant::now();
        set.remove(id).expect("a filter");
        remove.push(start.elapsed());
        reader.evaluate(&batch, batch.all()).expect("filters");
    }
    let (add, remove) = (median(&mut add), median(&mut remove));
    println!("{name} {size}: load {load:.1?}, add {add:.1?}, remove {remove:.1?}");
}

fn main() {
    let what = std::env::args().nth(1);
    let wanted = |name: &str| what.as_deref().is_none_or(|what| what == name);
    if wanted("pairs") {
        pairs();
    }
    if wanted("loose") {
        for size in [30, 300, 3_000] {
            edits("len", size, |n| format!("len = {} or udp port {}", n % 1_500, n));
            edits("less", size, |n| format!("less {} and udp port {n}", n % 1_500));
            edits("relation", size, |n| format!("ip[8] < {} and udp port {n}", n % 250 + 1));
        }
    }
    if wanted("growth") {
        for size in [300, 3_000, 30_000] {
            edits("rows", size, pair);
            edits("conditions", size, |n| format!("udp dst port {n} and ip[8:2] < {n}"));
        }
    }
}
