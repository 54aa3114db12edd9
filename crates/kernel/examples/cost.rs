//! Cost of the kernel space on this machine: nanoseconds per frame by filter, and per edit by number of rows.
//!
//! ```sh
//! cargo run --release -p fyke-kernel --example cost
//! ```
//!
//! `BPF_PROG_TEST_RUN` runs the frames; the programs take turns (median of 21 runs of 20,000). `empty` is an empty
//! program; every other number includes its time. Specialised programs copy the frame, or read it in place. Edits
//! are timed one by one, 20,000 of each kind.

use fyke_filter::Options as Reading;
use fyke_frame::LinkType;
use fyke_kernel::direct::Access;
use fyke_kernel::shape::{self, Part};
use fyke_kernel::{KernelPasses, Mirror, Options, Space, Specialised, TestRun};
use fyke_pass::{Instruction, PassSet, primitive};
use std::time::Instant;

const RUNS: usize = 21;
const REPEAT: u32 = 20_000;
const EDITS: usize = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options { count_rejected: false, ..Options::default() };
    println!("{:<40} {:>6} {:>6} {:>6} {:>6}", "filter", "empty", "interp", "copied", "direct");
    for text in texts() {
        let mut space = Space::open(options)?;
        fill(space.passes(), &text)?;
        let short = text.get(..26).unwrap_or(&text);
        report(&mut space, if short.is_empty() { "(no filter)" } else { short })?;
    }
    for count in [10_u32, 100, 1_000] {
        let mut space = Space::open(options)?;
        for number in 0..count {
            space.passes().add(&host_and_port(number))?;
        }
        report(&mut space, &format!("{count} (host, port) as passes"))?;
    }
    for count in [100_u32, 1_000, 100_000] {
        let mut space = Space::open(options)?;
        let table = space.passes().rows().new_table().ok_or("no table")?;
        let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
        space.passes().add(&[primitive::ether_ip_tcp_nonfrag(), shape])?;
        for number in 0..count {
            space.passes().rows().insert(table, shape::key(number, port(number)))?;
        }
        report(&mut space, &format!("{count} (host, port) as rows of a table"))?;
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

/// The filters of the papers' static measurements; the hosts of the sixth are numbered here.
fn texts() -> Vec<String> {
    let hosts: Vec<String> = (1..39).map(|number| format!("10.9.8.{number}")).collect();
    let hosts = hosts.join(" or ");
    vec![
        String::new(),
        "ip".to_owned(),
        "ip src net 192.168.2.0/24 and dst net 10.0.0.0/8".to_owned(),
        "ip src or dst net 192.168.2.0/24".to_owned(),
        "ip and tcp port (22 or 80 or 143 or 25 or 110 or 21)".to_owned(),
        format!("ip and (not tcp port (80 or 25 or 143) and not ip host ({hosts}))"),
    ]
}

/// A TCP segment over IPv4 that most of the filters accept, or reject.
fn tcp_frame(accepted: bool) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[13], bytes[14], bytes[23]) = (8, 0, 0x45, 6);
    let (source, port) = if accepted { (2, 22) } else { (254, 9) };
    bytes[26..30].copy_from_slice(&[192, 168, source, 7]);
    bytes[30..34].copy_from_slice(&[10, 16, 1, 9]);
    bytes[34..38].copy_from_slice(&[0x30, 0x39, 0, port]);
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

/// Runs the programs in turn, for a frame that the filter rejects and one that it accepts.
fn report(space: &mut Space, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let made = |access| -> Result<Specialised, Box<dyn std::error::Error>> {
        Ok(space.snapshot()?.specialise_with(access)?)
    };
    let (copied, direct) = (made(Access::Copied)?, made(Access::best())?);
    // Both are made from the same passes, so the preparation for one is valid for the other.
    space.adopt(direct)?;
    let space = &*space;
    for (kind, frame) in [("rejected", tcp_frame(false)), ("accepted", tcp_frame(true))] {
        let programs: [&dyn Fn() -> std::io::Result<TestRun>; 4] = [
            &|| space.test_run_empty(&frame, REPEAT),
            &|| space.test_run_interpreted(&frame, REPEAT),
            &|| copied.test_run(&frame, REPEAT),
            &|| space.test_run(&frame, REPEAT),
        ];
        let mut times = [const { Vec::new() }; 4];
        let mut accepted = false;
        for _ in 0..RUNS {
            for (times, program) in times.iter_mut().zip(programs) {
                let run = program()?;
                times.push(run.duration_ns);
                accepted = run.returned != 0;
            }
        }
        if accepted == (kind == "accepted") {
            let times = times.map(|mut times| {
                times.sort_unstable();
                times[RUNS / 2]
            });
            let [empty, interpreted, copied, direct] = times;
            let name = format!("{name}, {kind}");
            println!("{name:<40} {empty:>6} {interpreted:>6} {copied:>6} {direct:>6}");
        }
    }
    Ok(())
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
