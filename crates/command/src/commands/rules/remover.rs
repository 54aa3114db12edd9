//! A small process that removes the pipes of an owner that was killed.
//!
//! An owner that ends removes its pipes itself. After a kill they would stay, and a writer would wait for ever. This
//! process reads end of file as soon as the owner has ended, and then removes the files. It holds an open descriptor of
//! the folder, so it removes only the files of its owner, even if the interface was renamed or the next owner has
//! begun.

use super::pipes;
use fyke_privilege::child::{self, Child};
use fyke_privilege::user;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, readlinkat, renameat, unlinkat};
use rustix::io::{Errno, read};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Starts the process for a folder of pipes. This process must have a single thread.
///
/// # Errors
/// When there are several threads, or the system refuses.
pub fn start(folder: &Path) -> io::Result<Child> {
    child::start(c"fyke-pipes", |channel| serve(folder, &channel))
}

fn serve(folder: &Path, channel: &OwnedFd) {
    let Ok(folder) = open(folder) else { return };
    // The folder belongs to the same user. If this fails, the process keeps rights that it does not use.
    let _kept = user::give_up_capabilities();
    while read(channel, &mut [0; 1]) == Err(Errno::INTR) {}
    remove(&folder);
}

/// Opens a folder of pipes.
///
/// # Errors
/// It is not a folder, or it cannot be opened.
pub fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}

/// Removes the files of a folder, and the folder. Programs that wait for a reader of a pipe are refused (EPIPE).
pub fn remove(folder: &impl AsFd) {
    for name in pipes::PIPES {
        remove_pipe(folder, name);
    }
    // A file that is not there is removed, too.
    let _absent = unlinkat(folder, pipes::ERRORS, AtFlags::empty());
    let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    if let Ok(name) = readlinkat(CWD, link, Vec::new()) {
        // A folder that was removed has another name there, which does not exist.
        let _absent = unlinkat(CWD, name.as_c_str(), AtFlags::REMOVEDIR);
    }
}

fn remove_pipe(folder: &impl AsFd, name: &str) {
    let hidden = format!(".{name}");
    if renameat(folder, name, folder, &hidden).is_err() {
        return;
    }
    // No writer begins to wait any more. Those that wait are woken by a reader, which is gone at once.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    drop(openat(folder, &hidden, flags, Mode::empty()));
    let _absent = unlinkat(folder, &hidden, AtFlags::empty());
}
