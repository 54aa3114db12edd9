//! The rules of a Bloom pre-filter, editable from any thread while a node uses them ([`crate::classes`], `bloom`).
//!
//! The rules may be in the kernel, too ([`crate::placement::RulesTap`]), or belong to another process.
//!
//! A change takes effect at the next batch. Texts are Deri's: `+ip=…,port=…`, `-proto=tcp`, `list`, `reset`,
//! `enable 0|1`, `negative 0|1`. Source: Deri, *High-Speed Dynamic Packet Filtering*.
//!
//! ```
//! # mod fyke { pub(crate) use fyke_graph as graph; }
//! use fyke::graph::RuleSet;
//!
//! let rules = RuleSet::new(true);
//! rules.command("+ip=10.0.0.1,port=80")?;
//! assert!(rules.command("list")?.contains("port=80"));
//! assert!(rules.command("-ip=10.0.0.2").is_err());
//! # Ok::<(), fyke::graph::RulesError>(())
//! ```

use fyke_capture::ANY;
use fyke_table::Seed;
use fyke_table::prefilter::shared::ArrayView;
use fyke_table::prefilter::{
    Command, Prefilter, PrefilterError, PrefilterOptions, PrefilterReader, Rule, RuleTextError,
    SpaceStats,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Name of the counter of frames that the rules rejected in the kernel, so that their node did not see them.
pub const REJECTED_IN_KERNEL: &str = "rejected_in_kernel";

/// Reason why a command of the pre-filter was refused. A refused command changes nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The text is not a command.
    #[error(transparent)]
    Text(#[from] RuleTextError),
    /// The rule does not exist, or there would be one rule too many.
    #[error(transparent)]
    Rule(#[from] PrefilterError),
    /// A line of several is wrong or cannot be executed; none of them was. A caret is below the line of the error.
    #[error("line {number}:{}{error}", if .error.has_caret() { '\n' } else { ' ' })]
    Line {
        /// Its number, from 1.
        number: usize,
        /// The error.
        error: Box<RulesError>,
    },
    /// The rules are those of another process.
    #[error("the rules belong to {owner}, which edits them")]
    OfAnother {
        /// The process.
        owner: String,
    },
    /// Each of several interfaces has rules of its own.
    #[error("each interface has rules of its own here; name one of {names}")]
    Several {
        /// The names of the interfaces.
        names: String,
    },
    /// A capture on all interfaces has no rules of its own.
    #[error(
        "a capture on all interfaces reads the rules of each interface; name one of them, as in \
         `fyke rules eth0 --own`"
    )]
    OfAll,
    /// The interface has no rules here.
    #[error(
        "this capture has no rules of {interface}: have them with `fyke rules {interface} --own`, then start the \
         capture again"
    )]
    NotHere {
        /// Its name.
        interface: String,
    },
    /// The rules were those of another process, which has ended.
    #[error(
        "{owner}, which had the rules, has ended, so every frame passes here; a capture that is \
         started now can have rules again"
    )]
    Ended {
        /// The process.
        owner: String,
    },
}

impl RulesError {
    /// True if the message shows a line, and a caret below it.
    pub fn has_caret(&self) -> bool {
        match self {
            RulesError::Text(_) => true,
            RulesError::Line { error, .. } => error.has_caret(),
            _ => false,
        }
    }
}

/// The writer's side; clones share the rules.
#[derive(Debug, Clone)]
pub struct RuleSet(Arc<Shared>);

/// The rules of one of several interfaces.
#[derive(Debug, Clone)]
pub struct RulesPart {
    /// Name of the interface.
    pub interface: String,
    /// Number of the interface, for frames of a capture on all interfaces; 0: those of the interface with the name.
    pub ifindex: u32,
    /// Its rules.
    pub rules: RuleSet,
}

/// A count of frames.
type CountBelow = Box<dyn Fn() -> u64 + Send + Sync>;

struct Shared {
    rules: Mutex<Prefilter>,
    /// Counts the frames that the rules rejected in the space below.
    below: OnceLock<CountBelow>,
    /// The process that owns the rules, if it is another one.
    owner: OnceLock<Owner>,
    /// The rules of each interface, in place of these.
    parts: OnceLock<Vec<RulesPart>>,
    /// True if each frame that the rules reject is rejected by the whole graph.
    decides: AtomicBool,
}

/// The owner of rules that belong to another process.
#[derive(Debug)]
struct Owner {
    name: String,
    arrays: Arc<dyn ArrayView>,
    has_ended: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Shared");
        shown.field("rules", &self.rules).field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl RuleSet {
    /// Creates an empty rule set. While it is disabled, every frame passes.
    pub fn new(enabled: bool) -> RuleSet {
        RuleSet::with_options(PrefilterOptions::default(), enabled)
    }

    /// Creates an empty rule set with certain sizes and limits.
    pub fn with_options(options: PrefilterOptions, enabled: bool) -> RuleSet {
        let mut rules = Prefilter::new(options, Seed::random());
        rules.set_enabled(enabled);
        RuleSet(Arc::new(Shared {
            rules: Mutex::new(rules),
            below: OnceLock::new(),
            owner: OnceLock::new(),
            parts: OnceLock::new(),
            decides: AtomicBool::new(false),
        }))
    }

    /// An empty, disabled rule set with the sizes and limits of this one.
    pub(crate) fn of_same_size(&self) -> RuleSet {
        let options = *self.lock().options();
        RuleSet::with_options(options, false)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Prefilter> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `use_them` with the rules.
    pub fn with<T>(&self, use_them: impl FnOnce(&mut Prefilter) -> T) -> T {
        use_them(&mut self.lock())
    }

    /// Divides the rules by interfaces: a frame is judged by those of its interface, and passes if there are none. To
    /// be called once, before frames arrive.
    pub fn divide(&self, parts: Vec<RulesPart>) {
        // A second call changes nothing.
        let _known = self.0.parts.set(parts);
    }

    /// The rules of each interface, if they are divided.
    pub fn parts(&self) -> Option<&[RulesPart]> {
        self.0.parts.get().map(Vec::as_slice)
    }

    /// The rules themselves, of a set that refers to those of another node.
    pub(crate) fn leaf(&self) -> &RuleSet {
        match self.parts() {
            Some([part]) if part.ifindex == 0 => part.rules.leaf(),
            _ => self,
        }
    }

    /// Notes that each frame which the rules reject is rejected by the whole graph, so it counts as rejected by rules.
    pub(crate) fn set_deciding(&self) {
        self.0.decides.store(true, Ordering::Release);
    }

    /// True if each frame that the rules reject is rejected by the whole graph.
    pub fn is_deciding(&self) -> bool {
        self.0.decides.load(Ordering::Acquire)
    }

    /// Leaves the rules to another process, with arrays that a tap may read: frames that no tap judges are looked up in
    /// them, and commands are refused. To be called once.
    pub fn leave_to(&self, owner: String, arrays: Arc<dyn ArrayView>) {
        self.lock().set_enabled(false);
        // A second call changes nothing.
        let _known = self.0.owner.set(Owner { name: owner, arrays, has_ended: false.into() });
    }

    /// Lets every frame pass from now on: the process that owns the rules has ended.
    pub fn end_owner(&self) {
        self.0.owner.get().iter().for_each(|owner| owner.has_ended.store(true, Ordering::Release));
    }

    /// The arrays of another process, if the rules are there.
    pub(crate) fn arrays_of_another(&self) -> Option<&dyn ArrayView> {
        let owner = self.0.owner.get()?;
        (!owner.has_ended.load(Ordering::Acquire)).then_some(&*owner.arrays)
    }

    /// Sets the count of the frames that the rules reject in the space below. To be called once.
    pub(crate) fn count_below(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        // A node has one place.
        let _known = self.0.below.set(Box::new(count));
    }

    /// Number of frames that the rules rejected in the space below; `None` if they are not there.
    pub fn rejected_below(&self) -> Option<u64> {
        let of_parts = self.parts().unwrap_or_default().iter();
        let of_parts = of_parts.filter_map(|part| part.rules.rejected_below());
        self.0
            .below
            .get()
            .map(|count| count())
            .into_iter()
            .chain(of_parts)
            .reduce(|sum, one| sum + one)
    }

    /// A reader for one worker.
    pub fn reader(&self) -> PrefilterReader {
        self.lock().reader()
    }

    /// Executes a command for the rules of an interface, which has to be named if there are several.
    ///
    /// # Errors
    /// As for [`command`](Self::command); if the rules are divided, and this is none of their interfaces.
    pub fn command_at(&self, interface: Option<&str>, command: &str) -> Result<String, RulesError> {
        let Some(parts) = self.parts() else { return self.command(command) };
        let names =
            || parts.iter().map(|part| part.interface.as_str()).collect::<Vec<_>>().join(", ");
        let Some(interface) = interface else {
            return Err(RulesError::Several { names: names() });
        };
        match parts.iter().find(|part| part.interface == interface) {
            Some(part) => part.rules.command_at(Some(interface), command),
            None if interface == ANY => Err(RulesError::OfAll),
            None => Err(RulesError::NotHere { interface: interface.to_owned() }),
        }
    }

    /// Executes a command and returns its output. A text of several lines is a command per line, all of them or none;
    /// empty lines and lines that begin with `#` are comments, so a listing restores what it lists.
    ///
    /// # Errors
    /// If the text is not a command, or the command cannot be executed.
    pub fn command(&self, command: &str) -> Result<String, RulesError> {
        if command.trim_end().contains('\n') {
            return self.commands(command).map(|()| String::new());
        }
        let command = Command::parse(command)?;
        self.check_owner()?;
        let mut rules = self.lock();
        let shown = rules.apply(command)?;
        if command != Command::List {
            return Ok(shown);
        }
        Ok(listing(&rules, &shown))
    }

    fn check_owner(&self) -> Result<(), RulesError> {
        match self.0.owner.get() {
            Some(owner) if owner.has_ended.load(Ordering::Acquire) => {
                Err(RulesError::Ended { owner: owner.name.clone() })
            }
            Some(owner) => Err(RulesError::OfAnother { owner: owner.name.clone() }),
            None => Ok(()),
        }
    }

    /// Executes a command per line, all of them or none.
    fn commands(&self, text: &str) -> Result<(), RulesError> {
        self.check_owner()?;
        let is_command = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let lines = text.lines().enumerate().filter(|(_, line)| is_command(line));
        let blame = |number: usize, error: RulesError| RulesError::Line {
            number: number + 1,
            error: Box::new(error),
        };
        let parse = |(number, line)| match Command::parse(line) {
            Ok(command) => Ok((number, command)),
            Err(error) => Err(blame(number, error.into())),
        };
        let commands = lines.map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut rules = self.lock();
        let mut undo = Vec::new();
        for (number, command) in commands {
            let before = undo.len();
            undo.extend(inverse(&rules, command));
            if let Err(error) = rules.apply(command) {
                undo.truncate(before);
                for command in undo.into_iter().rev() {
                    // Each takes back a command that was executed.
                    let _undone = rules.apply(command);
                }
                return Err(blame(number, error.into()));
            }
        }
        Ok(())
    }
}

/// Returns the commands that take a command back, in reverse order.
fn inverse(rules: &Prefilter, command: Command) -> Vec<Command> {
    match command {
        Command::Add(rule) => vec![Command::Remove(rule)],
        Command::Remove(rule) => vec![Command::Add(rule)],
        Command::Enable(_) => vec![Command::Enable(rules.is_enabled())],
        Command::Negative(_) => vec![Command::Negative(rules.is_negative())],
        Command::Reset => {
            let each = |(rule, count): (&Rule, u32)| {
                std::iter::repeat_n(Command::Add(*rule), count as usize)
            };
            rules.rules().flat_map(each).collect()
        }
        Command::List => Vec::new(),
    }
}

/// Returns the look-ups of a frame with ports and its expected rate of false positives: of IPv4 or of IPv6, whichever
/// has more look-ups.
fn of_a_frame(spaces: &[SpaceStats]) -> Option<(u32, f64)> {
    let of = |family: &str| {
        let concerned = spaces.iter().filter(|space| ["any", family].contains(&kind(&space.name)));
        concerned.fold((0, 1.0), |(look_ups, none), space| {
            let none_here = (1.0 - space.expected_false_positives).powi(space.look_ups as i32);
            (look_ups + space.look_ups, none * none_here)
        })
    };
    let most = if of("ip6").0 > of("ip").0 { of("ip6") } else { of("ip") };
    (most.0 > 0).then_some((most.0, 1.0 - most.1))
}

/// The name of an array without its prefix length.
fn kind(name: &str) -> &str {
    name.split_once('/').map_or(name, |(kind, _)| kind)
}

/// Formats the rules with switches and arrays; `shown` lists the rules.
fn listing(rules: &Prefilter, shown: &str) -> String {
    let (enabled, negative) = (rules.is_enabled(), rules.is_negative());
    let mut text =
        format!("enable {}\nnegative {}\n{shown}", u8::from(enabled), u8::from(negative));
    if rules.is_empty() {
        text += "# no rule: every frame passes\n";
    }
    let spaces = rules.stats();
    for space in &spaces {
        text += &format!(
            "# {}: {} rules in {} KiB, false positives {:.1e} expected, {:.1e} by the bits\n",
            space.name,
            space.rules,
            space.bits.div_ceil(8192),
            space.expected_false_positives,
            space.filled_false_positives,
        );
    }
    if let Some((look_ups, rate)) = of_a_frame(&spaces) {
        text += &format!("# a frame with ports: {look_ups} look-ups, {rate:.1e} expected\n");
    }
    text
}
