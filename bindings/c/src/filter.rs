//! The filter of a handle: filter texts in the kernel, passes made by hand after them, and the
//! text of the last error. Safe code only.

use fyke_filters::{ByHand, ByHandError, Change, FilterError, KernelFilters};
use fyke_frame::LinkType;
use fyke_kernel::{KernelEditError, KernelPassId, KernelPasses, Space};
use fyke_pass::{Instruction, Operation};
use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::BorrowedFd;

/// Predefined operations for `fyke_select_op`. Those with parameters start without any,
/// and are false until
/// `fyke_add_param` has added one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum FykeOp {
    /// True for every frame.
    FykeTrue = 0,
    /// False for every frame.
    FykeNever = 1,
    /// IPv4.
    FykeEtherIp = 2,
    /// IPv6.
    FykeEtherIp6 = 3,
    /// ARP.
    FykeEtherArp = 4,
    /// IPv4, TCP, no later fragment.
    FykeEtherIpTcpNonfrag = 5,
    /// IPv4, UDP, no later fragment.
    FykeEtherIpUdpNonfrag = 6,
    /// IPv4 source address under a mask (`arg`); up to 6 parameters.
    FykeIpSrc = 7,
    /// IPv4 destination address under a mask (`arg`); up to 6 parameters.
    FykeIpDst = 8,
    /// Either IPv4 address under a mask (`arg`); up to 6 parameters.
    FykeIpHost = 9,
    /// Source port; up to 12 parameters.
    FykePortSrc = 10,
    /// Destination port; up to 12 parameters.
    FykePortDst = 11,
    /// Either port; up to 12 parameters.
    FykePort = 12,
    /// EtherType; up to 14 parameters.
    FykeEtherType = 13,
}

/// Totals of the frames of a filter's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FykeCounts {
    /// Frames that a pass accepted, or that were accepted because there was no pass.
    pub accepted: u64,
    /// Frames that no pass accepted.
    pub rejected: u64,
    /// Frames rejected because their evaluation would exceed the limit on work.
    pub capped: u64,
}

/// A filter in the kernel.
#[derive(Debug)]
pub struct FykeFilter {
    filters: KernelFilters,
    error: CString,
}

// One table has the operations; the last number shows that both have the same.
const _: () = assert!(FykeOp::FykeEtherType as u32 == Operation::EtherType as u32);

/// Returns the operation with this number, or none if a C program passes a wrong number.
pub(crate) fn operation(op: u32, mask: u32) -> Option<Instruction> {
    Some(Operation::numbered(op)?.instruction(mask))
}

impl FykeFilter {
    /// Loads the program, and attaches it if there is a socket.
    pub fn open(socket: Option<BorrowedFd<'_>>) -> Result<FykeFilter, String> {
        let filters = KernelFilters::open(LinkType::EN10MB).map_err(text)?;
        let filter = FykeFilter { filters, error: CString::default() };
        match socket {
            Some(socket) => filter.attach(socket).map(|()| filter),
            None => Ok(filter),
        }
    }

    /// Attaches the filter to a packet socket.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> Result<(), String> {
        self.filters.attach(socket, LinkType::EN10MB).map_err(text)
    }

    /// Looks at the kernel space.
    pub fn space<T>(&self, look: impl FnOnce(&Space) -> T) -> T {
        self.filters.space(look)
    }

    /// Edits the passes made by hand; `pass` is the one that is edited.
    pub fn by_hand<T>(
        &self,
        pass: Option<KernelPassId>,
        edit: impl FnOnce(&mut KernelPasses) -> Result<T, KernelEditError>,
    ) -> Result<T, ByHandError> {
        self.filters.by_hand(pass, edit)
    }

    /// Adds a text and returns its number, 0 when it became none; `alone` puts it in the
    /// place of all texts and passes.
    pub fn add_text(&self, words: &str, alone: bool) -> Result<u64, String> {
        let (change, by_hand) = match alone {
            true => (Change::Set(words), ByHand::GiveWay),
            false => (Change::Add(words), ByHand::Stay),
        };
        let ids = self.change(change, by_hand)?;
        Ok(ids.into_iter().flatten().next().unwrap_or(0))
    }

    /// Deletes a text by its number.
    pub fn delete_text(&self, id: u64) -> Result<(), String> {
        self.change(Change::Remove(id), ByHand::Stay).map(drop)
    }

    fn change(&self, change: Change<'_>, by_hand: ByHand) -> Result<Vec<Option<u64>>, String> {
        let change = [change];
        let lowered = self.filters.lower(&change);
        let applied = lowered.and_then(|lowered| self.filters.apply(lowered, by_hand));
        applied.map_err(|refused| match refused.error {
            FilterError::LastFilter(id) => format!(
                "text {id} is the last one, and without a text every frame is accepted; \
                 fyke_set_text with an empty text accepts every frame"
            ),
            error => error.to_string(),
        })
    }

    /// Frames that a text accepted.
    pub fn accepted_by_text(&self, id: u64) -> u64 {
        let counts = self.filters.counts();
        counts.iter().find(|count| count.id == id).map_or(0, |count| count.accepted)
    }

    /// The counters.
    pub fn counts(&self) -> FykeCounts {
        let tallies = self.filters.tallies();
        FykeCounts {
            accepted: tallies.accepted + tallies.unfiltered,
            rejected: tallies.rejected,
            capped: tallies.capped,
        }
    }

    /// Stores a result's error for `fyke_error`.
    pub fn keep<T, E: Display>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.error = c_text(error)).ok()
    }

    /// The last error.
    pub fn error(&self) -> &CString {
        &self.error
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Converts a text for C; our errors contain no NUL, but a filter text quoted in one may.
pub fn c_text(error: impl Display) -> CString {
    CString::new(error.to_string().replace('\0', "?")).unwrap_or_default()
}
