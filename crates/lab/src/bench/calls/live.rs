//! `live`: `fyke track sip` captures calls that begin and end at a rate.

use super::super::live::world::{Folder, Running, SENDER, pin};
use super::super::printed::{self, Sum};
use super::super::report::Report;
use super::super::{BenchError, Options};
use super::{SIGNALLING, datagram, description, ends, media, message, value};
use crate::background::{self, Background};
use crate::demo::live::OrderOnDrop;
use crate::ftp::Stop;
use crate::net::sys::send::{MAX_BATCH, PacketSender};
use crate::net::{CLIENTS_DEVICE, SERVERS_DEVICE, World};
use fyke_capture::{Next, Source};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const CASE: &str = "live";
/// Payload type of the frames that come after the end of their call.
const AFTER: u8 = 127;
/// Time from the BYE's answer to the frame that is not part of the call.
const GONE_MS: u64 = 1_000;
/// Time that a run takes beyond that of its calls, at most.
const LIMIT: Duration = Duration::from_secs(60);
/// Frames of a call, without that one.
const FRAMES: u64 = 12;

/// The frames of a call with their times in milliseconds after its begin.
fn call(number: u32) -> Vec<(u64, Vec<u8>)> {
    let [near, far] = SIGNALLING;
    let [caller, callee] = ends(number);
    let rtp = |to_caller: bool, count| match to_caller {
        true => media(callee, caller, count, 0),
        false => media(caller, callee, count, 0),
    };
    let text = |start: &str, method: &str| message(start, number, method, true, "");
    let bye = text("BYE sip:b@x SIP/2.0", "BYE");
    let over = text("SIP/2.0 200 OK", "BYE");
    vec![
        (0, datagram(near, far, description(number, false).as_bytes())),
        (0, rtp(true, 1)),
        (100, datagram(far, near, description(number, true).as_bytes())),
        (100, rtp(false, 1)),
        (101, datagram(near, far, text("ACK sip:b@x SIP/2.0", "ACK").as_bytes())),
        (120, rtp(true, 2)),
        (120, rtp(false, 2)),
        (140, rtp(true, 3)),
        (140, rtp(false, 3)),
        (1_000, datagram(near, far, bye.as_bytes())),
        (1_001, rtp(true, 4)),
        (1_010, datagram(far, near, over.as_bytes())),
        (1_010 + GONE_MS, media(callee, caller, 9, AFTER)),
    ]
}

pub(super) fn measure(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    let (rate, calls) = if options.smoke { (50, 25) } else { (500, 10_000) };
    for (engine, look_back) in [("fyke", true), ("no-look-back", false)] {
        if !options.wants_engine(engine) {
            continue;
        }
        let order = Order { rate, calls, background: 0 };
        let run = follow(options, &order, look_back).map_err(BenchError::Other)?;
        let setting = |what: &str| format!("{rate} calls/s, {what}");
        for (what, number, unit) in [
            ("packets of calls", order.packets(), "packets"),
            ("missed", order.packets().saturating_sub(run.captured), "packets"),
            ("captured a second after the end", run.after, "packets"),
        ] {
            report.push(value(CASE, engine, &setting(what), number as f64, unit));
        }
        report.push(value(CASE, engine, &setting("sent"), run.rate, "packets/s"));
        report.push(value(CASE, engine, &setting("processor time"), run.busy, "%"));
        for (half, us) in ["p50", "p99"].into_iter().zip(run.edits_us) {
            report.push(value(CASE, engine, &setting(&format!("edit, {half}")), us, "us"));
        }
    }
    Ok(())
}

/// Calls to send, and background traffic beside them.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Order {
    /// Calls per second.
    pub rate: u32,
    pub calls: u32,
    /// Background packets per second; 0 for none.
    pub background: u64,
}

impl Order {
    /// Packets of all calls, without those after the end of their call.
    pub(in crate::bench) fn packets(&self) -> u64 {
        u64::from(self.calls) * FRAMES
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Run {
    /// Packets of calls that were captured.
    pub captured: u64,
    /// Packets captured that came after the end of their call.
    pub after: u64,
    /// Packets of calls sent per second.
    pub rate: f64,
    /// Background packets sent per second.
    pub background: f64,
    /// Processor time of the capture, in percent of one.
    pub busy: f64,
    /// Median and 99th percentile of the edits.
    pub edits_us: [f64; 2],
    /// Counts of the capture.
    pub sum: Sum,
}

/// Follows calls by `fyke track sip` as a process.
pub(in crate::bench) fn follow(
    options: &Options,
    order: &Order,
    look_back: bool,
) -> Result<Run, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let world = World::create(1, 1).map_err(|error| text(&error))?;
    let fyke = options.command.clone().map_or_else(std::env::current_exe, Ok);
    let folder = Folder::in_memory().map_err(|error| text(&error))?;
    let folder = folder.map_or_else(|| Folder::below(&std::env::temp_dir()), Ok);
    let (fyke, folder) = (fyke.map_err(|e| text(&e))?, folder.map_err(|e| text(&e))?);
    let file = folder.file("calls.pcapng");
    let mut command = Command::new(fyke);
    command.env("FYKE_RUNTIME_DIR", folder.file("run"));
    command.args(["track", "sip", "-Z", "root", "--stats", "-i", SERVERS_DEVICE]);
    command.args((!look_back).then_some("--no-look-back"));
    command.arg("-w").arg(&file);
    let running = Running::start(&world.servers, command, "listening on")?;
    let quiet =
        Stop::after(LIMIT + Duration::from_secs(u64::from(order.calls / order.rate.max(1))));
    let _ending = OrderOnDrop(&quiet);
    let background = background::Options {
        packets_per_second: order.background,
        payload_bytes: 60,
        streams: 0,
        direct: true,
        ..background::Options::default()
    };
    let background = Background::start(&world, background, quiet.clone());
    let background = background.map_err(|error| text(&error))?;
    let (begin, used) = (Instant::now(), running.processor_time());
    let Order { rate, calls, .. } = *order;
    let sender = world.clients.spawn("sender", move || {
        pin(SENDER)?;
        send(rate, calls)
    });
    let sender = sender.map_err(|error| text(&error))?;
    let sent = sender.join().map_err(|_| "the sender panicked".to_owned())?;
    let sent = sent.and_then(|sent| sent).map_err(|error| text(&error))?;
    let seconds = begin.elapsed().as_secs_f64();
    let busy = (running.processor_time() - used).as_secs_f64() / seconds;
    let background = background.finish().map_err(|error| text(&error))? as f64 / seconds;
    sleep(Duration::from_millis(300));
    let printed = running.stop()?;
    let (captured, after) = captured(&file)?;
    let edits_us = printed::edits_us(&printed).unwrap_or_default();
    let sum = printed::sum(&printed).ok_or_else(|| format!("no counts in {printed}"))?;
    Ok(Run { captured, after, rate: sent, background, busy: busy * 100.0, edits_us, sum })
}

/// Sends the calls; returns packets per second.
fn send(rate: u32, calls: u32) -> io::Result<f64> {
    let sender = PacketSender::open(CLIENTS_DEVICE)?;
    let mut due: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let (mut next, mut frames) = (0, 0);
    let begin = Instant::now();
    while next < calls || !due.is_empty() {
        let now_us = begin.elapsed().as_micros() as u64;
        while next < calls && u64::from(next) * 1_000_000 / u64::from(rate) <= now_us {
            let start_us = u64::from(next) * 1_000_000 / u64::from(rate);
            for (ms, frame) in call(next) {
                due.entry(start_us + ms * 1_000).or_default().push(frame);
            }
            next += 1;
        }
        while let Some(entry) = due.first_entry().filter(|entry| *entry.key() <= now_us) {
            let batch = entry.remove();
            frames += batch.len();
            let slices: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            for part in slices.chunks(MAX_BATCH) {
                let mut left = part;
                while !left.is_empty() {
                    match sender.send(left) {
                        Ok(taken) => left = &left[taken..],
                        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        sleep(Duration::from_micros(200));
    }
    Ok(frames as f64 / begin.elapsed().as_secs_f64())
}

/// Frames of calls, and frames after the end of their call, in a file.
fn captured(file: &Path) -> Result<(u64, u64), String> {
    let mut source = fyke_capture::open_file(file).map_err(|error| error.to_string())?;
    let mut counts = (0, 0);
    loop {
        match source.next().map_err(|error| error.to_string())? {
            Next::Frames(batch, _) => {
                for frame in batch.frames() {
                    match frame.data.get(43) {
                        Some(&AFTER) => counts.1 += 1,
                        _ => counts.0 += 1,
                    }
                }
            }
            Next::Idle => {}
            Next::End => return Ok(counts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_frames_that_are_counted() {
        let frames = call(7);
        let after = frames.iter().filter(|(_, frame)| frame[43] == AFTER).count() as u64;
        assert_eq!((frames.len() as u64 - after, after), (FRAMES, 1));
        assert!(frames.is_sorted_by_key(|(ms, _)| *ms));
    }
}
