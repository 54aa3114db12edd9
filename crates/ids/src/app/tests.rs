//! Messages of each application in pieces of any size, limits, and bytes of no application.

mod evasion;

use super::*;

/// Passes bytes to a parser in pieces of `size`, and collects the messages.
fn messages(to_server: bool, text: &[u8], size: usize) -> (Parser, Vec<Message>) {
    let mut parser = Parser::default();
    let found = more(&mut parser, to_server, text, size);
    (parser, found)
}

fn more(parser: &mut Parser, to_server: bool, text: &[u8], size: usize) -> Vec<Message> {
    let mut found = Vec::new();
    for piece in text.chunks(size) {
        parser.stream(to_server, 0, piece, &mut |message| found.push(message));
    }
    found
}

fn shown(message: &Message, buffer: Buffer) -> String {
    message.get(buffer).map_or("-".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

const REQUEST: &[u8] = b"POST http://Example.org:8080/a/../%62?x=%31 HTTP/1.1\r\nHost: other\r\nUser-Agent: fyke\r\n\
    Cookie: a=b\r\nX-Empty:\r\nAccept: x\r\nAccept: y\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn requests_become_buffers_whatever_the_pieces() {
    for size in [1, 7, REQUEST.len()] {
        let (parser, found) = messages(true, &[REQUEST, REQUEST].concat(), size);
        assert_eq!(parser.application(), Some(Application::Http));
        assert_eq!(
            found.iter().map(|one| one.complete).collect::<Vec<_>>(),
            [false, true, false, true]
        );
        for (buffer, expected) in [
            (Buffer::HttpMethod, "POST"),
            (Buffer::HttpUri, "/b?x=1"),
            (Buffer::HttpUriRaw, "http://Example.org:8080/a/../%62?x=%31"),
            (Buffer::HttpProtocol, "HTTP/1.1"),
            (Buffer::HttpHost, "example.org"),
            (Buffer::HttpHostRaw, "Example.org:8080"),
            (Buffer::HttpUserAgent, "fyke"),
            (Buffer::HttpCookie, "a=b"),
            (Buffer::HttpAccept, "x, y"),
            (Buffer::HttpContentLength, "5"),
            (
                Buffer::HttpHeader,
                "Host: other\r\nUser-Agent: fyke\r\nX-Empty: \r\nAccept: x, y\r\nContent-Type: text/plain\r\n\
                 Content-Length: 5\r\n",
            ),
            (
                Buffer::HttpHeaderNames,
                "\r\nHost\r\nUser-Agent\r\nCookie\r\nX-Empty\r\nAccept\r\nContent-Type\r\nContent-Length\r\n\r\n",
            ),
            (Buffer::HttpRequestBody, "hello"),
            (Buffer::FileData, "hello"),
            (Buffer::HttpReferer, "-"),
        ] {
            assert_eq!(shown(&found[3], buffer), expected, "{}", buffer.name());
        }
        assert_eq!(shown(&found[0], Buffer::HttpRequestBody), "-");
    }
}

#[test]
fn bodies_of_responses_are_put_together_and_decompressed() {
    use flate2::write::GzEncoder;
    use std::io::Write;
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(b"a page").unwrap();
    let gzip = gzip.finish().unwrap();
    let chunk =
        |bytes: &[u8]| [format!("{:x};ext\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let chunked =
        [chunk(&gzip[..5]), chunk(&gzip[5..]), b"0\r\nTrailer: x\r\n\r\n".to_vec()].concat();
    let head = b"HTTP/1.1 200 All right\r\nContent-Encoding: gzip\r\n\
        Transfer-Encoding: chunked\r\nSet-Cookie: c\r\n\r\n";
    let next = b"HTTP/1.1 204 None\r\n\r\nHTTP/1.0 404 Not Found\r\nServer: s\r\n\r\nuntil the end";
    for size in [1, 3, 1000] {
        let (mut parser, mut found) = messages(false, &[head, &chunked[..], next].concat(), size);
        parser.end(false, &mut |message| found.push(message));
        let bodies: Vec<String> = found.iter().map(|one| shown(one, Buffer::FileData)).collect();
        assert_eq!(bodies, ["-", "a page", "-", "-", "until the end"]);
        let codes: Vec<String> =
            found.iter().map(|one| shown(one, Buffer::HttpStatusCode)).collect();
        assert_eq!(codes, ["200", "200", "204", "404", "404"]);
        assert_eq!(shown(&found[1], Buffer::HttpStatusMessage), "All right");
        assert_eq!(shown(&found[1], Buffer::HttpCookie), "c");
        assert_eq!(shown(&found[4], Buffer::HttpServer), "s");
    }
}

/// `a page`, compressed by brotli.
const BROTLI: &[u8] = b"\x8b\x02\x80a page\x03";
/// 100 million digits and `end`, compressed by brotli.
const BROTLI_BOMB: &str = "\
    cfffff7ff82560e2b14020f7fe9ffffffff04b00c4610180eefd3fffffffe1970088c32200ddfb7ffeff\
    ffc32f0110870500baf7fffcffff875f02200e0b0074efff5320bc1ebf2459995b697258005017bb5e03";

#[test]
fn brotli_that_is_a_bomb_or_damaged_is_bounded() {
    let digits = |at: usize| u8::from_str_radix(&BROTLI_BOMB[at..at + 2], 16).unwrap();
    let bomb: Vec<u8> = (0..BROTLI_BOMB.len()).step_by(2).map(digits).collect();
    let body = |bytes: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: {}\r\n\r\n",
            bytes.len()
        );
        let (_, found) = messages(false, &[head.as_bytes(), bytes].concat(), 1000);
        found.last().unwrap().get(Buffer::FileData).unwrap().to_vec()
    };
    let decoded = body(&bomb);
    assert_eq!(decoded.len(), http::MAX_BODY);
    assert!(decoded.iter().all(|byte| *byte == b'0'));
    let (mut random, seed) = fyke_testkit::random::Random::seeded(7);
    println!("seed {seed}");
    for _ in 0..2_000 {
        let mut damaged = if random.chance(2) { bomb.clone() } else { BROTLI.to_vec() };
        for _ in 0..1 + random.below(3) {
            let at = random.below(damaged.len());
            damaged[at] = random.below(256) as u8;
        }
        assert!(body(&damaged).len() <= http::MAX_BODY);
    }
}

#[test]
fn bodies_with_two_compressions_are_decompressed_and_others_are_counted() {
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;
    let level = flate2::Compression::best();
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), level);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let mut deflate = ZlibEncoder::new(Vec::new(), level);
    deflate.write_all(b"a page").unwrap();
    let inner = deflate.finish().unwrap();
    for (encoding, body, expected, is_encoded) in [
        ("gzip, gzip", gzip(&gzip(b"a page")), "a page", false),
        ("deflate , x-gzip", gzip(&inner), "a page", false),
        ("identity", b"a page".to_vec(), "a page", false),
        ("identity\r\nTransfer-Encoding: gzip", gzip(b"a page"), "a page", false),
        ("br", BROTLI.to_vec(), "a page", false),
        ("br, gzip", gzip(BROTLI), "a page", false),
        ("br", b"\xffa page".to_vec(), "\u{fffd}a page", true),
        ("zstd", b"a page".to_vec(), "a page", true),
        ("gzip", b"a page".to_vec(), "a page", true),
        ("gzip,gzip,gzip", b"a page".to_vec(), "a page", true),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (_, found) = messages(false, &[head.as_bytes(), &body].concat(), 7);
        let last = found.last().unwrap();
        assert_eq!(shown(last, Buffer::FileData), expected, "{encoding}");
        assert_eq!(last.is_encoded, is_encoded, "{encoding}");
    }
}

#[test]
fn a_compressed_bomb_and_an_endless_head_are_bounded() {
    use flate2::write::ZlibEncoder;
    use std::io::Write;
    let mut bomb = ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![0; 50 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: {}\r\n\r\n",
        bomb.len()
    );
    let (_, found) = messages(false, &[head.as_bytes(), &bomb].concat(), 1460);
    let body = found.last().and_then(|message| message.get(Buffer::FileData)).unwrap();
    assert_eq!(body.len(), http::MAX_BODY);
    let endless = [b"GET / HTTP/1.1\r\n", &b"A: b\r\n".repeat(100_000)[..]].concat();
    let (_, found) = messages(true, &endless, 1460);
    assert!(found.is_empty());
    let many = [b"GET / HTTP/1.1\r\n", &b"A: b\r\n".repeat(9000)[..], b"\r\n"].concat();
    assert_eq!(messages(true, &many, 1460).1.len(), 1);
}

#[test]
fn files_of_a_form_are_buffers_of_their_own() {
    let form = b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--B\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\n\r\nfirst\r\n--B\r\n\
        Content-Disposition: form-data; name=\"g\"; filename=\"y.txt\"\r\n\r\nsecond\r\n--B--\r\n";
    let head = format!(
        "POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: {}\r\n\r\n",
        form.len()
    );
    let (_, found) = messages(true, &[head.as_bytes(), form].concat(), 50);
    let files = found[1].buffers.iter().filter(|(buffer, _)| *buffer == Buffer::FileData);
    let files: Vec<&[u8]> = files.map(|(_, bytes)| &**bytes).collect();
    assert_eq!(files, [&b"first"[..], b"second"]);
}

/// A value of ASN.1.
fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let inside = parts.concat();
    match inside.len() {
        len @ ..128 => [&[tag, len as u8], &inside[..]].concat(),
        len => [&[tag, 0x82, (len >> 8) as u8, len as u8], &inside[..]].concat(),
    }
}

/// A part with a length of `width` bytes before it.
fn sized(width: usize, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[4 - width..], bytes].concat()
}

/// Handshake messages in records of `size` bytes.
fn records(messages: &[u8], size: usize) -> Vec<u8> {
    messages.chunks(size).flat_map(|part| [&[22, 3, 3][..], &sized(2, part)].concat()).collect()
}

#[test]
fn hellos_and_certificates_become_buffers() {
    let name = sized(2, &[&[0][..], &sized(2, b"www.example.org")].concat());
    let extensions = sized(2, &[&[0, 23, 0, 0, 0, 0][..], &sized(2, &name)].concat());
    let hello = [
        &[3, 3][..],
        &[7; 32],
        &sized(1, &[1, 2]),
        &sized(2, &[0x13, 1]),
        &sized(1, &[0]),
        &extensions,
    ]
    .concat();
    let hello = [&[1][..], &sized(3, &hello)].concat();
    let attribute = |kind: u8, text: &[u8]| {
        value(0x31, &[&value(0x30, &[&value(6, &[&[0x55, 4, kind]]), &value(12, &[text])])])
    };
    let dn = value(0x30, &[&attribute(6, b"US"), &attribute(3, b"example.org")]);
    let issuer = value(0x30, &[&attribute(10, b"Authority")]);
    let signed = value(
        0x30,
        &[
            &value(0xa0, &[&value(2, &[&[2]])]),
            &value(2, &[&[0, 0xab]]),
            &value(0x30, &[]),
            &issuer,
            &value(0x30, &[]),
            &dn,
        ],
    );
    let certificate = value(0x30, &[&signed, &[0; 150]]);
    let chain = sized(3, &[sized(3, &certificate), sized(3, b"second")].concat());
    let server = [&[2, 0, 0, 1, 9, 11][..], &sized(3, &chain)].concat();
    for size in [1, 50, 5000] {
        let mut parser = Parser::default();
        let found = more(&mut parser, true, &records(&hello, size.max(6)), size);
        assert_eq!(parser.application(), Some(Application::Tls));
        assert_eq!(shown(&found[0], Buffer::TlsServerName), "www.example.org");
        let mut found = more(&mut parser, false, &records(&server, size.max(6)), size);
        // The hello of the server has no buffers.
        assert!(found.remove(0).buffers.is_empty());
        assert_eq!(shown(&found[0], Buffer::TlsSubject), "C=US, CN=example.org");
        assert_eq!(shown(&found[0], Buffer::TlsIssuer), "O=Authority");
        assert_eq!(shown(&found[0], Buffer::TlsSerial), "00:AB");
        let chain =
            found[0].buffers.iter().filter(|(buffer, _)| *buffer == Buffer::TlsCertificates);
        assert_eq!(chain.map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [certificate.len(), 6]);
        assert!(more(&mut parser, false, &[23, 3, 3, 0, 1, 0, 22, 3, 3, 0, 0], size).is_empty());
    }
}

const QUERY: &[u8] =
    b"\0\x01\x01\0\0\x02\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01\xc0\x10\0\x1c\0\x01";

#[test]
fn questions_of_dns_are_read_over_udp_and_tcp() {
    let names = |message: &Message| {
        let names = message.buffers.iter().filter(|(buffer, _)| *buffer == Buffer::DnsQuery);
        names.map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
    };
    let mut parser = Parser::default();
    let mut found = Vec::new();
    parser.datagram(QUERY, &mut |message| found.push(message));
    assert_eq!(
        (parser.application(), names(&found[0])),
        (Some(Application::Dns), vec!["www.example.org".to_owned(), "example.org".to_owned()])
    );
    let framed = sized(2, QUERY);
    for size in [1, 100] {
        let (parser, found) = messages(true, &[&framed[..], &framed].concat(), size);
        assert_eq!(
            (parser.application(), found.len(), names(&found[1]).len()),
            (Some(Application::Dns), 2, 2)
        );
    }
    // A pointer to itself, a length beyond the end, a header that is none.
    let mut looped = QUERY.to_vec();
    looped[34] = 33;
    let reserved = [&QUERY[..3], &[0x40], &QUERY[4..]].concat();
    for wrong in [&looped[..], &QUERY[..20], &reserved, &[0xff; 40], b""] {
        let mut parser = Parser::default();
        parser.datagram(wrong, &mut |message| panic!("{message:?}"));
        assert_eq!(parser.application(), None);
    }
}

#[test]
fn other_bytes_are_no_application_and_never_panic() {
    use fyke_testkit::random::Random;
    let (mut random, seed) = Random::seeded(5);
    println!("seed {seed}");
    let begin: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n",
        b"HTTP/1.1 200 OK\r\n",
        &[22, 3, 1, 0, 9, 1],
        &[0, 40, 0, 1],
        b"SSH-2.0-x\r\n",
    ];
    let words: [&[u8]; 8] = [
        b"\r\n",
        b"Content-Length: 9\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"a\r\n",
        b"\n",
        &[0xff; 3],
        &[0, 0, 5],
        b": ",
    ];
    for _ in 0..3000 {
        let mut text = begin[random.below(5)].to_vec();
        for _ in 0..random.below(20) {
            text.extend_from_slice(words[random.below(8)]);
            text.push(random.below(256) as u8);
        }
        let to_server = random.below(2) == 0;
        let (mut parser, _) = messages(to_server, &text, 1 + random.below(9));
        parser.stream(!to_server, random.below(2) as u64, &text, &mut |_| ());
        parser.end(to_server, &mut |_| ());
        parser.end(!to_server, &mut |_| ());
        Parser::default().datagram(&text, &mut |_| ());
    }
    let (parser, _) = messages(true, b"SSH-2.0-x\r\n", 3);
    assert_eq!((parser.application(), parser.is_decided()), (None, false));
}

#[test]
fn names_in_all_sections_of_an_answer_are_buffers() {
    // a.org: CNAME to b.a.org; ns.a.org is its authority, with an address in the additional section.
    let mut answer = b"\0\x01\x81\x83\0\x01\0\x01\0\x01\0\x01\x01a\x03org\0\0\x01\0\x01".to_vec();
    answer.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x04\x01b\xc0\x0c");
    answer.extend_from_slice(b"\xc0\x0e\0\x02\0\x01\0\0\0\x09\0\x05\x02ns\xc0\x0c");
    answer.extend_from_slice(b"\x02ns\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x01\x02\x03\x04");
    let message = dns::message(&answer).unwrap();
    let of = |buffer: Buffer| {
        let own = message.buffers.iter().filter(|(own, _)| *own == buffer);
        own.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect::<Vec<_>>()
    };
    assert!(!message.to_server && of(Buffer::DnsQuery).is_empty());
    assert_eq!(of(Buffer::DnsQueries), ["a.org"]);
    assert_eq!(of(Buffer::DnsAnswers), ["a.org"]);
    assert_eq!(of(Buffer::DnsAuthorities), ["org"]);
    assert_eq!(of(Buffer::DnsAdditionals), ["ns.a.org"]);
    assert_eq!(
        of(Buffer::DnsResponse),
        ["a.org", "a.org", "b.a.org", "org", "ns.a.org", "ns.a.org"]
    );
    assert_eq!(
        (of(Buffer::DnsCode), of(Buffer::DnsOperation)),
        (vec!["\u{3}".into()], vec!["\0".into()])
    );
}
