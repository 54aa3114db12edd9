//! The FTP tracker on captures: the data connections that it announces, and that it recognises
//! every frame of those that arrive. The corpus records the content of its own captures; the
//! content of the others was counted with another program.

use fyke_capture::{Next, Source, open_file};
use fyke_testkit::corpus::Corpus;
use fyke_testkit::generate::ftp;
use fyke_track::{Event, Ftp, Limits, Tracker};
use std::path::{Path, PathBuf};

/// File, announcements by the server, by the client, not understood, data connections that came, their frames.
/// Counted with tshark's FTP dissector and its TCP conversations.
const EXPECTED: &[(&str, [u64; 5])] = &[
    ("ndpi__ftp-start-tls.pcap", [1, 0, 0, 0, 0]),
    ("ndpi__ftp.pcap", [2, 0, 0, 2, 141]),
    ("sanders__wrongdissector.pcapng", [0, 0, 0, 0, 0]),
    ("suricata__bug-3519.pcap", [0, 2, 0, 0, 0]),
    ("suricata__bug-4877.pcap", [0, 4, 0, 4, 356]),
    ("suricata__ftp-active-dynamic_port.pcap", [0, 1, 0, 0, 0]),
    ("suricata__ftp-ippair-leak-5204.pcap", [0, 20, 0, 20, 160]),
    ("suricata__ftp-retr-bypass-realserver.pcap", [0, 0, 0, 0, 0]),
    ("suricata__ftp-too-long-command.pcap", [1, 0, 0, 0, 0]),
    ("suricata__ftp-too-long-response.pcap", [0, 0, 1, 0, 0]),
    ("suricata__ftp-upload-active.pcap", [0, 3, 0, 3, 24]),
    ("suricata__ftp-upload-passive.pcap", [3, 0, 0, 3, 24]),
    ("suricata__output-eve-ftp-data.pcap", [0, 2, 0, 2, 16]),
    ("zeek__bigtransfer.pcap", [2, 0, 0, 2, 34]),
    ("zeek__bruteforce.pcap", [0, 0, 0, 0, 0]),
    ("zeek__cwd-navigation.pcap", [689, 0, 0, 0, 0]),
    ("zeek__fake-long-commands.pcap", [0, 0, 2, 0, 0]),
    ("zeek__fake-server-delays-all.pcap", [0, 0, 2, 0, 0]),
    ("zeek__ftp-missing-space-after-reply-code.pcap", [0, 0, 0, 0, 0]),
    ("zeek__fragmented-3.pcap", [0, 0, 0, 0, 0]),
    ("zeek__ipv6-multiline-reply.pcap", [1, 0, 0, 0, 0]),
    ("zeek__pe-single.pcap", [5, 0, 0, 1, 57]),
    ("zeek__pe.pcap", [5, 0, 0, 5, 469]),
    ("zeek__retr.pcap", [1, 0, 0, 1, 24]),
];

/// Captures and their content.
fn expected(corpus: &Corpus) -> Vec<(PathBuf, [u64; 5])> {
    let own = ftp::captures().into_iter().map(|(name, _, counts)| {
        let ftp::FtpCounts { passive, active, malformed, connections, frames } = counts;
        (corpus.own("ftp").join(name), [passive, active, malformed, connections, frames])
    });
    let shared = EXPECTED
        .iter()
        .filter_map(|(name, counts)| Some((corpus.shared("traces/ftp")?.join(name), *counts)));
    own.chain(shared).collect()
}

#[test]
fn every_announcement_and_every_data_frame_is_found() {
    for (path, expected) in expected(&Corpus::open()) {
        let name = path.display();
        let mut source = open_file(&path).unwrap();
        let mut ftp = Ftp::default();
        let mut events = Vec::new();
        while let Next::Frames(batch, _) = source.next().unwrap() {
            for frame in batch.frames() {
                ftp.frame(frame, &mut events);
            }
        }
        ftp.expire(u64::MAX, &mut events);
        let counters = ftp.counters();
        let closed: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Close(closed) => Some(closed),
                Event::Open(_) => None,
            })
            .collect();
        let came: Vec<_> = closed.iter().filter(|closed| closed.frame_count > 0).collect();
        assert!(came.iter().all(|closed| closed.from_syn), "{name}: the opening SYN is seen");
        let found = [
            counters.passive_replies,
            counters.active_commands,
            counters.malformed,
            came.len() as u64,
            came.iter().map(|closed| closed.frame_count).sum(),
        ];
        assert_eq!(found, expected, "{name}: {counters:?}");
        assert_eq!(closed.len() * 2, events.len(), "{name}: every connection is closed once");
    }
}

#[test]
fn control_connections_may_use_another_port() {
    let corpus = Corpus::open();
    other_port(&corpus.own("ftp/port-443.pcap"), ("10.0.0.2", 50_000));
    if let Some(path) = corpus.shared("traces/ftp/sanders__wrongdissector.pcapng") {
        other_port(&path, ("192.168.0.53", 1_101));
    }
}

/// The first data connection that the capture's control connection on port 443 announces.
fn other_port(path: &Path, (address, port): (&str, u16)) {
    let mut source = open_file(path).unwrap();
    let mut ftp = Ftp::new(443, Limits::default());
    assert_eq!(ftp.start_filter(), "tcp port 443");
    let mut events = Vec::new();
    while let Next::Frames(batch, _) = source.next().unwrap() {
        for frame in batch.frames() {
            ftp.frame(frame, &mut events);
        }
    }
    let Some(Event::Open(open)) = events.first() else { panic!("{events:?}") };
    assert_eq!((open.server.to_string().as_str(), open.port), (address, port));
    assert!(ftp.counters().data_frames > 0);
}
