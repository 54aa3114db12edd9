//! A handle of ours: its settings before `pcap_activate`, and what it has after.

use crate::c::{
    ERROR, ERROR_ACTIVATED, ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED, ERROR_RFMON_NOTSUP, Header,
    MAX_SNAPLEN, Pcap,
};
use crate::fork::NoFork;
use crate::live::{Live, OpenError};
use crate::reading::Form;
use crate::slots;
use libc::c_int;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// First characters of the names of our devices.
pub const PREFIX: &str = "fyke:";

/// Settings of a handle that is not activated.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Most bytes of a frame.
    pub snaplen: c_int,
    /// Time in which frames may gather, in milliseconds.
    pub timeout_ms: c_int,
    /// Frames do not gather.
    pub is_immediate: bool,
    /// The program wants monitor mode.
    pub is_monitor: bool,
    /// Times have nanoseconds.
    pub is_nano: bool,
}

/// A handle.
#[derive(Debug)]
pub struct Handle {
    /// Name of the service.
    pub name: String,
    settings: Mutex<Settings>,
    active: OnceLock<Active>,
    /// True if calls never wait.
    pub is_nonblocking: AtomicBool,
    /// The header of the frame that `pcap_next_ex` has returned.
    pub header: Place,
}

/// An activated handle.
#[derive(Debug)]
pub struct Active {
    /// The capture.
    pub live: Arc<Live>,
    /// Settings at the activation.
    pub settings: Settings,
    /// Directions of frames: `PCAP_D_INOUT`, `PCAP_D_IN` or `PCAP_D_OUT`.
    pub direction: AtomicI32,
    twin: Twin,
}

/// The address of a handle of the system's libpcap.
#[derive(Debug)]
struct Twin(*mut Pcap);

// SAFETY: as libpcap's manual has it of its own handles, a program uses a handle in one thread at a time.
unsafe impl Send for Twin {}
// SAFETY: as above.
unsafe impl Sync for Twin {}

impl Drop for Twin {
    fn drop(&mut self) {
        slots::close_twin(self.0);
    }
}

/// The header of a frame that a program looks at until its next call.
#[derive(Debug)]
pub struct Place(UnsafeCell<Header>);

// SAFETY: written by the call that returns it, and read by the program that called, as in libpcap.
unsafe impl Sync for Place {}
// SAFETY: plain numbers.
unsafe impl Send for Place {}

impl Place {
    /// Stores a header; returns its address.
    pub fn put(&self, header: Header) -> *mut Header {
        // SAFETY: see `Sync`.
        unsafe { *self.0.get() = header };
        self.0.get()
    }
}

impl Handle {
    /// A handle for the service of a name, with libpcap's defaults.
    pub fn new(name: &str) -> Handle {
        let settings = Settings {
            snaplen: MAX_SNAPLEN,
            timeout_ms: 0,
            is_immediate: false,
            is_monitor: false,
            is_nano: false,
        };
        let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
        Handle {
            name: name.to_owned(),
            settings: Mutex::new(settings),
            active: OnceLock::new(),
            is_nonblocking: AtomicBool::new(false),
            header: Place(UnsafeCell::new(Header { ts: zero, caplen: 0, len: 0 })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        let _no_fork = NoFork::begin();
        *self.lock()
    }

    /// Changes a setting, unless the handle is activated.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) -> c_int {
        if self.active.get().is_some() {
            return ERROR_ACTIVATED;
        }
        let _no_fork = NoFork::begin();
        change(&mut self.lock());
        0
    }

    /// The capture, if the handle is activated.
    pub fn active(&self) -> Option<&Active> {
        self.active.get()
    }

    /// The handle of the system's libpcap for what is not capturing.
    pub fn twin(&self) -> Option<*mut Pcap> {
        self.active.get().map(|active| active.twin.0)
    }

    /// Connects to the service.
    ///
    /// # Errors
    /// The status and the reason.
    pub fn activate(&self) -> Result<&Active, (c_int, String)> {
        if self.active.get().is_some() {
            return Err((ERROR_ACTIVATED, "the handle is activated already".to_owned()));
        }
        let mut settings = self.settings();
        if settings.is_monitor {
            return Err((ERROR_RFMON_NOTSUP, "a service has no monitor mode".to_owned()));
        }
        if !(1..=MAX_SNAPLEN).contains(&settings.snaplen) {
            settings.snaplen = MAX_SNAPLEN;
        }
        let (snaplen, is_nano) = (settings.snaplen.unsigned_abs(), settings.is_nano);
        let form = Form { snaplen, is_nano };
        let live = Live::open(&self.name, form).map_err(|error| match error {
            OpenError::NotThere(text) => (ERROR_NO_SUCH_DEVICE, text),
            OpenError::Refused(text) => (ERROR_PERM_DENIED, text),
            OpenError::Other(text) => (ERROR, text),
        })?;
        let twin = slots::open_twin(live.dlt(), settings.snaplen, settings.is_nano);
        if twin.is_null() {
            let why = crate::real::problem().unwrap_or(c"pcap_open_dead has failed");
            return Err((ERROR, why.to_string_lossy().into_owned()));
        }
        let active = Active {
            live: Arc::new(live),
            settings,
            direction: AtomicI32::new(0),
            twin: Twin(twin),
        };
        let already = || (ERROR_ACTIVATED, "the handle is activated already".to_owned());
        let _no_fork = NoFork::begin();
        self.active.set(active).map_err(|_| already())?;
        self.active.get().ok_or_else(already)
    }

    /// True if calls never wait.
    pub fn is_nonblocking(&self) -> bool {
        self.is_nonblocking.load(Ordering::Relaxed)
    }
}
