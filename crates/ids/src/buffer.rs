//! Named buffers: parts of a packet, a stream or a message of an application, with the keywords that name them.

/// An application with messages that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Application {
    /// HTTP/1.
    Http,
    /// TLS.
    Tls,
    /// DNS.
    Dns,
}

/// Number of applications.
pub const APPLICATIONS: usize = 3;

impl Application {
    /// All applications, by their numbers.
    pub const ALL: [Application; APPLICATIONS] =
        [Application::Http, Application::Tls, Application::Dns];

    /// Name in rules and in alerts.
    pub fn name(self) -> &'static str {
        match self {
            Application::Http => "http",
            Application::Tls => "tls",
            Application::Dns => "dns",
        }
    }

    /// The application with a name.
    pub fn from_name(name: &str) -> Option<Application> {
        Some(match name {
            "http" | "http1" => Application::Http,
            "tls" | "ssl" => Application::Tls,
            "dns" => Application::Dns,
            _ => return None,
        })
    }
}

/// A buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is named as its keyword, which the table below lists")]
pub enum Buffer {
    Payload,
    HttpMethod,
    HttpUri,
    HttpUriRaw,
    HttpRequestLine,
    HttpResponseLine,
    HttpProtocol,
    HttpHeader,
    HttpHeaderRaw,
    HttpHeaderNames,
    HttpStart,
    HttpHost,
    HttpHostRaw,
    HttpUserAgent,
    HttpCookie,
    HttpReferer,
    HttpAccept,
    HttpAcceptEncoding,
    HttpAcceptLanguage,
    HttpConnection,
    HttpContentType,
    HttpContentLength,
    HttpServer,
    HttpLocation,
    HttpStatusCode,
    HttpStatusMessage,
    HttpRequestBody,
    HttpResponseBody,
    FileData,
    HttpRequestHeader,
    HttpResponseHeader,
    DnsQuery,
    DnsQueries,
    DnsAnswers,
    DnsAuthorities,
    DnsAdditionals,
    DnsResponse,
    DnsOperation,
    DnsCode,
    TlsServerName,
    TlsCertificates,
    TlsSubject,
    TlsIssuer,
    TlsSerial,
    TlsFingerprint,
    TlsAlternativeName,
    TlsVersion,
    TlsRandom,
    TlsRandomTime,
    TlsRandomBytes,
    TlsApplication,
    Ja3Hash,
    Ja3String,
    Ja3ServerHash,
    Ja3ServerString,
    Ja4Hash,
    Ipv4Header,
    Ipv6Header,
    TcpHeader,
    UdpHeader,
    Icmpv4Header,
    Icmpv6Header,
}

/// Number of buffers.
pub const BUFFERS: usize = Buffer::Icmpv6Header as usize + 1;

/// The facts that are fixed for a buffer.
#[derive(Debug)]
pub struct Facts {
    /// The buffer.
    pub buffer: Buffer,
    /// Keywords that name it for the contents after them.
    pub sticky: &'static [&'static str],
    /// Keyword that assigns the content before it; empty if there is none.
    pub modifier: &'static str,
    /// Its application.
    pub application: Option<Application>,
    /// Sent to the server (true), to the client (false), or in both directions.
    pub to_server: Option<bool>,
}

const fn http(
    buffer: Buffer,
    sticky: &'static [&'static str],
    modifier: &'static str,
    to_server: Option<bool>,
) -> Facts {
    Facts { buffer, sticky, modifier, application: Some(Application::Http), to_server }
}

const fn tls(buffer: Buffer, sticky: &'static [&'static str], to_server: Option<bool>) -> Facts {
    Facts { buffer, sticky, modifier: "", application: Some(Application::Tls), to_server }
}

const fn dns(buffer: Buffer, sticky: &'static [&'static str], to_server: Option<bool>) -> Facts {
    Facts { buffer, sticky, modifier: "", application: Some(Application::Dns), to_server }
}

const fn packet(buffer: Buffer, sticky: &'static [&'static str]) -> Facts {
    Facts { buffer, sticky, modifier: "", application: None, to_server: BOTH }
}

const BOTH: Option<bool> = None;
const SERVER: Option<bool> = Some(true);
const CLIENT: Option<bool> = Some(false);

/// All buffers, by their numbers.
pub const TABLE: [Facts; BUFFERS] = [
    packet(Buffer::Payload, &["pkt_data"]),
    http(Buffer::HttpMethod, &["http.method"], "http_method", SERVER),
    http(Buffer::HttpUri, &["http.uri"], "http_uri", SERVER),
    http(Buffer::HttpUriRaw, &["http.uri.raw"], "http_raw_uri", SERVER),
    http(Buffer::HttpRequestLine, &["http.request_line", "http_request_line"], "", SERVER),
    http(Buffer::HttpResponseLine, &["http.response_line", "http_response_line"], "", CLIENT),
    http(Buffer::HttpProtocol, &["http.protocol", "http_protocol"], "", BOTH),
    http(Buffer::HttpHeader, &["http.header"], "http_header", BOTH),
    http(Buffer::HttpHeaderRaw, &["http.header.raw"], "http_raw_header", BOTH),
    http(Buffer::HttpHeaderNames, &["http.header_names", "http_header_names"], "", BOTH),
    http(Buffer::HttpStart, &["http.start", "http_start"], "", BOTH),
    http(Buffer::HttpHost, &["http.host"], "http_host", SERVER),
    http(Buffer::HttpHostRaw, &["http.host.raw"], "http_raw_host", SERVER),
    http(Buffer::HttpUserAgent, &["http.user_agent"], "http_user_agent", SERVER),
    http(Buffer::HttpCookie, &["http.cookie"], "http_cookie", BOTH),
    http(Buffer::HttpReferer, &["http.referer", "http_referer"], "", SERVER),
    http(Buffer::HttpAccept, &["http.accept", "http_accept"], "", SERVER),
    http(Buffer::HttpAcceptEncoding, &["http.accept_enc", "http_accept_enc"], "", SERVER),
    http(Buffer::HttpAcceptLanguage, &["http.accept_lang", "http_accept_lang"], "", SERVER),
    http(Buffer::HttpConnection, &["http.connection", "http_connection"], "", BOTH),
    http(Buffer::HttpContentType, &["http.content_type", "http_content_type"], "", BOTH),
    http(Buffer::HttpContentLength, &["http.content_len", "http_content_len"], "", BOTH),
    http(Buffer::HttpServer, &["http.server"], "", CLIENT),
    http(Buffer::HttpLocation, &["http.location"], "", CLIENT),
    http(Buffer::HttpStatusCode, &["http.stat_code"], "http_stat_code", CLIENT),
    http(Buffer::HttpStatusMessage, &["http.stat_msg"], "http_stat_msg", CLIENT),
    http(Buffer::HttpRequestBody, &["http.request_body"], "http_client_body", SERVER),
    http(Buffer::HttpResponseBody, &["http.response_body"], "http_server_body", CLIENT),
    http(Buffer::FileData, &["file.data", "file_data"], "", BOTH),
    http(Buffer::HttpRequestHeader, &["http.request_header"], "", SERVER),
    http(Buffer::HttpResponseHeader, &["http.response_header"], "", CLIENT),
    dns(Buffer::DnsQuery, &["dns.query", "dns_query"], SERVER),
    dns(Buffer::DnsQueries, &["dns.queries.rrname"], BOTH),
    dns(Buffer::DnsAnswers, &["dns.answers.rrname"], BOTH),
    dns(Buffer::DnsAuthorities, &["dns.authorities.rrname"], BOTH),
    dns(Buffer::DnsAdditionals, &["dns.additionals.rrname"], BOTH),
    dns(Buffer::DnsResponse, &["dns.response.rrname"], CLIENT),
    dns(Buffer::DnsOperation, &["dns.opcode"], BOTH),
    dns(Buffer::DnsCode, &["dns.rcode"], BOTH),
    tls(Buffer::TlsServerName, &["tls.sni", "tls_sni"], SERVER),
    tls(Buffer::TlsCertificates, &["tls.certs"], CLIENT),
    tls(Buffer::TlsSubject, &["tls.cert_subject", "tls_cert_subject"], CLIENT),
    tls(Buffer::TlsIssuer, &["tls.cert_issuer", "tls_cert_issuer"], CLIENT),
    tls(Buffer::TlsSerial, &["tls.cert_serial", "tls_cert_serial"], CLIENT),
    tls(Buffer::TlsFingerprint, &["tls.cert_fingerprint", "tls_cert_fingerprint"], CLIENT),
    tls(Buffer::TlsAlternativeName, &["tls.subjectaltname"], CLIENT),
    tls(Buffer::TlsVersion, &["tls.version"], BOTH),
    tls(Buffer::TlsRandom, &["tls.random"], BOTH),
    tls(Buffer::TlsRandomTime, &["tls.random_time"], BOTH),
    tls(Buffer::TlsRandomBytes, &["tls.random_bytes"], BOTH),
    tls(Buffer::TlsApplication, &["tls.alpn"], BOTH),
    tls(Buffer::Ja3Hash, &["ja3.hash", "ja3_hash"], SERVER),
    tls(Buffer::Ja3String, &["ja3.string", "ja3_string"], SERVER),
    tls(Buffer::Ja3ServerHash, &["ja3s.hash", "ja3s_hash"], CLIENT),
    tls(Buffer::Ja3ServerString, &["ja3s.string", "ja3s_string"], CLIENT),
    tls(Buffer::Ja4Hash, &["ja4.hash"], SERVER),
    packet(Buffer::Ipv4Header, &["ipv4.hdr"]),
    packet(Buffer::Ipv6Header, &["ipv6.hdr"]),
    packet(Buffer::TcpHeader, &["tcp.hdr"]),
    packet(Buffer::UdpHeader, &["udp.hdr"]),
    packet(Buffer::Icmpv4Header, &["icmpv4.hdr"]),
    packet(Buffer::Icmpv6Header, &["icmpv6.hdr"]),
];

impl Buffer {
    /// Its facts.
    pub fn facts(self) -> &'static Facts {
        &TABLE[self as usize]
    }

    /// Name for people: the keyword that names it.
    pub fn name(self) -> &'static str {
        if self == Buffer::Payload { "payload" } else { self.facts().sticky[0] }
    }

    /// The buffer of a keyword for the contents after it.
    pub fn of_sticky(name: &str) -> Option<Buffer> {
        TABLE.iter().find(|facts| facts.sticky.contains(&name)).map(|facts| facts.buffer)
    }

    /// The buffer of a keyword for the content before it.
    pub fn of_modifier(name: &str) -> Option<Buffer> {
        TABLE
            .iter()
            .find(|facts| !name.is_empty() && facts.modifier == name)
            .map(|facts| facts.buffer)
    }

    /// True if the bytes are those of a body, which is complete later than the headers.
    pub fn is_body(self) -> bool {
        matches!(self, Buffer::HttpRequestBody | Buffer::HttpResponseBody | Buffer::FileData)
    }

    /// True if a message may have several.
    pub fn is_multiple(self) -> bool {
        matches!(
            self,
            Buffer::DnsQuery
                | Buffer::DnsQueries
                | Buffer::DnsAnswers
                | Buffer::DnsAuthorities
                | Buffer::DnsAdditionals
                | Buffer::DnsResponse
                | Buffer::TlsCertificates
                | Buffer::TlsAlternativeName
                | Buffer::TlsApplication
                | Buffer::HttpRequestHeader
                | Buffer::HttpResponseHeader
                | Buffer::FileData
        )
    }

    /// True for a header of a packet.
    pub fn is_header(self) -> bool {
        self != Buffer::Payload && self.facts().application.is_none()
    }

    /// True if it holds a number, which its keyword compares with a value.
    pub fn is_number(self) -> bool {
        matches!(self, Buffer::DnsOperation | Buffer::DnsCode | Buffer::TlsVersion)
    }

    /// True if its letters have one case, and contents are found in it in any case.
    pub fn is_folded(self) -> bool {
        matches!(
            self,
            Buffer::Ja3Hash | Buffer::Ja3ServerHash | Buffer::TlsFingerprint | Buffer::TlsSerial
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers() {
        for (number, facts) in TABLE.iter().enumerate() {
            assert_eq!(facts.buffer as usize, number);
            for name in facts.sticky {
                assert_eq!(Buffer::of_sticky(name), Some(facts.buffer));
            }
        }
        assert_eq!(Buffer::of_modifier("http_uri"), Some(Buffer::HttpUri));
        assert_eq!(Buffer::of_modifier(""), None);
    }
}
