//! Lines of `fyke dump` as users see them: tcpdump's, coloured ones, JSON objects, and those of damaged files.

use fyke_testkit::corpus::Corpus;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn dump(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(FYKE);
    command.args(["dump", "--no-control"]).args(args).arg("-r").arg(file);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(args: &[&str], file: &Path) -> String {
    let output = dump(args, file);
    assert!(output.status.success(), "{args:?} {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A request with an escape sequence, a packet in GTP-U, a reset, and a request for an address.
fn file(folder: &Path) -> PathBuf {
    let v4 = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let packets = [
        v4().tcp(4000, 80).flags(0x18).payload(b"GET /\"\\\x1b]0;x\x07 HTTP/1.1\r\n\r\n").build(),
        v4().gtpu_numbered(9, 1).ipv4([1; 4], [2; 4]).icmp(8, 0, 1).build(),
        v4().tcp(4000, 80).flags(0x04).build(),
        Packet::ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]).build(),
        v4().udp(4000, 161)
            .payload(
                b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x2a\x02\x01\0\x02\x01\0\
            \x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x01\0\x05\0",
            )
            .build(),
    ];
    let path = folder.join("in.pcap");
    std::fs::write(&path, pcap::file(1, &packets)).unwrap();
    path
}

#[test]
fn tcpdumps_lines_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let more = text(&["-nt"], &path);
    let same = text(&["-nt", "--like-tcpdump"], &path);
    let line = |text: &str, number: usize| text.lines().nth(number).unwrap_or("").to_owned();
    assert!(line(&more, 1).contains("GTP-U, data, teid 0x9"), "{more}");
    assert!(line(&same, 1).ends_with(".2152: UDP, length 40"), "{same}");
    assert!(line(&more, 4).ends_with(".161:  GetRequest(25)  .1.3.6.1.2.1.1.1.0"), "{more}");
    match Command::new("tcpdump").args(["-ntr"]).arg(&path).output() {
        Ok(output) => assert_eq!(same, String::from_utf8_lossy(&output.stdout)),
        Err(_) => println!("skipped: no tcpdump to compare with"),
    }
}

#[test]
fn colours_are_for_terminals() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let plain = text(&["-n"], &path);
    assert!(!plain.contains('\x1b'));
    let coloured = text(&["-n", "--color", "always"], &path);
    assert!(coloured.contains("\x1b[31mIP 10.0.0.1.4000 > 10.0.0.2.80: Flags [R]"), "{coloured}");
    assert!(coloured.contains("\x1b[33mARP, "), "{coloured}");
    let mut bare = coloured.clone();
    for code in ["0", "31", "32", "33", "35", "36", "1;32"] {
        bare = bare.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(bare, plain);
    let script = |color: &str| {
        let line = format!("{FYKE} dump --no-control -n --color {color} -r {}", path.display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        command.stdin(Stdio::null()).output()
    };
    match (script("auto"), script("never")) {
        (Ok(auto), Ok(never)) => {
            assert!(auto.stdout.contains(&0x1b), "{}", String::from_utf8_lossy(&auto.stdout));
            assert!(!never.stdout.contains(&0x1b));
        }
        _ => println!("skipped: no `script` to make a terminal"),
    }
}

/// Names of the properties, and of those required, at a place in the schema.
fn properties(schema: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let all = schema["properties"].as_object().unwrap().keys().cloned().collect();
    let required = schema["required"].as_array().unwrap();
    (all, required.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
}

fn check(object: &Value, schema: &Value) {
    let (all, required) = properties(schema);
    let names: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
    assert!(names.is_subset(&all) && required.is_subset(&names), "{object}");
}

#[test]
fn objects_are_as_the_schema_describes() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lines.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    let output = text(&["--json", "-n", "tcp or udp"], &path);
    assert!(output.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{output}");
    let objects: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 4);
    for object in &objects {
        check(object, &schema);
        let layers = object["layers"].as_array().unwrap();
        layers.iter().for_each(|layer| check(layer, &schema["properties"]["layers"]["items"]));
        assert!(object["filter"].is_u64() && object["pass"].is_u64(), "{object}");
        assert!(object["epoch"].is_u64(), "{object}");
    }
    let first = &objects[0];
    assert_eq!(first["link"], "EN10MB");
    assert_eq!(first["layers"][1]["source"], "10.0.0.1");
    assert_eq!(first["layers"][2]["destination_port"], 80);
    assert!(first["text"].as_str().unwrap().starts_with("IP 10.0.0.1.4000 > 10.0.0.2.80: "));
    let without: Value =
        serde_json::from_str(text(&["--json"], &path).lines().next().unwrap()).unwrap();
    assert!(without["filter"].is_null() && without["pass"].is_null(), "{without}");
    let refused = dump(&["--json", "-X"], &path);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn damaged_files_give_lines_or_an_error_and_no_control_characters() {
    let corpus = Corpus::open();
    let options: [&[&str]; 4] =
        [&["-n"], &["-nevvv", "--like-tcpdump"], &["-nXX", "-v"], &["--json", "-vv"]];
    let mut runs = 0;
    for path in corpus.traces("malformed") {
        for args in options {
            let output = dump(args, &path);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?} {path:?} {said}");
            let harmful = |byte: &u8| !matches!(byte, b'\n' | b'\t' | b' '..=b'~');
            assert!(!output.stdout.iter().any(harmful), "{args:?} {path:?}");
            assert!(output.status.success() || !said.is_empty(), "{args:?} {path:?}");
            runs += 1;
        }
    }
    println!("{runs} runs");
}
