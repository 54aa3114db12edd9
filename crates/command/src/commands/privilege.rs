//! Drop of privileges: a command gives up rights once its sockets and files are open.
//!
//! ```text
//! prepare: choose the user ─▶ helper, loader ─▶ open sockets and files ─▶ enter: check rotation
//!   ─▶ root's control socket ─▶ seal both ─▶ change user, drop capabilities
//!   ─▶ the user's control socket ─▶ sandbox ─▶ threads, frames
//! ```
//!
//! | started by | becomes |
//! |---|---|
//! | root, with -Z USER | that user; `root` stays root |
//! | root through sudo | the user that ran sudo |
//! | root | the first of [`user::SYSTEM_USERS`] that exists |
//! | root of a user namespace that has no such user | itself without capabilities |
//! | a user with capabilities (setcap) | itself without capabilities |
//! | any other user | itself |

use super::{Failure, signals};
use crate::cli::PrivilegeArgs;
use anyhow::Context;
use fyke_capture::{PacketSockets, Rotation};
use fyke_control::Listening;
use fyke_graph::Plan;
use fyke_kernel::loader;
use fyke_privilege::helper;
use fyke_privilege::runner;
use fyke_privilege::sandbox::{Enforced, Rules, Sandbox};
use fyke_privilege::user::{self, User};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::Builder;

/// Stack of a thread that waits for the end of a process.
const STACK_BYTES: usize = 128 << 10;

/// The user that the process becomes.
enum Becomes {
    /// The same user; nothing changes.
    Itself,
    /// The same user, without capabilities.
    Powerless,
    /// Another user.
    User(User),
}

/// The rights of a command that has not opened anything yet.
pub struct Privileges {
    becomes: Becomes,
    sandbox: bool,
    /// Work to do once everything is open, with all rights.
    when_open: Option<Box<dyn FnOnce()>>,
}

/// Files that the command makes while it reads frames.
struct Later {
    /// The action that makes them, for messages.
    what: String,
    folder: PathBuf,
    /// True if they are made in this folder itself; false if `folder` is an ancestor of theirs.
    is_exact: bool,
    /// True if the command has a way without them.
    is_optional: bool,
}

/// Operations that a command accepts from clients of its control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doors {
    /// Nothing: there is no control socket.
    #[default]
    Closed,
    /// Look at filters and counts, not at frames.
    Look,
    /// Look, and edit filters.
    Filters,
    /// Edit graphs; new nodes may open files and sockets.
    Graph,
}

/// Access that a command needs after it has dropped its rights.
#[derive(Default)]
pub struct Needs {
    later: Vec<Later>,
    doors: Doors,
    sends_frames: bool,
    /// True if programs are compiled to machine code.
    pub makes_code: bool,
    /// Folder in which edits of a graph publish rings.
    pub rings: Option<PathBuf>,
    /// True if sockets are opened later.
    pub opens_sockets: bool,
    /// Ports that TCP connections are made to later.
    pub connects_to: Vec<u16>,
    /// True if memory for other processes is made.
    pub makes_memory: bool,
    /// Folders and files that are read later.
    pub reads: Vec<PathBuf>,
}

/// Open control sockets, or the reason for none.
pub type Sockets = Result<Vec<Listening>, fyke_control::StartError>;

/// A command after it has dropped its rights.
pub struct Entered {
    /// Control sockets for root and for the current user.
    pub sockets: Sockets,
    clients: String,
    user: Option<String>,
    enforced: Option<Enforced>,
}

impl Needs {
    /// Determines the needs of a graph.
    pub fn of(plan: &Plan, doors: Doors) -> Needs {
        let connects_to = super::remote::ports_of(plan);
        let mut needs = Needs { doors, connects_to, ..Needs::default() };
        for node in &plan.nodes {
            let number = |name: &str| node.settings.text(name).and_then(|text| text.parse().ok());
            needs.sends_frames |= node.class.name == "tointerface";
            let of_calls = ["files", "wav"].into_iter().filter(|_| node.class.name == "calls");
            for files in of_calls.filter_map(|name| node.settings.text(name)) {
                let what = format!("the file of each call, {files},");
                let folder = named(Path::new(files).parent().unwrap_or(Path::new("")));
                needs.later.push(Later { what, folder, is_exact: true, is_optional: false });
            }
            if node.class.name == "tofile" {
                let (size_millions, seconds) = (number("size"), number("seconds"));
                let rotation = Rotation { size_millions, seconds, count: None };
                let file = node.settings.text("expression").unwrap_or_default();
                // -G with -W 1 ends after the first file.
                let is_single = size_millions.is_none() && number("files") == Some(1);
                if rotation.rotates() && !is_single {
                    needs.rotates(Path::new(file), &rotation);
                }
            }
        }
        needs
    }

    /// Returns the needs of a command without a graph.
    pub fn with(doors: Doors) -> Needs {
        Needs { doors, ..Needs::default() }
    }

    fn rotates(&mut self, file: &Path, rotation: &Rotation) {
        let what = format!("the rotation of {}", file.display());
        let folder = rotation.folder(file);
        let above = || {
            let dated = |folder: &&Path| !folder.as_os_str().to_string_lossy().contains('%');
            file.ancestors().skip(1).find(dated).unwrap_or(Path::new("."))
        };
        let is_exact = folder.is_some();
        let folder = named(folder.unwrap_or_else(above));
        self.later.push(Later { what, folder, is_exact, is_optional: false });
    }

    /// Adds a file that is rewritten repeatedly: under another name, which is then renamed.
    pub fn replaces(&mut self, file: &Path) {
        let what = format!("drawing {} again", file.display());
        let folder = named(file.parent().unwrap_or(Path::new("")));
        self.later.push(Later { what, folder, is_exact: true, is_optional: false });
    }

    /// Adds a file that is opened again, and made if it is not there any more, if the user may do so.
    pub fn reopens(&mut self, file: &Path) {
        let what = format!("opening {} again", file.display());
        let folder = named(file.parent().unwrap_or(Path::new("")));
        self.later.push(Later { what, folder, is_exact: true, is_optional: true });
    }

    fn rules(&self) -> Rules {
        let mut rules = Rules {
            writes: self.later.iter().map(|later| later.folder.clone()).collect(),
            sends_frames: self.sends_frames,
            makes_code: self.makes_code,
            makes_memory: self.makes_memory,
            opens_sockets: self.opens_sockets,
            connects_to: self.connects_to.clone(),
            reads: self.reads.clone(),
            ..Rules::default()
        };
        if self.doors == Doors::Graph {
            rules.writes.push(PathBuf::from("."));
            rules.writes.extend(self.rings.clone());
            rules.opens_sockets = true;
            rules.makes_code = true;
        }
        rules
    }
}

/// Returns the folder in a form that can be opened: `.` for an empty path.
fn named(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

impl Privileges {
    /// Chooses the user to become, and starts the helper for a command that captures or can be edited. Must be called
    /// before the command opens anything or starts a thread.
    pub fn prepare(args: &PrivilegeArgs, with_helper: bool) -> Result<Privileges, Failure> {
        Self::prepare_to_run(args, with_helper, None)
    }

    /// Prepares as [`prepare`](Self::prepare) does, and starts the process that runs a command for each complete file
    /// of a rotation: the command and the pattern of the names.
    pub fn prepare_to_run(
        args: &PrivilegeArgs,
        with_helper: bool,
        runs: Option<(&str, &Path)>,
    ) -> Result<Privileges, Failure> {
        // /proc cannot be read later.
        signals::look();
        let becomes = becomes(args)?;
        if let Some((command, pattern)) = runs {
            check_command(command)?;
            let user = match &becomes {
                Becomes::User(user) => Some(user),
                Becomes::Itself | Becomes::Powerless => None,
            };
            let is_powerless = matches!(becomes, Becomes::Powerless);
            runner::start(command, pattern, user, is_powerless)
                .context("cannot start the process that runs the command of -z")?;
        }
        let sandbox = !args.no_sandbox;
        if let Becomes::User(user) = &becomes {
            user::new_files_belong_to(user);
        }
        if with_helper && (sandbox || !matches!(becomes, Becomes::Itself)) {
            helper::start(&PacketSockets).context("cannot start the helper process")?;
            loader::start().context("cannot start the process that loads programs")?;
        }
        Ok(Privileges { becomes, sandbox, when_open: None })
    }

    /// Does this work once a graph has opened its files and sockets, before the rights are dropped.
    pub fn when_open(&mut self, work: Box<dyn FnOnce()>) {
        self.when_open = Some(work);
    }

    /// Does the work of [`when_open`](Self::when_open).
    pub fn opened(&mut self) {
        self.when_open.take().into_iter().for_each(|work| work());
    }

    /// Gives a child process the rights that this one keeps after [`enter`](Self::enter), and of the environment of
    /// the former user only what makes output readable.
    pub fn confine(&self, child: &mut Command) {
        const KEPT: [&str; 6] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"];
        if let Becomes::User(user) = &self.becomes {
            child.uid(user.uid).gid(user.gid).env_clear();
            child.envs(KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
    }

    /// Drops the rights that are no longer needed. Must be called before the command starts a thread or reads a frame.
    pub fn enter(self, needs: &Needs) -> Result<Entered, Failure> {
        if let Becomes::User(user) = &self.becomes {
            check_folders(user, &needs.later)?;
        }
        // Loads the time zone now; the C library caches it.
        let _ = fyke_capture::local_offset_s(0);
        // For the authors of edits: clients are of this user, or root.
        user::learn_name(match &self.becomes {
            Becomes::User(user) => user.uid,
            Becomes::Itself | Becomes::Powerless => rustix::process::geteuid().as_raw(),
        });
        let sandbox = self.sandbox.then(|| Sandbox::prepare(needs.rules()));
        let sandbox = sandbox.transpose().map_err(without_sandbox)?;
        let first = (needs.doors != Doors::Closed).then(Listening::open).transpose();
        if let Some(helper) = helper::current() {
            let sealed = helper.seal().context("the helper process cannot confine itself");
            sealed.map_err(without_sandbox)?;
        }
        if let Some(loader) = loader::current() {
            // Without it, the filters of later edits are interpreted; their verdicts are the same.
            let _interpreted = loader.seal();
        }
        let user = match &self.becomes {
            Becomes::User(user) => Some(user.name.clone()),
            _ => None,
        };
        let clients = String::new();
        let mut entered = Entered { sockets: Ok(Vec::new()), clients, user, enforced: None };
        match &self.becomes {
            Becomes::Itself => {}
            Becomes::Powerless => user::give_up_capabilities()?,
            Becomes::User(user) => {
                let become_user = user::become_user(user);
                become_user.context("use -Z root to stay root, with all of its rights")?;
            }
        }
        user::close_to_others().context("cannot protect the process from other processes")?;
        entered.sockets = first.map(|first| first.into_iter().collect());
        let mut removes = None;
        if let Ok(sockets) = &mut entered.sockets
            && needs.doors != Doors::Closed
        {
            if let Becomes::User(user) = &self.becomes {
                // Root's socket exists already; the helper removes it at the end.
                let second = Listening::open_as_dropped();
                entered.clients = match &second {
                    Ok(_) => format!(" (as root or {})", user.name),
                    Err(_) => " (as root)".to_owned(),
                };
                removes = second.as_ref().ok().and_then(folder_of);
                sockets.extend(second);
            } else {
                removes = sockets.first().and_then(folder_of);
            }
        }
        if let Some(mut sandbox) = sandbox {
            if let Some(folder) = &removes {
                sandbox = sandbox.allow_removing(folder).map_err(without_sandbox)?;
            }
            entered.enforced = Some(sandbox.enter().map_err(without_sandbox)?);
        }
        watch_processes();
        Ok(entered)
    }
}

/// Reports the end of a process that works for this one, and takes it out of the list of processes.
fn watch_processes() {
    if let Some(helper) = helper::current() {
        report_end(|| {
            let ended = helper.wait_for_end()?;
            Some(format!(
                "the helper {ended}: an interface that is removed and made again is not captured any more, and \
                 control sockets may stay in their folders; start the capture again"
            ))
        });
    }
    if let Some(loader) = loader::current().filter(|loader| loader.is_there()) {
        loader.report(|text| note!("fyke: {text}"));
        report_end(|| {
            let ended = loader.wait_for_end()?;
            Some(format!(
                "the loader {ended}: filters of later edits are interpreted from now on, which takes more time for \
                 each frame; start the capture again to have programs generated"
            ))
        });
    }
}

/// Reports what `wait` returns. Without a thread, the end is told when the process is needed.
fn report_end(wait: impl FnOnce() -> Option<String> + Send + 'static) {
    let thread = Builder::new().name("processes".to_owned()).stack_size(STACK_BYTES);
    let _no_thread = thread.spawn(|| wait().inspect(|text| note!("fyke: {text}")));
}

/// Opens a capture file, then drops all rights before its first byte is read. For commands without threads.
pub fn read_only(args: &PrivilegeArgs, file: &Path, needs: &Needs) -> Result<(), Failure> {
    let privileges = Privileges::prepare(args, false)?;
    fyke_capture::open_before(file)?;
    privileges.enter(needs)?;
    Ok(())
}

/// True if the message of an edit that was refused has the system's error for a right that is missing.
pub fn is_denied(message: &str) -> bool {
    ["(os error 13)", "(os error 1)"].iter().any(|at| message.contains(at))
}

impl Entered {
    /// Describes the users that may connect to the control socket, to be printed after the `fyke ctl` command. Empty if
    /// only the user that started this process may connect.
    pub fn clients(&self) -> String {
        self.clients.clone()
    }

    /// Describes the files that edits may open, for the error of an edit that was refused.
    pub fn limits(&self) -> Option<String> {
        let user = self.user.as_ref().map(|user| format!("with the rights of user {user}"));
        let sandboxed = self.enforced.is_some_and(|enforced| enforced.files);
        let beneath = sandboxed.then(|| "only beneath its working folder".to_owned());
        let limits: Vec<_> = beneath.into_iter().chain(user).collect();
        (!limits.is_empty()).then(|| {
            format!(
                "this fyke opens files for edits {}: name another file when it starts, or start it with -Z root \
                 --no-sandbox",
                limits.join(", ")
            )
        })
    }

    /// Reports on standard error the sandbox parts that the kernel does not support.
    pub fn say_missing(&self) {
        let Some(Enforced { files, calls }) = self.enforced else { return };
        if !files {
            note!(
                "fyke: this kernel or container offers no Landlock: file access is limited only by the \
                 user's rights"
            );
        }
        if !calls {
            note!(
                "fyke: this kernel or container offers no seccomp: system calls are not restricted"
            );
        }
    }
}

/// Adds to the error of a sandbox what to do: some containers refuse the system calls.
fn without_sandbox(error: impl Into<anyhow::Error>) -> Failure {
    let advice = "if this is a container that forbids it, `-Z root --no-sandbox` keeps root and runs \
                  without a sandbox (docs/security.md)";
    let told = super::Failure::Running(error.into()).message();
    Failure::Running(anyhow::anyhow!("{told}; {advice}"))
}

fn folder_of(socket: &Listening) -> Option<PathBuf> {
    socket.path().parent().map(Path::to_owned)
}

fn becomes(args: &PrivilegeArgs) -> Result<Becomes, Failure> {
    let usage = |error: user::UserError| Failure::Usage(format!("-Z: {error}"));
    let asked = args.user.as_deref().map(User::named).transpose().map_err(usage)?;
    if !user::is_root() {
        if let (Some(asked), Some(name)) = (&asked, &args.user)
            && !asked.is_current()
        {
            note!("fyke: -Z {name} needs root; fyke continues as the user that started it");
        }
        let powerful = user::has_capabilities();
        return Ok(if powerful { Becomes::Powerless } else { Becomes::Itself });
    }
    let user = match &asked {
        Some(user) if user.uid == 0 => return Ok(Becomes::Itself),
        Some(user) if !user.is_mapped() => {
            return Err(Failure::Usage(format!(
                "-Z: user {} does not exist in this user namespace",
                user.name
            )));
        }
        Some(user) => Some(user.clone()),
        None => match User::of_sudo()? {
            Some(user) => Some(user),
            None => User::of_system().ok(),
        },
    };
    let user = user.filter(User::is_mapped);
    Ok(user.map_or(Becomes::Powerless, Becomes::User))
}

/// Refuses a command that does not exist, before the capture needs it.
fn check_command(command: &str) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let found = match command.contains('/') {
        true => runs(Path::new(command)),
        false => std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|at| runs(&at.join(command)))),
    };
    match found && !command.is_empty() {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "-z {command}: there is no such program; it is run without a shell, so give a name or a \
             path alone, and put options into a script"
        ))),
    }
}

/// Refuses a user that could not make the files that are needed later.
fn check_folders(user: &User, later: &[Later]) -> Result<(), Failure> {
    for Later { what, folder, .. } in
        later.iter().filter(|later| later.is_exact && !later.is_optional)
    {
        let opened = std::fs::File::open(folder);
        let opened = opened.with_context(|| format!("cannot open {}", folder.display()))?;
        if !user.may_make_files_in(&opened)? {
            return Err(Failure::Running(anyhow::anyhow!(
                "{what} would fail: user {} may not make files in {}; choose another folder, name \
                 another user with -Z, or keep root with -Z root",
                user.name,
                folder.display()
            )));
        }
    }
    Ok(())
}
