//! Records of `fyke ids`: one line for each flow, message or handshake, as tshark reads them.

use fyke_testkit::corpus::Corpus;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

const FOLDERS: [&str; 5] = ["encapsulation", "mixed", "tcp-streams", "pcapng", "ipv6"];
const KINDS: &str = "flow,dns,tls,http,stats";

/// Lines of `fyke ids` with these records of a capture, judged by a rule that never matches.
fn records(capture: &Path, kinds: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("my.rules");
    std::fs::write(&rules, "alert tcp any any -> any any (ttl:0; seq:4294967295; sid:1;)\n")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fyke"));
    command.args(["ids", "--eve", "-", "--records", kinds, "-S"]).arg(rules).arg("-r").arg(capture);
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
        let all = records(&capture, KINDS);
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

/// Parts of the names of captures that are compared with tshark, which is slow.
const COMPARED: [&str; 4] = ["dns", "http", "tls", "https"];
const MOST: usize = 14;

#[test]
fn hellos_names_and_requests_are_those_that_tshark_reads() {
    let corpus = Corpus::open();
    let all = FOLDERS.iter().flat_map(|folder| corpus.traces(folder));
    let named = all.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().to_lowercase();
        COMPARED.iter().any(|part| name.contains(part))
    });
    let filter = "(tls.handshake.type == 1 && tcp && !tcp.analysis.retransmission) || (dns.flags.response == 0 && \
                  udp.port == 53 && dns.count.queries == 1 && !icmp && !icmpv6) || (http.request && http.host && tcp)";
    let fields = [
        "tls.handshake.ja3",
        "tls.handshake.extensions_server_name",
        "dns.qry.name",
        "http.request.method",
        "http.host",
    ];
    let (mut known, mut unknown) = (0, 0);
    for capture in named.take(MOST) {
        let Some(theirs) = tshark(&capture, filter, &fields) else {
            println!("skipped: no tshark");
            return;
        };
        let ours = records(&capture, "dns,tls,http");
        let own: BTreeSet<Vec<String>> = ours
            .iter()
            .map(|one| match text(&one["event_type"]).as_str() {
                "tls" => vec![text(&one["tls"]["ja3"]["hash"]), text(&one["tls"]["sni"])],
                "dns" => vec![text(&one["dns"]["type"]), text(&one["dns"]["rrname"])],
                _ => vec![text(&one["http"]["http_method"]), text(&one["http"]["hostname"])],
            })
            .collect();
        for line in theirs {
            let wanted = match (&*line[0], &*line[2]) {
                ("", "") => {
                    let host = line[4].split(':').next().unwrap_or_default().to_lowercase();
                    vec![line[3].clone(), host]
                }
                ("", name) => vec!["query".to_owned(), name.replace("<Root>", "")],
                (ja3, _) => vec![ja3.to_owned(), line[1].clone()],
            };
            match own.contains(&wanted) {
                true => known += 1,
                false => {
                    unknown += 1;
                    println!("{}: {wanted:?} is not recorded", capture.display());
                }
            }
        }
    }
    println!("{known} messages of tshark are recorded, {unknown} are not");
    assert!(known > 10 * unknown, "{known} known, {unknown} not");
    assert!(known > 0 || corpus.shared("traces").is_none());
}
