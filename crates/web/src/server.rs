//! The server: accepts connections on the loopback interface, or over TLS on any, and answers requests of the page.
//!
//! One thread runs all connections. Calls, which wait for a running fyke, run in a bounded pool of threads.

use crate::call::{self, Call};
use crate::door::{Door, Refusal, in_url};
use crate::fleet::Fleet;
use crate::hub::{Hub, Latest, Topic};
use crate::looks::{self, Files, Look, Looks, MAX_FILE_BYTES};
use crate::seats::{MAX_STREAMS, Seats};
use crate::socket;
use crate::tls::Tls;
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, REFERRER_POLICY, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Most bytes of the body of a request.
const MAX_BODY_BYTES: usize = 256 << 10;
/// Most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time limit for the head of a request; an idle connection is closed after it.
const HEAD_LIMIT: Duration = Duration::from_secs(15);
/// Time limit for the body of a request.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for a capture file.
const FILE_LIMIT: Duration = Duration::from_secs(120);
/// Most capture files that are read at a time.
const MAX_LOOKS: usize = 2;
/// Most fykes with counts in one stream.
const MAX_FOLLOWED: usize = 16;
/// Time limit for a page to take an event.
const EVENT_LIMIT: Duration = Duration::from_secs(20);
/// An empty line is sent after this time without events.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Time between two looks for new events; at most ten events of a kind are sent in a second.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Most threads for calls.
const CALL_THREADS: usize = 16;
/// Added to the number of a connection when it has become a WebSocket.
const SOCKET: u64 = 1 << 63;

/// Parts of the page: path, content type, content.
const PAGE: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/graph.js", "text/javascript; charset=utf-8", include_str!("page/graph.js")),
    ("/fleet.js", "text/javascript; charset=utf-8", include_str!("page/fleet.js")),
    ("/file.js", "text/javascript; charset=utf-8", include_str!("page/file.js")),
    ("/draw.js", "text/javascript; charset=utf-8", include_str!("page/draw.js")),
];

/// The page loads nothing from elsewhere, sends nothing elsewhere, and runs no text that it shows.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen at; port 0 for any that is free.
    pub listen: SocketAddr,
    /// The certificate; without it, only a loopback address is listened at.
    pub tls: Option<Tls>,
    /// Time between two readings of counts, at least 100 ms.
    pub interval: Duration,
    /// Name of this program in the log of edits.
    pub program: String,
    /// True if pages may edit.
    pub edits: bool,
    /// True if pages get whole lines of frames; else they end at the first `: `, before what is in the packet.
    pub payload: bool,
    /// Reader of capture files and graphs.
    pub looks: Arc<dyn Looks>,
    /// Reader of a group of machines, if pages show one.
    pub fleet: Option<Arc<dyn Fleet>>,
}

/// Reasons why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Other machines reach the address, and there is no certificate.
    #[error(
        "{address} can be reached by other machines, which needs TLS: a certificate and its private key"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The system has no random numbers, or no descriptors.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Shared,
}

/// Shared by all connections.
#[derive(Debug)]
struct Shared {
    door: Door,
    seats: Seats,
    hub: Arc<Hub>,
    options: Arc<Options>,
    files: Files,
    looks: Semaphore,
    /// WebSockets that were dropped because their client took nothing.
    slow: AtomicU64,
    /// Connections that have not completed the handshake of TLS.
    without_handshake: AtomicU64,
}

/// Counts of a server that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// WebSockets that were dropped because their client took nothing.
    pub slow: u64,
    /// Connections that did not complete the handshake of TLS, those of plain HTTP among them.
    pub without_handshake: u64,
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;

impl Server {
    /// Listens at the address.
    ///
    /// # Errors
    /// The address is taken, or others than this machine reach it and there is no certificate, or the system refuses.
    pub fn bind(options: Options) -> Result<Server, StartError> {
        let address = options.listen;
        if options.tls.is_none() && !address.ip().is_loopback() {
            return Err(StartError::Open { address });
        }
        let listener =
            TcpListener::bind(address).map_err(|source| StartError::Listen { address, source })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let interval = options.interval.max(LOOK_INTERVAL);
        let hub = Arc::new(Hub::new(interval, options.fleet.clone()));
        let certificate = options.tls.as_ref().map(|tls| tls.certificate.clone());
        let shared = Shared {
            door: Door::new(address, certificate)?,
            seats: Seats::default(),
            hub,
            options: Arc::new(options),
            files: Files::default(),
            looks: Semaphore::new(MAX_LOOKS),
            slow: AtomicU64::new(0),
            without_handshake: AtomicU64::new(0),
        };
        Ok(Server { listener, address, shared })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the page. Its fragment is the token, which a browser does not send to a server.
    pub fn url(&self) -> String {
        let door = &self.shared.door;
        let own = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => in_url(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => in_url(Ipv6Addr::LOCALHOST.into()),
            ip => in_url(ip),
        };
        let names = self.shared.options.tls.iter().flat_map(|tls| &tls.names);
        let is_open = self.address.ip().is_unspecified();
        let host = match names.clone().next() {
            Some(name) if is_open || !door.certifies(&own) => name.clone(),
            _ => own,
        };
        format!("{}{host}:{}/#{}", door.scheme(), self.address.port(), door.token())
    }

    /// Serves until `stop` is true.
    ///
    /// # Errors
    /// The system refuses; not the end of a connection.
    pub fn run(self, stop: &AtomicBool) -> io::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(CALL_THREADS)
            .build()?;
        let result = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let shared = Arc::new(self.shared);
            accept(&listener, &shared, stop).await;
            Ok(Ended {
                slow: shared.slow.load(Ordering::Relaxed),
                without_handshake: shared.without_handshake.load(Ordering::Relaxed),
            })
        });
        // Calls that are under way end with the process.
        runtime.shutdown_background();
        result
    }
}

async fn accept(listener: &tokio::net::TcpListener, shared: &Arc<Shared>, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(accepted) = timeout(LOOK_INTERVAL, listener.accept()).await else { continue };
        let Ok((stream, _)) = accepted else {
            // No descriptor is free: connections that end free some.
            sleep(LOOK_INTERVAL).await;
            continue;
        };
        number += 1;
        // Else small answers wait for the acknowledgement of those before.
        let _slower = stream.set_nodelay(true);
        let seat = Seat { shared: Arc::clone(shared), number };
        if shared.options.tls.is_some() {
            shared.without_handshake.fetch_add(1, Ordering::Relaxed);
        }
        let task = tokio::spawn(async move {
            let Some(tls) = &seat.shared.options.tls else { return serve(stream, &seat).await };
            let Some(stream) = tls.accept(stream).await else { return };
            seat.shared.without_handshake.fetch_sub(1, Ordering::Relaxed);
            serve(stream, &seat).await;
        });
        shared.seats.add(number, task.abort_handle());
    }
}

/// Serves a connection until its end.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, seat: &Seat) {
    let answer = |request| respond(seat, request);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .with_upgrades();
    // Its end concerns only the other end.
    let _ended = connection.await;
}

/// The seat of a connection; leaves it when dropped.
#[derive(Debug)]
struct Seat {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.seats.remove(self.number);
    }
}

async fn respond(seat: &Seat, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let mut response = match answer(seat, request).await {
        Ok(response) => response,
        Err(refusal) => text(refusal.status(), refusal.text()),
    };
    let always = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in always {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

async fn answer(seat: &Seat, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let shared = &seat.shared;
    shared.door.check_place(&request)?;
    let path = request.uri().path();
    if let Some((_, kind, content)) = PAGE.iter().find(|(known, ..)| *known == path) {
        return Ok(match request.method() {
            &Method::GET => with_type(full(content.as_bytes()), kind),
            _ => not_allowed("GET"),
        });
    }
    if path == "/api/socket" {
        if request.method() != Method::GET {
            return Ok(not_allowed("GET"));
        }
        return opened(seat, request);
    }
    if !matches!(path, "/api/events" | "/api/call" | "/api/file" | "/api/look") {
        return Ok(text(StatusCode::NOT_FOUND, "there is no such page\n"));
    }
    if request.method() != Method::POST {
        return Ok(not_allowed("POST"));
    }
    let is_file = path == "/api/file";
    let kind = if is_file { "application/octet-stream" } else { "application/json" };
    shared.door.check_secret(request.headers(), kind)?;
    shared.seats.trust(seat.number);
    if is_file {
        return Ok(match timeout(FILE_LIMIT, filed(seat, request.into_body())).await {
            Ok(response) => response,
            Err(_) => text(StatusCode::REQUEST_TIMEOUT, "the file did not end in time\n"),
        });
    }
    let (is_stream, is_look) = (path == "/api/events", path == "/api/look");
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    let body = match timeout(BODY_LIMIT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Ok(text(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long\n")),
        Err(_) => return Ok(text(StatusCode::REQUEST_TIMEOUT, "the body did not end in time\n")),
    };
    Ok(match () {
        () if is_stream => events(seat, &body),
        () if is_look => looked(shared, &body).await,
        () => called(shared, &body).await,
    })
}

/// Makes a WebSocket of a connection.
fn opened(seat: &Seat, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let shared = &seat.shared;
    let protocol = shared.door.check_socket(request.headers())?;
    let Some(accept) = socket::accept(request.headers()) else {
        let mut response =
            text(StatusCode::UPGRADE_REQUIRED, "this address is for a WebSocket of version 13\n");
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return Ok(response);
    };
    let own = Seat { shared: Arc::clone(shared), number: seat.number | SOCKET };
    let number = own.number;
    let upgrade = hyper::upgrade::on(&mut request);
    let task = tokio::spawn(async move {
        let Ok(Ok(stream)) = timeout(HEAD_LIMIT, upgrade).await else { return };
        let shared = &own.shared;
        let end = socket::run(TokioIo::new(stream), &shared.hub, &shared.options).await;
        if end == socket::End::Slow {
            shared.slow.fetch_add(1, Ordering::Relaxed);
        }
    });
    shared.seats.add(number, task.abort_handle());
    if !shared.seats.stream(number) {
        task.abort();
        let message = format!("{MAX_STREAMS} pages or sockets are open; close one\n");
        return Ok(text(StatusCode::SERVICE_UNAVAILABLE, &message));
    }
    let mut response = full(b"");
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

/// Body of a request for events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The fyke with the counts that are wanted.
    pid: Option<u32>,
    /// More of them.
    #[serde(default)]
    pids: Vec<u32>,
}

/// Begins a stream of events.
fn events(seat: &Seat, body: &[u8]) -> Response<Body> {
    let wanted: Wanted = match serde_json::from_slice(body) {
        Ok(wanted) => wanted,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("not a request: {error}\n")),
    };
    let shared = &seat.shared;
    if !shared.seats.stream(seat.number) {
        let message = format!("{MAX_STREAMS} pages are open; close one\n");
        return text(StatusCode::SERVICE_UNAVAILABLE, &message);
    }
    let mut pids: Vec<u32> = wanted.pid.into_iter().chain(wanted.pids).collect();
    pids.dedup();
    pids.truncate(MAX_FOLLOWED);
    let topics = shared.hub.common().chain(pids.into_iter().map(Topic::Counts));
    let feeds = topics.map(|topic| shared.hub.subscribe(topic)).collect();
    let (sender, body) = Channel::new(1);
    tokio::spawn(feed(sender, feeds));
    with_type(Response::new(Either::Right(body)), "application/x-ndjson")
}

/// Sends each new event until the page has closed the stream. A slow page misses events in between.
async fn feed(mut sender: Sender<Bytes>, mut feeds: Vec<Latest>) {
    feeds.iter_mut().for_each(Latest::mark_changed);
    let mut last_sent = Instant::now();
    loop {
        for feed in &mut feeds {
            let line = {
                let latest = feed.borrow_and_update();
                latest.has_changed().then(|| latest.clone()).filter(|line| !line.is_empty())
            };
            let quiet = last_sent.elapsed() >= SIGN_OF_LIFE;
            let Some(line) = line.or_else(|| quiet.then(|| Bytes::from_static(b"\n"))) else {
                continue;
            };
            match timeout(EVENT_LIMIT, sender.send_data(line)).await {
                Ok(Ok(())) => last_sent = Instant::now(),
                _ => return,
            }
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// Carries out a call in another thread.
async fn called(shared: &Arc<Shared>, body: &[u8]) -> Response<Body> {
    let call: Call = match serde_json::from_slice(body) {
        Ok(call) => call,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("not a call: {error}\n")),
    };
    let for_call = Arc::clone(shared);
    let answer = tokio::task::spawn_blocking(move || call::answer(&call, &for_call.options));
    match answer.await {
        Ok(line) => with_type(full(&line), "application/json"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the call failed\n"),
    }
}

/// Keeps a capture file.
async fn filed(seat: &Seat, mut body: Incoming) -> Response<Body> {
    let failed = |error: std::io::Error| {
        text(StatusCode::INSUFFICIENT_STORAGE, &format!("the file cannot be kept: {error}\n"))
    };
    let name = format!("{}-{}", std::process::id(), seat.number);
    let mut file = match Files::create(&name) {
        Ok(file) => file,
        Err(error) => return failed(error),
    };
    let mut bytes = 0;
    while let Some(part) = body.frame().await {
        let Ok(part) = part else {
            return text(StatusCode::BAD_REQUEST, "the file is not complete\n");
        };
        let Some(data) = part.data_ref() else { continue };
        bytes += data.len() as u64;
        if bytes > MAX_FILE_BYTES {
            let most = MAX_FILE_BYTES >> 20;
            let message = format!("the file has more than {most} MiB; use fyke dump -r\n");
            return text(StatusCode::PAYLOAD_TOO_LARGE, &message);
        }
        // A short write to the memory of the system.
        if let Err(error) = std::io::Write::write_all(&mut file, data) {
            return failed(error);
        }
    }
    match seat.shared.files.keep(file) {
        Ok(number) => {
            let line = format!("{{\"file\":{number},\"bytes\":{bytes}}}");
            with_type(full(line.as_bytes()), "application/json")
        }
        Err(error) => failed(error),
    }
}

/// Answers a question about a file or a graph in another thread.
async fn looked(shared: &Arc<Shared>, body: &[u8]) -> Response<Body> {
    let look: Look = match serde_json::from_slice(body) {
        Ok(look) => look,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("not a question: {error}\n")),
    };
    // The semaphore is never closed.
    let _turn = shared.looks.acquire().await;
    let for_look = Arc::clone(shared);
    let answer = tokio::task::spawn_blocking(move || {
        looks::answer(&look, &*for_look.options.looks, &for_look.files)
    });
    match answer.await {
        Ok(line) => with_type(full(&line), "application/json"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the question failed\n"),
    }
}

fn full(content: &[u8]) -> Response<Body> {
    Response::new(Either::Left(Full::new(Bytes::copy_from_slice(content))))
}

fn with_type(mut response: Response<Body>, kind: &'static str) -> Response<Body> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = with_type(full(message.as_bytes()), "text/plain; charset=utf-8");
    *response.status_mut() = status;
    response
}

fn not_allowed(method: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(method));
    response
}
