//! Keeps a pass set in step with the data connections that a tracker reports: turns events into
//! edits, as FTPCap does.
//!
//! On Ethernet a server's IPv4 connections share passes of three instructions:
//!
//! | index | instruction |
//! |---|---|
//! | 0 | IPv4, TCP or UDP, not a later fragment |
//! | 1 | either address is the server's |
//! | 2 | either port is one of up to [`PORTS_PER_PASS`] |
//!
//! so that a new connection is one more operand, and a new server is a duplicate with two
//! instructions changed. Connections over IPv6, between two given hosts, and on other link types get
//! a filter text each: `ip6 host … and udp port …`.
//!
//! The changes of one call are one edit, committed as a whole. An event with a change that is
//! refused (the pass set is full) is reported and changes nothing; the others are applied. Cost:
//! O(passes of the server) per event, plus the edit.

mod plan;

pub use plan::PORTS_PER_PASS;

use crate::{Connection, Event, Protocol};
use fyke_filter::{Fragments, Options, Reading};
use fyke_filters::{FilterError, FilterSet};
use fyke_frame::LinkType;
use fyke_pass::{Edit, EditError, Epoch, FilterId, LowerError, PassId, PassSet, primitive};
use plan::{Closing, Opening, Plan};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

const HOST: usize = 1;
const PORTS: usize = 2;

/// Reasons why an event could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The pass set refused the change.
    #[error("data connection {id} at {server} port {port}: {source}")]
    Refused {
        /// The connection's number.
        id: u64,
        /// The listening end's address.
        server: IpAddr,
        /// The listening end's port.
        port: u16,
        /// The error of the pass set.
        source: EditError,
    },
    /// The pass set refused the connection's filter text.
    #[error("filter {text:?}: {message}")]
    Text {
        /// The text.
        text: String,
        /// The error in it.
        message: String,
    },
}

/// Result of a call of [`PassKeeper::apply`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Applied {
    /// The epoch after the call.
    pub epoch: Epoch,
    /// Events that changed the pass set.
    pub changes: usize,
    /// Events that could not be applied.
    pub failures: Vec<KeepError>,
}

/// The keeper of one pass set. It does not change other passes and filters in the set.
#[derive(Debug)]
pub struct PassKeeper {
    /// Options for reading texts, with the link type.
    options: Options,
    fragments: Fragments,
    plan: Plan<PassId>,
    /// Filters of connections without a pass, by text, with the number of connections that use them.
    texts: HashMap<String, (FilterId, u32)>,
    /// The connections that use them.
    in_texts: HashMap<u64, String>,
    /// For each connection the row of the filters that covers its passes.
    rows: HashMap<u64, u64>,
}

impl PassKeeper {
    /// A keeper for a pass set of that link type.
    pub fn new(link: LinkType) -> Self {
        PassKeeper::reading(Options { link, ..Options::default() }, Fragments::default())
    }

    /// A keeper of a pass set whose texts are read with these options. In the scoped reading every
    /// connection gets a text, because passes test fixed offsets.
    pub fn reading(options: Options, fragments: Fragments) -> Self {
        let (plan, texts, in_texts) = (Plan::default(), HashMap::new(), HashMap::new());
        PassKeeper { options, fragments, plan, texts, in_texts, rows: HashMap::new() }
    }

    /// Number of passes and filters now.
    pub fn pass_count(&self) -> usize {
        self.plan.pass_count() + self.texts.len()
    }

    /// Number of data connections now.
    pub fn connection_count(&self) -> usize {
        self.plan.connection_count() + self.in_texts.len()
    }

    /// Applies the changes that the events require, as one edit.
    pub fn apply(&mut self, events: &[Event], passes: &mut PassSet) -> Applied {
        let mut edit = passes.edit();
        let (mut changes, mut failures) = (0, Vec::new());
        for event in events {
            let changed = match event {
                Event::Open(connection) => self.open(connection, &mut edit),
                Event::Close(closed) => self.close(&closed.connection, &mut edit),
            };
            match changed {
                Ok(changed) => changes += usize::from(changed),
                Err(failure) => failures.push(failure),
            }
        }
        Applied { epoch: edit.commit(), changes, failures }
    }

    /// Applies the changes that the events require to the passes of a set of filters, as one edit. Spaces before the
    /// set let the frames of an announced connection pass before the edit takes effect.
    ///
    /// # Errors
    /// The texts of the set are too large for a link type that is new.
    pub fn edit(
        &mut self,
        link: LinkType,
        events: &[Event],
        filters: &FilterSet,
    ) -> Result<Applied, FilterError> {
        let (mut opened, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Open(connection) => {
                    opened.push(connection.id);
                    added.push(text(connection));
                }
                Event::Close(closed) => {
                    let id = closed.connection.id;
                    if let Some(at) = opened.iter().position(|opened| *opened == id) {
                        opened.remove(at);
                        added.remove(at);
                    }
                    removed.extend(self.rows.remove(&id));
                }
            }
        }
        let edited = filters.edit_rows(link, &added, &removed, |passes| self.apply(events, passes));
        let (applied, rows) = edited?;
        self.rows.extend(opened.into_iter().zip(rows));
        Ok(applied)
    }

    fn open(&mut self, connection: &Connection, edit: &mut Edit) -> Result<bool, KeepError> {
        match connection.server {
            IpAddr::V4(server)
                if self.options.link == LinkType::EN10MB
                    && self.options.reading == Reading::Compat
                    && !connection.pair =>
            {
                let opening = self.plan.opening(connection);
                let pass = open_pass(opening, server, connection, edit);
                let pass = pass.map_err(|source| refused(connection, source))?;
                self.plan.opened(connection, pass);
                Ok(!matches!(opening, Opening::Held(_)))
            }
            _ => self.open_text(connection, edit),
        }
    }

    fn close(&mut self, connection: &Connection, edit: &mut Edit) -> Result<bool, KeepError> {
        if let Some(key) = self.in_texts.remove(&connection.id) {
            return Ok(self.close_text(&key, edit));
        }
        let changed = match self.plan.closing(connection.id) {
            Closing::Unknown | Closing::Shared => Ok(false),
            Closing::RemovePort(pass, port) => {
                edit.remove_operand(pass, PORTS, port.into()).map(|()| true)
            }
            Closing::Delete(pass) => edit.delete_pass(pass).map(|()| true),
        };
        // Another client may have deleted the pass; the result is the same.
        self.plan.closed(connection.id);
        changed.map_err(|source| refused(connection, source))
    }

    fn open_text(&mut self, connection: &Connection, edit: &mut Edit) -> Result<bool, KeepError> {
        let text = text(connection);
        if let Some((_, count)) = self.texts.get_mut(&text) {
            *count += 1;
            self.in_texts.insert(connection.id, text);
            return Ok(false);
        }
        let failed = |message: String| KeepError::Text { text: text.clone(), message };
        let predicate = fyke_filter::compile_with(&text, &self.options, &self.fragments);
        let predicate = predicate.map_err(|error| failed(error.to_string()))?;
        let added = edit.add_filter(&predicate);
        let filter = added.map_err(|error: LowerError| failed(error.to_string()))?;
        self.in_texts.insert(connection.id, text.clone());
        self.texts.insert(text, (filter, 1));
        Ok(true)
    }

    fn close_text(&mut self, text: &str, edit: &mut Edit) -> bool {
        let Some((filter, count)) = self.texts.get_mut(text) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        // Another client may have removed the filter; the result is the same.
        let _ = edit.remove_filter(*filter);
        self.texts.remove(text);
        true
    }
}

fn open_pass(
    opening: Opening<PassId>,
    server: Ipv4Addr,
    connection: &Connection,
    edit: &mut Edit,
) -> Result<PassId, EditError> {
    let port = connection.port;
    match opening {
        Opening::Held(pass) => Ok(pass),
        Opening::AddPort(pass) => {
            edit.add_operand(pass, PORTS, port.into())?;
            Ok(pass)
        }
        Opening::DuplicateForPorts(from) => {
            let pass = edit.duplicate_pass(from)?;
            edit.set_instruction(pass, PORTS, primitive::tcp_port_either(&[port])?)?;
            Ok(pass)
        }
        Opening::DuplicateForServer(from) => {
            let pass = edit.duplicate_pass(from)?;
            edit.set_instruction(pass, HOST, primitive::ip_host_either(server.into()))?;
            edit.set_instruction(pass, PORTS, primitive::tcp_port_either(&[port])?)?;
            Ok(pass)
        }
        Opening::Create => {
            let pass = edit.new_pass()?;
            let transport = match connection.protocol {
                Protocol::Tcp => primitive::ether_ip_tcp_nonfrag(),
                Protocol::Udp => primitive::ether_ip_udp_nonfrag(),
            };
            edit.set_instruction(pass, 0, transport)?;
            edit.set_instruction(pass, HOST, primitive::ip_host_either(server.into()))?;
            edit.set_instruction(pass, PORTS, primitive::tcp_port_either(&[port])?)?;
            Ok(pass)
        }
    }
}

fn text(connection: &Connection) -> String {
    let family = if connection.server.is_ipv6() { "ip6" } else { "ip" };
    let protocol = match connection.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    let Connection { server, port, client, .. } = connection;
    match connection.pair {
        true => {
            format!("{family} host {server} and {family} host {client} and {protocol} port {port}")
        }
        false => format!("{family} host {server} and {protocol} port {port}"),
    }
}

fn refused(connection: &Connection, source: EditError) -> KeepError {
    let Connection { id, server, port, .. } = *connection;
    KeepError::Refused { id, server, port, source }
}

#[cfg(test)]
mod tests;
