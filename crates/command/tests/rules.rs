//! `fyke rules` end to end: the pre-filter of a dump on the loopback interface of a network namespace.

use fyke_testkit::namespace::Script;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Datagrams to two ports while the pre-filter is off, accepts one of them, is negative, and is reset: the file
/// contains exactly the frames that the rules permit, and the counts add up.
#[test]
fn rules_come_and_go_while_a_dump_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        set -eu
        ip link set lo up
        "$FYKE" dump -i lo -w out.pcapng udp 2> log &
        dump=$!
        answers
        send() { for i in $(seq 50); do echo x > /dev/udp/127.0.0.1/$1; done; }
        both() { send 5001; send 5002; sleep 0.3; }
        both
        "$FYKE" rules lo +ip=127.0.0.1,port=5001 > /dev/null
        "$FYKE" rules lo enable 1 > /dev/null
        both
        "$FYKE" rules lo > listed
        "$FYKE" rules lo negative 1 > /dev/null
        both
        "$FYKE" rules lo -ip=127.0.0.1,port=5001 > /dev/null
        "$FYKE" rules lo negative 0 > /dev/null
        both
        "$FYKE" rules lo +proto=udp > /dev/null
        "$FYKE" rules lo reset > emptied
        "$FYKE" rules lo enable 0 > /dev/null
        both
        set +e
        "$FYKE" rules lo +port=99999 2> wrong; echo $? > status
        "$FYKE" rules nowhere list 2>> wrong; echo $? >> status
        set -e
        "$FYKE" ctl --json stats > stats
        kill -INT $dump
        wait $dump
    "#;
    let Some(output) = Script::new(FYKE, folder.path()).run(script) else { return };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), read("log"));
    let count = |expression: &str| {
        let out = folder.path().join("out.pcapng");
        let arguments = ["dump", "--count", "-r", out.to_str().unwrap(), expression];
        let output = Command::new(FYKE).args(arguments).output().unwrap();
        text(&output.stdout).trim().parse::<u32>().unwrap()
    };
    // Off, matching, not matching; without a rule every frame passes; off again.
    assert_eq!(count("udp dst port 5001"), 50 + 50 + 50 + 50, "{}", read("log"));
    assert_eq!(count("udp dst port 5002"), 50 + 50 + 50 + 50, "{}", read("log"));
    assert!(read("listed").contains("+ip=127.0.0.1,port=5001"), "{}", read("listed"));
    assert!(!read("emptied").contains("proto=udp"), "{}", read("emptied"));
    assert_eq!(read("status"), "2\n1\n", "{}", read("wrong"));
    assert!(read("wrong").contains('^') && read("wrong").contains("no fyke"), "{}", read("wrong"));
    let stats: serde_json::Value = serde_json::from_str(&read("stats")).unwrap();
    let number = |name: &str| stats["accounting"][name].as_u64().unwrap();
    assert_eq!(number("seen"), number("delivered") + number("rejected"), "{stats}");
    assert_eq!(number("delivered"), 400, "{stats}");
}
