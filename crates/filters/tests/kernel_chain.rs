//! Chains of filters in the kernel: random texts, edits and frames. The kernel rejects a frame only if one of the
//! filters does, and counts it for the text of each filter before that. Every form of the program. Needs root.

use fyke_filter::Options;
use fyke_filters::{Chain, Change, FilterReader, FilterSet, KernelStage, Superset, Union};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_kernel::{OpenError, Space};
use fyke_testkit::filter_text::{Values, filter_text};
use fyke_testkit::packet::Packet;
use fyke_testkit::random::Random;
use fyke_testkit::skip::unless_missing;
use rustix::net::{AddressFamily, SocketType, socket};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const PORTS: [u16; 5] = [22, 53, 80, 443, 5060];
const HOSTS: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 1, 2]];
/// Usual texts, so that many frames pass the first filter.
const TEXTS: [&str; 12] = [
    "ip",
    "tcp",
    "udp",
    "port 80",
    "port 53 or port 443",
    "host 10.0.0.1",
    "src host 10.0.0.2",
    "not port 22",
    "less 80",
    "ip[2:2] > 60",
    "tcp[tcpflags] & tcp-syn != 0",
    "ip and not host 192.168.1.2",
];

/// A chain before the kernel, with the sets of its filters.
struct Placed {
    sets: Vec<FilterSet>,
    stage: KernelStage,
    chain: Chain,
}

impl Placed {
    fn new(stage: KernelStage, reading: Options, filters: usize, random: &mut Random) -> Placed {
        let lower: Arc<dyn Superset> = Arc::new(stage.clone());
        let union = Union::new(Arc::clone(&lower));
        let counters = stage.clone();
        let chain = Chain::new(&union, lower, filters, move || counters.later());
        let sets: Vec<_> = (0..filters).map(|_| FilterSet::new(reading)).collect();
        for (at, set) in sets.iter().enumerate() {
            let text = TEXTS[random.below(TEXTS.len())];
            set.set(if random.below(4) == 0 { "" } else { text }).unwrap();
            set.add_superset(Arc::new(chain.link(at)));
        }
        Placed { sets, stage, chain }
    }

    /// Edits a filter: adds, removes or replaces texts.
    fn edit(&self, random: &mut Random, values: &Values) {
        let set = &self.sets[random.below(self.sets.len())];
        let ids: Vec<u64> = set.counts().iter().map(|count| count.id).collect();
        let text = match random.below(3) {
            0 => filter_text(random, values),
            _ => TEXTS[random.below(TEXTS.len())].to_owned(),
        };
        // Some of the texts are refused, and some removals are.
        let _refused = match random.below(6) {
            0 => set.edit(&[Change::Set(if random.below(3) == 0 { "" } else { &text })]),
            1 | 2 if ids.len() > 1 => set.edit(&[Change::Remove(ids[random.below(ids.len())])]),
            3 if !ids.is_empty() => {
                set.edit(&[Change::Add(&text), Change::Remove(ids[random.below(ids.len())])])
            }
            _ if ids.len() < 3 => set.edit(&[Change::Add(&text)]),
            _ => set.edit(&[Change::Set(&text)]),
        };
    }

    /// Runs the frames, and compares what the kernel does and counts with the filters. Returns the numbers of frames
    /// that it rejected for the first filter, and for later ones.
    fn compare(&self, frames: &[Vec<u8>]) -> [usize; 2] {
        let mut readers: Vec<_> = self.sets.iter().map(FilterSet::reader).collect();
        readers.iter_mut().for_each(|reader| {
            reader.report();
            reader.refresh();
        });
        let mut rejected = [0; 2];
        for frame in frames {
            let before = (self.stage.rejected(), self.chain.counts(&self.stage.later()));
            self.stage.kernel().space(|space| space.test_run(frame, 1)).unwrap();
            let after = (self.stage.rejected(), self.chain.counts(&self.stage.later()));
            let credits = accepting(&mut readers, frame);
            let context = || {
                let texts: Vec<_> = self.sets.iter().map(FilterSet::counts).collect();
                format!("{texts:?}\n{frame:02x?}\n{:?} {:?}", credits, self.chain.reason())
            };
            if after.0 == before.0 {
                assert_eq!(before.1, after.1, "a frame that passes counts nowhere: {}", context());
                continue;
            }
            assert_eq!(after.0, before.0 + 1);
            assert!(credits.len() < self.sets.len(), "all accept it: {}", context());
            rejected[usize::from(!credits.is_empty())] += 1;
            for (at, (old, new)) in before.1.0.iter().zip(&after.1.0).enumerate() {
                let (seen, passed) = (!credits.is_empty() && at <= credits.len(), credits.get(at));
                assert_eq!(new.arrived - old.arrived, u64::from(seen), "{at}: {}", context());
                assert_eq!(new.passed - old.passed, u64::from(passed.is_some()), "{}", context());
                let mut expected: BTreeMap<u64, u64> = old.texts.clone();
                if let Some(Some(text)) = passed {
                    *expected.entry(*text).or_default() += 1;
                }
                expected.retain(|_, count| *count > 0);
                let mut counted = new.texts.clone();
                counted.retain(|_, count| *count > 0);
                assert_eq!(counted, expected, "{at}: {}", context());
            }
        }
        rejected
    }
}

/// The texts that accept a frame, of each filter up to the first that rejects it; `None` for a filter without a text.
fn accepting(readers: &mut [FilterReader], frame: &[u8]) -> Vec<Option<u64>> {
    let mut batch = Batch::new();
    batch.push(Frame::new(LinkType::EN10MB, frame)).unwrap();
    let accepts = |reader: &mut FilterReader| {
        let accepted = reader.evaluate(&batch, batch.all()).unwrap();
        accepted.get(0).then(|| reader.credit(0).and_then(|(filter, _)| filter))
    };
    readers.iter_mut().map_while(accepts).collect()
}

fn frames(random: &mut Random) -> Vec<Vec<u8>> {
    let frame = |_| {
        let mut host = || HOSTS[random.below(HOSTS.len())];
        let ip = Packet::ethernet().ipv4(host(), host());
        let mut port = || PORTS[random.below(PORTS.len())];
        let (from, to) = (port(), port());
        let mut bytes = match random.below(4) {
            0 => ip.udp(from, to).build(),
            1 => ip.tcp(from, to).flags(2).build(),
            2 => ip.tcp(from, to).flags(16).payload(&[0; 40]).build(),
            _ => ip.udp(from, to).payload(&[7; 30]).build(),
        };
        match random.below(8) {
            0 => bytes.truncate(14 + random.below(bytes.len() - 14)),
            1 => bytes[13] = [6, 0xdd, 0][random.below(3)],
            // Options in the IP header.
            2 => bytes[14] = 0x46,
            3 => bytes[20..22].copy_from_slice(&[0x20, 5]),
            _ => {}
        }
        bytes
    };
    (0..24).map(frame).collect()
}

/// Random chains with edits; the program becomes a generated one now and then.
fn agree(open: impl Fn(Options) -> Result<KernelStage, OpenError>, generated: bool) {
    let reading = Options { live: true, ..Options::default() };
    let (mut random, mut rejected) = (Random::new(17), [0; 2]);
    let (mut chained, mut by_generated) = (0, 0);
    for round in 0..12 {
        let Some(stage) = unless_missing(open(reading), OpenError::is_unavailable) else { return };
        let filters = 2 + round % 2;
        let placed = Placed::new(stage.clone(), reading, filters, &mut random);
        let socket = Arc::new(socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap());
        if generated {
            stage.attach(socket.as_fd(), LinkType::EN10MB).unwrap();
            let (again, to) = (stage.clone(), Arc::clone(&socket));
            stage.generate_later(move || {
                let attached = again.attach(to.as_fd(), LinkType::EN10MB);
                attached.map_err(|error| error.to_string())
            });
        }
        stage.begin();
        let mut values = Values::common();
        let frames = frames(&mut random);
        frames.iter().for_each(|frame| values.learn(frame));
        for step in 0..30 {
            let [first, later] = placed.compare(&frames);
            rejected = [rejected[0] + first, rejected[1] + later];
            chained += usize::from(placed.chain.reason().is_none());
            by_generated += usize::from(stage.kernel().space(Space::is_specialised));
            placed.edit(&mut random, &values);
            if generated && step % 10 == 9 {
                std::thread::sleep(Duration::from_millis(450));
            }
        }
    }
    println!("rejected for the first filter and for later ones: {rejected:?}, chained {chained}");
    assert!(rejected.iter().all(|count| *count > 200) && chained > 100, "{rejected:?} {chained}");
    let expected = generated && cfg!(target_arch = "x86_64");
    assert_eq!(by_generated > 100, expected, "{by_generated} by a generated program");
}

#[test]
fn chains_are_judged_and_counted_as_in_user_space() {
    agree(|reading| KernelStage::open(reading, u32::MAX), true);
}

#[test]
fn chains_are_judged_at_the_driver() {
    agree(|reading| KernelStage::open_at_driver(reading, [2, 0, 0, 0, 0, 1]), false);
}

/// The same in a process with kernel programs of the older form.
#[test]
fn chains_are_judged_by_callbacks() {
    const TEST: &str = "chains_are_judged_by_callbacks";
    if std::env::var_os("FYKE_KERNEL_FORM").is_some_and(|form| form == "callbacks") {
        return agree(|reading| KernelStage::open(reading, u32::MAX), false);
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", TEST, "--nocapture"]).env("FYKE_KERNEL_FORM", "callbacks");
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// While a filter is edited, a frame that all filters accept before and after always passes.
#[test]
fn what_old_and_new_filters_accept_passes_during_edits() {
    let reading = Options { live: true, ..Options::default() };
    let stage = KernelStage::open(reading, u32::MAX);
    let Some(stage) = unless_missing(stage, OpenError::is_unavailable) else { return };
    let placed = Placed::new(stage.clone(), reading, 2, &mut Random::new(1));
    stage.begin();
    let [first, last] = &placed.sets[..] else { panic!("two filters") };
    first.set("udp").unwrap();
    last.set("port 53").unwrap();
    let frame = Packet::ethernet().ipv4(HOSTS[0], HOSTS[1]).udp(53, 53).build();
    let judge = stage.kernel().space(Space::judge).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let mut runs = 0_u64;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_ne!(judge.test_run(&frame, 1).unwrap().returned, 0, "run {runs}");
                runs += 1;
            }
            runs
        });
        for round in 0..300 {
            first.set(["udp", "ip", "udp or tcp", "less 200"][round % 4]).unwrap();
            last.set(["port 53", "dst port 53", "host 10.0.0.1", "udp"][round % 4]).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        println!("{} runs during 600 edits", runs.join().unwrap());
    });
    assert_eq!(stage.rejected(), 0);
}
