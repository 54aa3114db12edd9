//! `fyke exec --rules IF`: the rules of an interface, read by the program's sockets that are bound to it.
//!
//! ```text
//! frame ─▶ socket of IF ─▶ tap (rules) ─▶ program of the filter texts ─▶ the program
//! ```
//!
//! Sockets of other interfaces, of all interfaces, and of another network namespace have the filter only. The rules are
//! those of another fyke, or this one has them ([`SocketTap`]).

use super::super::Failure;
use super::super::space::{self, SocketTap};
use anyhow::{Context, anyhow};
use fyke_control::{OwnedRules, Response};
use fyke_filters::KernelFilters;
use fyke_frame::LinkType;
use fyke_graph::RuleSet;
use fyke_graph::placement::RulesTap;
use fyke_kernel::sys::objects;
use fyke_kernel::{PacketSocket, sockets, sys};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The rules of one interface.
pub struct ExecRules {
    interface: String,
    /// Numbers of the interface and of its network namespace.
    index: u32,
    namespace: u64,
    rules: RuleSet,
    tap: Arc<SocketTap>,
}

impl std::fmt::Debug for ExecRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecRules").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl ExecRules {
    /// Joins the rules of an interface, or has them. `is_known`: the first filter of the program is known.
    pub fn open(interface: &str, is_known: bool) -> Result<ExecRules, Failure> {
        if !is_known {
            let what = "--rules: the filter of this program is not known";
            return Err(Failure::Usage(format!(
                "{what}; give it with --filter (\'\' for all frames)"
            )));
        }
        let interface = super::super::numbered(interface)?;
        let index = objects::interface_index(&interface)
            .map_err(|_absent| Failure::Running(anyhow!("there is no interface {interface}")))?;
        let socket = sockets::open(&interface).and_then(|socket| sys::namespace(socket.as_fd()));
        let namespace = socket.with_context(|| format!("--rules {interface}"))?;
        let rules = RuleSet::new(false);
        let tap = SocketTap::open(&interface, u32::MAX, &rules)
            .map_err(|why| anyhow!("--rules {interface}: {why}"))?;
        note!("{}, for sockets bound to {interface}", tap.describe());
        Ok(ExecRules { interface, index, namespace, rules, tap: Arc::new(tap) })
    }

    /// Has frames that pass the rules go to the program of the filter texts.
    pub fn precede(&self, filters: &KernelFilters) -> anyhow::Result<()> {
        let tap = Arc::clone(&self.tap);
        filters.give_program(LinkType::EN10MB, move |program| tap.follow(program))?;
        self.tap.set_following(true);
        self.tap.set_on(true);
        Ok(())
    }

    /// Starts to wait for the end of the owner, if that is another process.
    pub fn begin(&self) {
        self.tap.begin();
    }

    /// True if the rules are for a socket of this link type that is bound to the interface with this number.
    pub fn are_for(&self, socket: &PacketSocket, interface: u32, link: LinkType) -> bool {
        interface == self.index
            && link == LinkType::EN10MB
            && sys::namespace(socket.as_fd()).is_ok_and(|of_socket| of_socket == self.namespace)
    }

    /// Makes the rules the first filter of a socket.
    pub fn attach(&self, socket: &PacketSocket) -> io::Result<()> {
        self.tap.attach(socket.as_fd())
    }

    /// Number of frames that they rejected.
    pub fn rejected(&self) -> u64 {
        self.tap.rejected_by_rules()
    }

    /// The rules in the form for other fykes, if this one has them.
    pub fn owned(&self) -> Option<OwnedRules> {
        let (owned, namespace) = (self.tap.owned()?, space::namespace().ok()?);
        let (map, index) = (owned.map, owned.interface);
        Some(OwnedRules { interface: self.interface.clone(), namespace, map, index })
    }

    /// Executes a command.
    pub fn command(&self, command: &str) -> Response {
        match self.rules.command(command) {
            Ok(text) => Response::Rules { text },
            Err(error) => Response::Error { message: error.to_string() },
        }
    }
}
