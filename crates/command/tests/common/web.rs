//! A running `fyke web` for tests, over plain HTTP or TLS: requests, and the client's end of a WebSocket.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::common::{FYKE, Running, tool};
use fyke_testkit::browser::Browser;
use fyke_testkit::certificates::Certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Starts a capture of `v1`.
pub fn capture(file: &Path) -> Running {
    let mut command = Command::new(FYKE);
    command.args(["dump", "-Z", "root", "-i", "v1", "--count-all", "-w", file.to_str().unwrap()]);
    let running = Running::start(command.arg("udp port 5001").stdout(Stdio::null()));
    running.hear("listening on");
    running
}

pub fn stats(running: &Running) -> Value {
    serde_json::from_str(&running.ctl(&["stats", "--json"])).unwrap()
}

/// Keeps a picture of the page, if a folder for pictures is given.
pub fn keep_picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("FYKE_PICTURES") {
        std::fs::write(Path::new(&folder).join(name), browser.picture()).unwrap();
    }
}

/// A connection, plain or over TLS.
pub trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A client that trusts an authority, with its own certificate if it has one.
pub fn client(authority: &Path, own: Option<&Certificate>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_file(&own.certificate).unwrap()];
            let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// A running `fyke web`.
pub struct Web {
    pub running: Running,
    pub port: u16,
    pub token: String,
    /// The host in the address that it printed.
    pub host: String,
    /// For requests over TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Web {
    pub fn start(words: &[&str]) -> Web {
        tool("ip link set lo up");
        let mut command = Command::new(FYKE);
        let mut running = Running::start(
            command.arg("web").args(words).stdout(Stdio::piped()).env_remove("SUDO_UID"),
        );
        let mut line = String::new();
        let mut out = BufReader::new(running.child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let scheme = if words.contains(&"--tls-cert") { "https://" } else { "http://" };
        let address = line.trim().strip_prefix(scheme).unwrap_or_else(|| panic!("{line:?}"));
        let (place, token) = address.split_once("/#").unwrap();
        let (host, port) = place.rsplit_once(':').unwrap();
        assert_eq!(token.len(), 32, "{line}");
        let (host, token) = (host.to_owned(), token.to_owned());
        Web { port: port.parse().unwrap(), token, host, running, tls: None }
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/#{}", self.place(), self.token)
    }

    /// Host and port.
    pub fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Ends it; returns what it printed.
    pub fn end(mut self) -> String {
        self.running.signal("INT");
        assert!(self.running.end().success());
        let said = self.running.said();
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Connects; over TLS, if it has a certificate.
    fn stream(&self) -> Box<dyn Stream> {
        let stream = self.connect();
        let Some(config) = &self.tls else { return Box::new(stream) };
        let name = ServerName::try_from(self.host.clone()).unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        Box::new(StreamOwned::new(tls, stream))
    }

    /// Sends a request; returns the status and the body.
    pub fn request(&self, head: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut stream = self.stream();
        let mut text = format!("{head} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.place());
        }
        headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        text += &format!("Content-Length: {}\r\n\r\n", body.len());
        // A server that refuses the client or the head need not take more.
        let _refused = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        let _reset_after_the_answer = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.unwrap_or(0), body.to_owned())
    }

    /// Sends a body with the token.
    pub fn post(&self, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let secret = format!("Bearer {}", self.token);
        let headers = [("Authorization", secret.as_str()), ("Content-Type", kind)];
        self.request(&format!("POST {path}"), &headers, body)
    }

    pub fn call(&self, pid: u32, request: &Value) -> Value {
        let body = json!({"pid": pid, "request": request}).to_string();
        let (status, answer) = self.post("/api/call", "application/json", body.as_bytes());
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// Opens a WebSocket with more headers; the status if it is refused.
    pub fn open(&self, headers: &[(&str, &str)]) -> Result<Socket, u16> {
        let mut stream = self.stream();
        let mut text = "GET /api/socket HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            .to_owned();
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.place());
        }
        headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        let _closed = stream.write_all((text + "\r\n").as_bytes());
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0)
        {
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        if status != 101 {
            return Err(status);
        }
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Ok(Socket { reader, last_id: 0 })
    }

    pub fn open_with_token(&self) -> Result<Socket, u16> {
        self.open(&[("Authorization", &format!("Bearer {}", self.token))])
    }
}

/// A client's end of a WebSocket.
pub struct Socket {
    reader: BufReader<Box<dyn Stream>>,
    last_id: u64,
}

impl Socket {
    /// Sends a frame.
    pub fn send_frame(&mut self, first: u8, content: &[u8]) -> std::io::Result<()> {
        self.send_part(first, content.len(), content)
    }

    /// Sends a frame of this length, or its beginning, with a mask that changes nothing.
    pub fn send_part(&mut self, first: u8, length: usize, content: &[u8]) -> std::io::Result<()> {
        let mut frame = vec![first];
        match u8::try_from(length) {
            Ok(short @ ..=125) => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(content);
        self.reader.get_mut().write_all(&frame)
    }

    /// The next frame: its first byte and its content; `None` if the connection is closed.
    pub fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut bytes = |count: usize| {
            let mut bytes = vec![0; count];
            self.reader.read_exact(&mut bytes).ok().map(|()| bytes)
        };
        let head = bytes(2)?;
        let wide = match head[1] {
            126 => bytes(2)?,
            127 => bytes(8)?,
            short => vec![short],
        };
        let length = wide.iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
        Some((head[0], bytes(length)?))
    }

    /// The next message that fits.
    pub fn next(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..2_000 {
            let (first, content) = self.frame().expect("the socket is open");
            if first == 0x81 {
                let message: Value = serde_json::from_slice(&content).unwrap();
                if fits(&message) {
                    return message;
                }
            }
        }
        panic!("no such message");
    }

    /// Sends a message; returns its answer.
    pub fn ask(&mut self, mut message: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        message["id"] = json!(id);
        self.send_frame(0x81, message.to_string().as_bytes()).unwrap();
        self.next(|answer| answer["id"] == id)
    }

    /// Asks a running fyke.
    pub fn call(&mut self, pid: u32, request: Value) -> Value {
        let mut answer = self.ask(json!({"pid": pid, "request": request}));
        assert!(answer["error"].is_null(), "{answer}");
        answer["answer"].take()
    }

    /// The status with which the other side closes.
    pub fn close_status(&mut self) -> Option<u16> {
        loop {
            let (first, content) = self.frame()?;
            if first == 0x88 {
                return Some(u16::from_be_bytes([content[0], content[1]]));
            }
        }
    }
}
