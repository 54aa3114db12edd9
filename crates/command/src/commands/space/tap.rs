//! Rules of a Bloom pre-filter for a capture: in the kernel as the first filter of its sockets, or in user space.
//!
//! | rules | owner of the arrays | edits |
//! |---|---|---|
//! | of a node (`(bloom, "port=80")`) | this process | by its control socket |
//! | of the interface, no other fyke has them | this process; others find its map by [`OwnedRules`] | the same |
//! | of the interface, another fyke has them | that one | refused here, with its process id |
//! | of all interfaces (`any`) | those that have them; other interfaces have none | refused here |
//!
//! Where the kernel cannot have the rules of an interface, the node looks frames up in the same arrays. If rules cannot
//! be read, the capture is refused. If the owner ends, however, the tap is switched off, and every frame passes.

use fyke_capture::{ANY, FilterSocket, SocketFilter};
use fyke_control::{NameLock, OwnedRules, RuntimeDir};
use fyke_graph::placement::{NoRules, OwnedArrays, RulesTap};
use fyke_graph::{RuleSet, RulesPart};
use fyke_kernel::prefilter::{Arrays, Tap};
use fyke_kernel::sys::{self, objects};
use fyke_table::prefilter::shared::ArrayView;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for another fyke to answer as the owner of rules.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between attempts.
const TICK: Duration = Duration::from_millis(50);
/// Advice for rules that cannot be read.
const ADVICE: &str = "start as root (CAP_BPF and CAP_SYS_ADMIN), or have rules of this capture alone: omit --rules, or \
                      write (bloom, own=y)";

/// Rules that this process owns, by the number of the interface, for further nodes of a graph that is made.
static OURS: Mutex<BTreeMap<u32, RuleSet>> = Mutex::new(BTreeMap::new());

/// Locks that keep other owners out, until the end of this process: threads may hold the graph for longer.
static LOCKS: Mutex<Vec<NameLock>> = Mutex::new(Vec::new());

/// Gives back the rules of interfaces that this process has; to be called at its end.
pub fn give_back_rules() {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The process that owns rules which this one reads.
#[derive(Debug)]
struct Owner {
    pid: u32,
    /// Refers to the process, even if its number is reused.
    process: OwnedFd,
    rules: RuleSet,
    interface: String,
}

/// State that the capture shares with the threads that wait for the ends of owners.
struct Program {
    /// `None`: the rules are in user space only.
    tap: Option<Tap>,
}

/// Numbers of rules that this process owns.
struct Owned {
    arrays: OwnedArrays,
    /// The memory of the arrays, which may have no program.
    _arrays: Arrays,
}

/// The rules of one capture.
pub struct SocketTap {
    program: Arc<Program>,
    /// Reason why they are in user space only.
    why_in_user: Option<String>,
    owned: Option<Owned>,
    owners: Mutex<Vec<Owner>>,
    described: String,
    sockets: Mutex<Vec<Arc<FilterSocket>>>,
}

/// Number of the calling thread's network namespace.
pub fn namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// All rules of interfaces of this network namespace, with the processes that own them.
fn all_owned() -> Vec<(u32, OwnedRules)> {
    let Ok(namespace) = namespace() else { return Vec::new() };
    let owned = |found: fyke_control::Instance| {
        let rules = found.description.iter().flat_map(|one| one.all_rules().cloned());
        rules.map(|rules| (found.pid, rules)).collect::<Vec<_>>()
    };
    let all = fyke_control::list().into_iter().flat_map(owned);
    all.filter(|(_, rules)| rules.namespace == namespace).collect()
}

/// Finds the fyke that owns the rules of an interface of this network namespace, which may have been renamed.
pub fn owner_of(interface: &str) -> Option<(u32, OwnedRules)> {
    let index = objects::interface_index(interface).ok();
    all_owned().into_iter().find(|(_, rules)| match (rules.index, index) {
        (1.., Some(index)) => rules.index == index,
        _ => rules.interface == interface,
    })
}

/// Result of a claim for the rules of an interface.
pub enum Claim {
    /// No other fyke has them, as long as this lock is held.
    Ours(NameLock),
    /// This process has them.
    Of(u32, OwnedRules),
}

/// Claims the rules of an interface of this network namespace, by its number. Waits for another fyke that is about to
/// own them.
///
/// # Errors
/// The reason why they cannot be had.
pub fn claim(interface: &str, index: u32) -> Result<Claim, String> {
    let namespace = namespace().map_err(|error| error.to_string())?;
    let name = format!("rules-{index}-{namespace}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((pid, rules)) = owner_of(interface) {
            return Ok(Claim::Of(pid, rules));
        }
        let locked = RuntimeDir::try_lock(&name).map_err(|error| error.to_string())?;
        match locked {
            Some(lock) => {
                // Those of interfaces that are gone, by processes that were killed.
                RuntimeDir::remove_unlocked("rules-");
                return Ok(Claim::Ours(lock));
            }
            None if Instant::now() > deadline => {
                let what = "another fyke has the rules of";
                return Err(format!(
                    "{what} {interface} and does not answer; end it (fyke ctl list)"
                ));
            }
            None => std::thread::sleep(TICK),
        }
    }
}

/// Loads the program for arrays, unless there is a reason for user space.
fn program(arrays: &Arrays, bytes: u32, in_user: Option<String>) -> (Option<Tap>, Option<String>) {
    match in_user {
        Some(why) => (None, Some(why)),
        None => match Tap::open(arrays, bytes) {
            Ok(tap) => (Some(tap), None),
            Err(error) => (None, Some(error.brief())),
        },
    }
}

impl SocketTap {
    /// Makes the rules of an interface the first filter of sockets: joins them, or has them. Of a frame that passes,
    /// the sockets get `bytes`.
    ///
    /// # Errors
    /// The reason why the kernel cannot have the rules.
    pub fn open(interface: &str, bytes: u32, rules: &RuleSet) -> Result<SocketTap, String> {
        let tap = SocketTap::shared(interface, bytes, rules, None);
        let tap = tap.map_err(|error| match error {
            NoRules::Alone(why) | NoRules::Refused(why) => why,
        })?;
        tap.why_in_user.clone().map_or(Ok(tap), Err)
    }

    /// Makes the tap for the rules of a node.
    pub fn of_graph(interface: &str, bytes: u32, rules: &RuleSet) -> Result<SocketTap, NoRules> {
        if objects::interface_index(interface).is_err() {
            return Err(NoRules::Alone(no_interface(interface)));
        }
        let alone = |error: io::Error| NoRules::Alone(super::first_line(&error.to_string()));
        let arrays = rules.with(|rules| Arrays::new(rules.options())).map_err(alone)?;
        rules.with(|rules| arrays.follow(rules)).map_err(alone)?;
        let tap = Tap::open(&arrays, bytes).map_err(|error| NoRules::Alone(error.brief()))?;
        Ok(SocketTap::new(Some(tap), None, "rules of this graph".to_owned()))
    }

    /// Joins the rules of an interface, or has them: in the kernel if there is no reason for user space.
    pub fn shared(
        interface: &str,
        bytes: u32,
        rules: &RuleSet,
        in_user: Option<String>,
    ) -> Result<SocketTap, NoRules> {
        let index = objects::interface_index(interface).ok();
        if index.is_none() && interface != ANY {
            return Err(NoRules::Alone(no_interface(interface)));
        }
        if !rustix::process::geteuid().is_root() {
            let why = "they belong to processes of root, which this one cannot find";
            return Err(NoRules::Refused(format!(
                "the rules of {interface} cannot be read: {why}; {ADVICE}"
            )));
        }
        let Some(index) = index else { return SocketTap::join_all(rules) };
        let known = OURS.lock().unwrap_or_else(PoisonError::into_inner).get(&index).cloned();
        if let Some(known) = known {
            let part = RulesPart { interface: interface.to_owned(), ifindex: 0, rules: known };
            rules.divide(vec![part]);
            let why = "another node of this graph has them, too".to_owned();
            return Ok(SocketTap::new(None, Some(why), owned_here(interface)));
        }
        match claim(interface, index) {
            Ok(Claim::Of(pid, owned)) => {
                let refused =
                    |error: io::Error| NoRules::Refused(unreadable(interface, pid, &error));
                let (arrays, owner) = join(interface, rules, pid, &owned).map_err(refused)?;
                let (tap, why) = program(&arrays, bytes, in_user);
                let described = owner.1;
                let tap = SocketTap::new(tap, why, format!("rules of {interface}: {described}"));
                Ok(SocketTap { owners: Mutex::new(vec![owner.0]), ..tap })
            }
            Ok(Claim::Ours(lock)) => SocketTap::own(interface, index, bytes, rules, in_user, lock),
            Err(why) => Err(NoRules::Refused(format!("{why}; or {ADVICE}"))),
        }
    }

    /// Has the rules of an interface that no other fyke has.
    fn own(
        interface: &str,
        index: u32,
        bytes: u32,
        rules: &RuleSet,
        in_user: Option<String>,
        lock: NameLock,
    ) -> Result<SocketTap, NoRules> {
        let arrays = rules.with(|rules| Arrays::new(rules.options()));
        let made = arrays.and_then(|arrays| {
            rules.with(|rules| arrays.follow(rules))?;
            let map = arrays.number()?;
            Ok((arrays, map))
        });
        let (arrays, map) =
            made.map_err(|error| NoRules::Alone(format!("no right to share them: {error}")))?;
        let (tap, why) = program(&arrays, bytes, in_user);
        OURS.lock().unwrap_or_else(PoisonError::into_inner).insert(index, rules.clone());
        LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
        let owned = Owned { arrays: OwnedArrays { map, interface: index }, _arrays: arrays };
        let tap = SocketTap::new(tap, why, owned_here(interface));
        Ok(SocketTap { owned: Some(owned), ..tap })
    }

    /// Joins the rules of all interfaces that have an owner.
    fn join_all(rules: &RuleSet) -> Result<SocketTap, NoRules> {
        let (mut parts, mut owners, mut described) = (Vec::new(), Vec::new(), Vec::new());
        for (pid, owned) in all_owned() {
            let interface = owned.interface.clone();
            let part = RuleSet::new(false);
            let refused = |error: io::Error| NoRules::Refused(unreadable(&interface, pid, &error));
            let (_arrays, (owner, state)) =
                join(&interface, &part, pid, &owned).map_err(refused)?;
            described.push(format!("rules of {interface}: {state}"));
            owners.push(owner);
            parts.push(RulesPart { interface, ifindex: owned.index, rules: part });
        }
        rules.divide(parts);
        described.push(match described.is_empty() {
            true => "no interface has rules, so every frame passes; have them with `fyke rules IF --own`, then \
                     start this capture again"
                .to_owned(),
            false => "other interfaces have none: their frames pass".to_owned(),
        });
        let why = "the kernel has rules for the sockets of one interface".to_owned();
        let tap = SocketTap::new(None, Some(why), described.join("; "));
        Ok(SocketTap { owners: Mutex::new(owners), ..tap })
    }

    /// Makes it the first filter of a socket.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.tap()?.attach(socket).map_err(io::Error::other)
    }

    fn tap(&self) -> io::Result<&Tap> {
        self.program
            .tap
            .as_ref()
            .ok_or_else(|| io::Error::other("the rules are in user space only"))
    }

    fn new(tap: Option<Tap>, why_in_user: Option<String>, described: String) -> SocketTap {
        SocketTap {
            program: Arc::new(Program { tap }),
            why_in_user,
            owned: None,
            owners: Mutex::default(),
            described,
            sockets: Mutex::default(),
        }
    }
}

fn no_interface(name: &str) -> String {
    format!("{name} is no interface of this network namespace")
}

fn owned_here(interface: &str) -> String {
    let pid = std::process::id();
    format!(
        "rules of {interface}: owned by this fyke (process {pid}), edit: fyke rules {interface}"
    )
}

fn unreadable(interface: &str, pid: u32, error: &io::Error) -> String {
    let why = super::first_line(&error.to_string());
    format!(
        "process {pid} has the rules of {interface}, and this one cannot read them: {why}; {ADVICE}"
    )
}

/// Leaves rules to the process that owns them. Returns the arrays, and the owner with its description.
fn join(
    interface: &str,
    rules: &RuleSet,
    pid: u32,
    owned: &OwnedRules,
) -> io::Result<(Arrays, (Owner, String))> {
    let process = sys::open_process(pid)?;
    let arrays = Arrays::of_number(owned.map)?;
    let view = Arc::new(arrays.view()?);
    let state = match view.switches() {
        (false, _) => "off",
        (true, _) if view.probe_count() == 0 => "without a rule",
        (true, _) => "on",
    };
    rules.leave_to(format!("process {pid}"), view);
    let owner = Owner { pid, process, rules: rules.clone(), interface: interface.to_owned() };
    Ok((arrays, (owner, format!("those of process {pid} ({state})"))))
}

/// Waits until the owner of the rules ends, then lets every frame pass.
fn outlive(owner: &Owner, program: &Program) {
    sys::objects::wait_for_end(&owner.process);
    program.tap.iter().for_each(|tap| tap.set_on(false));
    owner.rules.end_owner();
    note!(
        "fyke: process {} with the rules of {} has ended: every frame passes; start this capture again to \
         read those of another owner",
        owner.pid,
        owner.interface
    );
}

impl SocketFilter for SocketTap {
    fn take_socket(&self, socket: Arc<FilterSocket>) -> io::Result<()> {
        let tap = self.tap()?;
        socket.attach_with(|socket| tap.attach(socket)).map_err(io::Error::other)?;
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        Some(self.rejected_by_rules())
    }
}

impl RulesTap for SocketTap {
    fn follow(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.tap()?.follow(program)
    }

    fn set_following(&self, follows: bool) {
        self.program.tap.iter().for_each(|tap| tap.set_following(follows));
    }

    fn begin(&self) {
        // All nodes are made; the rules and their lock go with their last node.
        OURS.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let owners =
            std::mem::take(&mut *self.owners.lock().unwrap_or_else(PoisonError::into_inner));
        for owner in owners {
            let (program, interface) = (Arc::clone(&self.program), owner.interface.clone());
            let rules = owner.rules.clone();
            let wait = move || outlive(&owner, &program);
            if let Err(error) = std::thread::Builder::new().name("fyke-rules".into()).spawn(wait) {
                self.set_on(false);
                rules.end_owner();
                note!("fyke: the rules of {interface} are not used: no thread: {error}");
            }
        }
    }

    fn set_on(&self, on: bool) {
        self.program.tap.iter().for_each(|tap| tap.set_on(on));
    }

    fn rejected_by_rules(&self) -> u64 {
        self.program.tap.as_ref().map_or(0, Tap::rejected)
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    fn why_in_user(&self) -> Option<String> {
        self.why_in_user.clone()
    }

    fn owned(&self) -> Option<OwnedArrays> {
        self.owned.as_ref().map(|owned| owned.arrays)
    }
}
