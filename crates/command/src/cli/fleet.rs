//! Arguments of `fyke sensor` and `fyke fleet`: the filters of many fykes through a message system.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// `fyke sensor`.
#[derive(Debug, Args)]
#[command(after_help = "\
A sensor is a process beside a running fyke (dump, track, demux, exec). It keeps the filters of its group in force
there: they have names as fleet/GROUP/ID, and an edit that is in force is not repeated if the sensor is started again,
but all are made again if the fyke is. The capture never waits for the network: while the broker is away everything
local continues, and the sensor catches up later. Only edits that a trusted author has signed are applied, and an edit
can only hold filter texts.

The broker is a NATS server with JetStream, version 2.9 or later (Debian: nats-server).

Examples:
  nats-server -js -sd /var/lib/nats
  fyke dump -i eth0 -w /data/%Y-%m-%d-%H.pcapng -G 3600 'port 1 and port 2' &
  fyke sensor --server nats://10.0.0.9:4222 --group edge --label site=oslo --trust authors")]
pub struct SensorArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// Name of this sensor, which no other one of the group has (the name of this machine)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A label that edits can ask for; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// The fyke with this process id; without it, the only live capture that is no `fyke serve`
    #[arg(long, value_name = "PID", conflicts_with = "beside")]
    pub pid: Option<u32>,
    /// The only fyke with this source, such as eth0 or serve:eth0; the next one, if it is started again. `fyke serve`
    /// is not meant: it has no filters of its own, but its readers (serve:eth0) have
    #[arg(long, value_name = "SOURCE")]
    pub beside: Option<String>,
}

/// The broker and the group.
#[derive(Debug, Args)]
#[command(next_help_heading = "Group and broker")]
pub struct GroupArgs {
    /// Address of the NATS server; tls:// for an encrypted connection
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222")]
    pub server: String,
    /// Name of the group
    #[arg(long, value_name = "NAME", default_value = "fleet")]
    pub group: String,
    /// File with the trusted authors of edits: lines `NAME KEY`, as `fyke fleet key` prints them
    #[arg(long, value_name = "FILE")]
    pub trust: Option<PathBuf>,
    /// User at the broker
    #[arg(long, value_name = "USER", requires = "password_file")]
    pub user: Option<String>,
    /// File with the password of that user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Check the server by the certificates in FILE (PEM) besides those of the system
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Our own certificate for the server (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Number of servers that keep each message, when the group is new
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=5))]
    pub replicas: u8,
}

/// The group that a page of `fyke web` shows. Options for TLS have `broker` in their names, because `fyke web` has
/// others for its own certificate.
#[cfg(feature = "web")]
#[derive(Debug, Args)]
#[command(next_help_heading = "Group of machines and broker")]
pub struct PageGroupArgs {
    /// Show this group on the page, too: its filters, and where they are in force (`fyke fleet`)
    #[arg(long, value_name = "NAME", requires = "trust")]
    pub group: Option<String>,
    /// Address of the NATS server; tls:// for an encrypted connection
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222", requires = "group")]
    pub server: String,
    /// File with the trusted authors of edits: lines `NAME KEY`, as `fyke fleet key` prints them
    #[arg(long, value_name = "FILE", requires = "group")]
    pub trust: Option<PathBuf>,
    /// User at the broker
    #[arg(long, value_name = "USER", requires_all = ["group", "password_file"])]
    pub user: Option<String>,
    /// File with the password of that user
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Check the broker by the certificates in FILE (PEM) besides those of the system
    #[arg(long, value_name = "FILE", requires = "group")]
    pub broker_tls_ca: Option<PathBuf>,
    /// Our own certificate for the broker (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["group", "broker_tls_key"])]
    pub broker_tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "broker_tls_cert")]
    pub broker_tls_key: Option<PathBuf>,
}

#[cfg(feature = "web")]
impl PageGroupArgs {
    /// The same as for `fyke fleet`; `None` if the page shows no group.
    pub fn group(&self) -> Option<GroupArgs> {
        Some(GroupArgs {
            server: self.server.clone(),
            group: self.group.clone()?,
            trust: self.trust.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            tls_ca: self.broker_tls_ca.clone(),
            tls_cert: self.broker_tls_cert.clone(),
            tls_key: self.broker_tls_key.clone(),
            replicas: 1,
        })
    }
}

/// `fyke fleet`.
#[derive(Debug, Args)]
#[command(after_help = "\
All edits of a group have one order; each has a sequence number. An edit names the one before it, so an edit that came
meanwhile is never overwritten: `set`, `del` and `undo` are refused then, `add` is repeated after it. Exit status 1:
the edit is not in force at every sensor that runs and has its labels; 2: the text of the filter is wrong, and no edit
was made. A group is made by its first sensor or filter, its jobs by `scan` or `fyke worker`, its queues by `ship` or
`take`; other commands make nothing.

Examples:
  fyke fleet key anna.key --name anna >> authors
  fyke fleet list --group edge --trust authors
  fyke fleet add --group edge --trust authors --key anna.key 'udp port 53'
  fyke fleet set --group edge --trust authors --key anna.key --only site=oslo 'host 10.0.0.1'
  fyke fleet try --group edge --trust authors 'tcp port 443'
  fyke fleet log --group edge --trust authors --last 5
  fyke fleet undo --group edge --trust authors --key anna.key")]
pub struct FleetArgs {
    /// The action
    #[command(subcommand)]
    pub action: FleetAction,
}

/// `fyke worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
A worker does the jobs of `fyke fleet scan`: it runs a graph over a capture file below its folder, and stores the
counts. Only jobs that a trusted author has signed are done; their nodes open nothing but that file, which a process
with a sandbox reads. A job that a worker does not finish, or does not accept, is given to another one.

Examples:
  fyke worker --server nats://10.0.0.9:4222 --group archive --trust authors --root /srv/captures
  fyke worker --group archive --trust authors --root /srv/captures --at-once 1")]
pub struct WorkerArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// Folder of the capture files; paths of jobs are below it
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Name of this worker in the results (the name of this machine and its process id)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of files at a time (that of processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub at_once: Option<u16>,
    /// Give a file up after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub limit: u64,
}

/// Arguments that make a new scan.
const OTHERS: [&str; 5] = ["expression", "graph", "read", "file_list", "rules"];

/// `fyke fleet scan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Standard output gets the exact sums, and how many files could not be read to their end; exit status 1 if there are
any. Ctrl-C leaves the jobs to the workers: --resume reads their results later, --cancel removes those that no
worker has begun, and the scan ends with status 1 wherever it waits. Standard error names the workers that refuse the
jobs, with the reason; if there are only such workers, the scan ends with status 1 after --patience.

Examples:
  cd /srv/captures && find . -name '*.pcap*' |
      fyke fleet scan --group archive --key anna.key -V - 'udp port 53'
  fyke fleet scan --group archive --key anna.key -V list --rows dns.csv 'udp port 53'
  fyke fleet scan --group archive --key anna.key -r a.pcap -r b.pcap \\
      --graph '(pcapin, -) > [(bpf, \"tcp\") | (bpf, \"udp\")] > (bytecount, export=y)'
  fyke fleet scan --group archive --key anna.key -V list --rules my.rules --rows alerts.parquet 'tcp port 80'
  fyke fleet scan --group archive --resume 0123456789abcdef")]
pub struct ScanArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// File with your private key (`fyke fleet key`)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["resume", "cancel"])]
    pub key: Option<PathBuf>,
    /// Read this file, a path below the folder of the workers; may be repeated
    #[arg(short, long, value_name = "FILE")]
    pub read: Vec<String>,
    /// Read the files named in LIST, one path on a line (`-` = standard input)
    #[arg(short = 'V', long, value_name = "LIST")]
    pub file_list: Option<PathBuf>,
    /// Run this graph in place of a filter; its source is `(pcapin, -)`, and its nodes open nothing
    #[arg(long, value_name = "GRAPH", conflicts_with = "expression")]
    pub graph: Option<String>,
    /// Judge what passes the filter or graph by the rules (Snort, Suricata) in RULES, and count the alerts of each; may
    /// be repeated. They go to the workers by the broker
    #[arg(long, value_name = "RULES")]
    pub rules: Vec<PathBuf>,
    /// Write the result of each file into FILE: .csv, .arrow and .parquet are tables, of nodes or, with --rules, of
    /// rules with alerts; other names get JSON lines
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Print the sums as JSON
    #[arg(long)]
    pub json: bool,
    /// End with status 1, and remove the jobs, if workers only refuse them for this time and none does a file; 0 waits
    /// on
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub patience: u64,
    /// Read the results of the scan with this number
    #[arg(long, value_name = "ID", conflicts_with_all = OTHERS)]
    pub resume: Option<String>,
    /// Remove the jobs of the scan with this number that no worker has begun
    #[arg(long, value_name = "ID", conflicts_with_all = OTHERS, conflicts_with = "resume")]
    pub cancel: Option<String>,
    /// The filter; none counts all frames
    #[arg(value_name = "EXPRESSION")]
    pub expression: Vec<String>,
}

/// `fyke fleet ship`.
#[derive(Debug, Args)]
#[command(after_help = "\
Frames that the filter accepts go to the queue in signed batches, and from there to one of its workers each. The
capture is a process of its own (fyke serve) and never waits: what this process cannot ship in time is lost, and
counted. The server sees the frames; use tls:// and a server that you trust with them.

Examples:
  fyke fleet ship --group edge --key oslo.key --queue dns -i serve:eth0 'udp port 53'
  fyke fleet ship --group edge --key oslo.key --queue dns -r yesterday.pcapng 'udp port 53'")]
pub struct ShipArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// File with your private key (`fyke fleet key`)
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Name of the queue
    #[arg(long, value_name = "NAME")]
    pub queue: String,
    /// Name of this sensor in the sums (the name of this machine)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Frames of a service (serve:NAME) or a ring (ring:PATH)
    #[arg(short, long, value_name = "SOURCE", conflicts_with = "read")]
    pub interface: Option<String>,
    /// Frames of FILE (pcap or pcapng)
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// The filter; none ships all frames
    #[arg(value_name = "EXPRESSION")]
    pub expression: Vec<String>,
}

/// `fyke fleet take`.
#[derive(Debug, Args)]
#[command(after_help = "\
Workers with the same queue share its batches. A batch that a worker does not finish, or does not accept, is given
to another one; each counts once. The graph runs anew for each batch, and its nodes open nothing. At its end a
worker prints the sums of all of them, as `fyke fleet sums` does at any time.

Examples:
  fyke fleet take --group edge --trust authors --queue dns 'udp dst port 53'
  fyke fleet take --group edge --trust authors --queue q --graph '(pcapin, -) > (sampler, 9)'")]
pub struct TakeArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// Name of the queue
    #[arg(long, value_name = "NAME")]
    pub queue: String,
    /// Name of this worker in the sums (the name of this machine and its process id)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of batches at a time (that of processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub at_once: Option<u16>,
    /// Run this graph in place of a filter; its source is `(pcapin, -)`, and its nodes open nothing
    #[arg(long, value_name = "GRAPH", conflicts_with = "expression")]
    pub graph: Option<String>,
    /// Print the sums as JSON
    #[arg(long)]
    pub json: bool,
    /// The filter; none counts all frames
    #[arg(value_name = "EXPRESSION")]
    pub expression: Vec<String>,
}

/// `fyke fleet sums`.
#[derive(Debug, Args)]
pub struct SumsArgs {
    /// The group, and the form of the output
    #[command(flatten)]
    pub read: FleetReadArgs,
    /// Name of the queue
    #[arg(long, value_name = "NAME")]
    pub queue: String,
}

/// Arguments of edits.
#[derive(Debug, Args)]
pub struct FleetEditArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// File with your private key (`fyke fleet key`)
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Only sensors with this label; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub only: Vec<(String, String)>,
    /// Seconds to wait for the answers of the sensors
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub wait: Duration,
    /// Print the answers as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of what only reads.
#[derive(Debug, Args)]
pub struct FleetReadArgs {
    /// The group and its broker
    #[command(flatten)]
    pub group: GroupArgs,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// The actions of `fyke fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetAction {
    /// Make a private key in a new file, and print the line for the file of trusted authors
    Key {
        /// The file, which only you can read
        file: PathBuf,
        /// Your name in logs
        #[arg(long)]
        name: String,
    },
    /// List the sensors that run: what they capture, counts, the last edit that they answered
    List(FleetReadArgs),
    /// Show the filters of the group
    Show(FleetReadArgs),
    /// Replace the filters; without --only also those that the sensors have besides the group's
    Set {
        /// Key, labels and waiting time
        #[command(flatten)]
        edit: FleetEditArgs,
        /// The filter; none removes all
        #[arg(value_name = "EXPRESSION")]
        expression: Vec<String>,
    },
    /// Add a filter
    Add {
        /// Key, labels and waiting time
        #[command(flatten)]
        edit: FleetEditArgs,
        /// The filter
        #[arg(value_name = "EXPRESSION", required = true)]
        expression: Vec<String>,
    },
    /// Remove filters by their ids
    Del {
        /// Key, labels and waiting time
        #[command(flatten)]
        edit: FleetEditArgs,
        /// The ids, as `show` prints them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Take an edit back by a new one
    Undo {
        /// Key, labels and waiting time
        #[command(flatten)]
        edit: FleetEditArgs,
        /// Sequence of the edit (your last one)
        #[arg(value_name = "SEQUENCE")]
        sequence: Option<u64>,
    },
    /// Ask the sensors how many of their latest frames a filter would accept; frames that the kernel has rejected
    /// cannot be tried, and are named
    Try {
        /// The group, and the form of the output
        #[command(flatten)]
        read: FleetReadArgs,
        /// Only sensors with this label; may be repeated
        #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
        only: Vec<(String, String)>,
        /// Number of frames of each sensor
        #[arg(long, value_name = "N")]
        last: Option<u64>,
        /// The filter
        #[arg(value_name = "EXPRESSION", required = true)]
        expression: Vec<String>,
    },
    /// List the edits of the group
    Log {
        /// The group, and the form of the output
        #[command(flatten)]
        read: FleetReadArgs,
        /// Number of edits, the latest (20)
        #[arg(long, value_name = "N", default_value_t = 20, hide_default_value = true)]
        last: usize,
    },
    /// Run a filter or a graph over many capture files by `fyke worker`, and add the counts up
    Scan(ScanArgs),
    /// Ship frames of a service, a ring or a file to a queue, of which workers share the work
    Ship(ShipArgs),
    /// Take frames from a queue, together with other workers, and evaluate them by a filter or a graph
    Take(TakeArgs),
    /// Print the sums of a queue: frames shipped by each sensor, and taken by each worker
    Sums(SumsArgs),
    /// Print edits and the answers of sensors as they come, until Ctrl-C
    Watch(FleetReadArgs),
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value))
            if !name.is_empty() && text.len() <= 200 && !text.contains(char::is_control) =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("expected NAME=VALUE, at most 200 bytes without control characters".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match (0.0..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("expected 0 to 3600 seconds".to_owned()),
    }
}
