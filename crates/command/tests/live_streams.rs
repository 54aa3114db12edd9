//! Streams of a live capture: bytes after a gap are delivered after `gap` seconds, even if no further frame arrives.

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;

/// Sends three segments, of which the second is lost, and nothing after them; checks while the capture still runs.
const SCRIPT: &str = r#"
    set -eu
    veth
    "$FYKE" run --no-control \
        '(device,far) > (tcp,gap=1,payload=y) > (strsearch,needle) > (tofile,pieces.pcapng,flush=y)' &
    id=$!
    wait_for test -s pieces.pcapng
    sleep 0.5
    "$FYKE" run --no-control '(pcapin,segments.pcap) > (tointerface,near)'
    one_piece() { [ "$("$FYKE" dump --count -r pieces.pcapng)" = 1 ]; }
    wait_for one_piece
    "$FYKE" dump --count -r pieces.pcapng > while-it-runs
    kill -0 $id
    kill -INT $id
    wait $id

    # The same with the frames of the conversation, which no further frame releases.
    "$FYKE" run --no-control \
        '(device,far) > (tcp,gap=1) > (strsearch,needle,stream=y,conversation=y) >
            (tofile,frames.pcapng,flush=y)' &
    id=$!
    wait_for test -s frames.pcapng
    sleep 0.5
    "$FYKE" run --no-control '(pcapin,segments.pcap) > (tointerface,near)'
    three_frames() { [ "$("$FYKE" dump --count -r frames.pcapng)" = 3 ]; }
    wait_for three_frames
    kill -0 $id
    kill -INT $id
    wait $id
"#;

#[test]
fn bytes_behind_a_gap_go_on_while_nothing_comes() {
    let folder = tempfile::tempdir().unwrap();
    let segment = |sequence: u32, flags: u8, payload: &[u8]| {
        let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 80);
        packet.seq_ack(sequence, 0).flags(flags).payload(payload).build()
    };
    let segments =
        [segment(99, 0x02, b""), segment(100, 0x18, b"hay"), segment(110, 0x18, b"needle")];
    std::fs::write(folder.path().join("segments.pcap"), pcap::file(1, &segments)).unwrap();
    let namespace = Script::new(env!("CARGO_BIN_EXE_fyke"), folder.path()).as_root();
    let Some(output) = namespace.run(SCRIPT) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let pieces = std::fs::read_to_string(folder.path().join("while-it-runs")).unwrap();
    assert_eq!(pieces.trim(), "1", "{said}");
}
