//! Errors of the kernel space, with hints about the kernel version or privilege that is missing.

use fyke_pass::InstructionError;
use std::io;

/// Reason why the kernel space cannot be opened. The caller can run the filter in user space instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The crate was built without clang.
    #[error("built without the kernel program ({why}): install clang and build again")]
    NoObject {
        /// Reason given by the build.
        why: &'static str,
    },
    /// The kernel refuses; most often a privilege is missing.
    #[error("{step}: {what}{}", hint(.what))]
    Refused {
        /// The step that failed.
        step: &'static str,
        /// Message of the kernel or the loader.
        what: String,
    },
    /// A system call failed.
    #[error("{step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

/// The error of the system for a right that is missing.
const DENIED: &str = "Operation not permitted (os error 1)";
/// Most characters of a message in [`OpenError::brief`].
const BRIEF_CHARS: usize = 240;
/// Numbers of the capabilities that let a verifier accept programs which keep pointers on their stack.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// The step at which a verifier refuses.
pub(crate) const VERIFYING: &str = "verifying the program";

/// The oldest kernel that some form of the program runs on.
const OLDEST_KERNEL: (u32, u32) = (5, 17);

impl OpenError {
    /// True if the machine lacks something that a kernel space needs: the program (the build needs clang), the
    /// privilege, or Linux 5.17. Any other error, such as a refusal by the verifier, is a defect.
    pub fn is_unavailable(&self) -> bool {
        let is_denied = match self {
            OpenError::NoObject { .. } => return true,
            OpenError::Refused { what, .. } => is_unprivileged(what),
            OpenError::System { source, .. } => source.raw_os_error() == Some(libc::EPERM),
        };
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        is_denied || version(&release).is_some_and(|version| version < OLDEST_KERNEL)
    }

    /// True if the verifier refuses the program in a process that may load programs; another form may be accepted.
    pub fn is_by_verifier(&self) -> bool {
        let OpenError::Refused { step, what } = self else { return false };
        *step == VERIFYING && !is_unprivileged(what)
    }

    /// The message in a line: of a verifier's pages, the reason at their end, and the hint. If a right is missing, it
    /// does not depend on the object that was made first.
    pub fn brief(&self) -> String {
        let OpenError::Refused { step, what } = self else { return cut(&self.to_string()) };
        let shown = if what.contains(DENIED) { DENIED.to_owned() } else { without_log(what) };
        format!("{step}: {}{}", cut(&shown), hint(what))
    }
}

/// The first line of a message, cut.
fn cut(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    match line.char_indices().nth(BRIEF_CHARS) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    }
}

/// A message with the reason of a verifier in place of its log: the last line before its statistics.
fn without_log(what: &str) -> String {
    let Some((head, log)) = what.split_once("Verifier output:") else { return what.to_owned() };
    let statistics = ["processed ", "stack depth ", "verification time ", ": "];
    let is_reason = |line: &&str| {
        !line.trim().is_empty() && !statistics.iter().any(|start| line.starts_with(start))
    };
    match log.lines().rfind(is_reason) {
        Some(reason) => format!("{}: {}", head.trim_end_matches([' ', '.']), reason.trim()),
        None => head.trim_end().to_owned(),
    }
}

/// True for the refusals of a verifier that needs CAP_PERFMON to accept pointers on the stack.
fn lacks_perfmon(what: &str) -> bool {
    let refusals = ["corrupt spilled pointer", "leaks addr", "pointer arithmetic prohibited"];
    refusals.iter().any(|refusal| what.contains(refusal))
        && [CAP_SYS_ADMIN, CAP_PERFMON].iter().all(|&number| !has_capability(number))
}

/// True if this process has a capability.
fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> number & 1 == 1)
}

/// Adds advice to the error of a system call for an object of the kernel.
pub(crate) fn advised(error: io::Error) -> io::Error {
    match hint(&error.to_string()) {
        "" => error,
        hint => io::Error::new(error.kind(), format!("{error}{hint}")),
    }
}

fn lacks_may_goto(what: &str) -> bool {
    what.contains("invalid BPF_JMP opcode") || what.contains("unknown opcode")
}

fn is_unprivileged(what: &str) -> bool {
    what.contains("os error 1)") || what.contains("Operation not permitted") || lacks_perfmon(what)
}

/// The first two numbers of a kernel release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Hint that helps with a refusal; may be empty.
fn hint(what: &str) -> &'static str {
    if lacks_perfmon(what) {
        "; needs CAP_PERFMON beside CAP_BPF and CAP_NET_ADMIN (Linux 5.8), or root"
    } else if is_unprivileged(what) {
        "; needs root or CAP_BPF and CAP_NET_ADMIN (Linux 5.8)"
    } else if lacks_may_goto(what) {
        "; this form needs may_goto (Linux 6.9); the other form runs on Linux 5.17 or later"
    } else if ["unknown func bpf_loop", "func unknown#181"].iter().any(|one| what.contains(one)) {
        "; the program needs bpf_loop (Linux 5.17)"
    } else if what.contains("failed to create map") {
        "; memory that is mapped into processes needs Linux 5.5"
    } else {
        ""
    }
}

/// Reason why a descriptor does not get the filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Not a socket, or not a packet socket.
    #[error("only packet sockets can run passes; this is {given}")]
    NotPacket {
        /// Type of the descriptor.
        given: String,
    },
    /// The kernel refuses.
    #[error("attaching to the socket: {0}")]
    System(#[from] io::Error),
}

/// Reason why an edit was refused. A refused edit changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelEditError {
    /// The pass does not exist, or not any more.
    #[error("there is no pass {given} in the kernel")]
    NoPass {
        /// The pass number given.
        given: u32,
    },
    /// The pass has no instruction with this index.
    #[error("instruction {given} does not exist: the pass has {length}")]
    NoInstruction {
        /// The index given.
        given: usize,
        /// Instructions of the pass.
        length: usize,
    },
    /// An instruction has eight words.
    #[error("an instruction has 8 words, there is no word {given}")]
    NoWord {
        /// The index given.
        given: usize,
    },
    /// The pass would have too many instructions.
    #[error("a pass has room for {limit} instructions, {given} are given")]
    PassFull {
        /// Number of instructions the pass would have.
        given: usize,
        /// Most instructions of a pass.
        limit: usize,
    },
    /// No slot is left.
    #[error("the kernel's memory is full: {limit} slots of 31 instructions")]
    Full {
        /// Number of slots.
        limit: usize,
    },
    /// Both buckets of the key are full.
    #[error("the kernel's table is full near this key: {rows} rows in it, room for {limit}")]
    RowsFull {
        /// Number of rows in the table.
        rows: usize,
        /// Number of rows that fit in the best case.
        limit: usize,
    },
    /// The range of slots for this address is full.
    #[error("the kernel's IPv6 addresses are full near this one: {given} there, room for {limit}")]
    AddressesFull {
        /// Number of addresses in the table.
        given: usize,
        /// Number of addresses that fit in the best case.
        limit: usize,
    },
    /// No free range of the code memory is long enough.
    #[error("the kernel's memory for byte expressions is full: {given} words wanted, {limit} left")]
    CodeFull {
        /// Words that the text needs.
        given: usize,
        /// Length of the longest free range.
        limit: usize,
    },
    /// The text can only be evaluated in user space.
    #[error("`{text}` cannot run in the kernel: {why}; run it in user space (fyke dump)")]
    Text {
        /// The text.
        text: String,
        /// Reason why it cannot run in the kernel.
        why: String,
    },
    /// The work per frame could exceed the budget.
    #[error("a frame could cost {given} instructions, at most {limit} are allowed")]
    Budget {
        /// Instructions that a frame could cost.
        given: usize,
        /// Most instructions allowed.
        limit: u32,
    },
    /// The test cannot run in the kernel.
    #[error("the test `{test}` cannot run in the kernel; run the filter in user space")]
    Unsupported {
        /// The instruction in readable form.
        test: String,
    },
    /// The bits are not an instruction.
    #[error(transparent)]
    Instruction(#[from] InstructionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_kernel_or_privilege_that_would_help() {
        let message = |what: &str| {
            OpenError::Refused { step: "verifying the program", what: what.into() }.to_string()
        };
        assert!(message("23: (e5) invalid BPF_JMP opcode e0").contains("Linux 6.9"));
        assert!(message("invalid func unknown#181").contains("Linux 5.17"));
        assert!(message("failed to create map `passes`: EINVAL").contains("Linux 5.5"));
        assert!(message("Operation not permitted (os error 1)").contains("root or CAP_BPF"));
        assert!(!message("value 0xe5 is too complex").contains("Linux"));
        assert!(message("unknown func bpf_loop#181").contains("Linux 5.17"));
        assert!(!message("118: (85) call bpf_loop#181\ntoo complex").contains("Linux"));
        let refused = |what: &str| OpenError::Refused { step: VERIFYING, what: what.into() };
        assert!(refused("12: (e5) unknown opcode e5").is_by_verifier());
        assert!(!refused("Operation not permitted (os error 1)").is_by_verifier());
    }

    #[test]
    fn a_brief_message_has_the_reason_of_the_verifier() {
        let log = "it returned Permission denied (os error 13). Verifier output: 0: R1=ctx()\n1: (63) x\n\
                   R2 offset is outside of the packet\nprocessed 9 insns (limit 1)\n";
        let refused = OpenError::Refused { step: VERIFYING, what: log.into() };
        assert_eq!(
            refused.brief(),
            "verifying the program: it returned Permission denied (os error 13): R2 offset is outside of the packet"
        );
        let of_map = |name: &str| format!("failed to create map `{name}`: {DENIED}");
        let denied = |name| OpenError::Refused { step: "making the maps", what: of_map(name) };
        assert_eq!(denied("rows").brief(), denied("counters").brief());
        assert!(
            denied("rows")
                .brief()
                .ends_with("(os error 1); needs root or CAP_BPF and CAP_NET_ADMIN (Linux 5.8)")
        );
        let long = OpenError::Refused { step: "x", what: "y".repeat(9_000) };
        assert!(long.brief().len() < 300, "{}", long.brief());
    }

    #[test]
    fn a_verifiers_refusal_is_no_lack_of_the_machine() {
        let refused = |what: &str| OpenError::Refused { step: "loading", what: what.into() };
        assert!(refused("map: Operation not permitted (os error 1)").is_unavailable());
        assert!(
            !refused("R1 invalid mem access: Permission denied (os error 13)").is_unavailable()
        );
        assert!(OpenError::NoObject { why: "no clang" }.is_unavailable());
        let system =
            |code| OpenError::System { step: "x", source: io::Error::from_raw_os_error(code) };
        assert!(system(libc::EPERM).is_unavailable() && !system(libc::ENOMEM).is_unavailable());
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert!(version("5.10.0").is_some_and(|version| version < OLDEST_KERNEL));
        assert_eq!(version("next"), None);
    }
}
