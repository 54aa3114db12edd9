//! Ways to follow FTP with a filter that runs in the kernel: passes edited by stores, and "Opt-C".
//!
//! Both read a plain packet socket, frame by frame. The kernel delivers only wanted frames, so a ring would save
//! nothing, and it would deliver a reply over a millisecond later. [`kernel`] keeps one row of a table for each
//! announced end; an update is one store.

use crate::bench::printed::Sum;
use crate::demo::expression::Expression;
use crate::demo::live::limits;
use crate::demo::tally::Tally;
use crate::ftp::{CONTROL_PORT, Stop};
use crate::peers::tracking::TrackingFilter;
use fyke_frame::{Frame, LinkType};
use fyke_kernel::shape::{self, Part};
use fyke_kernel::{Options, Space, TableId};
use fyke_pass::primitive;
use fyke_track::{Connection, Event, Ftp, Tracker};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum bytes of a frame; the device's frames are shorter.
const FRAME_BYTES: usize = 2_048;
/// Bytes of a socket's queue.
const QUEUE_BYTES: usize = 32 << 20;
const TICK: Duration = Duration::from_millis(20);
/// Time for which a reader polls after a frame.
const AWAKE: Duration = Duration::from_micros(300);
/// Pause after the end, so that the kernel's and the reader's counts cover the same frames.
const SETTLE: Duration = Duration::from_millis(50);

/// Results of a way.
#[derive(Debug, Default)]
pub(super) struct Captured {
    pub tally: Tally,
    /// Nanoseconds of each update, in order.
    pub updates: Vec<u64>,
    /// Frames that were accepted but not delivered.
    pub lost: u64,
    /// Updates that were refused.
    pub failed: u64,
    /// Numbers of a process.
    pub product: Option<Product>,
}

/// Numbers that a process prints at its end.
#[derive(Debug, Clone)]
pub(super) struct Product {
    /// Median and 99th percentile of the last 4,096 updates, in nanoseconds.
    pub edits_ns: Option<[f64; 2]>,
    /// Counts of the capture.
    pub sum: Sum,
}

/// Runs fyke with its passes in the kernel. Calls `ready` once the first filter is active.
pub(super) fn kernel(stop: &Stop, ready: impl FnOnce()) -> Result<Captured, String> {
    let mut space = Space::open(Options::default()).map_err(|error| error.to_string())?;
    let table = start_filter(&mut space)?;
    let attach = |socket: &Socket| space.attach(socket.as_fd()).map_err(|error| error.to_string());
    let socket = packet_socket(attach)?;
    ready();
    let mut following = Following {
        space,
        table,
        tracker: Ftp::new(CONTROL_PORT, limits()),
        events: Vec::new(),
        expression: Expression::default(),
        captured: Captured::default(),
    };
    each_frame(&socket, stop, |frame| following.frame(frame))?;
    let tallies = following.space.tallies();
    let mut captured = following.captured;
    captured.lost = tallies.accepted.saturating_sub(captured.tally.frame_count);
    Ok(captured)
}

/// Runs the hand-written filter, which needs no updates.
pub(super) fn opt_c(stop: &Stop, ready: impl FnOnce()) -> Result<Captured, String> {
    let mut filter = TrackingFilter::load().map_err(|error| error.to_string())?;
    let attach = |socket: &Socket| filter.attach(socket).map_err(|error| error.to_string());
    let socket = packet_socket(attach)?;
    ready();
    let mut captured = Captured::default();
    each_frame(&socket, stop, |frame| {
        if let Some(frame) = frame {
            captured.tally.count(frame);
        }
    })?;
    let accepted = filter.accepted().map_err(|error| error.to_string())?;
    captured.lost = accepted.saturating_sub(captured.tally.frame_count);
    Ok(captured)
}

/// Installs `ip and tcp port ftp` as one pass, and a pass that looks ends up in a table.
fn start_filter(space: &mut Space) -> Result<TableId, String> {
    let control = [
        primitive::ether_ip_tcp_nonfrag(),
        primitive::tcp_port_either(&[CONTROL_PORT]).map_err(|error| error.to_string())?,
    ];
    let passes = space.passes();
    let table = passes.rows().new_table().ok_or("no table")?;
    let ends = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
    for pass in [&control, &[primitive::ether_ip_tcp_nonfrag(), ends]] {
        passes.add(pass).map_err(|error| error.to_string())?;
    }
    Ok(table)
}

/// Tracks connections in user space, and edits the filter in the kernel.
struct Following {
    space: Space,
    table: TableId,
    tracker: Ftp,
    events: Vec<Event>,
    /// Wanted ends, with the number of connections that use each.
    expression: Expression,
    captured: Captured,
}

impl Following {
    fn frame(&mut self, frame: Option<&Frame<'_>>) {
        match frame {
            Some(frame) => {
                self.tracker.frame(frame, &mut self.events);
                self.edit();
                // Counting takes longer than the edit, so it comes after it.
                self.captured.tally.count(frame);
            }
            None => {
                self.tracker.expire(now_ns(), &mut self.events);
                self.edit();
            }
        }
    }

    fn edit(&mut self) {
        for event in std::mem::take(&mut self.events) {
            let (connection, opens) = match &event {
                Event::Open(connection) => (connection, true),
                Event::Close(closed) => (&closed.connection, false),
            };
            let changed = match opens {
                true => self.expression.add(connection),
                false => self.expression.remove(connection),
            };
            let Some(key) = key(connection).filter(|_| changed) else { continue };
            let rows = self.space.passes().rows();
            let started = Instant::now();
            let done = match opens {
                true => rows.insert(self.table, key).is_ok(),
                false => rows.remove(self.table, key),
            };
            let elapsed = started.elapsed();
            self.captured.updates.push(elapsed.as_nanos() as u64);
            self.captured.failed += u64::from(!done);
        }
    }
}

fn key(connection: &Connection) -> Option<u64> {
    match connection.server {
        IpAddr::V4(server) => Some(shape::key(server.into(), connection.port)),
        IpAddr::V6(_) => None,
    }
}

/// Opens a packet socket that receives all frames of its namespace and runs the program attached by `attach`;
/// discards frames from before that.
pub(super) fn packet_socket(
    attach: impl FnOnce(&Socket) -> Result<(), String>,
) -> Result<Socket, String> {
    let text = |error: std::io::Error| error.to_string();
    let all = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).map_err(text)?;
    // If the queue stays smaller, its overflow is counted as lost.
    let _refused = fyke_kernel::sockets::set_queue(socket.as_fd(), QUEUE_BYTES);
    attach(&socket)?;
    socket.set_read_timeout(Some(TICK)).map_err(text)?;
    let mut early = [0; FRAME_BYTES];
    while socket.read(&mut early).is_ok() {}
    Ok(socket)
}

/// Calls back for every frame until `stop` is set and no more frames come, and with `None` if there was none for a
/// while.
///
/// A sleeping thread wakes up 5 to 50 µs after a frame has arrived, but a server's reply follows its request within
/// that time. So the thread polls the socket for [`AWAKE`] after each frame before it sleeps.
pub(super) fn each_frame(
    socket: &Socket,
    stop: &Stop,
    mut show: impl FnMut(Option<&Frame<'_>>),
) -> Result<(), String> {
    let mut bytes = [0; FRAME_BYTES];
    let mut over: Option<Instant> = None;
    let mut awake_until = Instant::now();
    loop {
        let awake = Instant::now() < awake_until;
        let flags = if awake { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        match recv(socket.as_raw_fd(), &mut bytes, flags) {
            Ok(len) => {
                let mut frame = Frame::new(LinkType::EN10MB, &bytes[..len]);
                frame.timestamp_ns = now_ns();
                show(Some(&frame));
                awake_until = Instant::now() + AWAKE;
            }
            Err(Errno::EAGAIN) if awake => std::hint::spin_loop(),
            Err(Errno::EAGAIN) => {
                show(None);
                if stop.is_over() && over.get_or_insert_with(Instant::now).elapsed() > SETTLE {
                    return Ok(());
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
