//! Rules of a Bloom pre-filter in the kernel: a program that is the first filter of a capture's sockets.
//!
//! | rules | owner of the arrays | edits |
//! |---|---|---|
//! | of a node (`(bloom, "port=80")`) | this process | by its control socket |
//! | of the interface, no other fyke has them | this process; others find its map by [`OwnedRules`] | the same |
//! | of the interface, another fyke has them | that one | refused here, with its process id |
//!
//! If the owner ends, however, the tap is switched off, and every frame passes.

use fyke_capture::{FilterSocket, SocketFilter};
use fyke_control::{OwnedRules, RuntimeDir};
use fyke_graph::RuleSet;
use fyke_graph::placement::RulesTap;
use fyke_kernel::prefilter::{Arrays, Tap};
use fyke_kernel::sys;
use fyke_table::prefilter::shared::ArrayView;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for another fyke to answer as the owner of rules.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between attempts.
const TICK: Duration = Duration::from_millis(50);

/// The process that owns rules which this one reads.
#[derive(Debug)]
struct Owner {
    pid: u32,
    /// Refers to the process, even if its number is reused.
    process: OwnedFd,
    rules: RuleSet,
}

/// State that the capture shares with the thread that waits for the end of the owner.
struct Program {
    tap: Tap,
    interface: String,
}

/// The tap of one capture.
pub struct SocketTap {
    program: Arc<Program>,
    /// Keeps other owners out.
    _lock: Option<File>,
    /// Number of the map, if the rules are those of the interface and ours.
    number: Option<u32>,
    owner: Mutex<Option<Owner>>,
    owner_pid: Option<u32>,
    /// State of the owner's rules at the start.
    state: &'static str,
    sockets: Mutex<Vec<Arc<FilterSocket>>>,
}

/// Number of the calling thread's network namespace.
pub fn namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Finds the fyke that owns the rules of an interface of this network namespace.
pub fn owner_of(interface: &str) -> Option<(u32, OwnedRules)> {
    let namespace = namespace().ok()?;
    let is_it = |rules: &OwnedRules| rules.interface == interface && rules.namespace == namespace;
    fyke_control::list().into_iter().find_map(|found| {
        let rules = found.description?.rules.filter(is_it)?;
        Some((found.pid, rules))
    })
}

/// Result of a claim for the rules of an interface.
pub enum Claim {
    /// No other fyke has them, as long as this file is open.
    Ours(File),
    /// This process has them.
    Of(u32, OwnedRules),
}

/// Claims the rules of an interface of this network namespace. Waits for another fyke that is about to own them.
///
/// # Errors
/// The reason why they cannot be had.
pub fn claim(interface: &str) -> Result<Claim, String> {
    let namespace = namespace().map_err(|error| error.to_string())?;
    let name = format!("rules-{interface}-{namespace}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((pid, rules)) = owner_of(interface) {
            return Ok(Claim::Of(pid, rules));
        }
        let locked = RuntimeDir::try_lock(&name).map_err(|error| error.to_string())?;
        match locked {
            Some(lock) => return Ok(Claim::Ours(lock)),
            None if Instant::now() > deadline => {
                let what = "another fyke has the rules of";
                return Err(format!("{what} {interface} and does not answer"));
            }
            None => std::thread::sleep(TICK),
        }
    }
}

impl SocketTap {
    /// Makes the tap for the rules of a node; `shared`: those of the interface. Of a frame that passes, the sockets get
    /// `bytes`.
    ///
    /// # Errors
    /// The reason why the kernel cannot have the rules.
    pub fn open(
        interface: &str,
        bytes: u32,
        rules: &RuleSet,
        shared: bool,
    ) -> Result<SocketTap, String> {
        let lock = match shared.then(|| claim(interface)).transpose()? {
            Some(Claim::Of(pid, owned)) => {
                return SocketTap::join(interface, bytes, rules, pid, &owned);
            }
            Some(Claim::Ours(lock)) => Some(lock),
            None => None,
        };
        let arrays = rules.with(|rules| Arrays::new(rules.options()));
        let arrays = arrays.map_err(|error| error.to_string())?;
        rules.with(|rules| arrays.follow(rules)).map_err(|error| error.to_string())?;
        let tap = Tap::open(&arrays, bytes).map_err(|error| error.brief())?;
        let number = shared.then(|| arrays.number()).transpose();
        let number = number.map_err(|error| error.to_string())?;
        Ok(SocketTap { _lock: lock, ..SocketTap::new(tap, interface, number, None) })
    }

    fn join(
        interface: &str,
        bytes: u32,
        rules: &RuleSet,
        pid: u32,
        owned: &OwnedRules,
    ) -> Result<SocketTap, String> {
        let refused = |error: &dyn std::fmt::Display| {
            format!(
                "the rules of process {pid} cannot be read: {}",
                super::first_line(&error.to_string())
            )
        };
        let process = sys::open_process(pid).map_err(|error| refused(&error))?;
        let arrays = Arrays::of_number(owned.map).map_err(|error| refused(&error))?;
        let tap = Tap::open(&arrays, bytes).map_err(|error| refused(&error.brief()))?;
        let view = Arc::new(arrays.view().map_err(|error| refused(&error))?);
        let state = match view.switches() {
            (false, _) => "off",
            (true, _) if view.probe_count() == 0 => "without a rule",
            (true, _) => "on",
        };
        rules.leave_to(format!("process {pid}"), view);
        let owner = Owner { pid, process, rules: rules.clone() };
        Ok(SocketTap { state, ..SocketTap::new(tap, interface, None, Some(owner)) })
    }

    /// Makes it the first filter of a socket.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.program.tap.attach(socket).map_err(io::Error::other)
    }

    fn new(tap: Tap, interface: &str, number: Option<u32>, owner: Option<Owner>) -> SocketTap {
        SocketTap {
            program: Arc::new(Program { tap, interface: interface.to_owned() }),
            number,
            _lock: None,
            owner_pid: owner.as_ref().map(|owner| owner.pid),
            owner: Mutex::new(owner),
            state: "",
            sockets: Mutex::default(),
        }
    }
}

/// Waits until the owner of the rules ends, then lets every frame pass.
fn outlive(owner: &Owner, program: &Program) {
    sys::objects::wait_for_end(&owner.process);
    program.tap.set_on(false);
    owner.rules.end_owner();
    note!(
        "fyke: process {} with the rules of {} has ended: every frame passes; start this capture again to \
         read those of another owner",
        owner.pid,
        program.interface
    );
}

impl SocketFilter for SocketTap {
    fn take_socket(&self, socket: Arc<FilterSocket>) -> io::Result<()> {
        let attach = |socket: BorrowedFd<'_>| self.program.tap.attach(socket);
        socket.attach_with(attach).map_err(io::Error::other)?;
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
        Ok(())
    }

    fn rejected(&self) -> Option<u64> {
        Some(self.rejected_by_rules())
    }
}

impl RulesTap for SocketTap {
    fn follow(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.program.tap.follow(program)
    }

    fn set_following(&self, follows: bool) {
        self.program.tap.set_following(follows);
    }

    fn begin(&self) {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(owner) = owner else { return };
        let program = Arc::clone(&self.program);
        let wait = move || outlive(&owner, &program);
        if let Err(error) = std::thread::Builder::new().name("fyke-rules".into()).spawn(wait) {
            self.set_on(false);
            note!("fyke: the rules of {} are not used: no thread: {error}", self.program.interface);
        }
    }

    fn set_on(&self, on: bool) {
        self.program.tap.set_on(on);
    }

    fn rejected_by_rules(&self) -> u64 {
        self.program.tap.rejected()
    }

    fn describe(&self) -> String {
        let interface = &self.program.interface;
        match (self.owner_pid, self.number) {
            (Some(pid), _) => {
                format!("rules of {interface}: those of process {pid} ({})", self.state)
            }
            (None, Some(_)) => format!(
                "rules of {interface}: owned by this fyke (process {}), edit: fyke rules {interface}",
                std::process::id()
            ),
            (None, None) => "rules of this graph".to_owned(),
        }
    }

    fn number(&self) -> Option<u32> {
        self.number
    }
}
