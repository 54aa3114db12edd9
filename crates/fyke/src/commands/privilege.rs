//! What a command keeps of its rights once its sockets and files are open.
//!
//! ```text
//! prepare: whom to become ─▶ helper ─▶ open sockets and files ─▶ enter: may rotation go on? ─▶ root's control socket
//!   ─▶ helper sealed ─▶ another user, no capabilities ─▶ that user's control socket ─▶ sandbox ─▶ threads, frames
//! ```
//!
//! | started by | becomes |
//! |---|---|
//! | root, with -Z USER | that user; `root` stays root |
//! | root through sudo | the user who ran sudo |
//! | root | the first of fyke, tcpdump, nobody that exists |
//! | root of a user namespace that has no such user | itself without capabilities |
//! | a user with capabilities (setcap) | itself without capabilities |
//! | any other user | itself |

use super::{Failure, signals};
use crate::cli::PrivilegeArgs;
use anyhow::Context;
use fyke_capture::{PacketSockets, Rotation};
use fyke_control::Listening;
use fyke_graph::Plan;
use fyke_privilege::helper;
use fyke_privilege::sandbox::{Enforced, Rules, Sandbox};
use fyke_privilege::user::{self, User};
use std::path::{Path, PathBuf};

/// Whom the process becomes.
enum Becomes {
    /// Nobody else.
    Itself,
    /// Itself, without the capabilities that it has.
    Powerless,
    /// Another user.
    User(User),
}

/// The rights of a command that has not opened anything yet.
pub struct Privileges {
    becomes: Becomes,
    sandbox: bool,
}

/// Files that are made while frames are read.
struct Later {
    /// What makes them, for messages.
    what: String,
    folder: PathBuf,
    /// Whether the folder is the one in which they are made, and not one above it.
    is_exact: bool,
}

/// What clients of the control socket may have a command do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doors {
    /// Nothing: there is no control socket.
    #[default]
    Closed,
    /// Look, and edit filters.
    Filters,
    /// Edit graphs, whose nodes open files and sockets.
    Graph,
}

/// What a command does after it has given up its rights.
#[derive(Default)]
pub struct Needs {
    later: Vec<Later>,
    doors: Doors,
    sends_frames: bool,
    /// Whether programs become machine code.
    pub makes_code: bool,
}

/// Control sockets that are open, or why there is none.
pub type Sockets = Result<Vec<Listening>, fyke_control::StartError>;

/// What is left.
pub struct Entered {
    /// For root, and for the user that the process is now.
    pub sockets: Sockets,
    clients: String,
    user: Option<String>,
    enforced: Option<Enforced>,
}

impl Needs {
    /// The needs of a graph.
    pub fn of(plan: &Plan, doors: Doors) -> Needs {
        let mut needs = Needs { doors, ..Needs::default() };
        for node in &plan.nodes {
            let number = |name: &str| node.settings.text(name).and_then(|text| text.parse().ok());
            needs.sends_frames |= node.class.name == "tointerface";
            if node.class.name == "tofile" {
                let (size_millions, seconds) = (number("size"), number("seconds"));
                let rotation = Rotation { size_millions, seconds, count: None };
                let file = node.settings.text("expression").unwrap_or_default();
                if rotation.rotates() {
                    needs.rotates(Path::new(file), &rotation);
                }
            }
        }
        needs
    }

    /// The needs of a command without a graph.
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
        self.later.push(Later { what, folder: named(folder.unwrap_or_else(above)), is_exact });
    }

    /// Adds a file that is written again and again under another name and then renamed.
    pub fn replaces(&mut self, file: &Path) {
        let what = format!("drawing {} again", file.display());
        let folder = named(file.parent().unwrap_or(Path::new("")));
        self.later.push(Later { what, folder, is_exact: true });
    }

    fn rules(&self) -> Rules {
        let mut rules = Rules {
            writes: self.later.iter().map(|later| later.folder.clone()).collect(),
            sends_frames: self.sends_frames,
            makes_code: self.makes_code,
            ..Rules::default()
        };
        if self.doors == Doors::Graph {
            rules.writes.push(PathBuf::from("."));
            rules.opens_sockets = true;
            rules.makes_code = true;
        }
        rules
    }
}

/// The folder as it can be opened.
fn named(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

impl Privileges {
    /// Decides whom to become, and starts the helper for a command that captures or can be edited. Before anything is
    /// opened and any thread is started.
    pub fn prepare(args: &PrivilegeArgs, with_helper: bool) -> Result<Privileges, Failure> {
        // Later /proc is out of reach.
        signals::look();
        let becomes = becomes(args)?;
        let sandbox = !args.no_sandbox;
        if let Becomes::User(user) = &becomes {
            user::new_files_belong_to(user);
        }
        if with_helper && (sandbox || !matches!(becomes, Becomes::Itself)) {
            helper::start(&PacketSockets).context("cannot start the helper process")?;
        }
        Ok(Privileges { becomes, sandbox })
    }

    /// Gives up what is not needed from now on. Before any thread is started and any frame is read.
    pub fn enter(self, needs: &Needs) -> Result<Entered, Failure> {
        if let Becomes::User(user) = &self.becomes {
            check_folders(user, &needs.later)?;
        }
        // Read once; the C library keeps the time zone.
        let _ = fyke_capture::local_offset_s(0);
        let sandbox = self.sandbox.then(|| Sandbox::prepare(needs.rules())).transpose()?;
        let first = (needs.doors != Doors::Closed).then(Listening::open).transpose();
        if let Some(helper) = helper::current() {
            helper.seal().context("the helper process cannot confine itself")?;
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
                become_user.context("-Z root stays root, with everything that root may do")?;
            }
        }
        user::close_to_others().context("cannot close the process to others")?;
        entered.sockets = first.map(|first| first.into_iter().collect());
        let mut removes = None;
        if let Ok(sockets) = &mut entered.sockets
            && needs.doors != Doors::Closed
        {
            if let Becomes::User(user) = &self.becomes {
                // Root's socket is there, and the helper removes it.
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
                sandbox = sandbox.allow_removing(folder)?;
            }
            entered.enforced = Some(sandbox.enter()?);
        }
        Ok(entered)
    }
}

/// Opens a capture file, and gives up everything else before its first byte is read. For commands without threads.
pub fn read_only(args: &PrivilegeArgs, file: &Path, needs: &Needs) -> Result<(), Failure> {
    let privileges = Privileges::prepare(args, false)?;
    fyke_capture::open_before(file)?;
    privileges.enter(needs)?;
    Ok(())
}

impl Entered {
    /// Who may use the control socket, behind the command that does; nothing when that is who started this process.
    pub fn clients(&self) -> String {
        self.clients.clone()
    }

    /// What edits may open, for whoever was refused.
    pub fn limits(&self) -> Option<String> {
        let user = self.user.as_ref().map(|user| format!("with the rights of user {user}"));
        let sandboxed = self.enforced.is_some_and(|enforced| enforced.files);
        let beneath = sandboxed.then(|| "beneath its working folder only".to_owned());
        let limits: Vec<_> = beneath.into_iter().chain(user).collect();
        (!limits.is_empty()).then(|| {
            format!(
                "this fyke opens files for edits {}; -Z root and --no-sandbox lift that",
                limits.join(", ")
            )
        })
    }

    /// Says on standard error what the kernel does not have.
    pub fn say_missing(&self) {
        let Some(Enforced { files, calls }) = self.enforced else { return };
        if !files {
            note!("fyke: this kernel has no Landlock: only the user restricts files");
        }
        if !calls {
            note!("fyke: this kernel has no seccomp: system calls are not restricted");
        }
    }
}

fn folder_of(socket: &Listening) -> Option<PathBuf> {
    socket.path().parent().map(Path::to_owned)
}

fn becomes(args: &PrivilegeArgs) -> Result<Becomes, Failure> {
    if user::is_setuid() {
        return Err(Failure::Running(anyhow::anyhow!(
            "fyke is not made to be installed setuid: whoever runs it would read and write files \
             as root (`setcap cap_net_raw+ep` is enough to capture)"
        )));
    }
    let usage = |error: user::UserError| Failure::Usage(format!("-Z: {error}"));
    let asked = args.user.as_deref().map(User::named).transpose().map_err(usage)?;
    if !user::is_root() {
        if let (Some(asked), Some(name)) = (&asked, &args.user)
            && !asked.is_current()
        {
            note!("fyke: -Z {name} takes root; this goes on as the user who started it");
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

/// Refuses to become a user who could not make the files that are still to come.
fn check_folders(user: &User, later: &[Later]) -> Result<(), Failure> {
    for Later { what, folder, .. } in later.iter().filter(|later| later.is_exact) {
        let opened = std::fs::File::open(folder);
        let opened = opened.with_context(|| format!("cannot open {}", folder.display()))?;
        if !user.may_make_files_in(&opened)? {
            return Err(Failure::Running(anyhow::anyhow!(
                "{what} could not go on as user {}, who may not make files in {}: choose another \
                 folder, name another user with -Z, or keep root with -Z root",
                user.name,
                folder.display()
            )));
        }
    }
    Ok(())
}
