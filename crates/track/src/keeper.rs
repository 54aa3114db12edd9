//! Keeps a pass set in step with the data connections that a tracker reports: turns events into
//! edits, as FTPCap does.
//!
//! On Ethernet the IPv4 connections at a listening end share a pass of three instructions:
//!
//! | index | instruction |
//! |---|---|
//! | 0 | IPv4, TCP or UDP, not a later fragment |
//! | 1 | either address is the end's |
//! | 2 | either port is the end's |
//!
//! Connections over IPv6, between two given hosts, and on other link types get a filter text each:
//! `ip6 host … and udp port …`. Equal texts are one filter.
//!
//! The changes of one call are one edit, committed as a whole. An event with a change that is
//! refused (the pass set is full) is reported and changes nothing; the others are applied. Cost: O(1) per event, plus
//! the edit.

mod plan;

use crate::{Connection, Event, Protocol};
use fyke_filter::{Fragments, Options, Reading};
use fyke_filters::{FilterError, FilterSet, Row};
use fyke_frame::LinkType;
use fyke_pass::{Edit, EditError, Epoch, FilterId, LowerError, PassId, PassSet, primitive};
use plan::Plan;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

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
                    let port = (connection.protocol != Protocol::Gre).then_some(connection.port);
                    added.push(Row { text: text(connection), port });
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
                    && connection.protocol != Protocol::Gre
                    && !connection.pair =>
            {
                let made = self.plan.open(connection, || make_pass(server, connection, edit));
                made.map_err(|source| refused(connection, source))
            }
            _ => self.open_text(connection, edit),
        }
    }

    fn close(&mut self, connection: &Connection, edit: &mut Edit) -> Result<bool, KeepError> {
        if let Some(key) = self.in_texts.remove(&connection.id) {
            return Ok(self.close_text(&key, edit));
        }
        let Some(pass) = self.plan.close(connection.id) else { return Ok(false) };
        match edit.delete_pass(pass) {
            // Another client may have deleted the pass; the result is the same.
            Ok(()) | Err(EditError::NoPass { .. }) => Ok(true),
            Err(source) => Err(refused(connection, source)),
        }
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

fn make_pass(
    server: Ipv4Addr,
    connection: &Connection,
    edit: &mut Edit,
) -> Result<PassId, EditError> {
    let transport = match connection.protocol {
        Protocol::Udp => primitive::ether_ip_udp_nonfrag(),
        Protocol::Tcp | Protocol::Gre => primitive::ether_ip_tcp_nonfrag(),
    };
    let host = primitive::ip_host_either(server.into());
    let port = primitive::tcp_port_either(&[connection.port])?;
    let pass = edit.new_pass()?;
    for (index, instruction) in [transport, host, port].into_iter().enumerate() {
        edit.set_instruction(pass, index, instruction)?;
    }
    Ok(pass)
}

fn text(connection: &Connection) -> String {
    let family = if connection.server.is_ipv6() { "ip6" } else { "ip" };
    let Connection { server, port, client, .. } = connection;
    let protocol = match connection.protocol {
        Protocol::Gre => format!("{family} proto 47"),
        protocol => format!("{} port {port}", protocol.word()),
    };
    match connection.pair {
        true => format!("{family} host {server} and {family} host {client} and {protocol}"),
        false => format!("{family} host {server} and {protocol}"),
    }
}

fn refused(connection: &Connection, source: EditError) -> KeepError {
    let Connection { id, server, port, .. } = *connection;
    KeepError::Refused { id, server, port, source }
}

#[cfg(test)]
mod tests;
