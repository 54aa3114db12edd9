//! Handles the program's system calls that make packet sockets or change their filters.
//!
//! | call | answer |
//! |---|---|
//! | `socket` | a socket made by fyke in the caller's network namespace; it has the filter before it can receive |
//! | `bind` of a packet socket | fyke attaches the filter for the interface's link type, then makes the same `bind` |
//! | change of a packet socket's filter | the kernel's answer; while our filter is attached, nothing changes |
//! | change of another socket's filter | fyke makes the same change on its own copy of the descriptor |
//! | `bind` of another socket | executed unchanged, unless its address is one of packet sockets |

use super::filter::ExecFilter;
use fyke_kernel::PacketSocket;
use fyke_kernel::notify::{self, Asked, Call, FilterChange, Listener, Socket};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

/// Handles calls until every process of the program has ended.
pub fn serve(listener: &Listener, filter: &ExecFilter) -> io::Result<()> {
    while let Some(call) = listener.next()? {
        match call.asked {
            Asked::Socket { kind, protocol } => make(call, kind, protocol, filter),
            Asked::Bind { descriptor, address, len } => {
                let socket = call.socket(descriptor);
                let both = socket.and_then(|socket| Ok((socket, call.address(address, len)?)));
                match both {
                    Ok((Socket::Packet(socket), address)) => {
                        call.finish(bind(&socket, &address, filter));
                    }
                    // Executed unchanged, the call could bind a packet socket that has got the number meanwhile, and
                    // leave it the filter of another link type.
                    Ok((Socket::Other(_), address)) => match notify::check_other(&address) {
                        Ok(()) => call.go_on(),
                        Err(error) => call.finish(Err(error)),
                    },
                    Err(error) => call.finish(Err(error)),
                }
            }
            Asked::Filter { descriptor, change } => {
                // Never executed unchanged: by then the program may have given the number to another socket.
                let done = call.socket(descriptor).and_then(|socket| match socket {
                    Socket::Packet(socket) => change_own(&call, change, &socket, filter),
                    Socket::Other(socket) => call.change_other(change, socket.as_fd()),
                });
                call.finish(done);
            }
        }
    }
    Ok(())
}

/// Handles a `socket` call.
fn make(call: Call<'_>, kind: i32, protocol: u16, filter: &ExecFilter) {
    let done = call.silent_socket(kind).and_then(|socket| {
        filter.take(&socket, || {
            if protocol != 0 {
                notify::listen_everywhere(socket.as_fd(), protocol)?;
            }
            call.hand_over(socket.as_fd())
        })
    });
    if let Err(error) = done {
        call.finish(Err(error));
    }
}

fn bind(socket: &PacketSocket, address: &[u8], filter: &ExecFilter) -> io::Result<()> {
    filter.bind(socket, address, || notify::bind(socket.as_fd(), address))
}

fn change_own(
    call: &Call<'_>,
    change: FilterChange,
    socket: &PacketSocket,
    filter: &ExecFilter,
) -> io::Result<()> {
    filter.own_filter(|ours| match ours {
        // The change is tried on an unused socket, to see if it is valid.
        true => call.change_filter(change, UnixDatagram::unbound()?.as_fd()),
        false => call.change_filter(change, socket.as_fd()),
    })
}
