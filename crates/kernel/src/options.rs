//! Options of a space.

use crate::direct::Access;
use crate::layout::BUDGET_LIMIT;
use fyke_privilege::user::variable;

/// Loop construct with which the program runs its instructions; the forms do not differ otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One loop: Linux 6.9 (`may_goto`), unless the verifier finds it too complex.
    Loop,
    /// A call for each instruction: Linux 5.17 (`bpf_loop`).
    Callbacks,
}

impl Form {
    /// The form in the environment variable `FYKE_KERNEL_FORM` (`loop` or `callbacks`).
    pub(crate) fn from_environment() -> Option<Form> {
        match variable("FYKE_KERNEL_FORM")?.to_str() {
            Some("loop") => Some(Form::Loop),
            Some("callbacks") => Some(Form::Callbacks),
            _ => None,
        }
    }
}

/// True if the environment asks for a program that the verifier refuses, to test what happens then: its placeholders
/// stay ([`crate::direct`]).
pub(crate) fn is_refused() -> bool {
    variable("FYKE_KERNEL_FORM").is_some_and(|form| form == "refused")
}

/// Options of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Value that the program returns for accepted frames; for a socket the number of bytes to keep.
    pub accept: u32,
    /// Value that the program returns for other frames; for a socket 0.
    pub reject: u32,
    /// Count rejected frames; this costs a few nanoseconds each.
    pub count_rejected: bool,
    /// Most instructions for one frame, up to [`BUDGET_LIMIT`]; a frame that needs more is rejected and counted.
    pub budget: u32,
    /// Accept a frame that needs more instructions instead, for a reader that evaluates it again.
    pub pass_capped: bool,
    /// The form of the program. `None` takes the value of the environment variable `FYKE_KERNEL_FORM` (`loop`,
    /// `callbacks`), or else the best form that the kernel accepts.
    pub form: Option<Form>,
    /// Access to frames' bytes. If the kernel refuses it, or the form is [`Form::Callbacks`], it becomes
    /// [`Access::Copied`].
    pub access: Access,
    /// Runs at XDP, for frames that a [`Redirector`](crate::redirect::Redirector) takes from an interface with this
    /// address; Linux 6.9. `None`: for sockets and at tcx.
    pub driver: Option<[u8; 6]>,
    /// Also loads the program that distributes frames over the sockets of a group by the class of their pass
    /// ([`Space::with_fanout_program`](crate::Space::with_fanout_program)).
    pub distributes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            accept: u32::MAX,
            reject: 0,
            count_rejected: true,
            budget: BUDGET_LIMIT,
            pass_capped: false,
            form: None,
            access: Access::best(),
            driver: None,
            distributes: false,
        }
    }
}

/// Value of `reject` at an interface that drops frames which no pass accepts (`TC_ACT_SHOT`).
const DROP: u32 = 2;
/// Hands the frame to the next program at the interface.
const TCX_NEXT: u32 = u32::MAX;

impl Options {
    /// Options for [`crate::Space::attach_interface`] that drop frames which no pass accepts, also for the host.
    pub fn dropping() -> Options {
        Options { accept: TCX_NEXT, reject: DROP, ..Options::default() }
    }

    /// Options of a filter at XDP for an interface with this address.
    pub fn at_driver(address: [u8; 6]) -> Options {
        Options {
            accept: 1,
            access: Access::Copied,
            form: Some(Form::Loop),
            driver: Some(address),
            ..Options::default()
        }
    }

    /// Options for [`crate::Space::attach_interface`] that only count: every frame continues, whatever the verdict.
    pub fn counting() -> Options {
        Options { accept: TCX_NEXT, reject: TCX_NEXT, ..Options::default() }
    }
}
