//! `fyke web` over TLS: the page for other machines, with a certificate of an authority of the test.
#![cfg(feature = "web")]

mod common;
#[path = "common/web.rs"]
mod served;

use common::{FYKE, folder, inside, send, tool, veth};
use fyke_testkit::browser::Browser;
use fyke_testkit::certificates::{Authority, Certificate};
use serde_json::json;
use served::{Web, capture, client, stats};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};

const AT: &str = "10.9.0.1";

/// An authority, and a certificate of this machine. `None`, with a `skipped:` line, without openssl.
fn certificates(folder: &Path) -> Option<(Authority, Certificate)> {
    if !Authority::is_possible() {
        println!("skipped: no openssl (Debian's package openssl)");
        return None;
    }
    let authority = Authority::new(folder, "authority");
    let own = authority.sign("page", "DNS:fyke.example,IP:10.9.0.1");
    Some((authority, own))
}

/// Starts `fyke web` at an address that is none of loopback's.
fn start(authority: &Authority, own: &Certificate, more: &[&str]) -> Web {
    tool("ip address add 10.9.0.1/32 dev lo");
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    let words = ["--listen", "10.9.0.1:0", "--tls-cert", certificate, "--tls-key", key];
    let mut web = Web::start(&[&words[..], more].concat());
    assert_eq!(web.host, AT);
    web.tls = Some(client(&authority.file(), None));
    web
}

#[test]
fn a_page_over_tls_has_the_counts_and_edits() {
    if !inside("a_page_over_tls_has_the_counts_and_edits") {
        return;
    }
    let (folder, path) = folder();
    let Some((authority, own)) = certificates(folder.path()) else { return };
    veth();
    let mut running = capture(&path("out.pcapng"));
    let pid = running.child.id();
    let web = start(&authority, &own, &[]);
    web.running.hear("other machines reach this page at 10.9.0.1:");
    let (status, page) = web.request("GET /", &[], b"");
    assert!(status == 200 && page.contains("<title>fyke</title>") && !page.contains(&web.token));
    send(20, 20);
    running.settle(20);
    assert_eq!(web.call(pid, &json!({"request": "stats"}))["accounting"]["seen"], 20);
    let mut socket = web.open_with_token().ok().unwrap();
    socket.ask(json!({"subscribe": [pid]}));
    web.call(pid, &json!({"request": "add", "text": "udp port 5002"}));
    socket.next(|it| it["event"] == "counts" && it["counts"]["epoch"] == 2);
    assert_eq!(stats(&running)["epoch"], 2);
    // The names are those of the certificate and the address; the origin has the scheme.
    let secret = format!("Bearer {}", web.token);
    let body = json!({"pid": pid, "request": {"request": "stats"}}).to_string();
    let named = format!("fyke.example:{}", web.port);
    for (name, value, wanted) in [
        ("Host", named.clone(), 200),
        ("Host", format!("other.example:{}", web.port), 421),
        ("Host", format!("127.0.0.1:{}", web.port), 421),
        ("Host", "fyke.example".to_owned(), 421),
        ("Origin", format!("https://{}", web.place()), 200),
        ("Origin", format!("http://{}", web.place()), 403),
        ("Origin", format!("https://{named}"), 403),
    ] {
        let own = [("Authorization", secret.as_str()), ("Content-Type", "application/json")];
        let headers = [&own[..], &[(name, value.as_str())]].concat();
        let given = web.request("POST /api/call", &headers, body.as_bytes());
        assert_eq!(given.0, wanted, "{name}: {value}: {}", given.1);
    }
    let wrong = [("Authorization", "Bearer 0"), ("Content-Type", "application/json")];
    assert_eq!(web.request("POST /api/call", &wrong, body.as_bytes()).0, 401);
    socket.send_frame(0x88, &[]).unwrap();
    assert_eq!(socket.close_status(), Some(1000));
    running.signal("INT");
    assert!(running.end().success());
    let said = web.end();
    assert!(!said.contains("handshake"), "every client completed it: {said}");
}

#[test]
fn clients_without_tls_get_an_answer_and_take_no_place() {
    if !inside("clients_without_tls_get_an_answer_and_take_no_place") {
        return;
    }
    let (folder, path) = folder();
    let Some((authority, own)) = certificates(folder.path()) else { return };
    veth();
    let mut running = capture(&path("out.pcapng"));
    let pid = running.child.id();
    let mut web = start(&authority, &own, &[]);
    let mut socket = web.open_with_token().ok().unwrap();
    // Plain HTTP: a clear end, with a body that is longer than what the server reads of it.
    let tls = web.tls.take();
    for (head, body) in [("GET /", &b""[..]), ("POST /api/call", &[b' '; 60_000])] {
        let (status, text) = web.request(head, &[], body);
        assert!(status == 400 && text.contains("over TLS only"), "{status}: {text}");
    }
    // Bytes that are no handshake end the connection at once.
    let mut broken = web.connect();
    broken.write_all(b"\x16\x03\x01\x00\x04nope").unwrap();
    let closed = broken.read_to_end(&mut Vec::new());
    assert!(!closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    // Hundreds that send nothing, or a part of a handshake, leave the others their places.
    let silent: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = web.connect();
            let text: &[u8] = if number % 2 == 0 { b"" } else { b"\x16\x03\x01\x02\x00\x01" };
            let _closed = stream.write_all(text);
            stream
        })
        .collect();
    web.tls = tls;
    for _ in 0..3 {
        assert_eq!(web.call(pid, &json!({"request": "stats"}))["response"], "stats");
    }
    assert_eq!(socket.call(pid, json!({"request": "stats"}))["response"], "stats");
    // Each is closed: by a newer connection, or when its time for the handshake is over.
    for mut stream in silent {
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        let waits = closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!waits, "a connection without a handshake is open after a minute");
    }
    running.signal("INT");
    assert!(running.end().success());
    let said = web.end();
    assert!(said.contains("303 connections did not complete the handshake of TLS"), "{said}");
}

#[test]
fn clients_need_a_certificate_if_an_authority_is_given() {
    if !inside("clients_need_a_certificate_if_an_authority_is_given") {
        return;
    }
    let (folder, _path) = folder();
    let Some((authority, own)) = certificates(folder.path()) else { return };
    let other = Authority::new(folder.path(), "other");
    let (known, stranger) = (authority.sign("anna", "DNS:anna"), other.sign("eve", "DNS:eve"));
    let file = authority.file();
    let mut web = start(&authority, &own, &["--tls-client-ca", file.to_str().unwrap()]);
    for (client_certificate, wanted) in [(None, 0), (Some(&stranger), 0), (Some(&known), 200)] {
        web.tls = Some(client(&authority.file(), client_certificate));
        assert_eq!(web.request("GET /", &[], b"").0, wanted, "{client_certificate:?}");
    }
    // The certificate does not replace the token.
    let headers = [("Content-Type", "application/json")];
    assert_eq!(web.request("POST /api/call", &headers, b"{}").0, 401);
    assert_eq!(web.post("/api/call", "application/json", b"{}").0, 400);
    let said = web.end();
    assert!(said.contains("2 connections did not complete the handshake of TLS"), "{said}");
}

#[test]
fn a_browser_shows_the_page_over_tls() {
    if !inside("a_browser_shows_the_page_over_tls") {
        return;
    }
    let (folder, path) = folder();
    let Some((authority, own)) = certificates(folder.path()) else { return };
    let Some(mut browser) = Browser::start(&path("profile")) else { return };
    veth();
    let mut running = capture(&path("out.pcapng"));
    let web = start(&authority, &own, &[]);
    // It does not know the authority of the test.
    browser.trust_any_certificate();
    browser.open(&web.url());
    browser.wait_for("document.body.dataset.state === 'runs'");
    send(20, 20);
    running.settle(20);
    browser
        .wait_for("document.getElementById('sum').textContent.startsWith('20 seen = 10 accepted')");
    browser.value(&format!(
        "{{ window.socket = new WebSocket('wss://' + location.host + '/api/socket', ['fyke', '{}']); }}",
        web.token
    ));
    browser.wait_for("socket.readyState === 1");
    running.signal("INT");
    assert!(running.end().success());
    web.end();
}

fn refused(words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(FYKE).arg("web").args(words).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn wrong_files_and_open_addresses_are_refused_by_name() {
    let (folder, path) = folder();
    let (code, said) = refused(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("0.0.0.0:0 can be reached by other machines"), "{said}");
    assert!(said.contains("--tls-cert FILE --tls-key FILE"), "{said}");
    let (code, said) = refused(&["--tls-cert", "x.pem"]);
    assert!(code == Some(2) && said.contains("--tls-key"), "{said}");
    let missing = path("missing.pem");
    let missing = missing.to_str().unwrap();
    let (code, said) = refused(&["--tls-cert", missing, "--tls-key", missing]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{missing}: No such file")), "{said}");
    let Some((authority, own)) = certificates(folder.path()) else { return };
    let other = authority.sign("other", "DNS:other.example");
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    let other = other.key.to_str().unwrap();
    for (given, parts) in [
        ([certificate, other], [certificate, other, "the private key that it was made for"]),
        ([key, key], [key, "has no certificate (PEM)", "BEGIN CERTIFICATE"]),
        ([certificate, certificate], [certificate, "has no private key (PEM)", "PRIVATE KEY"]),
    ] {
        let (code, said) = refused(&["--tls-cert", given[0], "--tls-key", given[1]]);
        assert_eq!(code, Some(1), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
    }
    let (code, said) =
        refused(&["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", missing]);
    assert!(code == Some(1) && said.contains("missing.pem: No such file"), "{said}");
}

/// The printed address has a name of the certificate, if the certificate lacks the address.
#[test]
fn the_printed_address_has_a_name_of_the_certificate() {
    if !inside("the_printed_address_has_a_name_of_the_certificate") {
        return;
    }
    let (folder, _path) = folder();
    let Some((authority, _)) = certificates(folder.path()) else { return };
    let own = authority.sign("named", "DNS:*.fyke.example,DNS:localhost");
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let words = ["--listen", listen, "--tls-cert", certificate, "--tls-key", key];
        let mut web = Web::start(&words);
        assert_eq!(web.host, "localhost", "{listen}");
        web.tls = Some(client(&authority.file(), None));
        assert_eq!(web.request("GET /", &[], b"").0, 200);
        let any = format!("a.fyke.example:{}", web.port);
        assert_eq!(web.request("GET /", &[("Host", &any)], b"").0, 200);
        web.end();
    }
}
