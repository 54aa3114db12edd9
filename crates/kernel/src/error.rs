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
}

fn lacks_may_goto(what: &str) -> bool {
    what.contains("invalid BPF_JMP opcode") || what.contains("unknown opcode")
}

fn is_unprivileged(what: &str) -> bool {
    what.contains("os error 1)") || what.contains("Operation not permitted")
}

/// The first two numbers of a kernel release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Hint that helps with a refusal; may be empty.
fn hint(what: &str) -> &'static str {
    if is_unprivileged(what) {
        "; needs root or CAP_BPF and CAP_NET_ADMIN (Linux 5.8)"
    } else if lacks_may_goto(what) {
        "; this form needs may_goto (Linux 6.9); the other form runs on Linux 5.17 or later"
    } else if what.contains("#181") || what.contains("bpf_loop") {
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
        let refused = |what: &str| OpenError::Refused { step: VERIFYING, what: what.into() };
        assert!(refused("12: (e5) unknown opcode e5").is_by_verifier());
        assert!(!refused("Operation not permitted (os error 1)").is_by_verifier());
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
