//! Options of a space.

use crate::direct::Access;
use crate::layout::BUDGET_LIMIT;

/// How the program goes through its instructions; nothing else differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One loop: Linux 6.9 (`may_goto`), if the verifier does not find it too complex.
    Loop,
    /// A call for each instruction: Linux 5.17 (`bpf_loop`).
    Callbacks,
}

impl Form {
    /// The form that the environment asks for: `FYKE_KERNEL_FORM` is `loop` or `callbacks`.
    pub(crate) fn asked_for() -> Option<Form> {
        match std::env::var("FYKE_KERNEL_FORM").ok()?.as_str() {
            "loop" => Some(Form::Loop),
            "callbacks" => Some(Form::Callbacks),
            _ => None,
        }
    }
}

/// Options of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Value that the program returns for accepted frames; for a socket the number of bytes to keep.
    pub accept: u32,
    /// Value that it returns for other frames; for a socket 0.
    pub reject: u32,
    /// Whether rejected frames are counted (a few nanoseconds each).
    pub count_rejected: bool,
    /// Most instructions for one frame, at most [`BUDGET_LIMIT`]; a frame that needs more is rejected and counted.
    pub budget: u32,
    /// The form of the program; `None` takes the value of the environment variable `FYKE_KERNEL_FORM` (`loop`,
    /// `callbacks`), else the best that the kernel takes.
    pub form: Option<Form>,
    /// Access to frames' bytes; what the kernel refuses becomes [`Access::Copied`], as does
    /// [`Form::Callbacks`].
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            accept: u32::MAX,
            reject: 0,
            count_rejected: true,
            budget: BUDGET_LIMIT,
            form: None,
            access: Access::best(),
        }
    }
}

/// `reject` of a space at an interface that drops frames which no pass accepts (`TC_ACT_SHOT`).
const DROP: u32 = 2;
/// Leaves a frame to whatever comes next at the interface (`TCX_NEXT`).
const GO_ON: u32 = u32::MAX;

impl Options {
    /// For [`crate::Space::attach_interface`]: what no pass accepts is dropped, for the host as well.
    pub fn dropping() -> Options {
        Options { accept: GO_ON, reject: DROP, ..Options::default() }
    }

    /// For [`crate::Space::attach_interface`]: frames are counted and go on, whatever the verdict.
    pub fn counting() -> Options {
        Options { accept: GO_ON, reject: GO_ON, ..Options::default() }
    }
}
