//! `--log json`: every line that a command writes to standard error is a JSON object, errors included.

use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/readme/lan.pcap");

/// Exit code and messages.
fn messages(args: &[&str]) -> (Option<i32>, Vec<String>) {
    let output = Command::new(FYKE).args(args).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let message = |line: &str| {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object["unix_ms"].as_u64().unwrap() > 1_600_000_000_000, "{line}");
        assert_eq!(object["event"], "message", "{line}");
        object["message"].as_str().unwrap().to_owned()
    };
    (output.status.code(), told.lines().map(message).collect())
}

#[test]
fn counts_and_errors_are_objects() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let out = out.to_str().unwrap();
    let write = ["dump", "-Z", "root", "-r", FILE, "-w", out, "--stats", "--log", "json", "tcp"];
    let (code, all) = messages(&write);
    assert_eq!(code, Some(0), "{all:?}");
    let sum = "91 seen = 58 accepted + 33 rejected + 0 lost";
    assert!(all.iter().any(|one| one.contains(sum)), "{all:?}");
    let (code, all) = messages(&["--log", "json", "dump", "-r", "/no/such/file"]);
    assert_eq!(code, Some(1));
    assert!(all[0].contains("/no/such/file"), "{all:?}");
    // The caret is in the same object as the text.
    let (code, all) = messages(&["--log=json", "dump", "-r", FILE, "tcp prot 80"]);
    assert_eq!((code, all.len()), (Some(2), 1), "{all:?}");
    assert!(all[0].contains("tcp prot 80\n") && all[0].contains('^'), "{all:?}");
}

#[cfg(feature = "web")]
#[test]
fn servers_write_objects_too() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for command in ["web", "metrics"] {
        let (code, all) = messages(&[command, "--log", "json", "--listen", &address]);
        assert_eq!((code, all.len()), (Some(1), 1), "{all:?}");
        assert!(all[0].contains(&format!("cannot listen on {address}")), "{all:?}");
    }
    let (code, all) = messages(&["--log", "json", "web", "--listen", "0.0.0.0:0"]);
    assert_eq!((code, all.len()), (Some(2), 1), "{all:?}");
}

#[test]
fn a_form_that_does_not_exist_is_refused() {
    let refused = Command::new(FYKE).args(["dump", "-r", FILE, "--log", "xml"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("xml") && told.contains("json"), "{told}");
}
