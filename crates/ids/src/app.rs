//! Applications: messages in the bytes of a flow, found by content and not by port, as named buffers.
//!
//! | module | application | bounds |
//! |---|---|---|
//! | `http` | HTTP/1: requests and responses, bodies with chunks, gzip and deflate | head 64 KiB, body 100 KiB |
//! | `tls` | ClientHello and certificates | handshake 64 KiB |
//! | `dns` | questions, over UDP and TCP | message 64 KiB |
//!
//! A parser gets the bytes of each direction in order, in pieces of any size, and hands out [`Message`]s. What is no
//! message of its application ends the parser of that direction; the flow keeps its application.

pub mod dns;
mod http;
pub mod tls;

use crate::buffer::{Application, Buffer};

/// Bytes of each direction that are kept until the application is known.
const MAX_UNKNOWN: usize = 4096;

/// A part of a message: the buffers that are complete.
#[derive(Debug)]
pub struct Message {
    /// The application.
    pub application: Application,
    /// Sent to the server.
    pub to_server: bool,
    /// The body is among the buffers, or there is none.
    pub complete: bool,
    /// The body has a compression that is not undone.
    pub is_encoded: bool,
    /// Its head is longer than is kept.
    pub is_cut: bool,
    /// The length of a chunk of its body is wrong.
    pub is_damaged: bool,
    /// The buffers.
    pub buffers: Vec<(Buffer, Vec<u8>)>,
    /// Facts for records, which no rule asks for.
    pub facts: Facts,
}

/// Facts about a message for records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Facts {
    /// None.
    #[default]
    None,
    /// A message of DNS.
    Dns(Box<dns::Facts>),
    /// A hello of TLS.
    Hello(Box<tls::Hello>),
}

impl Message {
    /// A complete message.
    fn whole(application: Application, to_server: bool, buffers: Vec<(Buffer, Vec<u8>)>) -> Self {
        Message {
            application,
            to_server,
            complete: true,
            is_encoded: false,
            is_cut: false,
            is_damaged: false,
            buffers,
            facts: Facts::None,
        }
    }

    /// A complete message with these buffers.
    #[cfg(test)]
    pub fn of_test(
        application: Application,
        to_server: bool,
        buffers: Vec<(Buffer, Vec<u8>)>,
    ) -> Self {
        Message::whole(application, to_server, buffers)
    }

    /// The first buffer of a kind.
    pub fn get(&self, buffer: Buffer) -> Option<&[u8]> {
        self.buffers.iter().find(|(own, _)| *own == buffer).map(|(_, bytes)| &**bytes)
    }
}

/// Receives messages.
pub type Give<'g> = &'g mut dyn FnMut(Message);

/// The parser of a flow's application.
#[derive(Debug, Default)]
pub enum Parser {
    /// The application is not known yet; the bytes so far, to the server and to the client.
    #[default]
    New,
    /// Bytes so far.
    Unknown(Box<[Vec<u8>; 2]>),
    /// No application that is known here.
    None,
    /// HTTP.
    Http(Box<http::Http>),
    /// TLS.
    Tls(Box<tls::Tls>),
    /// DNS.
    Dns(Box<dns::Dns>),
}

impl Parser {
    /// The application, once it is known.
    pub fn application(&self) -> Option<Application> {
        match self {
            Parser::New | Parser::Unknown(_) | Parser::None => None,
            Parser::Http(_) => Some(Application::Http),
            Parser::Tls(_) => Some(Application::Tls),
            Parser::Dns(_) => Some(Application::Dns),
        }
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        match self {
            Parser::New | Parser::None => 0,
            Parser::Unknown(sides) => sides.iter().map(Vec::capacity).sum(),
            Parser::Http(http) => http.held(),
            Parser::Tls(tls) => tls.held(),
            Parser::Dns(dns) => dns.held(),
        }
    }

    /// True if the application is known, or is none of those that are known here.
    pub fn is_decided(&self) -> bool {
        !matches!(self, Parser::New | Parser::Unknown(_))
    }

    /// Takes a datagram.
    pub fn datagram(&mut self, bytes: &[u8], give: Give<'_>) {
        if let Parser::New | Parser::Dns(_) = self
            && let Some(message) = dns::message(bytes)
        {
            *self = Parser::Dns(Box::default());
            return give(message);
        }
        if matches!(self, Parser::New) {
            *self = Parser::None;
        }
    }

    /// Takes the next bytes of a direction; `missing` bytes before them are lost.
    pub fn stream(&mut self, to_server: bool, missing: u64, bytes: &[u8], give: Give<'_>) {
        if matches!(self, Parser::New) {
            *self = Parser::Unknown(Box::default());
        }
        match self {
            Parser::New | Parser::None => {}
            Parser::Unknown(sides) => {
                if missing > 0 {
                    *self = Parser::None;
                    return;
                }
                let side = &mut sides[usize::from(!to_server)];
                side.extend_from_slice(bytes);
                let known = recognise(side, to_server);
                let full = side.len() > MAX_UNKNOWN;
                let begun = match known {
                    Found::Application(application) => Parser::of(application),
                    Found::More if !full => return,
                    // The other direction may still show what it is.
                    Found::No | Found::More
                        if sides.iter().any(|side| side.is_empty()) && !full =>
                    {
                        return;
                    }
                    Found::No | Found::More => Parser::None,
                };
                let sides = std::mem::take(sides);
                *self = begun;
                for (number, side) in sides.iter().enumerate().filter(|(_, side)| !side.is_empty())
                {
                    self.stream(number == 0, 0, side, give);
                }
            }
            Parser::Http(http) => http.bytes(to_server, missing, bytes, give),
            Parser::Tls(tls) => tls.bytes(to_server, missing, bytes, give),
            Parser::Dns(dns) => dns.bytes(to_server, missing, bytes, give),
        }
    }

    /// Ends a direction: a body without a length is complete.
    pub fn end(&mut self, to_server: bool, give: Give<'_>) {
        if let Parser::Http(http) = self {
            http.end(to_server, give);
        }
    }

    /// A parser of an application, before its first byte.
    #[cfg(test)]
    pub fn known(application: Application) -> Parser {
        Parser::of(application)
    }

    fn of(application: Application) -> Parser {
        match application {
            Application::Http => Parser::Http(Box::default()),
            Application::Tls => Parser::Tls(Box::default()),
            Application::Dns => Parser::Dns(Box::default()),
        }
    }
}

/// The application that the first bytes of a direction show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Application(Application),
    No,
    More,
}

fn recognise(bytes: &[u8], to_server: bool) -> Found {
    let all = [
        (http::begins(bytes, to_server), Application::Http),
        (tls::begins(bytes), Application::Tls),
        (dns::begins(bytes), Application::Dns),
    ];
    if let Some((_, application)) = all.iter().find(|(begins, _)| *begins == Some(true)) {
        return Found::Application(*application);
    }
    if all.iter().any(|(begins, _)| begins.is_none()) { Found::More } else { Found::No }
}

#[cfg(test)]
mod tests;
