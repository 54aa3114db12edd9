//! Responses of servers that break the rules of HTTP, as clients read them nevertheless; interim responses, pipelines,
//! answers to HEAD and trailers.

use super::*;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::io::Write;

fn body(response: &[u8], size: usize) -> Vec<String> {
    let (mut parser, mut found) = messages(false, response, size);
    parser.end(false, &mut |message| found.push(message));
    let last = found.pop().expect("a message");
    let own = last.buffers.iter().filter(|(buffer, _)| *buffer == Buffer::FileData);
    own.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
}

#[test]
fn a_body_that_is_not_in_chunks_is_judged_as_it_is() {
    for text in ["no chunk at all", "abc", "nothing\r\n4\r\nabcd\r\n0\r\n\r\n"] {
        for field in ["chunked", "x chunked", "\r chunked", "chunked\r "] {
            for size in [1, 1000] {
                let head = format!("HTTP/1.1 200 ok\r\nTransfer-Encoding: {field}\r\n\r\n{text}");
                assert_eq!(body(head.as_bytes(), size), [text], "{field}");
            }
        }
    }
    let long = "x".repeat(5000);
    let head = format!("HTTP/1.0 200 ok\r\nTransfer-Encoding: chunked\r\n\r\n{long}");
    assert_eq!(body(head.as_bytes(), 100), [long]);
    // A long line after the length means nothing.
    let head = format!(
        "HTTP/1.1 200 ok\r\nTransfer-Encoding: chunked\r\n\r\n4;{}\r\nabcd\r\n0\r\n\r\n",
        " ".repeat(3000)
    );
    assert_eq!(body(head.as_bytes(), 100), ["abcd"]);
}

#[test]
fn chunks_that_no_field_announces_are_judged_both_ways() {
    let chunks = "4\r\nabcd\r\n3\r\nefg\r\n0\r\n\r\n";
    for field in ["X: y\r\n\tTransfer-Encoding: chunked", "Transfer-Encoding\0:chunked"] {
        let head = format!("HTTP/1.1 200 ok\r\n{field}\r\n\r\n{chunks}");
        assert_eq!(body(head.as_bytes(), 7), [chunks, "abcdefg"]);
    }
    let none = "HTTP/1.1 200 ok\r\n\r\n4\r\nabcd\r\n3";
    assert_eq!(body(none.as_bytes(), 7), ["4\r\nabcd\r\n3"]);
}

#[test]
fn compressions_are_found_by_their_bytes_as_clients_do() {
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(b"a page").unwrap();
    let gzip = gzip.finish().unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    zlib.write_all(b"a page").unwrap();
    let zlib = zlib.finish().unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    raw.write_all(b"a page").unwrap();
    let raw = raw.finish().unwrap();
    let mut reserved = gzip.clone();
    reserved[3] = 0x20;
    let mut wrong_sum = gzip.clone();
    wrong_sum[3] = 2;
    wrong_sum.splice(10..10, [0, 0]);
    let mut named = gzip.clone();
    named[3] = 4 | 8 | 16;
    named.splice(10..10, *b"\x02\x00exname\0comment\0");
    let twice = [&gzip[..], &gzip].concat();
    let cut = String::from_utf8_lossy(&gzip[..9]).into_owned();
    for (field, bytes, expected) in [
        ("gzip", &gzip, "a page"),
        ("gzip", &reserved, "a page"),
        ("gzip", &wrong_sum, "a page"),
        ("gzip", &named, "a page"),
        ("gzip", &twice, "a pagea page"),
        ("gzip", &zlib, "a page"),
        ("deflate", &gzip, "a page"),
        ("deflate", &zlib, "a page"),
        ("x-deflate", &raw, "a page"),
        ("gzip\r\nContent-Encoding: deflate", &gzip, "a page"),
        ("gzip", &b"plain".to_vec(), "plain"),
        ("gzip", &gzip[..9].to_vec(), &*cut),
    ] {
        let head = format!("http/1.1 200 ok\r\nContent-Encoding: {field}\r\n\r\n");
        let all = [head.as_bytes(), bytes].concat();
        assert_eq!(body(&all, 5), [expected], "{field}");
    }
}

#[test]
fn an_unclear_length_does_not_hide_the_end_of_the_last_response() {
    for (field, expected) in [("3( 9)", "abcdef"), ("3\r\n 9", "abcdef"), ("3", "abc")] {
        let head = format!(
            "HTTP/1.1 200 ok\r\nConnection: close\r\nContent-Length: {field}\r\n\r\nabcdef"
        );
        assert_eq!(body(head.as_bytes(), 9), [expected], "{field}");
    }
    let head = "HTTP/1.1 304 ok\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(body(head.as_bytes(), 9), ["abc"]);
}

/// Status and body of each complete response.
fn answers(requests: &[u8], responses: &[u8], size: usize) -> Vec<(String, String)> {
    let (mut parser, _) = messages(true, requests, size);
    let mut found = more(&mut parser, false, responses, size);
    parser.end(false, &mut |message| found.push(message));
    let complete = found.iter().filter(|message| message.complete);
    complete
        .map(|one| (shown(one, Buffer::HttpStatusCode), shown(one, Buffer::HttpResponseBody)))
        .collect()
}

#[test]
fn interim_responses_pipelines_answers_to_head_and_trailers_are_told_apart() {
    let requests = b"POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc\
        HEAD /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\nGET /d HTTP/1.1\r\n\r\n";
    let responses = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\
        HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n\
        3\r\nyes\r\n0\r\nX: HTTP/1.1 200\r\nY: z\r\n\r\n\
        HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\n.";
    let expected =
        [("100", "-"), ("103", "-"), ("200", "hi"), ("200", "-"), ("200", "yes"), ("404", ".")];
    for size in [1, 11, 4096] {
        let found = answers(requests, responses, size);
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(found, expected, "{size}");
    }
}

#[test]
fn a_hello_in_the_form_of_ssl_2_is_tls() {
    let mut hello = vec![0x80, 9 + 6 + 16, 1, 3, 1, 0, 6, 0, 0, 0, 16];
    hello.extend([0, 0, 0x35, 1, 0, 0x80]);
    hello.extend([7; 16]);
    let next = [22, 3, 1, 0, 4, 16, 0, 0, 0];
    for size in [1, 5, 100] {
        let (parser, found) = messages(true, &[&hello[..], &next].concat(), size);
        assert_eq!(parser.application(), Some(Application::Tls));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].get(Buffer::TlsVersion), Some(&[3, 1][..]));
    }
    // Another sum of the parts, or another challenge, is something else.
    for (at, byte) in [(1, 30), (6, 5), (10, 15), (3, 2)] {
        let mut other = hello.clone();
        other[at] = byte;
        assert_eq!(messages(true, &other, 100).0.application(), None, "{at}");
    }
}
