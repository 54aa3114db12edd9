//! The kernel as the space below a graph: filters directly after a device run on its socket, too.
//!
//! | form | needs | an edit | rejected frames |
//! |---|---|---|---|
//! | eBPF ([`KernelStage`]) | CAP_BPF at the start, clang at the build | is in the program at once | are counted |
//! | classic BPF ([`ClassicStage`]) | nothing | opens the socket until there is a pause | are not counted |
//!
//! Rules of a Bloom pre-filter may run before the eBPF form ([`tap`]).
//!
//! The program is loaded at the start, before the process gives up its rights. A socket has it only while there are
//! texts, because a program that accepts everything costs more than none.

mod tap;

use super::Failure;
use fyke_capture::{DriverFilter, FilterSocket, Interface, LATER, SocketFilter};
use fyke_control::OwnedRules;
use fyke_filter::Options;
use fyke_filter::bpf::Instruction;
use fyke_filters::{ClassicSocket, ClassicStage, KernelStage, Listing, Superset};
use fyke_frame::LinkType;
use fyke_graph::placement::{
    LowerFilter, NoRules, OwnedArrays, PartPlace, RulesTap, RulesWanted, Space,
};
use fyke_graph::runtime::Opened;
use fyke_graph::{GraphHandle, RuleSet};
use fyke_kernel::OpenError;
use fyke_kernel::sys::objects;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
pub use tap::{Claim, SocketTap, claim, give_back_rules, namespace, owner_of};

/// Link types of sockets that the eBPF program can filter.
const LINKS: [LinkType; 3] = [LinkType::EN10MB, LinkType::LINUX_SLL2, LinkType::RAW];
/// Most characters of the reason why there is no eBPF program; a verifier writes pages.
const SHOWN: usize = 240;

/// The kernel, by a program on the capture's socket.
pub struct Kernel {
    /// Reason for which fyke itself counts every frame, so that no frame may be rejected before.
    pub count_all: Option<&'static str>,
}

/// The reason with the option `--count-all`.
pub const COUNT_ALL: &str = "--count-all counts them in user space";

/// Describes where the filters after devices run, and the nodes that the planner left out; `None` if there are neither.
pub fn placement(handle: &GraphHandle) -> Option<String> {
    let placed = fyke_graph::placement::in_words(&handle.placements());
    let rings = handle.placements().into_iter().filter_map(|one| one.rings_in_words());
    let placements = handle.placements();
    let programs = fyke_graph::placement::programs_in_words(&placements);
    let texts = placed.into_iter().chain(programs).chain(rings).chain(handle.left_out());
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Reports on standard error where the rules of a capture are; nothing without `--rules` and `(bloom)`.
pub fn say_rules(handle: &GraphHandle) {
    let placements = handle.placements();
    let places = placements.iter().filter_map(|placement| placement.tap.as_ref());
    let mut lines: Vec<_> =
        places.flat_map(|place| &place.parts).map(PartPlace::in_words).collect();
    lines.dedup();
    lines.iter().for_each(|line| note!("{line}"));
}

/// Reports on standard error which rings the kernel cannot select.
pub fn say_rings(handle: &GraphHandle) {
    let placements = handle.placements();
    let refused = placements.iter().filter(|one| matches!(one.by_class, Some(Err(_))));
    refused.filter_map(|one| one.rings_in_words()).for_each(|line| note!("fyke: {line}"));
}

/// Returns the rules of interfaces that a running graph owns.
pub fn owned_rules(handle: &GraphHandle) -> Vec<OwnedRules> {
    let Ok(namespace) = namespace() else { return Vec::new() };
    let placements = handle.placements();
    let places = placements.iter().filter_map(|placement| placement.tap.as_ref());
    let owned = |part: &PartPlace| {
        let OwnedArrays { map, interface: index } = part.tap.as_ref()?.owned()?;
        Some(OwnedRules { interface: part.interface.clone(), namespace, map, index })
    };
    places.flat_map(|place| &place.parts).filter_map(owned).collect()
}

/// Refuses to start a graph with rules of an interface that cannot be read.
pub fn check_rules(opened: &Opened) -> Result<(), Failure> {
    opened.refused_rules().map_or(Ok(()), |why| Err(Failure::Running(anyhow::anyhow!(why))))
}

impl Kernel {
    /// Reason why the kernel cannot have the rules of an interface.
    fn without_rules(&self, interface: &Interface) -> Option<String> {
        if interface.at_driver {
            return Some(
                "the kernel has rules for sockets, not for frames that are taken at the driver"
                    .to_owned(),
            );
        }
        if interface.link != LinkType::EN10MB {
            let link = interface.link;
            return Some(format!("the kernel has rules for link type EN10MB only, not {link}"));
        }
        self.count_all.map(str::to_owned)
    }
}

impl Space for Kernel {
    fn rules(
        &self,
        interface: &Interface,
        rules: &RuleSet,
        wanted: &RulesWanted,
    ) -> Result<Arc<dyn RulesTap>, NoRules> {
        let in_user = wanted.in_user.clone().or_else(|| self.without_rules(interface));
        let tap = match (wanted.shared, in_user) {
            (false, Some(why)) => return Err(NoRules::Alone(why)),
            (false, None) => SocketTap::of_graph(&interface.name, interface.snaplen, rules),
            (true, in_user) => {
                SocketTap::shared(&interface.name, interface.snaplen, rules, in_user)
            }
        };
        Ok(Arc::new(tap?))
    }

    fn filter(
        &self,
        interface: &Interface,
        reading: Options,
    ) -> Result<Arc<dyn LowerFilter>, String> {
        if let Some(why) = self.count_all {
            return Err(why.to_owned());
        }
        if interface.at_driver {
            let facts = objects::interface_index(&interface.name).and_then(objects::link_facts);
            let facts = facts.map_err(|error| error.to_string())?;
            let stage = KernelStage::open_at_driver(reading, facts.address);
            let stage = stage.map_err(|error| error.brief())?;
            return Ok(Arc::new(Ebpf::new(stage, interface)));
        }
        let why_not = match LINKS.contains(&interface.link) {
            true => match open(interface, reading) {
                Ok(stage) => return Ok(Ebpf::generating(stage, interface)),
                Err(error) => refused(&interface.name, &error),
            },
            false => format!("it does not filter frames of link type {}", interface.link),
        };
        Ok(Arc::new(Classic {
            stage: ClassicStage::new(reading),
            sockets: Arc::default(),
            why_not,
        }))
    }
}

/// The reason why there is no eBPF program, in a line. A right or a compiler that is missing is shown with the counts;
/// any other refusal is unexpected, so it is reported at once, for the first interface only.
fn refused(interface: &str, error: &OpenError) -> String {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let why = error.brief();
    let is_new = || REPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(why.clone());
    if !error.is_unavailable() && is_new() {
        note!(
            "fyke: {interface}: filters run in the kernel as classic BPF, which does not count the frames that it \
             rejects, because eBPF is refused: {why}"
        );
    }
    why
}

/// True for rings of which the eBPF program selects that of a frame.
fn selects(interface: &Interface) -> bool {
    interface.by_class && interface.link == LinkType::EN10MB
}

fn open(interface: &Interface, reading: Options) -> Result<KernelStage, OpenError> {
    match selects(interface) {
        true => KernelStage::open_by_class(reading, interface.snaplen),
        false => KernelStage::open(reading, interface.snaplen),
    }
}

/// The first line of a message, cut.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    }
}

/// The texts of a filter as an eBPF program.
struct Ebpf {
    stage: KernelStage,
    /// The program that runs before it.
    tap: OnceLock<Arc<dyn RulesTap>>,
    /// The place at the driver, in place of sockets.
    driver: OnceLock<Arc<dyn DriverFilter>>,
    link: LinkType,
    /// True if it selects the ring of a frame.
    by_class: bool,
    attached: Mutex<Attached>,
}

#[derive(Default)]
struct Attached {
    /// The sockets of all rings that are open, and whether each has the program.
    sockets: Vec<(Weak<FilterSocket>, bool)>,
    /// True while the program runs after the tap.
    follows: bool,
    /// True once the right to change maps may be gone. The tap has the program by then, also for sockets that come
    /// later, because an interface was made again.
    begun: bool,
    /// Reason why a socket has no program.
    error: Option<String>,
}

impl std::fmt::Debug for Ebpf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Ebpf");
        shown.field("stage", &self.stage).field("attached", &self.attached).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("error", &self.error).finish_non_exhaustive()
    }
}

impl Ebpf {
    fn new(stage: KernelStage, interface: &Interface) -> Ebpf {
        Ebpf {
            stage,
            tap: OnceLock::new(),
            driver: OnceLock::new(),
            link: interface.link,
            by_class: selects(interface),
            attached: Mutex::default(),
        }
    }

    /// The same, with generated programs of texts that come while the capture runs.
    fn generating(stage: KernelStage, interface: &Interface) -> Arc<Ebpf> {
        let ebpf = Arc::new(Ebpf::new(stage, interface));
        let attached = Arc::downgrade(&ebpf);
        ebpf.stage
            .generate_later(move || attached.upgrade().map_or(Ok(()), |it| it.attach_again()));
        ebpf
    }

    /// Attaches the program of the moment to all sockets that have one.
    fn attach_again(&self) -> Result<(), String> {
        let attached = self.lock();
        let sockets = attached.sockets.iter().filter(|(_, has)| *has);
        for socket in sockets.filter_map(|(socket, _)| socket.upgrade()) {
            let taken = socket.attach_with(|socket| self.stage.attach(socket, self.link));
            taken.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Attached> {
        // Nothing is changed in steps.
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the program to all sockets if there are texts, and detaches it if not.
    fn settle(&self) {
        let attached = &mut *self.lock();
        attached.sockets.retain(|(socket, _)| socket.strong_count() > 0);
        let needed = self.stage.is_needed();
        if let Some(driver) = self.driver.get() {
            driver.set_filtering(needed);
            return;
        }
        if let Some(tap) = self.tap.get() {
            if !attached.sockets.is_empty() && attached.follows != needed {
                tap.set_following(needed);
                attached.follows = needed;
            }
            return;
        }
        attached.error = None;
        for (socket, has) in attached.sockets.iter_mut().filter(|(_, has)| *has != needed) {
            let Some(socket) = socket.upgrade() else { continue };
            let done = match needed {
                true => socket
                    .attach_with(|socket| self.stage.attach(socket, self.link))
                    .map_err(|error| error.to_string()),
                false => socket.open().map_err(|error| error.to_string()),
            };
            match done {
                Ok(()) => *has = needed,
                // An error of one socket does not keep the others closed.
                Err(error) => attached.error = Some(error),
            }
        }
    }
}

impl Superset for Ebpf {
    fn begin(&self) {
        self.lock().begun = true;
        self.stage.begin();
    }

    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        self.stage.widen(added, unfiltered);
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        self.stage.narrow(texts, removed);
        self.settle();
    }

    fn why_not_later(&self) -> Option<String> {
        self.stage.why_not_later()
    }

    fn count_later(&self, texts: &[(String, usize)]) -> Result<(), String> {
        self.stage.count_later(texts)
    }

    fn open_for_good(&self, reason: &'static str) {
        self.stage.open_for_good(reason);
        self.settle();
    }
}

impl SocketFilter for Ebpf {
    fn take_socket(&self, socket: Arc<FilterSocket>) -> io::Result<()> {
        if let Some(tap) = self.tap.get() {
            if !self.lock().begun {
                self.stage.follow(self.link, |program| tap.follow(program))?;
            }
            tap.take_socket(Arc::clone(&socket))?;
        }
        if self.by_class {
            self.stage.share(|program| socket.share_by(program))?;
        }
        self.lock().sockets.push((Arc::downgrade(&socket), false));
        self.settle();
        let error = self.lock().error.clone();
        error.map_or(Ok(()), |error| Err(io::Error::other(error)))
    }

    fn take_driver(&self, driver: Arc<dyn DriverFilter>) -> io::Result<()> {
        self.stage.at_driver(driver.deliver(), |program| driver.put(program))?;
        let _first = self.driver.set(driver);
        self.settle();
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        let by_rules = self.tap.get().map_or(0, |tap| tap.rejected_by_rules());
        Some(self.stage.rejected() + by_rules)
    }

    fn later(&self) -> [u64; LATER] {
        self.stage.later()
    }
}

impl LowerFilter for Ebpf {
    fn set_classes(&self, classes: BTreeMap<String, u32>) -> Result<(), String> {
        match self.by_class {
            true => self.stage.set_classes(classes),
            false => return Err(format!("it does not for frames of link type {}", self.link)),
        }
        Ok(())
    }

    fn run_after(&self, tap: &Arc<dyn RulesTap>) -> Result<(), String> {
        // A tap takes programs while there is the right to change maps.
        self.stage.interpret_later("a Bloom pre-filter runs before it");
        self.tap.set(Arc::clone(tap)).map_err(|_known| "it has other rules already".to_owned())
    }

    fn passes_all(&self) -> Option<String> {
        let error = self.lock().error.clone();
        error.or_else(|| self.stage.reason())
    }

    fn form(&self) -> String {
        "eBPF".to_owned()
    }

    fn program(&self) -> Option<String> {
        // The others are no choice between a generated program and the interpreter.
        (self.driver.get().is_none() && !self.by_class).then(|| self.stage.program()).flatten()
    }

    fn count_maps(&self) -> Vec<BorrowedFd<'_>> {
        self.stage.count_maps()
    }
}

/// The texts of a filter as a program of classic BPF.
#[derive(Debug)]
struct Classic {
    stage: ClassicStage,
    sockets: Arc<Sockets>,
    /// Reason why there is no eBPF program.
    why_not: String,
}

/// The sockets of all rings that are open, for programs of classic BPF.
#[derive(Default)]
struct Sockets(Mutex<Vec<Weak<FilterSocket>>>);

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sockets").finish_non_exhaustive()
    }
}

impl Sockets {
    fn all(&self) -> Vec<Arc<FilterSocket>> {
        let mut sockets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.iter().filter_map(Weak::upgrade).collect()
    }
}

impl ClassicSocket for Sockets {
    fn attach(&self, program: &[Instruction]) -> io::Result<()> {
        self.all().iter().try_for_each(|socket| socket.attach(program))
    }

    fn open(&self) -> io::Result<()> {
        // An error of one socket does not keep the others closed.
        let opened: Vec<_> = self.all().iter().map(|socket| socket.open()).collect();
        opened.into_iter().collect()
    }

    fn snaplen(&self) -> u32 {
        self.all().iter().map(|socket| socket.snaplen()).max().unwrap_or(0)
    }
}

impl Superset for Classic {
    fn begin(&self) {
        self.stage.begin();
    }

    fn widen(&self, added: &[(u64, &str)], unfiltered: bool) {
        self.stage.widen(added, unfiltered);
    }

    fn narrow(&self, texts: &dyn Fn() -> Listing, removed: &[u64]) {
        self.stage.narrow(texts, removed);
    }

    fn why_not_later(&self) -> Option<String> {
        Some("classic BPF does not count what it rejects".to_owned())
    }

    fn open_for_good(&self, reason: &'static str) {
        self.stage.open_for_good(reason);
    }
}

impl SocketFilter for Classic {
    fn take_socket(&self, socket: Arc<FilterSocket>) -> io::Result<()> {
        let mut sockets = self.sockets.0.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.push(Arc::downgrade(&socket));
        drop(sockets);
        self.stage.take_socket(Arc::clone(&self.sockets) as Arc<dyn ClassicSocket>);
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        (!self.stage.has_rejected()).then_some(0)
    }
}

impl LowerFilter for Classic {
    fn passes_all(&self) -> Option<String> {
        self.stage.reason()
    }

    fn form(&self) -> String {
        format!("classic BPF; no eBPF: {}", self.why_not)
    }
}
