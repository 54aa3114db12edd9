//! Worlds: two network namespaces connected by a veth pair, with addresses on both ends.
//!
//! ```text
//!   clients ── veth "clients" ═══ veth "servers" ── servers
//!   10.77.1.1 … /16                 10.77.0.1 … /16
//! ```
//!
//! A namespace here is an open file; threads enter it ([`Namespace::spawn`]). After the last file is closed and the
//! last thread has ended, the kernel removes namespace, devices and addresses, also after a panic or a signal.
//! Nothing outside is changed and no program is run: devices are created through netlink.
//!
//! As root, a thread just unshares its network. An ordinary user first needs a user namespace, which the kernel
//! grants only to single-threaded processes and which the process then keeps.
//!
//! Frames look as on a wire: MTU 1500, segmentation and checksum offloads off.

mod link;
mod netlink;
#[allow(unsafe_code, reason = "system calls that the standard library lacks")]
pub mod sys;

pub use link::{LinkState, link_state};
pub use netlink::NetlinkError;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::thread::{Builder, JoinHandle};

/// Device name at the clients' end.
pub const CLIENTS_DEVICE: &str = "clients";
/// Device name at the servers' end.
pub const SERVERS_DEVICE: &str = "servers";
/// Maximum number of addresses of one end.
pub const MOST_ADDRESSES: u8 = 250;
const MTU: u32 = 1_500;
const PREFIX_LEN: u8 = 16;
const STACK_BYTES: usize = 256 * 1024;

/// Privilege with which a world was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// The process may create network namespaces.
    Root,
    /// The process may do so only inside a user namespace of its own.
    UserNamespace,
}

/// Reason why a world was not created.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The kernel refuses namespaces to this process.
    #[error("network namespaces are refused ({privileged}), and in a user namespace too ({user})")]
    Refused {
        /// Error without a user namespace.
        privileged: Errno,
        /// Error of the user namespace.
        user: String,
    },
    /// A device or an address could not be set up.
    #[error("cannot {step}: {source}")]
    Link {
        /// The failed step.
        step: &'static str,
        /// The kernel's error.
        source: NetlinkError,
    },
    /// A file operation or a start failed.
    #[error("cannot {step}: {source}")]
    Io {
        /// The failed step.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// More addresses were requested than possible.
    #[error("{given} addresses requested on one end, at most {MOST_ADDRESSES} are possible")]
    TooManyAddresses {
        /// The requested number.
        given: usize,
    },
}

impl WorldError {
    /// Returns true if this process may not create namespaces; false for other failures.
    pub fn is_refused(&self) -> bool {
        matches!(self, WorldError::Refused { .. })
    }
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// Two namespaces and the wire between them.
#[derive(Debug)]
pub struct World {
    /// Namespace of the clients.
    pub clients: Namespace,
    /// Namespace of the servers.
    pub servers: Namespace,
    /// Privilege with which they were created.
    pub privilege: Privilege,
}

impl World {
    /// Creates a world with these numbers of client and server addresses (at most [`MOST_ADDRESSES`] each).
    pub fn create(client_count: usize, server_count: usize) -> Result<World, WorldError> {
        World::create_with_mtu(client_count, server_count, MTU)
    }

    /// Creates a world as [`World::create`] does, with another MTU than 1500.
    pub fn create_with_mtu(
        client_count: usize,
        server_count: usize,
        mtu: u32,
    ) -> Result<World, WorldError> {
        for given in [client_count, server_count] {
            if given > usize::from(MOST_ADDRESSES) {
                return Err(WorldError::TooManyAddresses { given });
            }
        }
        let (clients, privilege) = first_namespace()?;
        let servers = Namespace::create().map_err(|source| io_error("make a namespace", source))?;
        let world = World { clients, servers, privilege };
        world.join(client_count, server_count, mtu)?;
        Ok(world)
    }

    fn join(&self, client_count: usize, server_count: usize, mtu: u32) -> Result<(), WorldError> {
        let servers = self.servers.file.try_clone();
        let servers = servers.map_err(|source| io_error("share a namespace", source))?;
        self.clients.inside(move || -> Result<(), WorldError> {
            link::make_pair(CLIENTS_DEVICE, SERVERS_DEVICE, &servers, mtu)?;
            link::set_up(CLIENTS_DEVICE, (0..client_count).map(client_address), PREFIX_LEN)
        })??;
        self.servers.inside(move || {
            link::set_up(SERVERS_DEVICE, (0..server_count).map(server_address), PREFIX_LEN)
        })?
    }
}

/// Address of client number `index` (below [`MOST_ADDRESSES`]).
pub fn client_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, index as u8 + 1)
}

/// Address of server number `index` (below [`MOST_ADDRESSES`]).
pub fn server_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, index as u8 + 1)
}

impl Namespace {
    /// Creates a namespace in a thread of its own, which ends at once; the file keeps the namespace.
    fn create() -> io::Result<Namespace> {
        let made = Builder::new().stack_size(STACK_BYTES).spawn(|| -> io::Result<Namespace> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Namespace { file: File::open("/proc/thread-self/ns/net")? })
        });
        join(made?)?
    }

    /// Starts a thread inside; its sockets and threads belong to the namespace too.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<T>>> {
        let file = self.file.try_clone()?;
        Builder::new().name(name.to_string()).stack_size(STACK_BYTES).spawn(move || {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            drop(file);
            Ok(work())
        })
    }

    /// Runs a function inside and waits for it.
    pub fn inside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorldError> {
        let started = self.spawn("inside", work);
        let done = started.and_then(join).and_then(|done| done);
        done.map_err(|source| io_error("work in a namespace", source))
    }
}

fn first_namespace() -> Result<(Namespace, Privilege), WorldError> {
    let privileged = match Namespace::create() {
        Ok(namespace) => return Ok((namespace, Privilege::Root)),
        Err(error) => Errno::from_raw(error.raw_os_error().unwrap_or(0)),
    };
    if privileged != Errno::EPERM {
        return Err(io_error("make a namespace", privileged.into()));
    }
    let refused = |user: String| WorldError::Refused { privileged, user };
    enter_user_namespace().map_err(|error| refused(error.to_string()))?;
    let namespace = Namespace::create().map_err(|error| refused(error.to_string()))?;
    Ok((namespace, Privilege::UserNamespace))
}

/// Gives this process a user namespace in which its user is root. This is possible only while it has one thread.
fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads > 1 {
        let text = format!("the process has {threads} threads and may have only one");
        return Err(io::Error::other(text));
    }
    unshare(CloneFlags::CLONE_NEWUSER)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1\n"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1\n"))
}

fn join<T>(thread: JoinHandle<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread of the world panicked"))
}

fn io_error(step: &'static str, source: io::Error) -> WorldError {
    WorldError::Io { step, source }
}
