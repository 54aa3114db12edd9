//! The kernel program, loaded with maps of its own and attached to sockets.
//!
//! A [`Space`] is one filter: one set of maps, one program, any number of sockets. Opening it takes 11 to 20 ms of
//! verification; after that, [`Space::passes`] edits it. Nothing is pinned, so nothing outlives the descriptors: a
//! socket keeps its program as long as it is open, even after the writer has ended.

use crate::counters::{CountReader, Counters};
use crate::direct::Access;
use crate::ebpf;
use crate::error::{AttachError, OpenError, VERIFYING};
use crate::layout::{
    BUDGET_LIMIT, COOKED_BYTES, COUNT_CAPPED, COUNT_EMPTY, COUNT_LATER, FIRST_PASS_COUNTER,
};
use crate::loader::{self, Held};
use crate::options::{self, Form, Options};
use crate::passes::KernelPasses;
use crate::snapshot::{OwnedMaps, Snapshot, Specialised};
use crate::sys::{self, COUNTERS_BYTES, Mapped, ROWS_BYTES, TestRun};
use aya::maps::{Array, HashMap, Map, ProgramArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, Program, SchedClassifier, SocketFilter, TcAttachType};
use aya::{Ebpf, EbpfLoader};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The object files of the program, if clang was there to build them.
#[cfg(fyke_object)]
static OBJECTS: Option<Objects> = Some(Objects {
    copying: aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fyke.bpf.o")),
    direct: aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fyke_direct.bpf.o")),
    callbacks: aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fyke_callbacks.bpf.o")),
    driver: aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fyke_driver.bpf.o")),
});
#[cfg(not(fyke_object))]
static OBJECTS: Option<Objects> = None;

/// Object files built from one source.
#[derive(Clone, Copy)]
struct Objects {
    /// [`Form::Loop`], with copies of the frames' heads.
    copying: &'static [u8],
    /// [`Form::Loop`], with reads of frames in place.
    direct: &'static [u8],
    /// [`Form::Callbacks`], with copies.
    callbacks: &'static [u8],
    /// [`Form::Loop`], at XDP.
    driver: &'static [u8],
}

/// The program at XDP.
const DRIVER: &str = "fyke_driver";

/// The program that distributes frames over sockets.
const FANOUT: &str = "fyke_fanout";

/// Direction of frames at an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Received frames, before the host's stack.
    In,
    /// Sent frames, after the host's stack.
    Out,
}

/// Counts of frames by outcome, over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tallies {
    /// Frames that a pass accepted.
    pub accepted: u64,
    /// Frames that no pass accepted; those that are not counted are missing.
    pub rejected: u64,
    /// Frames rejected because the work for the frame reached the limit.
    pub capped: u64,
    /// Frames accepted because there was no pass.
    pub unfiltered: u64,
}

/// A loaded program and its maps.
#[derive(Debug)]
pub struct Space {
    form: Form,
    access: Access,
    /// The program that sockets get; `None` for the interpreter.
    specialised: Option<Specialised>,
    ebpf: Ebpf,
    passes: KernelPasses,
    counters: Arc<Counters>,
    /// The counters of specialised programs.
    tallies: OwnedFd,
}

/// The program alone, so that another thread than the writer's can run it.
#[derive(Debug)]
pub struct Judge(OwnedFd);

impl Judge {
    /// As [`Space::test_run`].
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        sys::test_run(self.0.as_fd(), &ebpf::with_ethernet_header(frame), repeat)
    }
}

impl Space {
    /// Loads the program. The empty filter accepts every frame.
    ///
    /// # Errors
    /// The object, a privilege or a kernel feature is missing; the message names the kernel version with the feature.
    pub fn open(options: Options) -> Result<Space, OpenError> {
        match options.form.or_else(Form::from_environment) {
            Some(form) => Space::open_as(form, options),
            None => Space::open_best(options),
        }
    }

    /// Opens the loop form if the verifier accepts it. Before Linux 6.9 it does not know the instruction, and some
    /// later kernels (6.12) take a second to find the program too complex. So the process makes only one attempt.
    fn open_best(options: Options) -> Result<Space, OpenError> {
        static LOOP_IS_REFUSED: AtomicBool = AtomicBool::new(false);
        if !LOOP_IS_REFUSED.load(Ordering::Relaxed) {
            match Space::open_as(Form::Loop, options) {
                Err(error) if error.is_by_verifier() => {
                    LOOP_IS_REFUSED.store(true, Ordering::Relaxed);
                }
                opened => return opened,
            }
        }
        Space::open_as(Form::Callbacks, options)
    }

    fn open_as(form: Form, options: Options) -> Result<Space, OpenError> {
        let why = option_env!("FYKE_NO_OBJECT").unwrap_or("no clang");
        let objects = OBJECTS.ok_or(OpenError::NoObject { why })?;
        if options.driver.is_some() {
            let options = Options { access: Access::Copied, ..options };
            return Space::load(objects.driver, Form::Loop, options);
        }
        if options::is_refused() {
            return Space::load(objects.direct, form, options);
        }
        if let (Form::Loop, Access::Direct(places)) = (form, options.access)
            && let Ok(space) = Space::load(&places.resolve(objects.direct), form, options)
        {
            return Ok(space);
        }
        let options = Options { access: Access::Copied, ..options };
        match form {
            Form::Loop => Space::load(objects.copying, form, options),
            Form::Callbacks => Space::load(objects.callbacks, form, options),
        }
    }

    fn load(object: &[u8], form: Form, options: Options) -> Result<Space, OpenError> {
        let processors = aya::util::nr_cpus().map_err(|(what, source)| OpenError::Refused {
            step: "counting processors",
            what: format!("{what}: {source}"),
        })?;
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("counters", processors as u32).btf(None);
        let address = options.driver.map(|[a, b, c, d, e, f]| {
            // As the program loads it.
            u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
        });
        if let Some(address) = &address {
            loader.override_global("fyke_own_address", address, true);
        }
        let mut ebpf = loader.load(object).map_err(refused("making the maps"))?;
        let passes_bytes = KernelPasses::BYTES;
        let passes = map(&ebpf, "passes", passes_bytes)?;
        let rows = map(&ebpf, "rows", ROWS_BYTES)?;
        let memory = map(&ebpf, "counters", processors * COUNTERS_BYTES)?;
        let step = "making the counters";
        let system = |source| OpenError::System { step, source };
        let tallies = sys::single_value_map(processors * COUNTERS_BYTES).map_err(system)?;
        let specialised = Mapped::new(tallies.as_fd(), processors * COUNTERS_BYTES);
        let specialised = specialised.map_err(system)?;
        let shared = match ebpf.map("counters") {
            Some(Map::Array(map)) => map.fd().as_fd().try_clone_to_owned().map_err(system)?,
            _ => return Err(OpenError::Refused { step, what: "no map counters".into() }),
        };
        let maps = vec![shared, tallies.try_clone().map_err(system)?];
        let counters = Counters::new(memory, processors).and(specialised).with_maps(maps);
        let counters = Arc::new(counters);
        let options = Options { budget: options.budget.min(BUDGET_LIMIT), ..options };
        let mut passes = KernelPasses::new(passes, rows, counters.clone(), options);
        let more = ebpf.take_map("more_rows").map(HashMap::try_from);
        let more = more.ok_or(OpenError::Refused { step: "more rows", what: "no map".into() })?;
        passes.rows().overflow_into(more.map_err(refused("more rows"))?);
        if let Some(Program::Xdp(program)) = ebpf.program_mut(DRIVER) {
            program.load().map_err(refused(VERIFYING))?;
        } else {
            load_socket_programs(&mut ebpf, options.distributes)?;
        }
        let access = options.access;
        Ok(Space { form, access, specialised: None, ebpf, passes, counters, tallies })
    }

    /// True if its program is one for XDP ([`Options::driver`]).
    pub fn is_at_driver(&self) -> bool {
        self.ebpf.program(DRIVER).is_some()
    }

    /// The program's access to frames' bytes.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The writer of the filter.
    pub fn passes(&mut self) -> &mut KernelPasses {
        &mut self.passes
    }

    /// The form of the program.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The filter, read-only.
    pub fn view(&self) -> &KernelPasses {
        &self.passes
    }

    /// Counts of frames by outcome.
    pub fn tallies(&self) -> Tallies {
        Tallies {
            // Wrapping addition, because lent memory may hold any value.
            accepted: (FIRST_PASS_COUNTER..COUNT_LATER)
                .map(|index| self.counters.sum(index))
                .fold(0, u64::wrapping_add),
            rejected: self.counters.rejected(),
            capped: self.counters.sum(COUNT_CAPPED),
            unfiltered: self.counters.sum(COUNT_EMPTY),
        }
    }

    /// Replaces the filter of a packet socket, in one step and without losing a frame.
    ///
    /// # Errors
    /// The descriptor is not a packet socket, or its filter is locked.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> Result<(), AttachError> {
        match sys::domain(socket) {
            Ok(libc::AF_PACKET) => {}
            Ok(other) => {
                let given = format!("a socket of address family {other}");
                return Err(AttachError::NotPacket { given });
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => {
                return Err(AttachError::NotPacket { given: "not a socket".into() });
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(made) = &self.specialised {
            match sys::attach(socket, made.program.as_fd()) {
                // The interpreter gives the same verdicts.
                Err(error) if is_too_long(&error) => {}
                attached => return Ok(attached?),
            }
        }
        let attach = |name| self.with_program(name, |program| sys::attach(socket, program));
        match attach("fyke_socket")? {
            Err(error) if is_too_long(&error) => attach("fyke_entry")??,
            attached => attached?,
        }
        Ok(())
    }

    /// Calls `use_it` with the program for sockets, for one that runs before it and ends in a tail call.
    ///
    /// # Errors
    /// The program is not loaded.
    pub fn with_socket_program<T>(
        &self,
        use_it: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> io::Result<T> {
        match &self.specialised {
            Some(made) => Ok(use_it(made.program.as_fd())),
            None => self.with_program("fyke_socket", use_it),
        }
    }

    /// Calls `use_it` with the program for a group of packet sockets (`PACKET_FANOUT_EBPF`). A frame that a pass
    /// accepts goes to the socket that the pass's class names, every other one to the socket of its conversation. All
    /// sockets of the group must have the program of [`attach`](Self::attach): it takes the decision over and does not
    /// evaluate the frame again. For link type EN10MB, with [`Options::distributes`].
    ///
    /// # Errors
    /// The program is not loaded.
    pub fn with_fanout_program<T>(
        &self,
        use_it: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> io::Result<T> {
        self.with_program(FANOUT, use_it)
    }

    /// Runs the program of [`with_fanout_program`](Self::with_fanout_program) on a frame of at least 14 bytes, once. It
    /// returns the number of a socket, of which the kernel takes the remainder by the number of sockets.
    ///
    /// # Errors
    /// The program is not loaded, or the kernel refuses the frame.
    pub fn test_run_fanout(&self, frame: &[u8]) -> io::Result<TestRun> {
        self.with_program(FANOUT, |program| sys::test_run(program, frame, 1))?
    }

    /// Calls `use_it` with the program at XDP, after it was told to give accepted frames to the program `next`.
    ///
    /// # Errors
    /// The space is for sockets, or the kernel refuses.
    pub fn with_driver_program<T>(
        &self,
        next: BorrowedFd<'_>,
        use_it: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> io::Result<T> {
        match self.ebpf.map("tiers") {
            Some(Map::ProgramArray(map)) => sys::objects::set_program(map.fd().as_fd(), next)?,
            _ => return Err(io::Error::other("no map tiers")),
        }
        self.with_program(DRIVER, use_it)
    }

    /// Attaches the filter to an interface of the calling thread's network namespace, after the programs that are there
    /// (tcx, Linux 6.6). The kernel detaches it when the space is closed, however the process ends. The options decide
    /// what happens to frames ([`Options::dropping`], [`Options::counting`]). A space serves sockets or interfaces, not
    /// both.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refuses; before Linux 6.6 the message gives this reason.
    pub fn attach_interface(&mut self, interface: &str, way: Way) -> Result<(), AttachError> {
        let failed = |error: aya::programs::ProgramError| {
            let hint = "an interface takes programs from Linux 6.6 on (tcx)";
            AttachError::System(io::Error::other(format!("{interface}: {error}; {hint}")))
        };
        let program = self.ebpf.program_mut("fyke_tcx");
        let program = program.ok_or_else(|| io::Error::other("no program fyke_tcx"))?;
        let program: &mut SchedClassifier = program.try_into().map_err(failed)?;
        if program.fd().is_err() {
            program.load().map_err(failed)?;
        }
        let kind = match way {
            Way::In => TcAttachType::Ingress,
            Way::Out => TcAttachType::Egress,
        };
        let last = TcAttachOptions::TcxOrder(LinkOrder::default());
        program.attach_with_options(interface, kind, last).map_err(failed)?;
        Ok(())
    }

    /// Copies the current passes for [`Snapshot::specialise`], which can run in another thread.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let maps = self.maps()?;
        let count_rejected = self.passes.counts_rejected();
        let short = self.passes.short();
        Ok(Snapshot { passes: self.passes.covered_now(), maps, count_rejected, short })
    }

    /// Hands the maps over to the loader of this process, which can then generate programs of later snapshots; `None`
    /// if there is no loader, or it is sealed.
    pub fn hold(&self) -> Option<Held> {
        let loader = loader::current().filter(|loader| !loader.is_sealed())?;
        loader.hold(&self.maps().ok()?, Access::best()).ok()
    }

    fn maps(&self) -> io::Result<OwnedMaps> {
        let own = |name| -> io::Result<OwnedFd> {
            let gone = || io::Error::other(format!("no map {name}"));
            match self.ebpf.map(name).ok_or_else(gone)? {
                Map::Array(map) | Map::ProgramArray(map) => map.fd().as_fd().try_clone_to_owned(),
                _ => Err(gone()),
            }
        };
        Ok(OwnedMaps {
            passes: own("passes")?,
            rows: own("rows")?,
            tallies: self.tallies.try_clone()?,
            processors: self.counters.processors as u32,
            tiers: own("tiers")?,
        })
    }

    /// Makes [`Space::attach`] and [`Space::test_run`] use the specialised program from now on. Passes that were edited
    /// since the snapshot are interpreted after it.
    ///
    /// # Errors
    /// The space has a specialised program already; see [`Space::interpret`].
    pub fn adopt(&mut self, made: Specialised) -> io::Result<()> {
        if self.passes.is_covered() {
            return Err(io::Error::other("the space has a specialised program already"));
        }
        self.passes.cover(&made.covered);
        self.specialised = Some(made);
        Ok(())
    }

    /// Specialises the current passes at once, where that is possible: not for cooked sockets, and on x86-64 only.
    ///
    /// # Errors
    /// The kernel refuses the program; the interpreter stays.
    pub fn specialise(&mut self) -> io::Result<()> {
        if !cfg!(target_arch = "x86_64") || self.is_specialised() || self.view().is_cooked() {
            return Ok(());
        }
        let made = self.snapshot()?.specialise().map_err(io::Error::other)?;
        self.adopt(made)
    }

    /// Makes [`Space::attach`] use the interpreter from now on. Sockets that run the specialised program continue to do
    /// so, with correct verdicts.
    pub fn interpret(&mut self) {
        self.specialised = None;
    }

    /// True if a specialised program is in use.
    pub fn is_specialised(&self) -> bool {
        self.specialised.is_some()
    }

    /// True if a specialised program is in use, or may still run on a socket.
    pub fn is_covered(&self) -> bool {
        self.passes.is_covered()
    }

    /// True if its sockets deliver no link header; their texts are interpreted.
    pub fn is_cooked(&self) -> bool {
        self.passes.is_cooked()
    }

    /// Descriptors of the memory of passes, rows and counters, and the number of processors, for [`crate::share`].
    pub(crate) fn lent_maps(&self) -> io::Result<([OwnedFd; 3], usize)> {
        let own = |name| match self.ebpf.map(name) {
            Some(Map::Array(map)) => map.fd().as_fd().try_clone_to_owned(),
            _ => Err(io::Error::other(format!("no map {name}"))),
        };
        Ok(([own("passes")?, own("rows")?, own("counters")?], self.counters.processors))
    }

    /// Makes the program reject every frame from now on, whatever its memory holds.
    pub(crate) fn revoke(&mut self) -> io::Result<()> {
        let map = self.ebpf.map_mut(".bss").ok_or(io::Error::other("no map .bss"))?;
        let mut switch = Array::<_, u32>::try_from(map).map_err(io::Error::other)?;
        switch.set(0, 1, 0).map_err(io::Error::other)
    }

    /// A reader of the counters that needs no lock of the writer.
    pub fn count_reader(&self) -> CountReader {
        CountReader(Arc::clone(&self.counters))
    }

    /// Waits until no run of a specialised program is left, and allows another one. No socket may have the program.
    ///
    /// # Errors
    /// The system call for the wait fails.
    pub fn forget_specialised(&mut self) -> io::Result<()> {
        self.specialised = None;
        sys::wait_for_readers()?;
        self.uncover();
        Ok(())
    }

    /// Resets the tier after all sockets have dropped the specialised program and a grace period has passed
    /// ([`sys::wait_for_readers`]); [`adopt`](Self::adopt) is possible then.
    pub fn uncover(&mut self) {
        self.passes.uncover();
    }

    /// Runs the program on bytes, `repeat` times. At least 14 bytes; the program sees all of them.
    ///
    /// The kernel refuses the frame.
    /// The kernel takes no such frame.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        if let Some(made) = &self.specialised {
            return made.program.test_run(frame, repeat);
        }
        self.test_run_interpreted(frame, repeat)
    }

    /// As [`Space::test_run`], always with the interpreter.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run_interpreted(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        if self.is_at_driver() {
            return self.with_program(DRIVER, |program| sys::test_run(program, frame, repeat))?;
        }
        let bytes = match self.passes.is_cooked() {
            true => cooked(frame),
            false => ebpf::with_ethernet_header(frame),
        };
        self.with_program("fyke_socket", |program| sys::test_run(program, &bytes, repeat))?
    }

    /// The program, for [`Judge::test_run`].
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn judge(&self) -> io::Result<Judge> {
        self.with_program("fyke_socket", |program| program.try_clone_to_owned())?.map(Judge)
    }

    /// As [`Space::test_run`], with an empty program: the overhead to subtract.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn test_run_empty(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        let bytes = ebpf::with_ethernet_header(frame);
        self.with_program("fyke_empty", |program| sys::test_run(program, &bytes, repeat))?
    }

    fn with_program<T>(
        &self,
        name: &str,
        use_it: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> io::Result<T> {
        let gone = || io::Error::other(format!("no program {name}"));
        let program = self.ebpf.program(name).ok_or_else(gone)?;
        let descriptor = match program {
            aya::programs::Program::SocketFilter(program) => program.fd(),
            aya::programs::Program::SchedClassifier(program) => program.fd(),
            aya::programs::Program::Xdp(program) => program.fd(),
            _ => return Err(gone()),
        };
        Ok(use_it(descriptor.map_err(io::Error::other)?.as_fd()))
    }
}

/// True if a socket's option memory has no room for a program (`net.core.optmem_max`, 20 KiB before Linux 6.8).
fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

/// Converts a frame of a cooked capture to the kernel's form: its protocol is in a link header that the program does
/// not see.
fn cooked(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend(frame.iter().take(2));
    bytes.extend(frame.iter().skip(COOKED_BYTES as usize));
    bytes
}

/// Maps the values of an array.
pub(crate) fn map(ebpf: &Ebpf, name: &'static str, len: usize) -> Result<Mapped, OpenError> {
    let step = "mapping the shared memory";
    match ebpf.map(name) {
        Some(Map::Array(map)) => {
            Mapped::new(map.fd().as_fd(), len).map_err(|source| OpenError::System { step, source })
        }
        _ => Err(OpenError::Refused { step, what: format!("no map {name}") }),
    }
}

fn load_socket_programs(ebpf: &mut Ebpf, distributes: bool) -> Result<(), OpenError> {
    let fanout = distributes.then_some(FANOUT);
    for name in ["fyke_socket", "fyke_entry", "fyke_empty"].into_iter().chain(fanout) {
        let program = socket_program(ebpf, name)?;
        program.load().map_err(refused(VERIFYING))?;
    }
    // A specialised program continues in the interpreter by a tail call.
    let interpreter = match ebpf.program("fyke_socket") {
        Some(Program::SocketFilter(program)) => program.fd().map_err(refused("tiers"))?,
        _ => return Err(OpenError::Refused { step: "tiers", what: "no program".into() }),
    };
    let interpreter = interpreter.try_clone().map_err(refused("tiers"))?;
    let tiers = ebpf.map_mut("tiers").map(ProgramArray::try_from);
    let mut tiers = tiers
        .ok_or(OpenError::Refused { step: "tiers", what: "no map".into() })?
        .map_err(refused("tiers"))?;
    tiers.set(0, &interpreter, 0).map_err(refused("tiers"))
}

fn socket_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SocketFilter, OpenError> {
    let step = "finding the program";
    let program = ebpf.program_mut(name);
    let program = program.ok_or(OpenError::Refused { step, what: "not in the object".into() })?;
    program.try_into().map_err(refused(step))
}

pub(crate) fn refused<E: std::error::Error>(step: &'static str) -> impl Fn(E) -> OpenError {
    move |error| {
        let mut what = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let more = inner.to_string();
            // Some errors show their causes themselves.
            if !what.contains(&more) {
                what.push_str(": ");
                what.push_str(&more);
            }
            cause = inner.source();
        }
        OpenError::Refused { step, what }
    }
}
