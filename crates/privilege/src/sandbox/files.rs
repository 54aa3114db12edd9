//! Files: everything is denied but what lies beneath the folders of the rules.

use super::{Rules, SandboxError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, RestrictSelfAttr, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::Path;

/// What the C library and printing read, whatever the graph: time zone, names of ports, random bytes.
const ALWAYS_READ: [&str; 6] = [
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/etc/services",
    "/etc/protocols",
    "/dev/urandom",
    "/dev/null",
];

/// Newest form that is asked for; a kernel enforces as much of it as it knows.
const NEWEST: ABI = ABI::V8;

/// What Landlock will allow, before it is in force.
pub(super) struct Files(RulesetCreated);

impl Files {
    /// Opens the folders of the rules: a user who cannot reach them later still has what lies beneath.
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
        // What is not there need not be read.
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
        Ok(files)
    }

    /// Allows to remove files in a folder.
    pub(super) fn allow_removing(self, folder: &Path) -> Result<Files, SandboxError> {
        self.allow(folder, AccessFs::RemoveFile.into())
    }

    fn allow(self, path: &Path, access: BitFlags<AccessFs>) -> Result<Files, SandboxError> {
        let opened = PathFd::new(path)?;
        // Rights in folders mean nothing for a file.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
        Ok(Files(self.0.add_rule(PathBeneath::new(opened, access))?))
    }

    /// Restricts this thread and those that it starts; since Linux 7.0 all threads. False where there is no Landlock.
    pub(super) fn enforce(self) -> Result<bool, SandboxError> {
        let status = self.0.all_threads(true)?.restrict_self()?;
        Ok(status.ruleset != RulesetStatus::NotEnforced)
    }
}
