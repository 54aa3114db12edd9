//! Results of one way of capturing, compared with the recording connection by connection.

use super::latency::{Latencies, percentile};
use super::tally::{Comparison, Ends, Tally};
use crate::ftp::{CONTROL_PORT, Transfer};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Results of one way of capturing.
#[derive(Debug, Clone)]
pub struct Side {
    /// Its name, with the version if there is one.
    pub name: String,
    /// Its method of changing the filter, in two or three words.
    pub method: &'static str,
    /// Number of data connections announced in its capture.
    pub announced: u64,
    /// All data connections of the generator's log, compared with the recording.
    pub data: Vec<DataConnection>,
    /// Control connections: frames on the wire and captured.
    pub control: Comparison,
    /// Time from an event until the resulting filter is active.
    pub updates: Latencies,
    /// Updates that failed.
    pub failed_updates: u64,
    /// Message of the first failure.
    pub failure: Option<String>,
    /// Maximum size of the filter, as text.
    pub largest: String,
    /// Frames that its socket lost because the ring was full.
    pub ring_lost: u64,
}

/// A data connection and its captured packets.
#[derive(Debug, Clone, Copy)]
pub struct DataConnection {
    /// The listening end.
    pub server: SocketAddr,
    /// The connecting end.
    pub client: SocketAddr,
    /// Comparison of wire and capture.
    pub frames: Comparison,
}

/// Three numbers of a distribution over connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Median.
    pub p50: u64,
    /// 99th percentile by nearest rank.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

impl Side {
    /// Compares a capture with the recording.
    pub fn compare(recording: &Tally, captured: &Tally, transfers: &[Transfer]) -> Side {
        let data = transfers.iter().map(|transfer| DataConnection {
            server: transfer.server,
            client: transfer.client,
            frames: recording.compare(Ends::new(transfer.server, transfer.client), captured),
        });
        let mut control = Comparison::default();
        for ends in recording.with_port(CONTROL_PORT) {
            control.add(&recording.compare(ends, captured));
        }
        Side {
            name: String::new(),
            method: "",
            announced: 0,
            data: data.collect(),
            control,
            updates: Latencies::default(),
            failed_updates: 0,
            failure: None,
            largest: String::new(),
            ring_lost: 0,
        }
    }

    /// Number of data connections of which every packet was captured exactly once.
    pub fn whole(&self) -> usize {
        self.data.iter().filter(|connection| connection.frames.is_whole()).count()
    }

    /// Number of data connections captured from their first packet on.
    pub fn from_first(&self) -> usize {
        let first = |connection: &&DataConnection| {
            connection.frames.captured > 0 && connection.frames.missed_before_first == 0
        };
        self.data.iter().filter(first).count()
    }

    /// Number of packets of data connections on the wire.
    pub fn on_wire(&self) -> u64 {
        self.data.iter().map(|connection| connection.frames.on_wire).sum()
    }

    /// Number of packets of data connections that were not captured.
    pub fn missed(&self) -> u64 {
        self.data.iter().map(|connection| connection.frames.missed).sum()
    }

    /// Packets missed per data connection.
    pub fn missed_spread(&self) -> Spread {
        Spread::of(self.data.iter().map(|connection| connection.frames.missed))
    }

    /// Packets missed before the first captured one, per data connection.
    pub fn before_first_spread(&self) -> Spread {
        Spread::of(self.data.iter().map(|connection| connection.frames.missed_before_first))
    }

    /// Formats the result as JSON.
    pub fn json(&self) -> Value {
        let spread =
            |spread: Spread| json!({"p50": spread.p50, "p99": spread.p99, "max": spread.max});
        json!({
            "engine": self.name,
            "method": self.method,
            "connections_seen": self.announced,
            "connections_from_first_packet": self.from_first(),
            "connections_whole": self.whole(),
            "packets_on_wire": self.on_wire(),
            "packets_missed": self.missed(),
            "missed_per_connection": spread(self.missed_spread()),
            "missed_before_first": spread(self.before_first_spread()),
            "control_packets_missed": self.control.missed,
            "updates": self.updates.len(),
            "updates_failed": self.failed_updates,
            "update_latency_ns": {
                "p50": self.updates.percentile(50),
                "p99": self.updates.percentile(99),
                "max": self.updates.percentile(100),
            },
            "ring_lost": self.ring_lost,
        })
    }
}

impl Spread {
    /// Computes the spread of these values.
    pub fn of(values: impl Iterator<Item = u64>) -> Spread {
        let values: Vec<u64> = values.collect();
        let at = |per_cent| percentile(&values, per_cent);
        Spread { p50: at(50), p99: at(99), max: at(100) }
    }
}
