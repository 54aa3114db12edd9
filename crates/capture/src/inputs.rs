//! The regular files from which this process reads captures, so that no sink overwrites its own input.
//!
//! Files are identified by device and inode, so another name, a link of either kind and standard input are the same
//! file. Cost: a lock and a search through the open files, whenever one is opened.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Identity = (u64, u64);

static READ: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

fn read_now() -> MutexGuard<'static, Vec<Identity>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(file: &File) -> Option<Identity> {
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((found.dev(), found.ino()))
}

/// A file that is being read, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reading(Identity);

impl Reading {
    /// Registers a file; `None` if it is not a regular file.
    pub(crate) fn of(file: &File) -> Option<Reading> {
        let identity = identity(file)?;
        read_now().push(identity);
        Some(Reading(identity))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut all = read_now();
        if let Some(at) = all.iter().position(|one| *one == self.0) {
            all.swap_remove(at);
        }
    }
}

/// True if this process currently reads the file.
pub(crate) fn is_read(file: &File) -> bool {
    identity(file).is_some_and(|identity| read_now().contains(&identity))
}
