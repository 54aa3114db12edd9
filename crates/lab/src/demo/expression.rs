//! The old way's filter text: it grows by a term for each data connection and is recompiled each time.
//!
//! `(ip and tcp port ftp) or (ip host x1 and (tcp port y1 or tcp port y2)) or …`: ports of one server are grouped,
//! because libpcap's optimiser then produces better code.

use fyke_track::Connection;
use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;

/// Initial text.
pub const START: &str = "(ip and tcp port ftp)";

/// Servers and ports of the text.
#[derive(Debug, Default)]
pub struct Expression {
    servers: Vec<(IpAddr, Vec<u16>)>,
    /// Number of connections at each server and port.
    used: HashMap<(IpAddr, u16), u32>,
}

impl Expression {
    /// Adds a connection; returns true if the text has changed.
    pub fn add(&mut self, connection: &Connection) -> bool {
        let (server, port) = (connection.server, connection.port);
        let count = self.used.entry((server, port)).or_default();
        *count += 1;
        if *count > 1 {
            return false;
        }
        match self.servers.iter_mut().find(|(address, _)| *address == server) {
            Some((_, ports)) => ports.push(port),
            None => self.servers.push((server, vec![port])),
        }
        true
    }

    /// Removes a connection; returns true if the text has changed.
    pub fn remove(&mut self, connection: &Connection) -> bool {
        let (server, port) = (connection.server, connection.port);
        let Some(count) = self.used.get_mut(&(server, port)) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.used.remove(&(server, port));
        for (_, ports) in self.servers.iter_mut().filter(|(address, _)| *address == server) {
            ports.retain(|&other| other != port);
        }
        self.servers.retain(|(_, ports)| !ports.is_empty());
        true
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut text = START.to_string();
        for (server, ports) in &self.servers {
            let family = if server.is_ipv6() { "ip6" } else { "ip" };
            let terms: Vec<String> = ports.iter().map(|port| format!("tcp port {port}")).collect();
            // A write to a string cannot fail.
            let _ = write!(text, " or ({family} host {server} and ({}))", terms.join(" or "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_track::Protocol;
    use fyke_track::ftp::PASSIVE;

    #[test]
    fn ports_of_one_server_stand_together() {
        let connection = |id, host: u8, port| Connection {
            id,
            server: [10, 0, 0, host].into(),
            port,
            client: [10, 0, 1, 1].into(),
            protocol: Protocol::Tcp,
            pair: false,
            call: 1,
            label: "FTP data",
            cause: PASSIVE,
            announced_ns: 0,
        };
        let mut expression = Expression::default();
        assert!(expression.add(&connection(1, 1, 5_001)));
        assert!(expression.add(&connection(2, 2, 5_002)));
        assert!(expression.add(&connection(3, 1, 5_003)));
        assert!(!expression.add(&connection(4, 1, 5_003)));
        assert_eq!(
            expression.text(),
            "(ip and tcp port ftp) or (ip host 10.0.0.1 and (tcp port 5001 or tcp port 5003)) \
             or (ip host 10.0.0.2 and (tcp port 5002))"
        );
        assert!(!expression.remove(&connection(3, 1, 5_003)));
        assert!(expression.remove(&connection(4, 1, 5_003)));
        assert!(expression.remove(&connection(1, 1, 5_001)));
        assert!(expression.remove(&connection(2, 2, 5_002)));
        assert!(!expression.remove(&connection(2, 2, 5_002)));
        assert_eq!(expression.text(), START);
    }
}
