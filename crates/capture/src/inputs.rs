//! The regular files that this process reads captures from, so that no sink writes over its own input.
//!
//! Files are known by device and inode: another name, a link of either kind and standard input are the same file. Cost:
//! a lock and a look through the files being read, whenever one is opened.

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
    /// Notes a file; nothing for what is no regular file.
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

/// Whether this process reads the file at the moment.
pub(crate) fn is_read(file: &File) -> bool {
    identity(file).is_some_and(|identity| read_now().contains(&identity))
}
