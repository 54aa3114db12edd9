//! `frames`: the cost of a frame while many ends are expected.
//!
//! A run has the signalling of the calls and then media of random calls. The time is that from the first batch of media
//! to the end. Every call has four ends.

use super::super::measure::{Samples, engine_at};
use super::super::report::{Measurement, Report};
use super::super::traffic::Random;
use super::super::{BenchError, Options};
use super::{BENCH, SIGNALLING, datagram, description, ends, media, other, value};
use fyke_capture::MemorySource;
use fyke_frame::{Frame, LinkType, Mask};
use fyke_graph::node::{Arrival, Class, Kind, Node, NodeError};
use fyke_graph::{Classes, GraphHandle, Made};
use fyke_track::{Limits, Sip};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const CASE: &str = "frames";
/// Ends of a call.
const ENDS: usize = 4;
/// Frames that the source holds for look-back.
const HELD: u64 = 10_000;

pub(super) fn measure(options: &Options, report: &mut Report) -> Result<(), BenchError> {
    if !options.wants_engine("fyke") {
        return Ok(());
    }
    let (sizes, count) = match options.smoke {
        true => ([100, 1_000], 2_000),
        false => ([100, 100_000], 400_000),
    };
    let rounds = options.rounds.unwrap_or(if options.smoke { 1 } else { 5 });
    let mut samples = [Samples::default(), Samples::default()];
    for round in 0..rounds {
        for place in 0..sizes.len() {
            let at = engine_at(place, round, sizes.len());
            let time = run((sizes[at] / ENDS) as u32, count, sizes[at], options.seed)?;
            samples[at].push(time.as_nanos() as f64 / count as f64);
        }
    }
    for (size, samples) in sizes.iter().zip(&samples) {
        let setting = format!("{size} ends expected");
        let one = Measurement::per_packet(BENCH, CASE, "fyke", &setting, samples.median());
        report.push(one.runs(samples.len()));
    }
    let setting = format!("{} ends over {}", sizes[1], sizes[0]);
    let ratio = samples[1].median() / samples[0].median().max(1e-9);
    report.push(value(CASE, "fyke", &setting, ratio, "ratio").runs(rounds));
    Ok(())
}

/// Notes when the first frame after the signalling arrives, and when the last one does.
struct Clock {
    after_ns: u64,
    times: Arc<Mutex<Option<[Instant; 2]>>>,
}

impl Node for Clock {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        let last = arrival.batch().frames().last();
        if last.is_some_and(|frame| frame.timestamp_ns > self.after_ns) {
            let now = Instant::now();
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.get_or_insert([now; 2])[1] = now;
        }
        Ok(arrival.mask())
    }
}

/// The time of a graph for the media.
fn run(
    calls: u32,
    media_count: usize,
    ends_wanted: usize,
    seed: u64,
) -> Result<Duration, BenchError> {
    let mut source = MemorySource::new(LinkType::EN10MB);
    let (mut time_ns, mut random) = (1_000_000_000, Random::new(seed));
    let mut push = |bytes: &[u8]| {
        time_ns += 1_000;
        source.push(&Frame { timestamp_ns: time_ns, ..Frame::new(LinkType::EN10MB, bytes) });
    };
    for call in 0..calls {
        for answer in [false, true] {
            let mut hosts = SIGNALLING;
            hosts.rotate_left(usize::from(answer));
            push(&datagram(hosts[0], hosts[1], description(call, answer).as_bytes()));
        }
    }
    let after_ns = 1_000_000_000 + 2_000 * u64::from(calls);
    for number in 0..media_count {
        let [caller, callee] = ends(random.below(calls as usize) as u32);
        push(&media(caller, callee, number as u16, 0));
    }
    source.look_back(HELD);
    let mut classes = Classes::new();
    classes.register(Class { name: "frames", kind: Kind::Source, ..Class::NODE });
    let check = Some((|_| Ok(())) as fn(&_) -> _);
    classes.register(Class { name: "follow", cuts: |_| true, edits: true, check, ..Class::NODE });
    classes.register(Class { name: "clock", check, ..Class::NODE });
    let times = Arc::<Mutex<Option<[Instant; 2]>>>::default();
    let clock: Box<dyn Node> = Box::new(Clock { after_ns, times: Arc::clone(&times) });
    let limits =
        Limits { data_connections: 1 << 17, control_connections: 1 << 16, ..Limits::default() };
    let tracker = Sip::at_ports(&[5_060], limits);
    let node: Box<dyn Node> = fyke_track::class::node(Box::new(tracker), false);
    let given = vec![
        ("frames", Made::Source(Box::new(source))),
        ("follow", Made::Node(node)),
        ("clock", Made::Node(clock)),
    ];
    let text = "(frames) > (filter, \"udp port 5060\", lookback=y) > {t}(follow) > (clock) > {n}(packetcount)";
    let (mut engine, _) = GraphHandle::start_with(&[text], classes, given).map_err(other)?;
    engine.run(&AtomicBool::new(false)).map_err(other)?;
    let times = *times.lock().unwrap_or_else(PoisonError::into_inner);
    let took = times.map(|[begin, end]| end - begin).unwrap_or_default();
    let view = engine.view();
    let passed = view.node("n").map_or(0, |node| node.counts.arrived);
    let announced = view.node("t").and_then(|node| {
        node.counters.iter().find(|one| one.name == "announced").map(|one| one.value as usize)
    });
    if passed != 2 * u64::from(calls) + media_count as u64 || announced != Some(ends_wanted) {
        let message = format!("{passed} frames and {announced:?} ends are not those of the calls");
        return Err(BenchError::Other(message));
    }
    Ok(took)
}
