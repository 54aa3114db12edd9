//! Many edits for several sensors while the broker is killed again and again: none is lost, none comes in another
//! order, and each has exactly one answer of each sensor. `FYKE_EDITS` and `FYKE_KILLS` set larger numbers, and
//! `--nocapture` prints the times. And sensors that end at the worst moment: what a fyke has applied is not repeated.

mod common;

use common::Served;
use futures_util::StreamExt;
use fyke_control::Change as LocalChange;
use fyke_fleet::Name;
use fyke_fleet::edit::{Change, Labels};
use fyke_fleet::keys::Author;
use fyke_fleet::local::{Edited, Held, Local, LocalError, Names};
use fyke_fleet::message::{self, Answers, Outcome, Tried};
use fyke_fleet::operator::{Operator, OperatorError};
use fyke_fleet::sensor::{self, Sensor, SensorError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SENSORS: usize = 8;
const LIMIT: Duration = Duration::from_secs(60);

/// A fyke that only keeps its list of filters, and every list that it ever had by epoch.
#[derive(Default)]
struct Kept {
    pid: u32,
    filters: BTreeMap<u64, String>,
    /// Names of filters.
    names: BTreeMap<u64, String>,
    epochs: Vec<Vec<String>>,
    ids: u64,
    /// Sequences of the edits of sensors, as the log has them; `None`: they are forgotten.
    log: Option<Vec<u64>>,
    /// The sensor ends just after its next edit.
    ends_sensor: bool,
    is_gone: bool,
    /// It answers nothing, and keeps the first edit that it gets.
    is_stopped: bool,
    /// That edit, which it carries out before it answers anything.
    late: Option<(u64, Vec<LocalChange>)>,
}

impl Kept {
    /// A fyke with a filter of its own.
    fn with_own(pid: u32, log: Option<Vec<u64>>) -> Kept {
        let filters = BTreeMap::from([(1, "own".to_owned())]);
        Kept { pid, filters, ids: 1, log, ..Kept::default() }
    }

    fn check(&self) -> Result<(), LocalError> {
        match (self.is_stopped, self.is_gone) {
            (true, _) => Err(LocalError::Silent("it is stopped".to_owned())),
            (_, true) => Err(LocalError::Gone("it has ended".to_owned())),
            (false, false) => Ok(()),
        }
    }

    /// Makes an edit; returns the ids of what it adds.
    fn edit(&mut self, sequence: u64, changes: Vec<LocalChange>) -> Vec<Vec<u64>> {
        let mut ids = Vec::new();
        for change in changes {
            match change {
                LocalChange::Set { .. } => {
                    self.filters.clear();
                    self.names.clear();
                }
                LocalChange::Delete { id } => {
                    self.filters.remove(&id).expect("it is there");
                    self.names.remove(&id);
                }
                LocalChange::Add { text, name, .. } => {
                    self.ids += 1;
                    let id = self.ids;
                    self.filters.insert(id, text);
                    self.names.extend(name.map(|name| (id, name)));
                    ids.push(vec![id]);
                }
            }
        }
        let list = self.filters.values().cloned().collect();
        self.epochs.push(list);
        self.log.get_or_insert_default().push(sequence);
        ids
    }

    /// Continues a stopped one.
    fn carry_on(&mut self) {
        self.is_stopped = false;
        if let Some((sequence, changes)) = self.late.take() {
            self.edit(sequence, changes);
        }
    }

    fn texts(&self) -> Vec<&str> {
        self.filters.values().map(|text| &text[..]).collect()
    }
}

type Shared = Arc<Mutex<Kept>>;

struct Fake(Shared);

impl Local for Fake {
    fn describe(&mut self) -> Result<message::Local, LocalError> {
        let kept = self.0.lock().unwrap();
        kept.check()?;
        let (pid, epoch) = (kept.pid, kept.epochs.len() as u64);
        Ok(message::Local { pid, epoch, ..message::Local::default() })
    }

    fn held(&mut self) -> Result<Held, LocalError> {
        let (kept, names) = (self.0.lock().unwrap(), Names::new(&Name::new("edge").unwrap()));
        kept.check()?;
        let of_group = |(id, name): (&u64, &String)| Some((names.filter_of(name)?, vec![*id]));
        let filters: BTreeMap<_, _> = kept.names.iter().filter_map(of_group).collect();
        let logged = kept.log.iter().flatten().copied();
        let last = logged.chain(filters.keys().map(|id| id.sequence)).max();
        let logged: &[u64] = kept.log.as_deref().unwrap_or_default();
        let place = logged.iter().rposition(|sequence| Some(*sequence) == last);
        // The log has every edit.
        let epoch = place.map(|place| place as u64 + 1);
        Ok(Held { filters, applied: last.or(kept.log.is_some().then_some(0)), epoch })
    }

    fn edit(&mut self, sequence: u64, changes: Vec<LocalChange>) -> Result<Edited, LocalError> {
        let mut kept = self.0.lock().unwrap();
        if kept.is_stopped {
            kept.late.get_or_insert((sequence, changes.clone()));
        }
        kept.check()?;
        let is_wrong = |change: &LocalChange| match change {
            LocalChange::Add { text, .. } => text.contains("wrong"),
            _ => false,
        };
        if let Some(at) = changes.iter().position(is_wrong) {
            return Err(LocalError::Refused { change: Some(at), message: "a wrong text".into() });
        }
        let ids = kept.edit(sequence, changes);
        let ends_sensor = std::mem::take(&mut kept.ends_sensor);
        drop(kept);
        assert!(!ends_sensor, "the sensor ends here, as this test wants it");
        let kept = self.0.lock().unwrap();
        Ok(Edited { epoch: kept.epochs.len() as u64, ids, ..Edited::default() })
    }

    fn try_filter(&mut self, _: &str, _: Option<u64>) -> Result<Tried, LocalError> {
        Err(LocalError::Refused { change: None, message: "there are no frames".to_owned() })
    }
}

/// Ready once the value is true.
async fn ends(stopped: &mut tokio::sync::watch::Receiver<bool>) {
    let _at_the_end_too = stopped.wait_for(|stop| *stop).await.is_ok();
}

/// A sensor beside a fyke.
async fn sensor(served: &Served, name: &str, kept: &Shared) -> Sensor<Fake> {
    let (name, labels, trusted) = (Name::new(name).unwrap(), Labels::new(), served.trusted());
    let options = sensor::Options { name, labels, trusted };
    Sensor::new(options, served.connect("sensor").await, Fake(Arc::clone(kept)), |_| {})
}

type Ended = tokio::task::JoinHandle<Result<(), SensorError>>;

/// Starts sensors, each beside a fyke of its own, that end once `stopped` is true.
async fn sensors(
    served: &Served,
    prefix: &str,
    stopped: &tokio::sync::watch::Receiver<bool>,
) -> (Vec<Shared>, Vec<Ended>) {
    let (mut fykes, mut running) = (Vec::new(), Vec::new());
    for number in 0..SENSORS {
        let kept = Arc::new(Mutex::new(Kept { log: Some(Vec::new()), ..Kept::default() }));
        let sensor = sensor(served, &format!("{prefix}{number}"), &kept).await;
        let mut stopped = stopped.clone();
        running.push(tokio::spawn(async move { sensor.run(ends(&mut stopped)).await }));
        fykes.push(kept);
    }
    (fykes, running)
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Makes edits: each adds a filter, and removes the one of ten edits before.
async fn edit(operator: &mut Operator, author: &Author, number: usize) -> u64 {
    let mut changes = vec![Change::Add { text: format!("udp port {number}") }];
    let oldest = operator.state().filters.keys().next().copied();
    changes.extend(
        oldest.filter(|_| operator.state().filters.len() >= 10).map(|id| Change::Delete { id }),
    );
    let (start, only) = (Instant::now(), Labels::new());
    loop {
        let made = operator.edit(author, &only, changes.clone(), None, Duration::ZERO);
        match made.await {
            Ok(report) => return report.sequence,
            // There is no other author; the edit may have been taken and only its answer lost.
            Err(OperatorError::Conflict { sequence, .. }) => panic!("edit {sequence} is foreign"),
            Err(error) => assert!(start.elapsed() < LIMIT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let before = operator.state().sequence;
        if operator.read().await.is_ok() && operator.state().sequence > before {
            return operator.state().sequence;
        }
    }
}

/// All answers that the broker keeps, by sensor and sequence.
async fn answers(port: u16) -> BTreeMap<(String, u64), Vec<Outcome>> {
    let client = async_nats::connect(format!("127.0.0.1:{port}")).await.unwrap();
    let stream = async_nats::jetstream::new(client).get_stream("fyke-edge-answers").await.unwrap();
    let last = stream.get_info().await.unwrap().state.last_sequence;
    let mut all: BTreeMap<_, Vec<Outcome>> = BTreeMap::new();
    let numbers = futures_util::stream::iter(1..=last);
    let mut messages = numbers.map(|number| stream.get_raw_message(number)).buffered(32);
    while let Some(message) = messages.next().await {
        let told: Answers = serde_json::from_slice(&message.unwrap().payload).unwrap();
        for answer in told.answers {
            let key = (told.sensor.clone(), answer.sequence);
            all.entry(key).or_default().push(answer.outcome);
        }
    }
    all
}

#[tokio::test]
async fn no_edit_is_lost_while_the_broker_is_killed() {
    let (edits, kills) = (number("FYKE_EDITS", 200), number("FYKE_KILLS", 3));
    let Some(mut served) = Served::start() else { return };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (fykes, running) = sensors(&served, "s", &stopped).await;
    let broker = served.connect("operator").await;
    let mut operator = Operator::new(broker, served.trusted()).await.unwrap();
    let mut made = Vec::new();
    let killed_at: Vec<usize> = (1..=kills).map(|kill| kill * edits / (kills + 1)).collect();
    for number in 0..edits {
        if killed_at.contains(&number) {
            served.server.kill();
            tokio::time::sleep(Duration::from_millis(100)).await;
            served.server.start_again();
        }
        made.push(edit(&mut operator, &served.author, number).await);
    }
    // One order, without a gap.
    assert_eq!(made, (1..=edits as u64).collect::<Vec<_>>());
    let wanted: Vec<String> = operator.state().filters.values().map(|it| it.text.clone()).collect();
    let start = Instant::now();
    let last = |kept: &Shared| kept.lock().unwrap().epochs.last().cloned();
    while !fykes.iter().all(|kept| last(kept).as_ref() == Some(&wanted)) {
        assert!(start.elapsed() < LIMIT, "not in force everywhere");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("{edits} edits, {kills} kills: in force everywhere after {:?}", start.elapsed());
    stop.send(true).unwrap();
    for sensor in running {
        sensor.await.unwrap().unwrap();
    }
    let all = answers(served.server.port()).await;
    for (number, kept) in fykes.iter().enumerate() {
        let kept = kept.lock().unwrap();
        for sequence in 1..=edits as u64 {
            let told = &all[&(format!("s{number}"), sequence)];
            // An answer may be stored twice if the server was killed between storing and saying so.
            assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{sequence}: {told:?}");
            match told[0] {
                Outcome::InForce { epoch, .. } => {
                    let newest = kept.epochs[epoch as usize - 1].last().cloned();
                    assert_eq!(newest, Some(format!("udp port {}", sequence - 1)));
                }
                Outcome::Superseded { by } => assert!(by > sequence && by <= edits as u64),
                ref other => panic!("edit {sequence} at s{number}: {other:?}"),
            }
        }
    }
    times(&mut operator, &served).await;
}

/// A group with an operator.
struct Group {
    served: Served,
    operator: Operator,
}

impl Group {
    /// Starts the server; `None`, with the reason, without the program.
    async fn start() -> Option<Group> {
        let served = Served::start()?;
        let broker = served.connect("operator").await;
        let operator = Operator::new(broker, served.trusted()).await.unwrap();
        Some(Group { served, operator })
    }

    /// Starts a sensor, and waits until it is listed.
    async fn sensor(&self, name: &str, kept: &Shared) -> tokio::task::JoinHandle<()> {
        let sensor = sensor(&self.served, name, kept).await;
        let running = tokio::spawn(async move {
            let _until_it_is_dropped = sensor.run(std::future::pending()).await;
        });
        let last = self.operator.state().sequence;
        let start = Instant::now();
        let is_there = |entry: &message::Entry| entry.name == name && entry.sequence == last;
        while !self.operator.sensors().await.unwrap().iter().any(is_there) {
            assert!(start.elapsed() < LIMIT, "{name} does not run");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        running
    }

    async fn edit(&mut self, changes: &[Change]) -> fyke_fleet::operator::Report {
        let (all, wait) = (Labels::new(), Duration::from_millis(300));
        self.operator.edit(&self.served.author, &all, changes.to_vec(), None, wait).await.unwrap()
    }
}

fn add(text: &str) -> Change {
    Change::Add { text: text.to_owned() }
}

/// Waits until a fyke has these texts.
async fn has(kept: &Shared, texts: &[&str]) {
    let start = Instant::now();
    while kept.lock().unwrap().texts() != texts {
        assert!(start.elapsed() < LIMIT, "{:?}, not {texts:?}", kept.lock().unwrap().texts());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A replacement is repeated neither by the next run of a sensor nor after a run that ended before it could answer. At
/// another fyke it is made.
#[tokio::test]
async fn what_a_fyke_has_applied_is_not_repeated() {
    let Some(mut group) = Group::start().await else { return };
    let own = Kept { ends_sensor: true, ..Kept::with_own(1, Some(Vec::new())) };
    let kept = Arc::new(Mutex::new(own));
    let first = group.sensor("a", &kept).await;
    let report = group.edit(&[Change::Clear, add("udp")]).await;
    assert_eq!(report.everywhere(), None, "it ended before its answer");
    assert!(first.await.unwrap_err().is_panic());
    // A local user adds a filter, then the next run of the sensor compares.
    kept.lock().unwrap().filters.insert(90, "local".to_owned());
    kept.lock().unwrap().ids = 90;
    let second = group.sensor("b", &kept).await;
    assert_eq!(kept.lock().unwrap().texts(), ["udp", "local"]);
    assert_eq!(kept.lock().unwrap().epochs.len(), 1, "it made no edit");
    let report = group.edit(&[add("tcp"), add("arp")]).await;
    assert!(report.sensors["b"].as_ref().is_some_and(|(told, _)| told.is_in_force()), "{report:?}");
    assert_eq!(kept.lock().unwrap().texts(), ["udp", "local", "tcp", "arp"]);
    // Meanwhile edits are made and a filter of the group is removed by hand; the next run does what is missing.
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    group.edit(&[Change::Delete { id: "1".parse().unwrap() }, add("icmp")]).await;
    kept.lock().unwrap().filters.retain(|_, text| text != "tcp");
    kept.lock().unwrap().names.retain(|_, name| name != "fleet/edge/2");
    let _third = group.sensor("c", &kept).await;
    let mut texts: Vec<String> = kept.lock().unwrap().filters.values().cloned().collect();
    texts.sort();
    assert_eq!(texts, ["arp", "icmp", "local", "tcp"]);
    // The fyke is another one: the replacement holds there, too.
    *kept.lock().unwrap() = Kept::with_own(2, Some(Vec::new()));
    has(&kept, &["tcp", "arp", "icmp"]).await;
    // The log of a fyke has lost its first edits: the replacement may be one of them, so it is not made.
    *kept.lock().unwrap() = Kept::with_own(3, None);
    has(&kept, &["own", "tcp", "arp", "icmp"]).await;
}

/// A filter that a fyke refuses is left out where the filters of a group come into force together.
#[tokio::test]
async fn one_wrong_filter_does_not_keep_the_others_out() {
    let Some(mut group) = Group::start().await else { return };
    let kept = Arc::new(Mutex::new(Kept::with_own(1, Some(Vec::new()))));
    let _sensor = group.sensor("a", &kept).await;
    group.edit(&[Change::Clear, add("udp")]).await;
    // Refused as a whole, also its removal of everything.
    let report = group.edit(&[Change::Clear, add("wrong"), add("tcp")]).await;
    assert_eq!(report.in_force(), 0, "{report:?}");
    assert_eq!(kept.lock().unwrap().texts(), ["udp"]);
    *kept.lock().unwrap() = Kept::with_own(2, Some(Vec::new()));
    has(&kept, &["tcp"]).await;
    group.edit(&[add("arp")]).await;
    has(&kept, &["tcp", "arp"]).await;
}

/// All answers of a sensor, in their order, once the last edit is answered as it shall be.
async fn told(group: &Group, sensor: &str, last: (u64, &Outcome)) -> Vec<(u64, Outcome)> {
    let start = Instant::now();
    loop {
        let all = answers(group.served.server.port()).await.into_iter();
        let own = all.filter(|((name, _), _)| name == sensor);
        let told: Vec<(u64, Outcome)> = own
            .flat_map(|((_, sequence), outcomes)| {
                outcomes.into_iter().map(move |it| (sequence, it))
            })
            .collect();
        if told.iter().any(|(sequence, outcome)| (*sequence, outcome) == last) {
            return told;
        }
        assert!(start.elapsed() < LIMIT, "{told:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for an entry of a sensor.
async fn entry(group: &Group, is_wanted: impl Fn(&message::Entry) -> bool) -> message::Entry {
    let start = Instant::now();
    loop {
        let all = group.operator.sensors().await.unwrap();
        if let Some(found) = all.iter().find(|entry| is_wanted(entry)) {
            return found.clone();
        }
        assert!(start.elapsed() < LIMIT, "{all:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn in_force(epoch: u64) -> Outcome {
    Outcome::InForce { epoch, frame: 0, latency_ns: 0 }
}

/// A stopped fyke carries an edit out when it continues: until then the sensor lags, then every edit has its true
/// outcome, and those that came later are in force after it, once.
#[tokio::test]
async fn an_edit_at_a_silent_fyke_waits_for_its_outcome() {
    let Some(mut group) = Group::start().await else { return };
    let kept = Arc::new(Mutex::new(Kept::with_own(1, Some(Vec::new()))));
    let sensor = group.sensor("a", &kept).await;
    group.edit(&[add("udp")]).await;
    kept.lock().unwrap().is_stopped = true;
    let report = group.edit(&[Change::Clear, add("tcp")]).await;
    assert_eq!(report.sensors["a"], None, "neither in force nor refused");
    let report = group.edit(&[add("arp")]).await;
    assert_eq!(report.sensors["a"], None, "it waits for the one before");
    let lagging = entry(&group, |entry| entry.trouble.is_some()).await;
    assert_eq!((lagging.sequence, lagging.refused), (1, 0), "{lagging:?}");
    assert!(lagging.trouble.unwrap().contains("does not answer"));
    kept.lock().unwrap().carry_on();
    kept.lock().unwrap().filters.insert(90, "local".to_owned());
    has(&kept, &["tcp", "arp", "local"]).await;
    let told = told(&group, "a", (3, &in_force(3))).await;
    assert_eq!(told, [(1, in_force(1)), (2, in_force(2)), (3, in_force(3))]);
    entry(&group, |entry| entry.sequence == 3 && entry.trouble.is_none()).await;

    // The sensor ends while the fyke is stopped; the next run finds what was carried out.
    kept.lock().unwrap().is_stopped = true;
    group.edit(&[Change::Clear, add("icmp")]).await;
    sensor.abort();
    assert!(sensor.await.unwrap_err().is_cancelled());
    kept.lock().unwrap().carry_on();
    kept.lock().unwrap().filters.insert(91, "later".to_owned());
    let _next = group.sensor("b", &kept).await;
    assert_eq!(kept.lock().unwrap().texts(), ["icmp", "later"]);
    assert_eq!(kept.lock().unwrap().epochs.len(), 4, "it made no edit");
}

/// An edit that was refused for want of a fyke is answered again once there is one, and a refusal of a
/// filter goes with the filter.
#[tokio::test]
async fn refusals_that_no_longer_hold_are_not_listed() {
    let Some(mut group) = Group::start().await else { return };
    let kept = Arc::new(Mutex::new(Kept::with_own(1, Some(Vec::new()))));
    let _sensor = group.sensor("a", &kept).await;
    group.edit(&[add("wrong")]).await;
    group.edit(&[add("udp")]).await;
    entry(&group, |entry| entry.sequence == 2 && entry.refused == 1).await;
    group.edit(&[Change::Delete { id: "1".parse().unwrap() }]).await;
    entry(&group, |entry| entry.sequence == 3 && entry.refused == 0).await;
    kept.lock().unwrap().is_gone = true;
    for text in ["tcp", "arp"] {
        let report = group.edit(&[add(text)]).await;
        let refused = matches!(report.sensors["a"], Some((Outcome::Refused { .. }, _)));
        assert!(refused, "{report:?}");
    }
    entry(&group, |entry| entry.sequence == 5 && entry.refused == 2).await;
    *kept.lock().unwrap() = Kept::with_own(2, Some(Vec::new()));
    entry(&group, |entry| entry.sequence == 5 && entry.refused == 0).await;
    let told = told(&group, "a", (5, &in_force(1))).await;
    assert!(told.contains(&(4, Outcome::Superseded { by: 5 })), "{told:?}");
}

/// Prints the times of edits until all sensors have answered.
async fn times(operator: &mut Operator, served: &Served) {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (_fykes, running) = sensors(served, "t", &stopped).await;
    let start = Instant::now();
    while operator.sensors().await.unwrap().len() < SENSORS {
        assert!(start.elapsed() < LIMIT, "the sensors do not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut times = Vec::new();
    for number in 0..number("FYKE_TIMES", 20) {
        let changes = vec![Change::Clear, Change::Add { text: format!("tcp port {number}") }];
        let report = operator.edit(&served.author, &Labels::new(), changes, None, LIMIT).await;
        let report = report.unwrap();
        assert_eq!(report.sensors.len(), SENSORS);
        times.push(report.everywhere().expect("in force everywhere"));
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    println!("{} edits at {SENSORS} sensors: p50 {:?}, p99 {:?}", times.len(), at(50), at(99));
    stop.send(true).unwrap();
    for sensor in running {
        sensor.await.unwrap().unwrap();
    }
}
