//! Handles of C programs: numbers in the form of pointers, never used again, so that a wrong or closed handle, or that
//! of a parent process, is an error and not a crash. Calls from several threads wait for each other, in turn: a thread
//! that calls in a loop lets one that waits go first. A child after a fork has lists of its own: a lock of the parent's
//! may have been taken by a thread that the child does not have.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Distance between two handles; the bits below are a mark, so that no pointer to an object of C is a handle.
const STEP: u64 = 16;
const MARK: u64 = 9;
/// Bits for the process.
const PROCESS_SHIFT: u32 = 40;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Something that has handles.
pub trait Handled: Send + Sized + 'static {
    /// Its name in errors.
    const NAME: &'static str;
    /// Its open handles.
    fn table() -> &'static Table<Self>;
}

/// A value of each process, in the order of forks. Finding it costs as many comparisons as there were forks between the
/// first process and this one.
pub struct PerProcess<T> {
    /// The process; 0 before the first call.
    owner: AtomicU32,
    value: Mutex<T>,
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> PerProcess<T> {
    /// The value of the first process that calls.
    pub const fn new(value: T) -> PerProcess<T> {
        PerProcess { owner: AtomicU32::new(0), value: Mutex::new(value), next: OnceLock::new() }
    }

    /// The value of this process, which is `new` at first.
    pub fn lock(&self, new: fn() -> T) -> MutexGuard<'_, T> {
        let own = std::process::id();
        let mut place = self;
        loop {
            let owner =
                match place.owner.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => own,
                    Err(owner) => owner,
                };
            if owner == own {
                return lock(&place.value);
            }
            place = place.next.get_or_init(|| Box::new(PerProcess::new(new())));
        }
    }
}

/// The open handles of a type.
pub struct Table<T>(PerProcess<Open<T>>);

struct Open<T> {
    last: u64,
    entries: BTreeMap<u64, Arc<Entry<T>>>,
}

/// The object that a handle names.
struct Entry<T> {
    /// Held by the next thread that gets the value.
    turn: Mutex<()>,
    value: Mutex<T>,
}

impl<T> Entry<T> {
    /// Waits for the value, in turn.
    fn lock(&self) -> MutexGuard<'_, T> {
        let _turn = lock(&self.turn);
        lock(&self.value)
    }
}

impl<T> Table<T> {
    /// A table without handles.
    pub const fn new() -> Table<T> {
        Table(PerProcess::new(Open::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Open<T>> {
        self.0.lock(Open::new)
    }
}

impl<T> Open<T> {
    const fn new() -> Open<T> {
        Open { last: 0, entries: BTreeMap::new() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a call is reported by that call; what it leaves was checked before it was changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the error of this thread.
pub fn fail(error: impl Display) {
    // A filter text quoted in an error may have a NUL.
    let text = CString::new(error.to_string().replace('\0', "?")).unwrap_or_default();
    ERROR.with(|last| *last.borrow_mut() = text);
}

/// Gives the last error of this thread to `look`.
pub fn with_error<R>(look: impl FnOnce(&CString) -> R) -> R {
    ERROR.with(|last| look(&last.borrow()))
}

/// Runs a call; an error, or a panic, is stored and becomes `None`.
pub fn guarded<R, E: Display>(call: impl FnOnce() -> Result<R, E>) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(result)) => Some(result),
        Ok(Err(error)) => {
            fail(error);
            None
        }
        Err(panic) => {
            fail(format!("an error of the library: {}", message(&*panic)));
            None
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")
}

fn process() -> u64 {
    std::process::id().into()
}

/// Opens a handle.
pub fn open<T: Handled>(value: T) -> *mut T {
    let mut open = T::table().lock();
    open.last += 1;
    let number = (process() << PROCESS_SHIFT) | (open.last * STEP) | MARK;
    let entry = Entry { turn: Mutex::new(()), value: Mutex::new(value) };
    open.entries.insert(number, Arc::new(entry));
    std::ptr::without_provenance_mut(number as usize)
}

fn check<T: Handled>(handle: *mut T) -> Result<u64, String> {
    let number = handle.addr() as u64;
    if handle.is_null() {
        return Err(format!("the {} is NULL", T::NAME));
    }
    let (owner, own) = (number >> PROCESS_SHIFT, process());
    if number % STEP == MARK && owner != own && owner != 0 {
        let name = T::NAME;
        return Err(format!(
            "this {name} belongs to process {owner}, and this is process {own}: open another one"
        ));
    }
    Ok(number)
}

fn not_open<T: Handled>() -> String {
    format!("this is no open {}: it was closed, or never opened", T::NAME)
}

/// Calls a function with what a handle names.
pub fn with<T: Handled, R, E: Display>(
    handle: *mut T,
    call: impl FnOnce(&mut T) -> Result<R, E>,
) -> Option<R> {
    guarded(|| {
        let number = check(handle)?;
        let entry = T::table().lock().entries.get(&number).cloned();
        let entry = entry.ok_or_else(not_open::<T>)?;
        call(&mut entry.lock()).map_err(|error| error.to_string())
    })
}

/// Closes a handle; a call of another thread that runs ends first. False if there is no such handle.
pub fn close<T: Handled>(handle: *mut T) -> bool {
    let closed = guarded(|| {
        let number = check(handle)?;
        let entry = T::table().lock().entries.remove(&number).ok_or_else(not_open::<T>)?;
        drop(entry.lock());
        drop(entry);
        Ok::<_, String>(())
    });
    closed.is_some()
}
