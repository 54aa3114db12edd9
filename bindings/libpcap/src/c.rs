//! libpcap's structures and numbers, as its headers have them.

use libc::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void, sockaddr, timeval};

/// A handle of libpcap; programs see its address only.
#[repr(C)]
#[derive(Debug)]
pub struct Pcap {
    _private: [u8; 0],
}

/// A file that frames are written to.
#[repr(C)]
#[derive(Debug)]
pub struct Dumper {
    _private: [u8; 0],
}

/// Time and lengths of a frame.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Time of capture; the second field has nanoseconds if the program wants them.
    pub ts: timeval,
    /// Bytes that the program gets.
    pub caplen: c_uint,
    /// Bytes on the wire.
    pub len: c_uint,
}

/// Counts of a handle.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Stat {
    /// Frames that the filter has accepted, with those that were lost.
    pub received: c_uint,
    /// Frames that were lost.
    pub dropped: c_uint,
    /// Frames that the interface has lost.
    pub dropped_by_interface: c_uint,
}

/// A program of classic BPF.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Number of instructions.
    pub len: c_uint,
    /// The instructions, from `malloc`.
    pub instructions: *mut Instruction,
}

/// An instruction of classic BPF.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// Operation.
    pub code: c_ushort,
    /// Jump if true.
    pub jt: c_uchar,
    /// Jump if false.
    pub jf: c_uchar,
    /// Operand.
    pub k: c_uint,
}

/// A device in the list of all devices.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    /// The next one.
    pub next: *mut Device,
    /// Its name.
    pub name: *mut c_char,
    /// Its description, or NULL.
    pub description: *mut c_char,
    /// Its addresses, or NULL.
    pub addresses: *mut Address,
    /// Its flags.
    pub flags: c_uint,
}

/// An address of a device.
#[repr(C)]
#[derive(Debug)]
pub struct Address {
    next: *mut Address,
    addresses: [*mut sockaddr; 4],
}

/// A protocol and its EtherType, in the table `eproto_db`.
#[repr(C)]
#[derive(Debug)]
pub struct EtherProtocol {
    /// Name.
    pub name: *const c_char,
    /// EtherType.
    pub number: c_ushort,
}

// SAFETY: the names are constants.
unsafe impl Sync for EtherProtocol {}

/// A function that gets frames.
pub type Handler = unsafe extern "C" fn(*mut c_uchar, *const Header, *const c_uchar);
/// A stream of the C library.
pub type File = c_void;

/// Bytes of an error's buffer.
pub const ERRBUF_SIZE: usize = 256;

/// Any failure.
pub const ERROR: c_int = -1;
/// Ended by `pcap_breakloop`.
pub const ERROR_BREAK: c_int = -2;
/// The handle is not activated.
pub const ERROR_NOT_ACTIVATED: c_int = -3;
/// The handle is activated already.
pub const ERROR_ACTIVATED: c_int = -4;
/// There is no such device.
pub const ERROR_NO_SUCH_DEVICE: c_int = -5;
/// No monitor mode.
pub const ERROR_RFMON_NOTSUP: c_int = -6;
/// No permission to open the device.
pub const ERROR_PERM_DENIED: c_int = -8;
/// No such precision of times.
pub const ERROR_TSTAMP_PRECISION_NOTSUP: c_int = -12;
/// A warning: no such kind of times.
pub const WARNING_TSTAMP_TYPE_NOTSUP: c_int = 3;
/// The netmask is not known.
pub const NETMASK_UNKNOWN: u32 = u32::MAX;
/// Longest frame.
pub const MAX_SNAPLEN: c_int = 262_144;
/// Flags of a device: up, running, connected.
pub const DEVICE_FLAGS: c_uint = 0x2 | 0x4 | 0x10;
