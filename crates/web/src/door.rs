//! The checks that a request passes before it is answered.
//!
//! | attack | check |
//! |---|---|
//! | a page of another site sends requests to this server | `Origin` and `Sec-Fetch-Site`, the token |
//! | a name of another site resolves to our address (DNS rebinding) | `Host` |
//! | another user or another machine connects | the token |
//!
//! The hosts of a server are the address that it listens at and, with TLS, the names in its certificate: a browser
//! shows no page of a name that the certificate does not have.

use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN, SEC_WEBSOCKET_PROTOCOL,
};
use hyper::{Request, StatusCode};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;

/// Bytes of a token before they are written as hexadecimal digits.
const TOKEN_BYTES: usize = 16;
/// Protocol of a WebSocket.
const PROTOCOL: &str = "fyke";
/// Header by which a browser names the relation between a page and its request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The secret and the names of a server.
#[derive(Debug)]
pub struct Door {
    token: String,
    /// Allowed hosts, without the port.
    hosts: Vec<String>,
    port: u16,
    /// Has further hosts. With it, pages come over TLS.
    certificate: Option<CertificateDer<'static>>,
}

/// Refusal of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Host,
    Origin,
    Token,
    ContentType,
}

impl Refusal {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
            Refusal::Origin => StatusCode::FORBIDDEN,
            Refusal::Token => StatusCode::UNAUTHORIZED,
            Refusal::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// The answer.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Host => "open this page by the address that fyke web printed\n",
            Refusal::Origin => "requests of other pages are refused\n",
            Refusal::Token => {
                "the token is missing or wrong: open the address that fyke web printed\n"
            }
            Refusal::ContentType => {
                "the content type must be application/json, of a file application/octet-stream\n"
            }
        }
    }
}

impl Door {
    /// Makes a door with a new token, for a server at an address, with its certificate if it has TLS.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(
        address: SocketAddr,
        certificate: Option<CertificateDer<'static>>,
    ) -> io::Result<Door> {
        let mut secret = [0; TOKEN_BYTES];
        rustix::rand::getrandom(&mut secret[..], rustix::rand::GetRandomFlags::empty())?;
        let token = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Door::with_token(token, address, certificate))
    }

    fn with_token(
        token: String,
        address: SocketAddr,
        certificate: Option<CertificateDer<'static>>,
    ) -> Door {
        let ip = address.ip();
        let own = ["127.0.0.1", "localhost", "[::1]"];
        let own = own.iter().filter(|name| match ip {
            IpAddr::V4(_) => !name.starts_with('['),
            IpAddr::V6(_) => ip.is_unspecified() || **name != "127.0.0.1",
        });
        let own = own.filter(|_| ip.is_loopback() || ip.is_unspecified());
        let mut hosts: Vec<String> = own.map(|name| (*name).to_owned()).collect();
        if !ip.is_unspecified() {
            hosts.push(in_url(ip));
        }
        Door { token, hosts, port: address.port(), certificate }
    }

    /// The secret, 32 hexadecimal digits.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Checks the host and the origin, which every request must pass.
    pub fn check_place<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        let host = only(headers, &HOST).ok_or(Refusal::Host)?;
        let target = request.uri().authority().map(|authority| authority.as_str());
        if ![Some(host), target].into_iter().flatten().all(|name| self.is_own(name)) {
            return Err(Refusal::Host);
        }
        if headers.contains_key(ORIGIN) {
            let origin = only(headers, &ORIGIN);
            let origin = origin.and_then(|origin| origin.strip_prefix(self.scheme()));
            // A page that was opened as localhost is another origin than 127.0.0.1.
            if origin != Some(host) {
                return Err(Refusal::Origin);
            }
        }
        match headers.contains_key(FETCH_SITE) {
            true if !matches!(only(headers, &FETCH_SITE), Some("same-origin" | "none")) => {
                Err(Refusal::Origin)
            }
            _ => Ok(()),
        }
    }

    /// Checks the token and the type of a body. A form of another page cannot send this type without a question that
    /// is refused.
    pub fn check_secret(&self, headers: &HeaderMap, kind: &str) -> Result<(), Refusal> {
        self.check_token(bearer(headers))?;
        match only(headers, &CONTENT_TYPE) {
            Some(given) if given == kind => Ok(()),
            _ => Err(Refusal::ContentType),
        }
    }

    /// Checks the token of a request for a WebSocket: in the header, or as the second of the protocols `fyke, TOKEN`,
    /// because a script in a browser cannot set the header. Returns the protocol that the answer must name.
    pub fn check_socket(&self, headers: &HeaderMap) -> Result<Option<&'static str>, Refusal> {
        if headers.contains_key(AUTHORIZATION) {
            return self.check_token(bearer(headers)).map(|()| None);
        }
        let protocols = only(headers, &SEC_WEBSOCKET_PROTOCOL).and_then(|all| all.split_once(','));
        let given = protocols.filter(|(first, _)| first.trim() == PROTOCOL);
        self.check_token(given.map(|(_, token)| token.trim())).map(|()| Some(PROTOCOL))
    }

    fn check_token(&self, given: Option<&str>) -> Result<(), Refusal> {
        match given {
            Some(given) if is_equal(given.as_bytes(), self.token.as_bytes()) => Ok(()),
            _ => Err(Refusal::Token),
        }
    }

    /// Beginning of the addresses of the page.
    pub fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https://" } else { "http://" }
    }

    /// True for `NAME:PORT`, or `NAME` at the port that browsers omit, of an own name.
    fn is_own(&self, host: &str) -> bool {
        let omitted = if self.certificate.is_some() { 443 } else { 80 };
        let name = match self.port {
            port if port == omitted => Some(host),
            port => host.strip_suffix(&port.to_string()).and_then(|rest| rest.strip_suffix(':')),
        };
        name.is_some_and(|name| self.hosts.iter().any(|own| own == name) || self.certifies(name))
    }

    /// True if the certificate has a name: of a host, or an address (one of IPv6 in brackets).
    pub fn certifies(&self, name: &str) -> bool {
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let Some(certificate) = &self.certificate else { return false };
        let (Ok(parsed), Ok(name)) =
            (ParsedCertificate::try_from(certificate), ServerName::try_from(bare))
        else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }
}

/// An address as the host of a URL.
pub fn in_url(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    only(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "))
}

/// The value of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Compares without a time that depends on the position of the first difference.
fn is_equal(given: &[u8], wanted: &[u8]) -> bool {
    let pairs = given.iter().zip(wanted);
    given.len() == wanted.len() && pairs.fold(0, |found, (a, b)| found | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn at(token: &str, address: &str) -> Door {
        Door::with_token(token.to_owned(), address.parse().unwrap(), None)
    }

    #[test]
    fn the_hosts_are_those_of_the_address() {
        for (address, own, other) in [
            ("127.0.0.1:80", &["127.0.0.1", "localhost"][..], &["127.0.0.1:80", "[::1]"][..]),
            ("[::1]:81", &["[::1]:81", "localhost:81"], &["127.0.0.1:81", "[::1]", "::1:81"]),
            ("0.0.0.0:81", &["127.0.0.1:81", "localhost:81"], &["0.0.0.0:81", "10.0.0.1:81"]),
            ("[::]:81", &["127.0.0.1:81", "[::1]:81", "localhost:81"], &["[::]:81"]),
            ("10.0.0.1:81", &["10.0.0.1:81"], &["localhost:81", "127.0.0.1:81", "10.0.0.1"]),
        ] {
            let door = at("t", address);
            for (hosts, wanted) in [(own, Ok(())), (other, Err(Refusal::Host))] {
                for host in hosts {
                    let given = door.check_place(&request("/", &[("host", host)]));
                    assert_eq!(given, wanted, "{host} at {address}");
                }
            }
        }
    }

    #[test]
    fn only_the_printed_address_is_answered() {
        let door = at("t", "127.0.0.1:8080");
        let check = |uri: &str, headers: &[(&str, &str)]| door.check_place(&request(uri, headers));
        for host in ["127.0.0.1:8080", "localhost:8080"] {
            assert_eq!(check("/", &[("host", host)]), Ok(()));
        }
        for host in ["127.0.0.1", "127.0.0.1:80", "evil.example:8080", "localhost:8080.evil", ""] {
            assert_eq!(check("/", &[("host", host)]), Err(Refusal::Host), "{host}");
        }
        assert_eq!(check("/", &[]), Err(Refusal::Host));
        let twice = [("host", "localhost:8080"), ("host", "evil.example")];
        assert_eq!(check("/", &twice), Err(Refusal::Host));
        let absolute = check("http://evil.example/", &[("host", "localhost:8080")]);
        assert_eq!(absolute, Err(Refusal::Host));
    }

    #[test]
    fn other_pages_are_refused() {
        let door = at("t", "127.0.0.1:8080");
        let check = |name: &str, value: &str| {
            door.check_place(&request("/", &[("host", "localhost:8080"), (name, value)]))
        };
        assert_eq!(check("origin", "http://localhost:8080"), Ok(()));
        for origin in
            ["null", "http://evil.example", "https://localhost:8080", "http://127.0.0.1:8080"]
        {
            assert_eq!(check("origin", origin), Err(Refusal::Origin), "{origin}");
        }
        assert_eq!(check("sec-fetch-site", "same-origin"), Ok(()));
        assert_eq!(check("sec-fetch-site", "none"), Ok(()));
        for site in ["cross-site", "same-site", "Same-Origin"] {
            assert_eq!(check("sec-fetch-site", site), Err(Refusal::Origin), "{site}");
        }
    }

    #[test]
    fn the_token_is_compared_whole() {
        let door = at("abcd", "127.0.0.1:1");
        let check = |value: &str, kind: &str| {
            let headers = [("authorization", value), ("content-type", kind)];
            door.check_secret(request("/", &headers).headers(), "application/json")
        };
        assert_eq!(check("Bearer abcd", "application/json"), Ok(()));
        for value in ["", "Bearer ", "Bearer abc", "Bearer abcde", "Bearer abce", "abcd"] {
            assert_eq!(check(value, "application/json"), Err(Refusal::Token), "{value}");
        }
        assert_eq!(check("Bearer abcd", "text/plain"), Err(Refusal::ContentType));
    }

    #[test]
    fn a_socket_has_the_token_in_one_of_two_places() {
        let door = at("abcd", "127.0.0.1:1");
        let check =
            |name: &str, value: &str| door.check_socket(request("/", &[(name, value)]).headers());
        assert_eq!(check("authorization", "Bearer abcd"), Ok(None));
        assert_eq!(check("sec-websocket-protocol", "fyke, abcd"), Ok(Some("fyke")));
        assert_eq!(check("authorization", "Bearer abc"), Err(Refusal::Token));
        for protocols in ["", "fyke", "abcd", "abcd, fyke", "other, abcd", "fyke, abcd, x"] {
            let given = check("sec-websocket-protocol", protocols);
            assert_eq!(given, Err(Refusal::Token), "{protocols}");
        }
    }

    #[test]
    fn tokens_differ() {
        let door = || Door::new("127.0.0.1:1".parse().unwrap(), None).unwrap();
        let (one, other) = (door(), door());
        assert_eq!(one.token().len(), 2 * TOKEN_BYTES);
        assert_ne!(one.token(), other.token());
    }
}
