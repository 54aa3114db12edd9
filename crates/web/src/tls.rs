//! TLS of the server: the handshake of a connection, within a time limit.
//!
//! A client that does not speak TLS gets an answer in plain HTTP that names the mistake. One that sends nothing, or
//! does not complete the handshake, is closed after [`HANDSHAKE_LIMIT`]; until then it is among the connections that
//! are closed first when there are too many.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;

/// Time limit for a handshake.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// First byte of a record with a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// Most bytes that are read of a client without TLS, so that it gets the answer.
const MAX_READ_BYTES: u64 = 64 << 10;
/// The answer to a client without TLS.
const NO_TLS: &str =
    "this port answers over TLS only: open the address with https:// that fyke web printed\n";

/// The certificate of a server.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The configuration, with the key.
    pub config: Arc<ServerConfig>,
    /// The certificate (DER), for the names of hosts that are answered.
    pub certificate: CertificateDer<'static>,
    /// The names of hosts in the certificate; the first is printed if the certificate lacks the address.
    pub names: Vec<String>,
}

impl Tls {
    /// Completes the handshake of a connection; `None` if the client does not.
    pub async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        timeout(HANDSHAKE_LIMIT, self.shake(stream)).await.ok().flatten()
    }

    async fn shake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        if first[0] != HANDSHAKE {
            refuse(stream).await;
            return None;
        }
        TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await.ok()
    }
}

/// Answers a client that does not speak TLS.
async fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{NO_TLS}",
        NO_TLS.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        // Bytes that are left unread when the socket is closed would take the answer away.
        let mut rest = stream.take(MAX_READ_BYTES);
        let _until_the_client_ends = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    }
}
