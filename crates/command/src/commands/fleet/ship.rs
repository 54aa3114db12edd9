//! `fyke fleet ship`: frames of a service, a ring or a file for the workers of a queue.
//!
//! It runs the graph `source > filter > ship`. The last node packs frames into batches; a thread of its own hands them
//! to the broker. While the broker is away or the queue is full, the node takes no more, the source is not read, and
//! what the ring cannot hold is lost there and counted: the capture, a process of its own, does not wait.

use super::{Failure, named, options_of, wait_for};
use crate::cli::ShipArgs;
use crate::commands::counts;
use crate::commands::graphs::{classes, is_shared, refused};
use crate::commands::signals::stop_on_signals;
use crate::commands::space::Kernel;
use anyhow::anyhow;
use fyke_capture::Interface;
use fyke_control::Accounting;
use fyke_fleet::Name;
use fyke_fleet::broker;
use fyke_fleet::exchange::{self, Exchange, Origin, Shipped, Told};
use fyke_fleet::keys::Author;
use fyke_frame::Mask;
use fyke_graph::language::quoted;
use fyke_graph::node::{Arrival, Class, Counter, Emitted, Node, NodeError, Opens};
use fyke_graph::{Classes, GraphHandle};
use fyke_remote::batch;
use fyke_serve::lower::ServeSpace;
use std::collections::VecDeque;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Longest time that a frame waits for its batch to fill.
const DELAY: Duration = Duration::from_millis(100);
/// Batches between the node and the thread.
const AHEAD: usize = 8;
/// Pause after a failure of the broker.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for the last batches after the end.
const LAST: Duration = Duration::from_secs(10);
/// Time between two accounts.
const ACCOUNT: Duration = Duration::from_secs(1);
/// Time between two signs of life.
const SIGN: Duration = Duration::from_secs(2);
/// Wait between two looks for room.
const LOOK: Duration = Duration::from_millis(1);

/// Frames for the queue.
struct Full {
    bytes: Vec<u8>,
    frames: u64,
    interfaces: Vec<Origin>,
}

/// The node that packs frames.
struct Ship {
    sender: Sender<Full>,
    bytes: Vec<u8>,
    frames: u64,
    since: Option<Instant>,
    interfaces: Vec<Origin>,
    waiting: VecDeque<Full>,
    packed: u64,
    lost: u64,
    has_given_up: bool,
}

impl Ship {
    fn pack(&mut self) {
        self.since = None;
        if self.frames == 0 {
            return;
        }
        let (bytes, frames) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.frames));
        self.packed += frames;
        self.waiting.push_back(Full { bytes, frames, interfaces: self.interfaces.clone() });
    }

    /// Hands batches on; true if none waits.
    fn hand_on(&mut self) -> Result<bool, NodeError> {
        while let Some(full) = self.waiting.pop_front() {
            match self.sender.try_send(full) {
                Ok(()) => {}
                Err(TrySendError::Full(full)) => {
                    self.waiting.push_front(full);
                    return Ok(false);
                }
                Err(TrySendError::Closed(full)) => {
                    self.waiting.push_front(full);
                    self.give_up();
                    return Err(NodeError::new("the broker takes no more frames"));
                }
            }
        }
        Ok(true)
    }
}

impl Node for Ship {
    fn process(&mut self, arrival: &mut Arrival<'_>) -> Result<Mask, NodeError> {
        if self.has_given_up {
            arrival.lose(arrival.mask());
            return Ok(Mask::EMPTY);
        }
        let known = arrival.interfaces();
        if known.len() > self.interfaces.len() {
            self.interfaces.extend(known[self.interfaces.len()..].iter().map(origin));
        }
        for (_, frame) in arrival.frames() {
            batch::append(frame, &mut self.bytes);
            self.frames += 1;
            self.since.get_or_insert_with(Instant::now);
            if self.bytes.len() >= batch::FULL {
                self.pack();
            }
        }
        Ok(arrival.mask())
    }

    fn tick(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        if self.since.is_some_and(|since| since.elapsed() >= DELAY) {
            self.pack();
        }
        // Without frames nothing else calls it.
        self.hand_on().map(drop)
    }

    fn make_room(&mut self, patience: Duration) -> Result<bool, NodeError> {
        let until = Instant::now() + patience;
        while !self.hand_on()? {
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    fn give_up(&mut self) {
        self.has_given_up = true;
        self.lost += self.waiting.drain(..).map(|full| full.frames).sum::<u64>() + self.frames;
        (self.frames, self.since) = (0, None);
        self.bytes.clear();
    }

    fn lost(&self) -> u64 {
        self.lost
    }

    fn finish(&mut self, _: &mut Emitted) -> Result<(), NodeError> {
        self.pack();
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![Counter::count("packed", self.packed)]
    }
}

fn origin(interface: &Interface) -> Origin {
    let name = match interface.description.is_empty() {
        true => &interface.name,
        false => &interface.description,
    };
    Origin { name: name.clone(), link: interface.link.0, snaplen: interface.snaplen }
}

const CLASS: Class = Class {
    name: "ship",
    summary: "packs frames for the workers of a queue",
    waits: true,
    opens: Opens::nothing,
    ..Class::NODE
};

fn classes_with(sender: &Sender<Full>) -> Classes {
    let (mut classes, sender) = (classes(), sender.clone());
    classes.register_with(CLASS, move |_| {
        Ok(Box::new(Ship {
            sender: sender.clone(),
            bytes: Vec::new(),
            frames: 0,
            since: None,
            interfaces: Vec::new(),
            waiting: VecDeque::new(),
            packed: 0,
            lost: 0,
            has_given_up: false,
        }))
    });
    classes
}

/// The graph of the arguments.
fn graph(args: &ShipArgs) -> Result<String, Failure> {
    let source = match (&args.interface, &args.read) {
        (Some(name), _) if is_shared(name) => format!("(device, {})", quoted(name)),
        (Some(name), _) => {
            return Err(Failure::Usage(format!(
                "-i {name}: this command captures nothing itself; run `fyke serve -i {name}` and name serve:{name}"
            )));
        }
        (None, Some(file)) => match file.to_str() {
            Some(file) => format!("(pcapin, {})", quoted(file)),
            None => return Err(Failure::Usage("-r: the name of the file is not UTF-8".into())),
        },
        (None, None) => {
            return Err(Failure::Usage("name the source: -i serve:NAME or -r FILE".to_owned()));
        }
    };
    let text = args.expression.join(" ");
    let live = if args.interface.is_some() { ", live=y" } else { "" };
    let filter = match text.trim().is_empty() {
        true => String::new(),
        false => format!(" > {{filter}}(filter, expression={}{live})", quoted(&text)),
    };
    Ok(format!("{source}{filter} > {{ship}}(ship)"))
}

/// Runs `fyke fleet ship`.
pub fn run(args: &ShipArgs) -> Result<(), Failure> {
    let to = options_of(&args.group)?;
    let host = rustix::system::uname().nodename().to_string_lossy().replace('.', "-");
    let shipper = Shipper {
        name: named("--name", args.name.as_deref().unwrap_or(&host))?,
        author: Author::read(&args.key)?,
        session: exchange::session().map_err(|why| Failure::Running(anyhow!(why)))?,
        group: named("--group", &args.group.group)?,
        queue: named("--queue", &args.queue)?,
    };
    let (sender, batches) = channel(AHEAD);
    let text = graph(args)?;
    let opened = GraphHandle::open(&[&text], classes_with(&sender), 1).map_err(refused)?;
    let mut opened = opened;
    opened.place(&ServeSpace(Kernel { count_all: None }));
    let (mut engine, handle) = opened.start().map_err(refused)?;
    engine.end_at_first_failure();
    engine.on_notice(|notice| note!("fyke: {notice}"));
    let stop = stop_on_signals()?;
    let accounting = Arc::new(Mutex::new(None));
    let told = Arc::clone(&accounting);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let publish = move || wait_for(shipper.run(&to, batches, &told, &ready));
    let publisher = std::thread::Builder::new().name("ship".to_owned()).spawn(publish)?;
    if is_ready.recv().is_err() {
        // There is no connection.
        return publisher.join().map_err(|_| panicked())?.map(drop);
    }
    let result = engine.run(&stop);
    let view = engine.view();
    let sum = counts::accounting(&view);
    *accounting.lock().unwrap_or_else(PoisonError::into_inner) = Some(sum.clone());
    // The last senders: the thread ends after the batches that it has.
    drop((engine, handle, sender));
    let shipped = publisher.join().map_err(|_| panicked())?;
    note!("{}", counts::sum(&sum, 0, 0));
    let shipped = shipped?;
    let (frames, batches) = (shipped.shipped, shipped.batches);
    note!("fyke: {frames} frames shipped in {batches} batches to the queue {}", args.queue);
    result?;
    match frames == sum.delivered {
        true => Ok(()),
        false => Err(Failure::Running(anyhow!(
            "{} frames were accepted, and the queue has {frames} of them",
            sum.delivered
        ))),
    }
}

fn panicked() -> Failure {
    Failure::Running(anyhow!("the thread that ships frames has failed"))
}

/// Hands batches to the broker.
struct Shipper {
    name: Name,
    author: Author,
    session: String,
    group: Name,
    queue: Name,
}

/// The error for a broker that does not take the last frames: those of a batch, and of the batches after it.
fn unknown(
    error: &anyhow::Error,
    account: &Shipped,
    frames: u64,
    batches: &mut Receiver<Full>,
) -> anyhow::Error {
    let mut rest = frames;
    while let Ok(full) = batches.try_recv() {
        rest += full.frames;
    }
    let shipped = account.shipped;
    anyhow!("{error}; the queue has {shipped} frames, and it is not known if it has {rest} others")
}

/// Tells the workers' sums that a shipper runs, also while the queue is full.
async fn live(exchange: Exchange, session: String) {
    loop {
        // The next one comes soon.
        let _may_be_lost = exchange.live(&session).await;
        tokio::time::sleep(SIGN).await;
    }
}

/// The account at the end, once it is there.
type AtEnd = Mutex<Option<Accounting>>;

impl Shipper {
    /// Ships until the node has ended; returns the account.
    async fn run(
        self,
        to: &broker::Options,
        mut batches: Receiver<Full>,
        accounting: &AtEnd,
        ready: &std::sync::mpsc::Sender<()>,
    ) -> anyhow::Result<Shipped> {
        let (group, queue) = (self.group.clone(), self.queue.clone());
        let client = format!("fyke fleet ship {}", self.name);
        let exchange = Exchange::connect(to, group, queue, &client).await?;
        note!("fyke: {} ships to the queue {} of {}", self.name, self.queue, self.group);
        let account = Shipped {
            sensor: self.name.to_string(),
            session: self.session.clone(),
            ..Shipped::default()
        };
        exchange.tell(&Told::Shipped(account.clone())).await?;
        let signs = tokio::spawn(live(exchange.clone(), self.session.clone()));
        // The receiver waits for it.
        let _waiting = ready.send(());
        let account = self.ship_all(&exchange, &mut batches, account, accounting).await;
        signs.abort();
        self.end(&exchange, account?, accounting).await
    }

    /// Ships until the node has ended.
    async fn ship_all(
        &self,
        exchange: &Exchange,
        batches: &mut Receiver<Full>,
        mut account: Shipped,
        accounting: &AtEnd,
    ) -> anyhow::Result<Shipped> {
        let (mut told, mut last) = (Instant::now(), account.batches);
        loop {
            match timeout(ACCOUNT, batches.recv()).await {
                Ok(None) => break,
                Ok(Some(full)) => {
                    let frames = full.frames;
                    let shipped = self.ship(exchange, full, &mut account, accounting).await;
                    shipped.map_err(|error| unknown(&error, &account, frames, batches))?;
                }
                Err(_) => {}
            }
            if told.elapsed() >= ACCOUNT && last != account.batches {
                (told, last) = (Instant::now(), account.batches);
                // The next one, or the last, has these frames, too.
                let _later = exchange.tell(&Told::Shipped(account.clone())).await;
            }
        }
        Ok(account)
    }

    /// Tells the account at the end.
    async fn end(
        &self,
        exchange: &Exchange,
        mut account: Shipped,
        accounting: &AtEnd,
    ) -> anyhow::Result<Shipped> {
        if let Some(sum) = accounting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            (account.seen, account.rejected) = (sum.seen, sum.rejected + sum.taken);
            account.lost = sum.lost;
            account.ended = true;
        }
        let end = Instant::now() + LAST;
        loop {
            match exchange.tell(&Told::Shipped(account.clone())).await {
                Err(_) if Instant::now() < end => tokio::time::sleep(PAUSE).await,
                told => return Ok(told.map(|()| account)?),
            }
        }
    }

    /// Ships a batch, again until the broker has it; at the end for a limited time.
    async fn ship(
        &self,
        exchange: &Exchange,
        full: Full,
        account: &mut Shipped,
        accounting: &AtEnd,
    ) -> anyhow::Result<()> {
        let place = (&self.name, self.session.as_str(), account.batches + 1);
        let counts = [account.shipped, full.frames];
        let message = exchange.sealed(&self.author, place, &full.interfaces, counts, &full.bytes);
        let message = message.map_err(|why| anyhow!(why))?;
        let (mut has_failed, mut end) = (false, None);
        loop {
            let sent = exchange.ship(&self.session, account.batches + 1, message.clone()).await;
            let Err(error) = sent else { break };
            if !std::mem::replace(&mut has_failed, true) {
                note!("fyke: {error}; trying again");
            }
            let is_ending = accounting.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if is_ending && *end.get_or_insert_with(|| Instant::now() + LAST) < Instant::now() {
                return Err(error.into());
            }
            tokio::time::sleep(PAUSE).await;
        }
        account.batches += 1;
        account.shipped += full.frames;
        Ok(())
    }
}
