//! Records of `fyke ids`: one line for each flow, message or handshake, as tshark reads them.

use fyke_testkit::corpus::Corpus;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

const FOLDERS: [&str; 5] = ["encapsulation", "mixed", "tcp-streams", "pcapng", "ipv6"];
const KINDS: &str = "flow,dns,tls,http,stats";

/// Lines of `fyke ids` with these records of a capture, judged by a rule that never matches.
fn records(capture: &Path, kinds: &str, more: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("my.rules");
    std::fs::write(&rules, "alert tcp any any -> any any (ttl:0; seq:4294967295; sid:1;)\n")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.args(["ids", "--eve", "-", "--records", kinds, "-S"]).arg(rules).arg("-r").arg(capture);
    command.args(more);
    let output = command.stdin(Stdio::null()).output().expect("fyke runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{}: {error}", capture.display());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn of<'r>(all: &'r [Value], kind: &str) -> Vec<&'r Value> {
    all.iter().filter(|one| one["event_type"] == kind).collect()
}

/// Lines of tshark with these fields of the frames that pass a filter; none without tshark.
fn tshark(capture: &Path, filter: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Y", filter, "-T", "fields", "-E", "separator=|", "-r"]).arg(capture);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn every_flow_has_a_record_and_the_counters_close() {
    let corpus = Corpus::open();
    let mut flows = 0;
    for capture in corpus.traces("tcp-streams").into_iter().chain(corpus.traces("mixed")).take(12) {
        let all = records(&capture, KINDS, &[]);
        let stats = of(&all, "stats").pop().unwrap()["stats"].clone();
        let count = |name: &str| stats[name].as_u64().unwrap();
        let parts = ["judged", "fragments", "wrong_checksum", "without_ip"].map(count);
        assert_eq!(count("frames"), parts.iter().sum::<u64>(), "{}", capture.display());
        let own = of(&all, "flow");
        assert_eq!(own.len() as u64, count("flows"), "{}", capture.display());
        for flow in &own {
            let packets = |name: &str| flow["flow"][name].as_u64().unwrap();
            assert!(packets("pkts_toserver") + packets("pkts_toclient") > 0, "{flow}");
            assert!(flow["flow_id"].is_u64() && flow["proto"].is_string(), "{flow}");
        }
        flows += own.len();
    }
    println!("{flows} flows");
}

/// Parts of the names of captures that are compared with tshark, which is slow; all others that may have a message are
/// compared, too, with `FYKE_FULL=1`.
const COMPARED: [&str; 4] = ["dns", "http", "tls", "https"];
const MOST: usize = 14;
const FILTER: &str = "tcp && !tcp.analysis.retransmission && (tls.handshake.type == 1 || tls.handshake.type == 2 || \
    http.request || http.response) || (udp.port == 53 && dns.count.queries == 1 && !icmp && !icmpv6)";
const FIELDS: [&str; 12] = [
    "tls.handshake.ja3",
    "tls.handshake.extensions_server_name",
    "tls.handshake.ja3s",
    "http.request.method",
    "http.host",
    "http.request.uri",
    "http.user_agent",
    "http.response.code",
    "dns.flags.response",
    "dns.qry.name",
    "dns.a",
    "dns.count.add_rr",
];

/// True for a capture in which HTTP, TLS or DNS may be.
fn may_have_messages(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap_or_default();
    let name = path.file_name().unwrap().to_string_lossy().to_lowercase();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    name.contains("dns") || has(b"HTTP/1.") || has(b"\x16\x03\x01") || has(b"\x16\x03\x03")
}

/// The captures to compare.
fn compared(corpus: &Corpus) -> Vec<std::path::PathBuf> {
    if std::env::var_os("FYKE_FULL").is_some() {
        let whole = |path: &std::path::PathBuf| !path.to_string_lossy().contains("/malformed/");
        let all = corpus.traces("").into_iter().filter(whole);
        return all.filter(|path| may_have_messages(path)).collect();
    }
    let named = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().to_lowercase();
        COMPARED.iter().any(|part| name.contains(part))
    };
    let all = FOLDERS.iter().flat_map(|folder| corpus.traces(folder));
    all.filter(named).take(MOST).collect()
}

/// The messages in a record: each with its kind and the fields that tshark has, too.
fn own_messages(one: &Value) -> Vec<Vec<String>> {
    let field = |pointer: &str| text(one.pointer(pointer).unwrap_or(&Value::Null));
    match text(&one["event_type"]).as_str() {
        "tls" => vec![
            vec!["hello".to_owned(), field("/tls/ja3/hash"), field("/tls/sni")],
            vec!["server hello".to_owned(), field("/tls/ja3s/hash")],
        ],
        "dns" if field("/dns/type") == "query" => {
            vec![vec!["query".to_owned(), field("/dns/rrname")]]
        }
        "dns" => {
            let answers = one["dns"]["answers"].as_array().cloned().unwrap_or_default();
            let of_type = answers.iter().filter(|answer| answer["rrtype"] == "A");
            let addresses: Vec<String> = of_type.map(|answer| text(&answer["rdata"])).collect();
            vec![vec!["answer".to_owned(), field("/dns/rrname"), addresses.join(",")]]
        }
        _ => {
            let status = one["http"]["status"].as_u64().map(|code| code.to_string());
            let request = ["http_method", "hostname", "url", "http_user_agent"];
            let request = request.map(|name| text(&one["http"][name]));
            vec![
                [&["request".to_owned()][..], &request].concat(),
                vec!["status".to_owned(), status.unwrap_or_default()],
            ]
        }
    }
}

/// The messages in a line of tshark. URIs that a server reads differently from how they are written are left out.
fn their_messages(line: &[String]) -> Vec<Vec<String>> {
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let [ja3, sni, ja3s, method, host, uri, agent, code, response, name, addresses, more] =
        line[..]
    else {
        return Vec::new();
    };
    // Several messages in one frame.
    if [ja3, ja3s, method, code].iter().any(|field| field.contains(',')) {
        return Vec::new();
    }
    let mut found: Vec<Vec<&str>> = Vec::new();
    if !ja3.is_empty() {
        found.push(vec!["hello", ja3, sni]);
    }
    if !ja3s.is_empty() {
        found.push(vec!["server hello", ja3s]);
    }
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).to_lowercase();
    let is_plain = uri.starts_with('/')
        && !["%", "/.", "//", "\\", ",", "+"].iter().any(|odd| uri.contains(odd));
    if !method.is_empty() && is_plain && !agent.contains(['\\', '"']) {
        found.push(vec!["request", method, &host, uri, agent]);
    }
    if !code.is_empty() {
        found.push(vec!["status", code]);
    }
    let name = name.replace("<Root>", "");
    match response {
        "" => {}
        "0" | "False" => found.push(vec!["query", &name]),
        // tshark's list has the addresses of all sections.
        _ if more != "0" => {}
        _ => found.push(vec!["answer", &name, addresses]),
    }
    found.into_iter().map(|one| one.into_iter().map(str::to_owned).collect()).collect()
}

#[test]
fn hellos_names_and_requests_are_those_that_tshark_reads() {
    let corpus = Corpus::open();
    let mut counts: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let captures = compared(&corpus);
    for capture in &captures {
        let Some(theirs) = tshark(capture, FILTER, &FIELDS) else {
            println!("skipped: no tshark");
            return;
        };
        // As tshark: connections without a beginning count, and so do wrong checksums.
        let ours = records(capture, "dns,tls,http", &["--midstream", "--checksums", "no"]);
        let own: BTreeSet<Vec<String>> = ours.iter().flat_map(own_messages).collect();
        for wanted in theirs.iter().flat_map(|line| their_messages(line)) {
            let (known, unknown) = counts.entry(wanted[0].clone()).or_default();
            match own.contains(&wanted) {
                true => *known += 1,
                false => {
                    *unknown += 1;
                    println!("{}: {wanted:?} is not recorded", capture.display());
                }
            }
        }
    }
    println!(
        "{} captures; messages of tshark that are recorded, and that are not: {counts:?}",
        captures.len()
    );
    for (kind, (known, unknown)) in &counts {
        assert!(known > &(10 * unknown), "{kind}: {known} known, {unknown} not");
    }
    assert!(counts.len() >= 5 || corpus.shared("traces").is_none(), "{counts:?}");
}

/// Alerts of `fyke ids` on a capture: sid and number of alerts.
fn alerts(capture: &Path, rules: &str) -> BTreeMap<u64, u32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.rules");
    std::fs::write(&path, rules).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.args(["ids", "--eve", "-", "--midstream", "--checksums", "no", "-S"]).arg(&path);
    let output = command.arg("-r").arg(capture).stdin(Stdio::null()).output().expect("fyke runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !error.contains("refused"), "{rules}{error}");
    let mut found = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        *found.entry(line["alert"]["signature_id"].as_u64().unwrap()).or_default() += 1;
    }
    found
}

/// Rules with the names of hellos and answers that are recorded match the capture, and other names do not.
#[test]
fn names_that_are_recorded_are_found_by_rules() {
    let corpus = Corpus::open();
    let mut counts = BTreeMap::<&str, u32>::new();
    for capture in compared(&corpus) {
        let ours = records(&capture, "dns,tls", &["--midstream", "--checksums", "no"]);
        let mut wanted = BTreeSet::new();
        for one in &ours {
            for (buffer, pointer) in [
                ("ja3.hash", "/tls/ja3/hash"),
                ("ja3.string", "/tls/ja3/string"),
                ("ja3s.hash", "/tls/ja3s/hash"),
                ("ja4.hash", "/tls/ja4"),
                ("tls.cert_fingerprint", "/tls/fingerprint"),
                ("dns.answers.rrname", "/dns/answers/0/rrname"),
                ("dns.queries.rrname", "/dns/rrname"),
            ] {
                let name = text(one.pointer(pointer).unwrap_or(&Value::Null));
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_,.".contains(&byte);
                let name = name.replace(':', "|3a|");
                if !name.is_empty() && name.bytes().all(|byte| is_plain(byte) || byte == b'|') {
                    wanted.insert((buffer, name));
                }
            }
        }
        let mut rules = String::new();
        for (sid, (buffer, name)) in (1..).step_by(2).zip(&wanted) {
            let head = format!("alert ip any any -> any any ({buffer}; content:\"{name}");
            rules += &format!("{head}\"; startswith; endswith; sid:{sid};)\n");
            rules += &format!("{head}~\"; sid:{};)\n", sid + 1);
        }
        if rules.is_empty() {
            continue;
        }
        let found = alerts(&capture, &rules);
        for (sid, (buffer, name)) in (1..).step_by(2).zip(&wanted) {
            assert!(found.contains_key(&sid), "{}: {buffer} {name}", capture.display());
            assert!(!found.contains_key(&(sid + 1)), "{}: {buffer} {name}", capture.display());
            *counts.entry(buffer).or_default() += 1;
        }
    }
    println!("names found by rules: {counts:?}");
    assert!(counts.len() >= 5 || corpus.shared("traces").is_none(), "{counts:?}");
}
