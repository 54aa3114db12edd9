//! The server of metrics: answers `GET /metrics`, nothing else, and never changes a running fyke.
//!
//! At most [`MAX_CONNECTIONS`] connections at a time; if all are taken, the oldest is closed once it is
//! [`PATIENCE`] old, so silent clients do not block other clients. An answer is made once for all requests that
//! arrive within [`FRESH`], so scrapers in parallel cost the captures no more than one.

use super::{CONTENT_TYPE, Others, collect, older};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

/// Most connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 32;
/// Least age of a connection that is closed for another one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Age up to which an answer serves further requests.
const FRESH: Duration = Duration::from_millis(200);
/// Time limit for the head of a request; an idle connection is closed after it.
const HEAD_LIMIT: Duration = Duration::from_secs(15);
/// Time limit for a whole connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(300);
/// Most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time between two looks at the stop flag.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The address is taken, or not one of this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: io::Error,
}

/// A server of metrics that listens.
#[derive(Debug)]
pub struct Exporter {
    listener: TcpListener,
    address: SocketAddr,
    pid: Option<u32>,
}

/// Shared by all connections.
#[derive(Debug)]
struct Shared {
    pid: Option<u32>,
    is_loopback: bool,
    last: Mutex<Option<(Instant, Bytes)>>,
    others: Arc<std::sync::Mutex<Others>>,
}

impl Exporter {
    /// Listens on an address; port 0 takes one that is free. With `pid`, only that fyke is read.
    ///
    /// # Errors
    /// The address is taken, or the system refuses it.
    pub fn bind(address: SocketAddr, pid: Option<u32>) -> Result<Exporter, ListenError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Exporter { listener, address, pid })
        };
        listen().map_err(|source| ListenError { address, source })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is true.
    ///
    /// # Errors
    /// The system refuses; not the end of a connection.
    pub fn run(self, stop: &AtomicBool) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .build()?;
        let shared = Shared {
            pid: self.pid,
            is_loopback: self.address.ip().is_loopback(),
            last: Mutex::default(),
            others: Arc::default(),
        };
        let result = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            accept(&listener, &Arc::new(shared), stop).await;
            Ok(())
        });
        runtime.shutdown_background();
        result
    }
}

async fn accept(listener: &tokio::net::TcpListener, shared: &Arc<Shared>, stop: &AtomicBool) {
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open: VecDeque<(Instant, AbortHandle)> = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(Ok(seat)) = timeout(LOOK_INTERVAL, Arc::clone(&seats).acquire_owned()).await else {
            open.retain(|(_, connection)| !connection.is_finished());
            if open.front().is_some_and(|(since, _)| since.elapsed() >= PATIENCE) {
                open.drain(..1).for_each(|(_, connection)| connection.abort());
            }
            continue;
        };
        let Ok(accepted) = timeout(LOOK_INTERVAL, listener.accept()).await else { continue };
        let Ok((stream, _)) = accepted else {
            // No descriptor is free: connections that end free some.
            sleep(LOOK_INTERVAL).await;
            continue;
        };
        let shared = Arc::clone(shared);
        open.retain(|(_, connection)| !connection.is_finished());
        let connection = tokio::spawn(async move {
            let _seat = seat;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .max_buf_size(MAX_HEAD_BYTES)
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(|request| respond(&shared, request)),
                );
            // Its end concerns only the other end.
            let _ended = timeout(CONNECTION_LIMIT, connection).await;
        });
        open.push_back((Instant::now(), connection.abort_handle()));
    }
}

async fn respond(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = match (request.method(), request.uri().path()) {
        _ if shared.is_loopback && !names_this_machine(&request) => {
            plain(StatusCode::MISDIRECTED_REQUEST, "ask for 127.0.0.1, [::1] or localhost\n")
        }
        (&Method::GET | &Method::HEAD, "/metrics") => match current(shared).await {
            Some(text) if wants_older(&request) => {
                let text = older::older_format(&String::from_utf8_lossy(&text));
                with_type(Response::new(Full::new(text.into())), older::CONTENT_TYPE)
            }
            Some(text) => with_type(Response::new(Full::new(text)), CONTENT_TYPE),
            None => plain(StatusCode::INTERNAL_SERVER_ERROR, "the counts cannot be read\n"),
        },
        (&Method::GET | &Method::HEAD, _) => {
            plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n")
        }
        _ => {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here\n");
            refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            refusal
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The metrics: those of the last request if they are fresh, else new ones.
async fn current(shared: &Shared) -> Option<Bytes> {
    let mut last = shared.last.lock().await;
    if let Some((time, text)) = &*last
        && time.elapsed() < FRESH
    {
        return Some(text.clone());
    }
    let (pid, others) = (shared.pid, Arc::clone(&shared.others));
    let collected = tokio::task::spawn_blocking(move || {
        collect(pid, &mut others.lock().unwrap_or_else(PoisonError::into_inner))
    });
    let text = Bytes::from(collected.await.ok()?);
    *last = Some((Instant::now(), text.clone()));
    Some(text)
}

/// True if the client reads the Prometheus text format, and does not say that it reads OpenMetrics.
fn wants_older<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT);
    let has =
        |kind: &str| accepted.iter().any(|one| one.to_str().is_ok_and(|one| one.contains(kind)));
    has("text/plain") && !has("application/openmetrics-text")
}

/// False for a name that a page of another site has made to resolve to this machine (DNS rebinding).
fn names_this_machine<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn with_type(mut response: Response<Full<Bytes>>, kind: &'static str) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn plain(status: StatusCode, message: &'static str) -> Response<Full<Bytes>> {
    let response = Response::new(Full::new(Bytes::from_static(message.as_bytes())));
    let mut response = with_type(response, "text/plain; charset=utf-8");
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_no_names_of_this_machine() {
        for (host, is_own) in [
            ("127.0.0.1:9470", true),
            ("localhost", true),
            ("LocalHost:9470", true),
            ("[::1]:9470", true),
            ("127.8.0.1", true),
            ("evil.example:9470", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            let request = Request::builder().header(header::HOST, host).body(()).unwrap();
            assert_eq!(names_this_machine(&request), is_own, "{host}");
        }
        assert!(!names_this_machine(&Request::new(())), "no host at all");
    }

    #[test]
    fn the_older_format_is_for_those_who_ask_for_it() {
        for (accept, is_plain) in [
            ("*/*", false),
            ("text/plain;version=0.0.4", true),
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", false),
        ] {
            let request = Request::builder().header(header::ACCEPT, accept).body(()).unwrap();
            assert_eq!(wants_older(&request), is_plain, "{accept}");
        }
        assert!(!wants_older(&Request::new(())));
    }
}
