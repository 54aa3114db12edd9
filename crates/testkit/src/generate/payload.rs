//! Messages of application protocols. Names and addresses are those reserved for documentation.

/// Types of DNS records in the corpus.
pub const DNS_TYPES: [(u16, &str); 9] = [
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (15, "MX"),
    (16, "TXT"),
    (28, "AAAA"),
    (33, "SRV"),
];

/// Encodes a name for DNS, without pointers.
pub fn dns_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

/// Builds a recursive query.
pub fn dns_query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let header = [id, 0x0100, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [header, dns_name(name), [kind, 1].map(u16::to_be_bytes).concat()].concat()
}

/// Builds the answer to [`dns_query`]: one record with a pointer to the question as its name.
pub fn dns_answer(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let data = match kind {
        1 => vec![192, 0, 2, id as u8],
        28 => [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[id as u8]].concat(),
        15 => [&[0, 10][..], &dns_name("mail.example.net")].concat(),
        16 => [&[11][..], b"v=test -all"].concat(),
        33 => [&[0, 1, 0, 2, 0x13, 0xc4][..], &dns_name("sip.example.org")].concat(),
        6 => {
            let names = [dns_name("ns.example.org"), dns_name("root.example.org")].concat();
            [names, [1u32, 7200, 900, 86_400, 300].map(u32::to_be_bytes).concat()].concat()
        }
        _ => dns_name("other.example.com"),
    };
    let header = [id, 0x8180, 1, 1, 0, 0].map(u16::to_be_bytes).concat();
    let question = [dns_name(name), [kind, 1].map(u16::to_be_bytes).concat()].concat();
    let record = [0xc00c, kind, 1, 0, 300, data.len() as u16].map(u16::to_be_bytes).concat();
    [header, question, record, data].concat()
}

/// Builds an answer without records: code 3 means that the name does not exist, 2 that the server failed.
pub fn dns_failure(id: u16, name: &str, code: u16) -> Vec<u8> {
    let header = [id, 0x8180 | code, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [header, dns_name(name), vec![0, 1, 0, 1]].concat()
}

/// Builds a DHCP message of this type: 1 discover, 2 offer, 3 request, 5 acknowledgement.
pub fn dhcp(kind: u8, transaction: u32) -> Vec<u8> {
    let reply = matches!(kind, 2 | 5);
    let mut bytes = vec![if reply { 2 } else { 1 }, 1, 6, 0];
    bytes.extend(transaction.to_be_bytes());
    bytes.resize(16, 0);
    bytes.extend(if reply { [10, 0, 0, 77] } else { [0; 4] });
    bytes.resize(28, 0);
    bytes.extend([2, 0, 0, 0, 0, 1]);
    bytes.resize(236, 0);
    bytes.extend([0x63, 0x82, 0x53, 0x63, 53, 1, kind, 12, 5]);
    bytes.extend(b"chair");
    if reply {
        bytes.extend([1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 0, 1, 51, 4, 0, 0, 0x0e, 0x10]);
    }
    bytes.extend([55, 3, 1, 3, 6, 255]);
    bytes.resize(300, 0);
    bytes
}

/// Builds an NTP message: mode 3 is a client, 4 a server.
pub fn ntp(mode: u8) -> Vec<u8> {
    let mut bytes = vec![0x20 | mode, if mode == 3 { 0 } else { 2 }, 6, 0xec];
    bytes.extend([0, 0, 0x10, 0, 0, 0, 8, 0, 192, 0, 2, 123]);
    for time in 0..4u8 {
        bytes.extend([0xe9, 0x3c, 0x11, time, 0x80, 0, 0, 0]);
    }
    bytes
}

/// Builds an SNMP version 2 request for the system's description.
pub fn snmp_get(community: &str) -> Vec<u8> {
    let tlv = |tag: u8, value: &[u8]| [&[tag, value.len() as u8][..], value].concat();
    let binding = tlv(0x30, &[tlv(6, &[0x2b, 6, 1, 2, 1, 1, 1, 0]), tlv(5, &[])].concat());
    let numbers = [tlv(2, &[0x12, 0x34]), tlv(2, &[0]), tlv(2, &[0])].concat();
    let get = tlv(0xa0, &[numbers, tlv(0x30, &binding)].concat());
    tlv(0x30, &[tlv(2, &[1]), tlv(4, community.as_bytes()), get].concat())
}

/// Builds a TLS ClientHello with the server's name.
pub fn client_hello(server: &str) -> Vec<u8> {
    let name = server.as_bytes();
    let list = [&[0][..], &(name.len() as u16).to_be_bytes(), name].concat();
    let names = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
    let mut extensions = [&[0, 0][..], &(names.len() as u16).to_be_bytes(), &names].concat();
    extensions.extend([0, 43, 0, 3, 2, 3, 4, 0, 10, 0, 4, 0, 2, 0, 29]);
    let mut hello = vec![3, 3];
    hello.extend((0..32u8).map(|byte| byte.wrapping_mul(37)));
    hello.extend([0, 0, 4, 0x13, 0x01, 0xc0, 0x2f, 1, 0]);
    hello.extend((extensions.len() as u16).to_be_bytes());
    hello.extend(extensions);
    let handshake = [&[1, 0][..], &(hello.len() as u16).to_be_bytes(), &hello].concat();
    [&[22, 3, 1][..], &(handshake.len() as u16).to_be_bytes(), &handshake].concat()
}

/// Builds an HTTP request with headers that contain personal data.
pub fn http_request(host: &str, path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: testkit/1\r\nAccept: */*\r\n\
         Referer: http://{host}/before\r\nCookie: session=5f3a9c; name=lamp\r\n\r\n"
    )
    .into_bytes()
}

/// Builds an HTTP answer with this body.
pub fn http_answer(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: testkit\r\nContent-Type: text/plain\r\n\
         Set-Cookie: session=5f3a9c\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Builds a SIP request or answer with this first line and a session description.
pub fn sip(first_line: &str, call: u32, media_port: u16) -> Vec<u8> {
    let body = format!(
        "v=0\r\no=lamp 1 1 IN IP4 192.0.2.5\r\ns=-\r\nc=IN IP4 192.0.2.5\r\nt=0 0\r\n\
         m=audio {media_port} RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\n"
    );
    format!(
        "{first_line}\r\nVia: SIP/2.0/UDP 192.0.2.5:5060;branch=z9hG4bK{call}\r\n\
         Max-Forwards: 70\r\nFrom: \"Lamp\" <sip:lamp@example.org>;tag={call}\r\n\
         To: <sip:chair@example.net>\r\nCall-ID: {call}@192.0.2.5\r\nCSeq: 1 INVITE\r\n\
         Contact: <sip:lamp@192.0.2.5:5060>\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Builds an RTP packet of 20 ms of speech.
pub fn rtp(sequence: u16, source: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend((u32::from(sequence) * 160).to_be_bytes());
    bytes.extend(source.to_be_bytes());
    bytes.extend((0..160u16).map(|at| (at * 7 + sequence) as u8));
    bytes
}

/// Builds a STUN binding request.
pub fn stun() -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    bytes.extend((0..12u8).map(|byte| byte * 11));
    bytes
}

/// Returns messages of protocols over UDP: name, server port and bytes.
pub fn datagrams() -> Vec<(&'static str, u16, Vec<u8>)> {
    let netbios = [
        &[0x12, 0x34, 0x01, 0x10, 0, 1, 0, 0, 0, 0, 0, 0, 0x20][..],
        b"CKFDENECFDEFFCFGEFFCCACACACACACA",
        &[0, 0, 0x20, 0, 1],
    ]
    .concat();
    let search =
        b"M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\nMAN: \"ssdp:discover\"\r\n\r\n";
    vec![
        ("dhcp-discover", 67, dhcp(1, 7)),
        ("dhcp6-solicit", 547, vec![1, 0, 0, 7, 0, 1, 0, 4, 0, 3, 0, 1, 0, 6, 0, 2, 0, 23, 0, 24]),
        ("ike", 500, [&[7; 16][..], &[33, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 28]].concat()),
        ("l2tp", 1701, vec![0xc8, 2, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 8, 0, 0, 0, 0, 0, 1]),
        ("mdns", 5353, dns_query(0, "_ipp._tcp.local", 12)),
        ("memcached", 11211, b"\0\x01\0\0\0\x01\0\0get lamp\r\n".to_vec()),
        ("nbns", 137, netbios),
        ("ntp", 123, ntp(3)),
        ("radius", 1812, [&[1, 9, 0, 29][..], &[6; 16], &[1, 9], b"chair12"].concat()),
        (
            "rip",
            520,
            [&[2, 2, 0, 0, 0, 2, 0, 0][..], &[10, 0, 0, 0, 255, 0, 0, 0], &[0; 8]].concat(),
        ),
        ("snmp", 161, snmp_get("public")),
        ("ssdp", 1900, search.to_vec()),
        ("stun", 3478, stun()),
        ("syslog", 514, b"<34>Jan  2 03:04:05 chair lamp: on".to_vec()),
        ("tftp", 69, b"\0\x01lamp.cfg\0octet\0".to_vec()),
        ("unknown", 40_000, b"nothing that anybody knows".to_vec()),
    ]
}
