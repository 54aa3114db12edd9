//! Live tracking with data directly after its announcement: with look-back nothing is missed; without it, what is
//! missed is counted for each protocol.

#[path = "../../track/tests/samples/mod.rs"]
mod samples;

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use std::path::Path;
use std::process::Command;

const FYKE: &str = env!("CARGO_BIN_EXE_fyke");

/// Sends a conversation as fast as the machine does, to a tracker with look-back and to one without it.
const SCRIPT: &str = r#"
    set -eu
    veth
    "$FYKE" track $PROTOCOL -i far -w with.pcapng 2> with.log &
    one=$!
    "$FYKE" track $PROTOCOL -i far -w without.pcapng --no-look-back 2> without.log &
    two=$!
    for id in $one $two; do wait_for "$FYKE" ctl --pid $id show; done
    send in.pcap
    sleep 0.5
    kill -INT $one $two
    wait $one $two
"#;

fn count(folder: &Path, name: &str) -> usize {
    let mut command = Command::new(FYKE);
    let output = command.args(["dump", "--count", "-r", name]).current_dir(folder).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn nothing_is_missed_with_look_back_and_what_is_missed_without_it_is_counted() {
    for sample in samples::all() {
        let folder = tempfile::tempdir().unwrap();
        let frames = samples::build(&sample.sent, &Packet::ethernet);
        std::fs::write(folder.path().join("in.pcap"), pcap::file(1, &frames)).unwrap();
        let script = Script::new(FYKE, folder.path()).env("PROTOCOL", sample.protocol);
        let Some(output) = script.run(SCRIPT) else { return };
        let log =
            |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), log("with.log"));
        assert!(output.status.success(), "{}: {said}", sample.protocol);
        let all = sample.sent.len();
        let data = sample.sent.iter().filter(|one| one.is_data).count();
        assert_eq!(count(folder.path(), "with.pcapng"), all, "{}: {said}", sample.protocol);
        let missed = all - count(folder.path(), "without.pcapng");
        assert!(missed <= data, "{}: signalling was missed too", sample.protocol);
        println!("{}: {missed} of {data} frames of data missed without look-back", sample.protocol);
    }
}
