//! Files and sockets in folders that other users may write to: found through open folders, and refused where another
//! user has made them.
//!
//! In a folder that other users may write to (`/tmp`), another user can make a link, a FIFO or a file at the name that
//! a capture is about to open. These are the rules of the kernel's `fs.protected_symlinks`, `fs.protected_fifos` and
//! `fs.protected_regular` = 2, whatever their settings are: a link is followed, and an existing file opened, if it
//! belongs to the user of this process, to the owner of the folder or to root; a file also if it belongs to the [owner
//! of new files](crate::user::new_files_belong_to). A regular file must have a single name, because another user can
//! have linked a file of this user there (`fs.protected_hardlinks`).
//!
//! Other users may write to a folder if its mode lets every user write, or if it is sticky and lets its group write. A
//! folder of a group without the sticky bit is not counted, as in the kernel: in many systems the home folders are of
//! this kind, with a group of one user.
//!
//! Every check is made on what is open, not on a name, so nothing can be exchanged after it. Source: proc_sys_fs(5).

use crate::user;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::fs::{fstat, fstatfs, linkat, open, openat, readlinkat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Most links on the way to a file, as in the kernel.
const MAX_LINKS: usize = 40;
/// Most attempts to open a file that others make and remove meanwhile.
const ATTEMPTS: usize = 8;
/// Interval between attempts to open a FIFO that has no reader yet.
const PAUSE: Duration = Duration::from_millis(20);
/// Permission bit: every user may write.
const OTHERS_WRITE: u32 = 0o002;
/// Permission bits: the group may write, and only the owner of an entry may remove it (sticky).
const GROUP_WRITES_STICKY: u32 = 0o1020;

/// An entry of an open folder.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    name: OsString,
    /// True of a link of `/proc` to an open file, which only the kernel can follow.
    is_magic: bool,
}

/// What may be at a place where a file is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// Anything; waits for the reader of a FIFO.
    All,
    /// Anything; fails with `ENXIO` for a FIFO without a reader.
    Ready,
}

impl Place {
    /// Finds the place that a path names. Follows links; refuses one that another user has planted.
    ///
    /// # Errors
    /// When a folder does not exist or cannot be entered, or when a link is refused.
    pub fn of(path: &Path) -> io::Result<Place> {
        let mut rest: VecDeque<OsString> = steps(path).collect();
        let mut folder = enter(path.is_absolute())?;
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let found = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) if rest.is_empty() => None,
                other => Some(other?),
            };
            let is_link = found.as_ref().is_some_and(|found| kind(found) == FileType::Symlink);
            let is_magic = is_link && fstatfs(&folder)?.f_type == PROC_SUPER_MAGIC;
            match found.filter(|_| is_link && !is_magic) {
                Some(link) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    check_link(&fstat(&folder)?, &link)?;
                    let target = readlinkat(&folder, &name, Vec::new())?.into_bytes();
                    let target = PathBuf::from(OsString::from_vec(target));
                    if target.is_absolute() {
                        folder = enter(true)?;
                    }
                    steps(&target).rev().for_each(|step| rest.push_front(step));
                }
                None if rest.is_empty() => return Ok(Place { folder, name, is_magic }),
                None => {
                    let no_link = if is_magic { OFlags::empty() } else { OFlags::NOFOLLOW };
                    folder = openat(&folder, &name, FOLDER | no_link, Mode::empty())?;
                }
            }
        }
        // `/`, `.`, or an empty path.
        Err(if path.as_os_str().is_empty() { Errno::NOENT } else { Errno::ISDIR }.into())
    }

    /// The place of this name in an open folder.
    pub fn within(folder: OwnedFd, name: &OsStr) -> Place {
        Place { folder, name: name.to_owned(), is_magic: false }
    }

    /// Opens a file for writing, and makes it if there is none; true if it is new. The contents of an existing file
    /// stay. Follows no link.
    ///
    /// # Errors
    /// When another user has made it (see the [module](self)); those of open(2).
    pub fn open_to_write(&self, accepts: Accepts, mode: u32) -> io::Result<(File, bool)> {
        let mut attempts = 0;
        loop {
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let error = match self.open(new, mode) {
                Ok(file) => return Ok((file, true)),
                // A link of /proc can lead to a file that has no name any more.
                Err(Errno::EXIST) => match self.open(OFlags::empty(), 0) {
                    Ok(file) => {
                        check_file(&fstat(&self.folder)?, &fstat(&file)?)?;
                        self.check_only_name(&file)?;
                        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
                        return Ok((file, false));
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            attempts += 1;
            match error {
                Errno::NOENT if attempts < ATTEMPTS => {}
                Errno::NXIO if accepts == Accepts::All && self.is_own_fifo()? => {
                    std::thread::sleep(PAUSE);
                }
                error => return Err(error.into()),
            }
        }
    }

    /// Begins a file that takes this place when it is complete ([`Draft::keep`]). Returns the device and inode of the
    /// regular file that is there now, too.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if something else is there; when another user has made it (see the
    /// [module](self)); when the folder takes no new file.
    pub fn draft(&self, mode: u32) -> io::Result<(Draft, Option<(u64, u64)>)> {
        let old = match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        if let Some(old) = &old {
            if kind(old) != FileType::RegularFile {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
            }
            check_file(&fstat(&self.folder)?, old)?;
        }
        let (folder, name) = (self.folder.try_clone()?, self.name.clone());
        let (write, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
        let (file, temporary) = match openat(&folder, ".", write | OFlags::TMPFILE, mode) {
            Ok(file) => (file, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let temporary = unforeseeable(&name);
                let new = write | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (openat(&folder, &temporary, new, mode)?, Some(temporary))
            }
            Err(error) => return Err(error.into()),
        };
        let draft = Draft { folder, name, file: File::from(file), temporary };
        Ok((draft, old.map(|old| (old.st_dev, old.st_ino))))
    }

    fn open(&self, flags: OFlags, mode: u32) -> Result<File, Errno> {
        let no_link = if self.is_magic { OFlags::empty() } else { OFlags::NOFOLLOW };
        let always = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        openat(&self.folder, &self.name, always | no_link | flags, mode).map(File::from)
    }

    /// Refuses a regular file with several names in a folder that others may write to.
    fn check_only_name(&self, file: &File) -> io::Result<()> {
        if self.is_magic || !others_write(&fstat(&self.folder)?) {
            return Ok(());
        }
        let (open, entry) =
            (fstat(file)?, statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?);
        if kind(&open) != FileType::RegularFile {
            return Ok(());
        }
        // The number of names and the file of this name, at the same moment.
        if (open.st_dev, open.st_ino) != (entry.st_dev, entry.st_ino) {
            return Err(denied("another file has taken its name while it was opened".to_owned()));
        }
        if entry.st_nlink > 1 {
            return Err(denied(format!(
                "it has {} names (hard links), and other users may write to its folder, so one of them \
                 may have linked it there; remove it, or choose a folder of your own",
                entry.st_nlink
            )));
        }
        Ok(())
    }

    /// True of a FIFO that nobody has planted.
    fn is_own_fifo(&self) -> io::Result<bool> {
        let flags = if self.is_magic { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let found = statat(&self.folder, &self.name, flags)?;
        check_file(&fstat(&self.folder)?, &found)?;
        Ok(kind(&found) == FileType::Fifo)
    }

    /// Refuses a folder in which another user could replace what this process makes: it must belong to root or to this
    /// user, and others may write to it only if it is sticky.
    ///
    /// # Errors
    /// When it is refused.
    pub fn check_folder(&self) -> io::Result<()> {
        let folder = fstat(&self.folder)?;
        let owner = folder.st_uid;
        if ![0, geteuid().as_raw()].contains(&owner) {
            return Err(denied(format!("its folder belongs to user {owner}; choose another")));
        }
        let (mode, sticky) = (folder.st_mode & 0o7777, 0o1000);
        if mode & 0o022 != 0 && mode & sticky == 0 {
            return Err(denied(format!(
                "other users may write to its folder (mode {mode:03o}); choose another, or `chmod go-w` \
                 the folder"
            )));
        }
        Ok(())
    }

    /// A path to this place that stays valid when the folder is renamed, as long as this value lives. Needs `/proc`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(&self.name)
    }

    /// Device and inode of what is there; does not follow a link.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let found = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Removes the file from its folder.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }
}

/// A file without a name, which takes its name when it is complete: a process that is killed before that leaves the
/// old file.
#[derive(Debug)]
pub struct Draft {
    folder: OwnedFd,
    name: OsString,
    /// The open file.
    pub file: File,
    /// Its name until it is complete, in file systems that have no files without names.
    temporary: Option<OsString>,
}

impl Draft {
    /// Gives the file its name, in place of the one that has it.
    ///
    /// # Errors
    /// Those of link(2) and rename(2).
    pub fn keep(mut self) -> io::Result<()> {
        if self.temporary.is_none() {
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let temporary = unforeseeable(&self.name);
            linkat(CWD, &open, &self.folder, &temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.temporary = Some(temporary);
        }
        if let Some(temporary) = &self.temporary {
            renameat(&self.folder, temporary, &self.folder, &self.name)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // A draft that is not kept has failed for a reason that is reported.
            let _ = unlinkat(&self.folder, temporary, AtFlags::empty());
        }
    }
}

/// A name for a short time that other users cannot foresee.
fn unforeseeable(name: &OsStr) -> OsString {
    // Keyed by the system's random numbers.
    let random = RandomState::new().build_hasher().finish();
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(format!(".{random:016x}.new"));
    draft
}

/// Opens a file for writing, and makes it if there is none, as [`Place::open_to_write`]; an existing one is emptied.
///
/// # Errors
/// As for [`Place::of`] and [`Place::open_to_write`].
pub fn create(path: &Path) -> io::Result<File> {
    let (file, is_new) = Place::of(path)?.open_to_write(Accepts::All, 0o666)?;
    if !is_new && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Replaces a file in one step, so that a reader never sees a part: under a name that nobody can foresee, which is then
/// renamed. A link at the path is replaced, not followed.
///
/// # Errors
/// When the file cannot be made, written or renamed.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = open(parent.unwrap_or(Path::new(".")), FOLDER, Mode::empty())?;
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let draft = unforeseeable(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(&folder, &draft, flags, Mode::from_raw_mode(0o666))?);
    let written = io::Write::write_all(&mut &file, contents)
        .and_then(|()| Ok(renameat(&folder, &draft, &folder, name)?));
    if written.is_err() {
        // The error of writing is the one to report.
        let _ = unlinkat(&folder, &draft, AtFlags::empty());
    }
    written
}

/// Flags that open a folder to find entries in it.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn enter(root: bool) -> io::Result<OwnedFd> {
    Ok(open(if root { "/" } else { "." }, FOLDER, Mode::empty())?)
}

/// The components of a path, without the root.
fn steps(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let inner = path.components().filter(|step| !matches!(step, Component::RootDir));
    inner.map(|step| step.as_os_str().to_owned())
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// True if other users may make entries of a folder.
fn others_write(folder: &Stat) -> bool {
    let mode = folder.st_mode;
    mode & OTHERS_WRITE != 0 || mode & GROUP_WRITES_STICKY == GROUP_WRITES_STICKY
}

/// True if a user other than this process's, the folder's owner and root may have made an entry of a folder.
fn is_planted(folder: &Stat, entry: &Stat) -> bool {
    let trusted = [0, geteuid().as_raw(), folder.st_uid];
    others_write(folder) && !trusted.contains(&entry.st_uid)
}

fn check_link(folder: &Stat, link: &Stat) -> io::Result<()> {
    match is_planted(folder, link) {
        false => Ok(()),
        true => Err(denied(format!(
            "a link of user {} in a folder that other users may write to; name the target itself, or \
             choose a folder of your own",
            link.st_uid
        ))),
    }
}

fn check_file(folder: &Stat, file: &Stat) -> io::Result<()> {
    match is_planted(folder, file) && user::owner_of_new_files() != Some(file.st_uid) {
        false => Ok(()),
        true => Err(denied(format!(
            "it exists, belongs to user {}, and other users may write to its folder, so that user may \
             have made it to read the frames; remove it, or choose a folder of your own",
            file.st_uid
        ))),
    }
}

fn denied(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, read, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    const SOMEBODY: u32 = 4711;

    /// A folder of mode 1777 with one link and one file of another user; `None` without root.
    fn shared() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        create_dir(at("real")).unwrap();
        write(at("real/target"), "precious").unwrap();
        for name in ["own-link", "link", "folder", "file"] {
            match name {
                "file" => write(at(name), "old").unwrap(),
                "folder" => symlink("real", at(name)).unwrap(),
                _ => symlink("real/target", at(name)).unwrap(),
            }
            if name != "own-link" && lchown(at(name), Some(SOMEBODY), None).is_err() {
                println!("skipped: giving a file to another user takes root");
                return None;
            }
        }
        Some(folder)
    }

    #[test]
    fn files_and_links_of_others_are_refused_where_everybody_may_write() {
        let Some(folder) = shared() else { return };
        let at = |name: &str| folder.path().join(name);
        let refused = |name: &str| {
            let error = create(&at(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}: {error}");
            assert!(error.to_string().contains("user 4711"), "{name}: {error}");
        };
        ["link", "file", "folder/target", "folder/new"].into_iter().for_each(refused);
        assert_eq!(read(at("real/target")).unwrap(), b"precious");
        assert_eq!(read(at("file")).unwrap(), b"old");
        assert!(!at("real/new").exists());
        // A chain of links: the last one is ours, an earlier one is not.
        symlink("link", at("real/chain")).unwrap();
        symlink("../link", at("real/chain2")).unwrap();
        assert!(create(&at("real/chain2")).is_err());
        create(&at("own-link")).unwrap();
        assert_eq!(read(at("real/target")).unwrap(), b"", "our own link is followed");
        set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        create(&at("file")).unwrap();
        create(&at("folder/new")).unwrap();
    }

    #[test]
    fn folders_of_a_group_are_shared_when_they_are_sticky() {
        let Some(folder) = shared() else { return };
        let at = |name: &str| folder.path().join(name);
        let mode = |mode| set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        for (folder_mode, is_refused) in [(0o1775, true), (0o1757, true), (0o775, false)] {
            mode(folder_mode);
            for name in ["file", "link", "folder/new"] {
                let error = create(&at(name)).err().map(|error| error.kind());
                let expected = is_refused.then_some(io::ErrorKind::PermissionDenied);
                assert_eq!(error, expected, "{name} in {folder_mode:o}");
            }
        }
    }

    #[test]
    fn a_file_with_two_names_is_refused_where_others_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |mode| set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        create_dir(at("closed")).unwrap();
        write(at("closed/precious"), "precious").unwrap();
        std::fs::hard_link(at("closed/precious"), at("planted")).unwrap();
        write(at("single"), "old").unwrap();
        for shared in [0o777, 0o1777, 0o1775] {
            mode(shared);
            let error = create(&at("planted")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{shared:o}: {error}");
            assert!(error.to_string().contains("2 names (hard links)"), "{shared:o}: {error}");
            create(&at("single")).unwrap();
        }
        assert_eq!(read(at("closed/precious")).unwrap(), b"precious");
        mode(0o755);
        create(&at("planted")).unwrap();
        assert_eq!(read(at("closed/precious")).unwrap(), b"");
    }

    #[test]
    fn a_draft_takes_its_name_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("file");
        let entries = || std::fs::read_dir(folder.path()).unwrap().count();
        write(&at, "old").unwrap();
        let begin = || Place::of(&at).unwrap().draft(0o600).unwrap();
        let (draft, old) = begin();
        assert_eq!(old, Some(Place::of(&at).unwrap().identity().unwrap()));
        io::Write::write_all(&mut &draft.file, b"new").unwrap();
        assert_eq!(read(&at).unwrap(), b"old");
        drop(draft);
        assert_eq!((read(&at).unwrap(), entries()), (b"old".to_vec(), 1));
        let draft = begin().0;
        io::Write::write_all(&mut &draft.file, b"new").unwrap();
        draft.keep().unwrap();
        assert_eq!((read(&at).unwrap(), entries()), (b"new".to_vec(), 1));
        // With a temporary name, as in a file system that has no files without names.
        let mut draft = begin().0;
        draft.temporary = Some("draft".into());
        write(folder.path().join("draft"), "third").unwrap();
        draft.keep().unwrap();
        assert_eq!((read(&at).unwrap(), entries()), (b"third".to_vec(), 1));
        let mut draft = begin().0;
        draft.temporary = Some("draft".into());
        write(folder.path().join("draft"), "fourth").unwrap();
        drop(draft);
        assert_eq!((read(&at).unwrap(), entries()), (b"third".to_vec(), 1));
        symlink("missing", folder.path().join("link")).unwrap();
        let place = Place::of(&folder.path().join("link")).unwrap();
        assert_eq!(place.draft(0o600).unwrap().1, None);
        let device = Place::of(Path::new("/dev/null")).unwrap().draft(0o600).unwrap_err();
        assert_eq!(device.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn links_of_proc_devices_and_loops() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        create(Path::new("/dev/null")).unwrap();
        let (mut end, pipe) = io::pipe().unwrap();
        let same = create(Path::new(&format!("/proc/self/fd/{}", pipe.as_raw_fd()))).unwrap();
        io::Write::write_all(&mut &same, b"x").unwrap();
        io::Read::read_exact(&mut end, &mut [0]).unwrap();
        symlink("loop", at("loop")).unwrap();
        let looped = create(&at("loop")).unwrap_err();
        assert_eq!(looped.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        for (path, errno) in [("", Errno::NOENT), ("/", Errno::ISDIR), (".", Errno::ISDIR)] {
            let error = create(Path::new(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{path:?}");
        }
        let missing = create(&at("no/such")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_replacement_follows_no_link_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(at("target"), "precious").unwrap();
        symlink("target", at("drawing.svg")).unwrap();
        replace(&at("drawing.svg"), b"new").unwrap();
        assert_eq!(read(at("target")).unwrap(), b"precious");
        assert_eq!(read(at("drawing.svg")).unwrap(), b"new");
        create_dir(at("busy")).unwrap();
        assert!(replace(&at("busy"), b"new").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "no draft is left");
    }

    #[test]
    fn folders_that_others_control_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let judge = |mode| {
            set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            Place::of(&folder.path().join("x")).unwrap().check_folder()
        };
        assert!(judge(0o777).is_err() && judge(0o770).is_err());
        assert!(judge(0o1777).is_ok() && judge(0o755).is_ok());
        if std::os::unix::fs::chown(folder.path(), Some(SOMEBODY), None).is_ok() {
            assert!(judge(0o755).is_err() && judge(0o1777).is_err());
        }
    }
}
