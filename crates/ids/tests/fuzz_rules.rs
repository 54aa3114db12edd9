//! Broken rules and broken traffic: every rule is translated or refused with a reason, and nothing panics. This is the
//! bounded twin of the fuzz target.

use fyke_testkit::random::Random;

#[path = "../../../fuzz/checks/ids.rs"]
mod ids;

const RULES: [&str; 8] = [
    "alert http $HOME_NET any -> $EXTERNAL_NET any (msg:\"a\"; flow:established,to_server; http.method; \
        content:\"GET\"; http.uri; content:\"/a|20|b\"; nocase; pcre:\"/^\\/a(b|c)+\\1$/i\"; sid:1;)",
    "alert tcp any any -> any [80,8000:8100] (content:\"ab\"; offset:1; depth:9; content:!\"c\"; distance:-2; \
        within:4; isdataat:!3,relative; sid:2;)",
    "alert udp any any <> any 53 (byte_test:2,>,4,0,little; byte_jump:1,2,relative,align,multiplier 2; \
        content:\"x\"; within:1; sid:3;)",
    "alert tcp any any -> any any (byte_extract:1,0,n,relative; content:\"a\"; offset:n; \
        byte_math:bytes 1, offset n, oper <<, rvalue 3, result m; isdataat:m; sid:4;)",
    "alert tcp any any -> any any (content:\"a\"; http_uri; content:\"b\"; fast_pattern:only; http_header; \
        urilen:5<>9; file_data; content:\"c\"; sid:5;)",
    "alert dns any any -> any any (dns.query; dotprefix; content:\".ab\"; endswith; flowbits:set,x|y; \
        threshold:type both, track by_src, count 2, seconds 3; sid:6;)",
    "alert tls any any -> any any (tls.sni; content:\"a\"; bsize:1; tls.certs; content:\"b\"; \
        xbits:isset,q,track ip_src; sid:7;)",
    "alert tcp any any -> any any (base64_decode:bytes 8,offset 1,relative; base64_data; content:\"a\"; \
        pcre:\"/(?<=a)b(?!c)[^\\x00-\\x1f]{2,}/R\"; sid:8;)",
];

const BYTES: [&[u8]; 6] = [
    b"GET /a%20b?c HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x02ab\0\0\x01\0\x01",
    &[22, 3, 1, 0, 20, 1, 0, 0, 16, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    b"aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbxyz",
    b"YWJjZGVmZw==\x05\x04\x03\x02\x01\xff\xfe",
];

const PARTS: [&str; 18] = [
    ";",
    "(",
    ")",
    "\"",
    "|",
    "\\",
    "!",
    ",",
    ":",
    "$HOME_NET",
    "[",
    "]",
    "relative",
    "65536",
    "-1",
    "0x",
    "{9999}",
    "\n",
];

fn broken(random: &mut Random) -> Vec<u8> {
    let mut text = random.pick(&RULES).as_bytes().to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(text.len() + 1);
        match random.below(5) {
            0 if at < text.len() => drop(text.remove(at)),
            1 => text.truncate(at.max(40)),
            2 if at < text.len() => text[at] = random.number() as u8,
            3 => {
                let other = random.pick(&RULES).as_bytes();
                let from = random.below(other.len());
                let to = (from + random.below(40)).min(other.len());
                text.splice(at..at, other[from..to].iter().copied());
            }
            _ => drop(text.splice(at..at, random.pick(&PARTS).bytes())),
        }
    }
    text.push(0);
    let mut bytes = random.pick(&BYTES).to_vec();
    for _ in 0..random.below(3) {
        let at = random.below(bytes.len());
        bytes[at] = random.number() as u8;
    }
    text.extend(bytes);
    text
}

#[test]
fn broken_rules_and_traffic_never_panic() {
    let (mut random, seed) = Random::seeded(2300);
    println!("seed {seed}");
    let (mut translated, mut alerts) = (0, 0);
    for _ in 0..4000 {
        let (rules, found) = ids::rules(&broken(&mut random));
        translated += rules;
        alerts += found;
    }
    println!("{translated} translated, {alerts} alerts");
    assert!(translated > 500 && alerts > 10, "{translated} translated, {alerts} alerts");
}
