//! TLS 1.3: certificates at both ends of a relay, the server's of a page, and the name in a certificate.
//!
//! A client accepts a relay with a certificate of the given authority that has the host of the address. A relay
//! accepts clients with a certificate of its authority for clients; the common name of the subject is their name
//! (RFC 5280, 4.1.2.6).

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a file.
const MAX_FILE: u64 = 1 << 20;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 64;

/// Files with certificates and a key, as PEM.
#[derive(Debug, Clone)]
pub struct Files {
    /// Our certificate, with those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of the other end.
    pub authorities: PathBuf,
}

/// Reason why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has something else.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// They do not fit together.
    #[error("{} and {}: {why}; expected a certificate and the private key that it was made for",
            path.display(), key.display())]
    Fit {
        /// The file of the certificate.
        path: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        why: String,
    },
    /// The host is no name for a certificate.
    #[error("{0:?} is no host for a certificate")]
    Host(String),
}

/// A file without a certificate.
const NO_CERTIFICATE: &str = "has no certificate (PEM); expected -----BEGIN CERTIFICATE-----";
/// The help for a file without a key.
const NO_KEY: &str =
    "expected -----BEGIN PRIVATE KEY-----, without a password (openssl pkey removes it)";

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |why: String| TlsError::File { path: path.to_owned(), why };
    let size = path.metadata().map_err(|error| failed(error.to_string()))?.len();
    if size > MAX_FILE {
        return Err(failed(format!("has {size} bytes; at most {MAX_FILE}")));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why: String| TlsError::File { path: path.to_owned(), why };
    let bytes = read(path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(failed(NO_CERTIFICATE.to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| TlsError::File {
        path: path.to_owned(),
        why: format!("has no private key (PEM) that can be read: {error}; {NO_KEY}"),
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| TlsError::File {
            path: path.to_owned(),
            why: format!("has a certificate that is no authority: {error}"),
        })?;
    }
    Ok(store)
}

impl Files {
    fn fit<E: std::fmt::Display>(&self) -> impl Fn(E) -> TlsError {
        fit(&self.certificate, &self.key)
    }

    /// The client's ends of connections to a host.
    ///
    /// # Errors
    /// A file cannot be read, or they do not fit together.
    pub fn client(&self, host: &str) -> Result<Client, TlsError> {
        let name = ServerName::try_from(host.split('%').next().unwrap_or(host).to_owned());
        let name = name.map_err(|_| TlsError::Host(host.to_owned()))?;
        let roots = authorities(&self.authorities)?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(self.fit())?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&self.certificate)?, key(&self.key)?)
            .map_err(self.fit())?;
        Ok(Client { config: Arc::new(config), name })
    }

    /// The configuration of a relay.
    ///
    /// # Errors
    /// A file cannot be read, or they do not fit together.
    pub fn relay(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let own = (certificates(&self.certificate)?, key(&self.key)?);
        server((&self.certificate, &self.key), own, Some(&self.authorities)).map(Arc::new)
    }
}

/// Certificates and keys for connections of a client to a host; no file is read any more.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Client {
    /// The client's end of a new connection.
    ///
    /// # Errors
    /// TLS refuses.
    pub fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

fn fit<E: std::fmt::Display>(path: &Path, key: &Path) -> impl Fn(E) -> TlsError {
    move |error| {
        let (path, key) = (path.to_owned(), key.to_owned());
        TlsError::Fit { path, key, why: error.to_string() }
    }
}

/// A server with a certificate and its key; with authorities, each client needs a certificate of one of them.
fn server(
    (certificate, key): (&Path, &Path),
    own: (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    clients: Option<&Path>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(fit(certificate, key))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(|error| TlsError::File {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder.with_single_cert(own.0, own.1).map_err(fit(certificate, key))
}

/// TLS of a server of pages.
#[derive(Debug, Clone)]
pub struct Pages {
    /// The configuration, for HTTP/1.1.
    pub config: Arc<ServerConfig>,
    /// The certificate of the server (DER).
    pub certificate: CertificateDer<'static>,
    /// The names of hosts in it, in their order, without those that have a `*`.
    pub names: Vec<String>,
}

/// Reads the certificate and the key of a server of pages; with authorities, each client needs a certificate of one
/// of them.
///
/// # Errors
/// A file cannot be read, or they do not fit together.
pub fn pages(
    certificate: &Path,
    private_key: &Path,
    clients: Option<&Path>,
) -> Result<Pages, TlsError> {
    let (chain, own_key) = (certificates(certificate)?, key(private_key)?);
    let first = chain.first().cloned().ok_or_else(|| TlsError::File {
        path: certificate.to_owned(),
        why: NO_CERTIFICATE.to_owned(),
    })?;
    let mut config = server((certificate, private_key), (chain, own_key), clients)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let names = {
        let read =
            webpki::EndEntityCert::try_from(&first).map_err(fit(certificate, private_key))?;
        let all = read.valid_dns_names().filter(|name| !name.contains('*'));
        all.map(str::to_owned).collect()
    };
    Ok(Pages { config: Arc::new(config), certificate: first, names })
}

/// The name of a client: the common name of its certificate, after the handshake.
///
/// # Errors
/// It has none, several, or one that is no text of 1 to 64 printable letters.
pub fn name_of(connection: &ServerConnection) -> Result<String, String> {
    let first = connection.peer_certificates().and_then(<[_]>::first);
    let first = first.ok_or("the client has no certificate")?;
    let certificate = webpki::EndEntityCert::try_from(first)
        .map_err(|error| format!("the certificate of the client: {error}"))?;
    common_name(certificate.subject()).ok_or_else(|| {
        format!("the subject of the certificate has no common name of 1 to {MAX_NAME} letters")
    })
}

/// Object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const IDENTIFIER: u8 = 0x06;
/// `UTF8String` and `PrintableString`; others are not used by today's authorities.
const TEXTS: [u8; 2] = [0x0c, 0x13];

/// The next element of DER: its tag, its content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    Some((tag, rest.get(..len)?, &rest[len..]))
}

/// The only common name among the parts of a subject.
fn common_name(mut parts: &[u8]) -> Option<String> {
    let mut found = None;
    while !parts.is_empty() {
        let (tag, mut values, rest) = element(parts)?;
        parts = rest;
        if tag != SET {
            return None;
        }
        while !values.is_empty() {
            let (tag, pair, rest) = element(values)?;
            values = rest;
            let (kind, identifier, value) = element(pair)?;
            if (tag, kind) != (SEQUENCE, IDENTIFIER) {
                return None;
            }
            if identifier != COMMON_NAME {
                continue;
            }
            let (kind, text, _) = element(value)?;
            let text = std::str::from_utf8(text).ok().filter(|_| TEXTS.contains(&kind))?;
            if found.replace(text).is_some() {
                return None;
            }
        }
    }
    let is_name = |text: &&str| {
        (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(|letter| letter.is_control())
    };
    found.filter(is_name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_testkit::certificates::Authority;

    fn attribute(identifier: &[u8], kind: u8, text: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, content: Vec<u8>| [vec![tag, content.len() as u8], content].concat();
        let pair = [wrap(IDENTIFIER, identifier.to_vec()), wrap(kind, text.to_vec())].concat();
        wrap(SET, wrap(SEQUENCE, pair))
    }

    #[test]
    fn the_common_name_is_found_and_no_other_part() {
        let organisation = attribute(&[0x55, 0x04, 0x0a], 0x0c, b"Fyke");
        let name = attribute(COMMON_NAME, 0x0c, "söl-1".as_bytes());
        let both = [organisation.clone(), name.clone()].concat();
        assert_eq!(common_name(&both).unwrap(), "söl-1");
        assert_eq!(common_name(&attribute(COMMON_NAME, 0x13, b"a")).unwrap(), "a");
        assert_eq!(common_name(&organisation), None);
        assert_eq!(common_name(&[name.clone(), name.clone()].concat()), None, "two");
        for wrong in [&b""[..], b"a\nb", &[b'x'; 65], b"\xff"] {
            assert_eq!(common_name(&attribute(COMMON_NAME, 0x0c, wrong)), None, "{wrong:?}");
        }
        assert_eq!(common_name(&attribute(COMMON_NAME, 0x1e, b"\0a")), None, "BMPString");
        for end in 1..both.len() {
            let part = common_name(&both[..end]);
            assert!(part.is_none(), "{end}: {part:?}");
        }
    }

    #[test]
    fn damaged_subjects_have_no_name_and_do_not_panic() {
        let whole = attribute(COMMON_NAME, 0x0c, b"probe");
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _any = common_name(&damaged);
            }
        }
    }

    #[test]
    fn files_that_are_none_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.pem");
        let files =
            Files { certificate: path.clone(), key: path.clone(), authorities: path.clone() };
        assert!(files.relay().unwrap_err().to_string().contains("empty.pem: No such file"));
        std::fs::write(&path, "").unwrap();
        assert!(files.relay().unwrap_err().to_string().contains("has no certificate (PEM)"));
        assert!(files.client("a").unwrap_err().to_string().contains("empty.pem"));
        assert!(files.client("a b").unwrap_err().to_string().contains("is no host"));
    }

    #[test]
    fn pages_need_a_certificate_and_its_own_key() {
        if !Authority::is_possible() {
            println!("skipped: no openssl");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let one = authority.sign("one", "DNS:one.example,DNS:*.two.example,IP:10.9.0.1");
        let other = authority.sign("other", "DNS:other.example");
        let read = pages(&one.certificate, &one.key, Some(&authority.file())).unwrap();
        assert_eq!(read.names, ["one.example"]);
        let refused = |certificate: &Path, key: &Path, clients: Option<&Path>| {
            pages(certificate, key, clients).unwrap_err().to_string()
        };
        let mixed = refused(&one.certificate, &other.key, None);
        let files = [&one.certificate, &other.key].map(|path| path.to_str().unwrap().to_owned());
        assert!(files.iter().all(|file| mixed.contains(file)), "{mixed}");
        assert!(mixed.contains("the private key that it was made for"), "{mixed}");
        let swapped = refused(&one.key, &one.certificate, None);
        assert!(swapped.contains("authority-one.key: has no certificate (PEM)"), "{swapped}");
        let no_key = refused(&one.certificate, &one.certificate, None);
        assert!(no_key.contains("authority-one.pem: has no private key (PEM)"), "{no_key}");
        let no_clients = refused(&one.certificate, &one.key, Some(&one.key));
        assert!(no_clients.contains("authority-one.key: has no certificate"), "{no_clients}");
    }
}
