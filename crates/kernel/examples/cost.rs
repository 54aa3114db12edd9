//! What the kernel space costs here: nanoseconds per frame by filter, and per edit by number of rows.
//!
//! ```sh
//! cargo run --release -p fyke-kernel --example cost
//! ```
//!
//! Frames are run by `BPF_PROG_TEST_RUN` (median of 9 runs of 100,000); the first line is the program that does
//! nothing, which is part of every other line. Edits are timed one by one, 20,000 of each kind.

use fyke_filter::Options as Reading;
use fyke_frame::LinkType;
use fyke_kernel::shape::{self, Part};
use fyke_kernel::{KernelPasses, Mirror, Options, Space};
use fyke_pass::{Instruction, PassSet, primitive};
use std::time::Instant;

const RUNS: usize = 9;
const REPEAT: u32 = 100_000;
const EDITS: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options { count_rejected: false, ..Options::default() };
    let frame = tcp_frame();
    println!("{:<44} {:>9} {:>9}", "filter", "ns", "net");
    let space = Space::open(options)?;
    let empty = median(|| space.test_run_empty(&frame, REPEAT).map(|run| run.duration_ns))?;
    println!("{:<44} {empty:>9} {:>9}", "(empty program)", 0);
    for text in TEXTS {
        let mut space = Space::open(options)?;
        fill(space.passes(), text)?;
        report(&space, &frame, empty, text)?;
    }
    for count in [10_u32, 100, 1_000] {
        let mut space = Space::open(options)?;
        for number in 0..count {
            space.passes().add(&host_and_port(number))?;
        }
        report(&space, &frame, empty, &format!("{count} (host, port) as passes"))?;
    }
    for count in [100_u32, 1_000, 100_000] {
        let mut space = Space::open(options)?;
        let table = space.passes().rows().new_table().ok_or("no table")?;
        let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
        space.passes().add(&[primitive::ether_ip_tcp_nonfrag(), shape])?;
        for number in 0..count {
            space.passes().rows().insert(table, shape::key(number, port(number)))?;
        }
        report(&space, &frame, empty, &format!("{count} (host, port) as rows of a table"))?;
        let key = shape::key(0xf000_0001, 1);
        edits(&format!("row in, row out at {count} rows"), || {
            space.passes().rows().insert(table, key)?;
            space.passes().rows().remove(table, key);
            Ok(())
        })?;
    }
    for count in [1_u32, 100, 1_000] {
        let mut space = Space::open(options)?;
        let mut last = space.passes().add(&host_and_port(0))?;
        for number in 1..count {
            last = space.passes().add(&host_and_port(number))?;
        }
        let mut value = 0;
        edits(&format!("change an instruction at {count} passes"), || {
            value ^= 1;
            space.passes().poke(last, 1, 1, u32::MAX << value)
        })?;
    }
    Ok(())
}

/// The filters of the papers' static measurements.
const TEXTS: [&str; 5] = [
    "",
    "ip",
    "ip src net 192.168.2.0/24 and dst net 10.0.0.0/8",
    "ip src or dst net 192.168.2.0/24",
    "ip and tcp port (22 or 80 or 143 or 25 or 110 or 21)",
];

/// TCP over IPv4 that none of the filters accepts but `ip` and the empty one.
fn tcp_frame() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[13], bytes[14], bytes[23]) = (8, 0, 0x45, 6);
    bytes[26..30].copy_from_slice(&[192, 168, 254, 7]);
    bytes[30..34].copy_from_slice(&[172, 16, 1, 9]);
    bytes[34..38].copy_from_slice(&[0x30, 0x39, 0x1f, 0x90]);
    bytes
}

fn port(number: u32) -> u16 {
    1_024 + (number % 60_000) as u16
}

fn host_and_port(number: u32) -> [Instruction; 3] {
    let port = primitive::tcp_port_either(&[port(number)]).unwrap_or_default();
    [primitive::ether_ip_tcp_nonfrag(), primitive::ip_host_either(number), port]
}

fn fill(passes: &mut KernelPasses, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut set = PassSet::new(LinkType::EN10MB);
    if !text.is_empty() {
        let predicate = fyke_filter::compile(text, &Reading::default())?;
        let mut edit = set.edit();
        edit.add_filter(&predicate)?;
        edit.commit();
    }
    Ok(Mirror::default().sync(passes, &set)?)
}

fn report(
    space: &Space,
    frame: &[u8],
    empty: u32,
    name: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let ns = median(|| space.test_run(frame, REPEAT).map(|run| run.duration_ns))?;
    println!(
        "{:<44} {ns:>9} {:>9}",
        if name.is_empty() { "(no filter)" } else { name },
        ns - empty
    );
    Ok(())
}

fn median(run: impl Fn() -> std::io::Result<u32>) -> std::io::Result<u32> {
    let mut runs = (0..RUNS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    runs.sort_unstable();
    Ok(runs[RUNS / 2])
}

fn edits(
    name: &str,
    mut edit: impl FnMut() -> Result<(), fyke_kernel::KernelEditError>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut times = Vec::with_capacity(EDITS);
    for _ in 0..EDITS {
        let started = Instant::now();
        edit()?;
        times.push(started.elapsed().as_nanos());
    }
    times.sort_unstable();
    let at = |percent: usize| times[EDITS * percent / 100];
    println!("{name:<44} p50 {} ns, p99 {} ns, longest {} ns", at(50), at(99), times[EDITS - 1]);
    Ok(())
}
