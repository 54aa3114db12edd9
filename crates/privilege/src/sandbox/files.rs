//! File rules (Landlock): access is denied except beneath the folders of the rules.

use super::{Rules, SandboxError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, RestrictSelfAttr,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::Path;

/// Files that the C library and printing read for any graph: time zone, port names, random bytes.
const ALWAYS_READ: [&str; 6] = [
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/etc/services",
    "/etc/protocols",
    "/dev/urandom",
    "/dev/null",
];

/// Newest Landlock version that is requested; the kernel enforces as much of it as it supports.
const NEWEST: ABI = ABI::V8;

/// Landlock rules that are not yet in force.
pub(super) struct Files(RulesetCreated);

impl Files {
    /// Opens the folders of the rules now, so that they apply even if the new user cannot reach them later.
    pub(super) fn prepare(rules: &Rules) -> Result<Files, SandboxError> {
        let reads = AccessFs::ReadFile | AccessFs::ReadDir;
        let writes = reads
            | AccessFs::RemoveFile
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeSock;
        let created = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        let mut files = Files(created);
        let always = ALWAYS_READ.map(Path::new);
        // A file that does not exist needs no rule.
        for path in always.into_iter().filter(|path| rules.opens_files() && path.exists()) {
            files = files.allow(path, reads)?;
        }
        for path in &rules.reads {
            files = files.allow(path, reads)?;
        }
        for path in &rules.writes {
            files = files.allow(path, writes)?;
        }
        for path in &rules.removes {
            files = files.allow_removing(path)?;
        }
        for &port in &rules.connects_to {
            files = Files(files.0.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?);
        }
        Ok(files)
    }

    /// Allows the removal of files in a folder.
    pub(super) fn allow_removing(self, folder: &Path) -> Result<Files, SandboxError> {
        self.allow(folder, AccessFs::RemoveFile.into())
    }

    fn allow(self, path: &Path, access: BitFlags<AccessFs>) -> Result<Files, SandboxError> {
        let opened = PathFd::new(path)?;
        // Landlock refuses folder rights in a rule for a file.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        Ok(Files(self.0.add_rule(PathBeneath::new(opened, access))?))
    }

    /// Restricts this thread and the threads that it starts; since Linux 7.0 all threads. Returns false if the kernel
    /// has no Landlock.
    pub(super) fn enforce(self) -> Result<bool, SandboxError> {
        let status = self.0.all_threads(true)?.restrict_self()?;
        Ok(status.ruleset != RulesetStatus::NotEnforced)
    }
}
