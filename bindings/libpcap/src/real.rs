//! The system's libpcap: found as the dynamic linker finds it, opened by its absolute path.
//!
//! The path is absolute, because the name is that of this library. The first of: `FYKE_LIBPCAP`, the folders of
//! `/etc/ld.so.conf` and its files, the usual folders. A file that is this library under another name is passed over.

use crate::fork::NoFork;
use crate::sys;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Variable with the path of the system's libpcap.
pub const VARIABLE: &str = "FYKE_LIBPCAP";
/// Names of the library, newest systems last.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// Folders that linkers search without a configuration.
const FOLDERS: [&str; 5] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
/// A symbol that this library has and the system's does not.
const OURS: &CStr = c"fyke_pcap_version";
/// Most files that `/etc/ld.so.conf` includes.
const MAX_FILES: usize = 1_000;

/// The opened library, or the reason why there is none.
struct Real(Result<*mut c_void, CString>);

// SAFETY: a handle of the dynamic linker, which any thread may use.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get().unwrap_or_else(|| {
        let _no_fork = NoFork::begin();
        REAL.get_or_init(|| Real(open()))
    })
}

/// The folders that `/etc/ld.so.conf` names.
fn configured() -> Vec<PathBuf> {
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    if let Ok(entries) = std::fs::read_dir("/etc/ld.so.conf.d") {
        let mut included: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        included.retain(|path| path.extension().is_some_and(|end| end == "conf"));
        included.sort();
        files.extend(included.into_iter().take(MAX_FILES));
    }
    let all = files.iter().flat_map(|file| {
        let text = lines(file);
        let folders = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        folders.filter(|line| line.starts_with('/')).map(PathBuf::from).collect::<Vec<_>>()
    });
    all.collect()
}

fn candidates() -> Vec<PathBuf> {
    if !sys::is_privileged()
        && let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())
    {
        return vec![PathBuf::from(path)];
    }
    let folders = configured().into_iter().chain(FOLDERS.map(PathBuf::from));
    let files = |folder: PathBuf| NAMES.map(|name| folder.join(name));
    folders.flat_map(files).filter(|path| path.exists()).collect()
}

fn open() -> Result<*mut c_void, CString> {
    let mut problem = "no libpcap.so.0.8 or libpcap.so.1 in the linker's folders".to_owned();
    for path in candidates() {
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { continue };
        // SAFETY: a string that ends with NUL; the library's initialisers are trusted as by the linker.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            problem = last_error();
            continue;
        }
        // SAFETY: an open handle and a string that ends with NUL.
        if unsafe { libc::dlsym(handle, OURS.as_ptr()) }.is_null() {
            return Ok(handle);
        }
        problem = format!("{} is fyke's own library, not the system's", path.display());
        // SAFETY: opened above; this library itself stays, because it is in use.
        unsafe { libc::dlclose(handle) };
    }
    let text =
        format!("fyke: the system's libpcap is not found: {problem}; {VARIABLE}=PATH names it");
    Err(CString::new(text.replace('\0', " ")).unwrap_or_default())
}

fn last_error() -> String {
    // SAFETY: returns NULL or a string that is valid until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be opened".to_owned();
    }
    // SAFETY: not NULL, so it ends with NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Reason why there is no system's libpcap.
pub fn problem() -> Option<&'static CStr> {
    real().0.as_ref().err().map(CString::as_c_str)
}

/// A function of the system's libpcap, remembered in `place`; `None` if it does not have it.
pub fn symbol(place: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let handle = *real().0.as_ref().ok()?;
    // SAFETY: an open handle and a string that ends with NUL.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    place.store(found, Ordering::Release);
    Some(found)
}
