//! The ways of following FTP whose filter decides in the kernel: passes edited by stores, and "Opt-C".
//!
//! Both read a plain packet socket, frame by frame: what nobody wants never comes up, so there is nothing that a ring
//! would spare, and a ring hands a reply over a millisecond later. [`kernel`] keeps one row of a table for each
//! announced end; an update is one store.

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

/// Most bytes of a frame; the device's are shorter.
const FRAME_BYTES: usize = 2_048;
/// Bytes of a socket's queue.
const QUEUE_BYTES: usize = 32 << 20;
const TICK: Duration = Duration::from_millis(20);
/// How long a reader stays awake after a frame.
const AWAKE: Duration = Duration::from_micros(300);
/// After the end, so that the counts of the kernel and of the reader are of the same frames.
const SETTLE: Duration = Duration::from_millis(50);

/// What a way leaves behind.
#[derive(Debug, Default)]
pub(super) struct Captured {
    pub tally: Tally,
    /// Nanoseconds of each update, in order.
    pub updates: Vec<u64>,
    /// Frames that were accepted and did not come up.
    pub lost: u64,
    /// Updates that were refused.
    pub failed: u64,
}

/// fyke with its passes in the kernel. `ready` is called when the first filter is in force.
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

/// The filter written by hand, which needs no update.
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

/// `ip and tcp port ftp` as one pass, and one that looks ends up in a table.
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

/// Tracks in user space, edits in the kernel.
struct Following {
    space: Space,
    table: TableId,
    tracker: Ftp,
    events: Vec<Event>,
    /// Which ends are wanted, and by how many connections.
    expression: Expression,
    captured: Captured,
}

impl Following {
    fn frame(&mut self, frame: Option<&Frame<'_>>) {
        match frame {
            Some(frame) => {
                self.tracker.frame(frame, &mut self.events);
                self.edit();
                // Behind the edit: counting costs more than it.
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

/// A packet socket that receives all frames of its namespace and runs what `attach` puts on it; frames from before that
/// are thrown away.
pub(super) fn packet_socket(
    attach: impl FnOnce(&Socket) -> Result<(), String>,
) -> Result<Socket, String> {
    let text = |error: std::io::Error| error.to_string();
    let all = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).map_err(text)?;
    // What does not fit a smaller queue is counted as lost.
    let _refused = fyke_kernel::sockets::set_queue(socket.as_fd(), QUEUE_BYTES);
    attach(&socket)?;
    socket.set_read_timeout(Some(TICK)).map_err(text)?;
    let mut early = [0; FRAME_BYTES];
    while socket.read(&mut early).is_ok() {}
    Ok(socket)
}

/// Shows every frame until `stop` and until nothing more comes, and `None` when there is none for a while.
///
/// A thread that sleeps is awake again 5 to 50 µs after its frame has come, and a server's reply comes that soon behind
/// the request for it: so the socket is asked again and again for [`AWAKE`] after each frame before it is waited for.
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
