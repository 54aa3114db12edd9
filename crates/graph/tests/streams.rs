//! TCP streams through a graph: strings across segments, verdicts about flows, whole conversations.

use fyke_capture::{MemorySource, Next, Source, open_file};
use fyke_frame::{Frame, LinkType};
use fyke_graph::node::{Class, Kind};
use fyke_graph::{Classes, GraphHandle, GraphView, Plan};
use fyke_testkit::packet::Packet;
use std::sync::atomic::AtomicBool;

/// Two connections with the segments `nee|dle`, late and alternating, one that resets and loses a byte, and a
/// datagram.
fn segments() -> Vec<Vec<u8>> {
    let tcp = |port: u16, sequence: u32, flags: u8, payload: &[u8]| {
        Packet::ethernet()
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .tcp(port, 80)
            .seq_ack(sequence, 0)
            .flags(flags)
            .payload(payload)
            .build()
    };
    let (syn, ack, fin) = (0x02, 0x10, 0x11);
    let udp = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"needle");
    vec![
        tcp(1, 99, syn, b""),
        tcp(2, 99, syn, b""),
        tcp(3, 99, syn, b""),
        tcp(1, 100, ack, b"hay nee"),
        tcp(2, 107, ack, b"dle hay"),
        // The other half, in another stream.
        tcp(3, 100, ack, b"dle hay"),
        tcp(1, 107, ack, b"dle hay"),
        tcp(2, 100, ack, b"hay nee"),
        udp.build(),
        tcp(1, 114, fin, b""),
        // Half of a needle, a byte that never arrives, the other half.
        tcp(3, 107, ack, b"nee"),
        tcp(3, 111, fin, b"dle"),
    ]
}

fn run(graph: &str, frames: fn() -> Vec<Vec<u8>>) -> GraphView {
    let mut source = MemorySource::new(LinkType::EN10MB);
    for (number, frame) in (1..).zip(frames()) {
        let timestamp_ns = number * 1_000_000;
        source.push(&Frame { timestamp_ns, ..Frame::new(LinkType::EN10MB, &frame) });
    }
    source.repeat(1);
    let mut classes = Classes::new();
    classes.register(Class { name: "memory", kind: Kind::Source, ..Class::NODE });
    let given = vec![("memory", fyke_graph::Made::Source(Box::new(source)))];
    let text = format!("(memory) > {graph}");
    let started = GraphHandle::start_with(&[&text], classes, given);
    let (mut engine, _) = started.unwrap_or_else(|error| panic!("{text}\n{error}"));
    engine.run(&AtomicBool::new(false)).unwrap();
    let view = engine.view();
    for node in &view.nodes {
        assert!(node.counts.is_exact() && node.failed.is_none(), "{node:?}");
    }
    view
}

#[test]
fn strings_are_found_across_segments_and_streams_are_kept_apart() {
    let graph = "[{t}(tcp, payload=y) > {s}(strsearch, needle, stream=y)] | [{t}() > {b}(bytecount)] | \
                 [{t}() > {plain}(strsearch, needle)]";
    let view = run(&graph.replacen("{t}(tcp", "{all}(accept) > {t}(tcp", 1), segments);
    let passed = |name| view.node(name).unwrap().counts.passed;
    assert_eq!((passed("s"), passed("plain")), (2, 0));
    let tcp = view.node("t").unwrap();
    assert_eq!((tcp.counts.taken, tcp.counts.rejected), (11, 1));
    let counter = |name: &str| tcp.counters.iter().find(|one| one.name == name).unwrap().value;
    assert_eq!(
        (counter("connections"), counter("gaps"), counter("missing_bytes")),
        (3.0, 1.0, 1.0)
    );
    let bytes = view.node("b").unwrap().counters[0].value;
    assert_eq!((bytes, counter("delivered_bytes")), (41.0, 41.0));
}

/// A file after `tcp` gets the pieces in order, in both formats, under their own link type.
#[test]
fn pieces_are_written_to_files_of_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let path = folder.path().join(name);
        let view = run(&format!("(tcp, payload=y) > (tofile,{})", path.display()), segments);
        let written = view.nodes.last().unwrap().counts.passed;
        let mut source = open_file(&path).unwrap();
        let mut pieces = Vec::new();
        while let Next::Frames(batch, _) = source.next().unwrap() {
            assert!(batch.frames().iter().all(|piece| piece.link == LinkType(147)), "{name}");
            pieces.extend(batch.frames().iter().map(|piece| piece.data.to_vec()));
        }
        assert_eq!(pieces.len() as u64, written, "{name}");
        let bytes = pieces.concat();
        let needle = bytes.windows(6).filter(|window| window == b"needle").count();
        assert!(written > 0 && needle > 0, "{name}: {}", String::from_utf8_lossy(&bytes));
    }
}

/// A classifier between `tcp` and a node that takes streams changes the class value but not the stream.
#[test]
fn classifiers_between_leave_streams_alone() {
    let pattern = "pattern='\"ee\" * \"dl\"', stream=y";
    let graph = format!(
        "{{t}}(tcp, payload=y) > [{{s}}(ruler, {pattern}) | \
         [{{n}}(table, key=dport, default=70000) > {{behind}}(ruler, {pattern})] | \
         [(table, key=dport, default=70000) -70000-> {{edge}}(packetcount)] | \
         [(snap, 2) > {{cut}}(strsearch, \"eed\", stream=y)]]"
    );
    let view = run(&graph, segments);
    let counts = |name| view.node(name).unwrap().counts;
    assert!(counts("s").passed > 2, "{view:?}");
    assert_eq!(counts("behind"), counts("s"));
    assert_eq!(counts("edge").passed, counts("n").passed);
    assert_eq!(counts("cut").arrived, counts("t").emitted);
}

#[test]
fn streams_are_wanted_from_tcp_only() {
    let refusal = |text: &str| {
        let text = format!("(pcapin, nowhere.pcap) > {text}");
        Plan::new(&[&text], &Classes::new()).map(drop).unwrap_err().to_string()
    };
    for text in [
        "(strsearch, needle, stream=y)",
        "(ruler, pattern='\"x\"', stream=y)",
        "[(tcp) | (accept)] > (strsearch, needle, stream=y)",
    ] {
        let said = refusal(text);
        assert!(said.contains("takes pieces of streams") && said.contains("(tcp)"), "{said}");
    }
    // No segment is in a piece.
    for text in ["(tcp, payload=y) > (tcp)", "(tcp, payload=y) > (accept) > (tcp, payload=y)"] {
        let said = refusal(text);
        assert!(said.contains("takes frames, and pieces come here"), "{said}");
    }
    for value in ["midstream=", "policy=\"linux@10.0.0.1:0\"", "policy=\"linux@10.0.0.1/8\""] {
        let text = format!("(pcapin, a.pcap) > (tcp, {value})");
        assert!(Plan::new(&[&text], &Classes::new()).is_err(), "{text}");
    }
    let text = "(pcapin, a.pcap) > (tcp) > (accept) > (strsearch, needle, stream=y)";
    assert!(Plan::new(&[text], &Classes::new()).is_ok());
    let said = refusal("(tcp) > (snap, 60) > (accept) > (strsearch, needle, stream=y)");
    assert!(said.contains("(snap, expression=60) makes other frames"), "{said}");
    for text in [
        "(tcp, payload=y) > (snap, 60) > (strsearch, needle, stream=y)",
        "(tcp) > [(accept) | (drop)] > (strsearch, needle, stream=y)",
    ] {
        let text = format!("(pcapin, a.pcap) > {text}");
        assert!(Plan::new(&[&text], &Classes::new()).is_ok(), "{text}");
    }
    let waits = "(strsearch, x, stream=y, conversation=y)";
    for (text, expected) in [
        (&*format!("(tcp) > {waits} > (ruler, pattern='\"x\"', stream=y)"), "makes other frames"),
        (&*format!("(tcp) > !{waits}"), "which lets frames wait"),
        ("(tcp) > (strsearch, x, conversation=y)", "it needs stream=y"),
        ("(tcp) > (strsearch, x, stream=y, wait=1)", "conversation=y"),
        ("(tcp, policy=dos)", "unknown policy"),
        ("(tcp, profile=tesis)", "is not one of"),
    ] {
        let said = refusal(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

/// More connections at a time than 16 bits can number.
#[test]
fn a_hundred_thousand_connections_are_told_apart() {
    fn flood() -> Vec<Vec<u8>> {
        let segment = |number: u32, sequence: u32, payload: &[u8]| {
            let [_, a, b, c] = number.to_be_bytes();
            let packet = Packet::ethernet().ipv4([10, a, b, c], [10, 0, 0, 2]).tcp(4000, 80);
            packet.seq_ack(sequence, 0).flags(0x18).payload(payload).build()
        };
        let halves = [(100, &b"nee"[..]), (103, b"dle")];
        let all = halves.iter().flat_map(|half| (0..100_000).map(move |number| (number, half)));
        all.map(|(number, (sequence, payload))| segment(number, *sequence, payload)).collect()
    }
    for form in ["", ", payload=y"] {
        let tcp = format!("{{t}}(tcp, connections=1000000{form})");
        let view = run(&format!("{tcp} > {{s}}(strsearch, needle, stream=y)"), flood);
        assert_eq!(view.node("s").unwrap().counts.passed, 100_000);
        let evicted = view.node("t").unwrap().counters.iter().find(|one| one.name == "evicted");
        assert_eq!(evicted.unwrap().value, 0.0);
    }
}

#[test]
fn rules_judge_streams_across_segments() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("end.rul");
    std::fs::write(&file, "filter end\n* \"dle hay\" => accept 7;\n").unwrap();
    let graph = format!(
        "[{{t}}(tcp, payload=y) > {{s}}(ruler, pattern='\"nee\" \"dle\"', stream=y)] | \
         [{{t}}() > {{plain}}(ruler, pattern='\"nee\" \"dle\"')] | \
         [{{t}}() > {{end}}(ruler, {}, stream=y) -7-> {{seven}}(packetcount)]",
        file.display()
    );
    let view = run(&graph, segments);
    let passed = |name| view.node(name).unwrap().counts.passed;
    // Two streams match; the piece that completes the match passes, and the end after it.
    let (streams, plain) = (passed("s"), passed("plain"));
    assert_eq!((streams, plain), (4, 0), "{view:?}");
    // A pattern for the end of the stream is decided when the stream ends, which both streams do.
    assert_eq!(passed("end"), 2, "{view:?}");
    assert_eq!(passed("seven"), 2, "the class value of their rule: {view:?}");
}

/// Indices of the frames that a graph writes, by their times.
fn written(graph: &str, frames: fn() -> Vec<Vec<u8>>) -> (Vec<u64>, GraphView) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcapng");
    let view = run(&format!("{graph} > (tofile,{})", path.display()), frames);
    let mut source = open_file(&path).unwrap();
    let mut indices = Vec::new();
    while let Next::Frames(batch, _) = source.next().unwrap() {
        indices.extend(batch.frames().iter().map(|frame| frame.timestamp_ns / 1_000_000 - 1));
    }
    (indices, view)
}

fn counter(view: &GraphView, node: &str, name: &str) -> f64 {
    let node = view.node(node).unwrap();
    node.counters.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{node:?}")).value
}

/// Both classes pass the frames of matching connections, from the match on.
#[test]
fn frames_of_matching_connections_pass() {
    for rules in ["(strsearch, needle, stream=y)", "(ruler, pattern='\"needle\"', stream=y)"] {
        let (indices, view) = written(&format!("{{t}}(tcp) > {{s}}{rules}"), segments);
        // The second connection's halves are in the wrong order, the third one lacks a byte.
        assert_eq!(indices, [6, 7, 8, 9], "{rules}");
        assert_eq!(view.node("t").unwrap().counts.passed, 12, "{rules}");
        assert_eq!(view.outcome.accepted, 4, "{rules}");
        assert_eq!(counter(&view, "s", "accepted_flows"), 3.0, "{rules}");
        assert_eq!(counter(&view, "s", "open_flows"), 0.0, "{rules}");
        assert_eq!(counter(&view, "t", "datagram_flows"), 1.0);
    }
}

/// Frames before the match pass too, all in the order of the capture, and every frame has one outcome.
#[test]
fn whole_conversations_pass_in_order() {
    for rules in ["(strsearch, needle", "(ruler, pattern='\"needle\"'"] {
        let graph = format!("(tcp) > {{s}}{rules}, stream=y, conversation=y)");
        let (indices, view) = written(&graph, segments);
        assert_eq!(indices, [0, 1, 3, 4, 6, 7, 8, 9], "{rules}");
        assert_eq!((view.outcome.accepted, view.outcome.rejected), (8, 4), "{rules}");
        assert_eq!(counter(&view, "s", "waiting_bytes"), 0.0, "{rules}");
        assert_eq!(counter(&view, "s", "let_go"), 0.0, "{rules}");
        assert!(counter(&view, "s", "copied_frames") >= 8.0, "{rules}");
    }
}

/// Beyond a limit the oldest frames are let go, and what is left is still in order.
#[test]
fn waiting_frames_are_bounded() {
    let one = "(tcp) > {s}(strsearch, needle, stream=y, conversation=y";
    // 54 and 61 bytes of frame, and some 370 besides.
    let (indices, view) = written(&format!("{one}, waiting=1000)"), segments);
    assert!(indices.is_sorted() && indices.ends_with(&[6, 7, 8, 9]), "{indices:?}");
    assert!(indices.len() < 8 && counter(&view, "s", "let_go") > 0.0, "{indices:?}");
    let (indices, view) = written(&format!("{one}, flow_waiting=600)"), segments);
    assert_eq!(indices, [3, 4, 6, 7, 8, 9]);
    assert_eq!(counter(&view, "s", "let_go"), 5.0);
    // All are within five milliseconds of capture time or let go.
    let (indices, _) = written(&format!("{one}, wait=0)"), segments);
    assert_eq!(indices, [6, 7, 8, 9]);
}

/// A connection that all nodes have judged is not put together any more; another one waits for the last node.
#[test]
fn judged_connections_are_not_put_together() {
    fn talk() -> Vec<Vec<u8>> {
        let segment = |port: u16, number: u32, payload: &[u8]| {
            let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(port, 80);
            packet.seq_ack(100 + number * 6, 0).flags(0x18).payload(payload).build()
        };
        let word = |number| if number == 3 { b"needle" } else { b"straw " };
        let words = |port| move |number| segment(port, number, word(number));
        // More than a batch.
        (0..1_000).map(words(1)).chain((0..1_000).map(words(2))).collect()
    }
    let one = "{t}(tcp) > {s}(strsearch, needle, stream=y)";
    let view = run(one, talk);
    assert_eq!(view.node("s").unwrap().counts.passed, 2 * 997);
    assert_eq!(counter(&view, "t", "settled"), 4.0);
    let delivered = counter(&view, "t", "delivered_bytes");
    assert!(delivered < 2.0 * 256.0 * 6.0, "{delivered}");
    let two = "{t}(tcp) > [{s}(strsearch, needle, stream=y) | {n}(strsearch, nothing, stream=y)]";
    let view = run(two, talk);
    assert_eq!(view.node("s").unwrap().counts.passed, 2 * 997);
    assert_eq!(counter(&view, "t", "delivered_bytes"), 12_000.0);
}

/// A segment in fragments is put together before it is searched.
#[test]
fn fragments_are_put_together() {
    fn fragments() -> Vec<Vec<u8>> {
        let whole = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 80);
        let whole = whole.seq_ack(100, 0).flags(0x18).payload(b"a needle in fragments").build();
        let segment = &whole[34..];
        let part = |at: usize, more: bool| {
            let end = if more { at + 24 } else { segment.len() };
            let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
            packet.fragment(7, at as u16, more).ip_payload(6, &segment[at..end]).build()
        };
        vec![part(24, false), part(0, true)]
    }
    let view = run("{t}(tcp) > {s}(strsearch, needle, stream=y)", fragments);
    assert_eq!(view.node("s").unwrap().counts.passed, 1);
    assert_eq!(counter(&view, "t", "packets_of_fragments"), 1.0);
    // All fragments of the packet belong to the conversation.
    let graph = "(tcp) > {s}(strsearch, needle, stream=y, conversation=y)";
    assert_eq!(written(graph, fragments).0, [0, 1]);
    let view = run("{t}(tcp, payload=y) > {s}(strsearch, needle, stream=y)", fragments);
    assert_eq!(view.node("s").unwrap().counts.passed, 1);
}

/// Finds the bytes that a receiver of each system reads, and not those that it drops: by address and port.
#[test]
fn overlaps_are_searched_as_the_receiver_reads_them() {
    /// `GOOD` and then `EVIL` at the same place, of two connections, before the byte that is missing.
    fn overlap() -> Vec<Vec<u8>> {
        let segment = |host: u8, sequence: u32, payload: &[u8]| {
            let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, host]).tcp(4000, 80);
            packet.seq_ack(sequence, 0).flags(0x18).payload(payload).build()
        };
        let one = |host| {
            let parts = [(100, &b"a"[..]), (102, b"GOOD"), (102, b"EVIL"), (101, b"-")];
            parts.map(|(sequence, payload)| segment(host, sequence, payload))
        };
        one(2).into_iter().chain(one(3)).collect()
    }
    let found = |policies: &str| {
        let tcp = format!("(tcp{policies})");
        let search = [("g", "-GOOD"), ("e", "-EVIL")]
            .map(|(name, text)| format!("{{{name}}}(strsearch, \"{text}\", stream=y)"))
            .join(" | ");
        let view = run(&format!("{tcp} > [{search}]"), overlap);
        ["g", "e"].map(|name| counter(&view, name, "accepted_flows"))
    };
    assert_eq!(found(""), [2.0, 0.0]);
    assert_eq!(found(", policy=solaris"), [0.0, 2.0]);
    assert_eq!(found(", policy=\"old-linux@10.0.0.3:80\""), [1.0, 1.0]);
    assert_eq!(found(", policy=last, policy=\"first@10.0.0.0/8\""), [2.0, 0.0]);
    assert_eq!(found(", policy=\"last@10.0.0.3:81\""), [2.0, 0.0]);
}

/// A graph that rewrites: with one key, equal addresses have equal new ones in every run.
#[test]
fn rewriting_with_a_key_file_is_the_same_in_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let rewritten = |key: &str| {
        let out = folder.path().join("out.pcap");
        let rules = format!("(ruler, anonymise.rul, filter=ethernet{key})");
        let view = run(&format!("{rules} > (tofile, {})", out.display()), segments);
        assert_eq!(counter(&view, "ruler", "rewritten"), 12.0);
        std::fs::read(&out).unwrap()
    };
    let with = format!(", key={}", key.display());
    std::fs::write(&key, "0123456789abcdef ".repeat(4)).unwrap();
    let first = rewritten(&with);
    assert_eq!(first, rewritten(&with));
    assert!(first != rewritten(""), "a random key");
    std::fs::write(&key, "123456789abcdef0".repeat(4)).unwrap();
    assert!(first != rewritten(&with), "another key");
    // A wrong key is refused, and no message contains it.
    std::fs::write(&key, "secret").unwrap();
    let text = format!("(pcapin, a.pcap) > (ruler, anonymise.rul, filter=ethernet{with})");
    let error = Plan::new(&[&text], &Classes::new()).map(drop).unwrap_err().to_string();
    assert!(error.contains("64 hexadecimal digits") && !error.contains("secret"), "{error}");
}

/// A frame with new bytes leaves in place of the one that arrived, and the next frames of its batch leave late:
/// each is counted once.
#[test]
fn rewritten_and_late_frames_are_counted_once() {
    fn login() -> Vec<Vec<u8>> {
        let segment = |sequence: u32, payload: &[u8]| {
            let packet = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(4000, 21);
            packet.seq_ack(sequence, 0).flags(0x18).payload(payload).build()
        };
        let first = [segment(100, b"PASS a\r"), segment(107, b"")];
        // Another one waits for its end, so that late frames precede frames with new bytes.
        let second =
            [segment(107, b"PASS b"), segment(113, b"c"), segment(114, b"\r"), segment(115, b"")];
        first.into_iter().chain(second).collect()
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("hide.rul");
    let text = "filter hide\nbefore:* \"PASS \" word:[^\\r\\n]{1,64} rest:** => \
                before \"PASS \" fill(word, \"x\") hide(rest);\n* => accept;";
    std::fs::write(&rules, text).unwrap();
    let graph = format!("{{t}}(tcp) > {{r}}(ruler, {}, stream=y)", rules.display());
    let (indices, view) = written(&graph, login);
    assert_eq!(indices.len(), 6);
    let counts = view.node("r").unwrap().counts;
    assert_eq!((counts.arrived, counts.passed + counts.emitted), (6, 6), "{counts:?}");
    assert!(counts.taken == counts.emitted && counts.emitted > 0 && counts.late > 0, "{counts:?}");
    assert_eq!(view.nodes.last().unwrap().counts.passed, 6);
}

/// With `checksum=y`, segments and fragments of packets with a damaged IPv4 header are ignored, as receivers do.
#[test]
fn damaged_ip_headers_are_ignored() {
    fn damaged() -> Vec<Vec<u8>> {
        let ip = || Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let segment = |sequence: u32, payload: &[u8]| {
            let packet = ip().tcp(4000, 80).seq_ack(sequence, 0).flags(0x18);
            packet.payload(payload).build()
        };
        let spoil = |mut frame: Vec<u8>| {
            // The identification.
            frame[18] ^= 0x40;
            frame
        };
        let whole = segment(103, b"dle and what follows it");
        let part = |at: usize, end: usize, data: &[u8]| {
            let packet = ip().fragment(7, at as u16, 34 + end < data.len());
            packet.ip_payload(6, &data[34 + at..34 + end]).build()
        };
        let decoy = segment(103, b"xxx and what follows it");
        let len = whole.len() - 34;
        vec![
            segment(100, b"nee"),
            spoil(segment(103, b"xxx")),
            spoil(part(24, len, &decoy)),
            spoil(part(0, 24, &decoy)),
            part(24, len, &whole),
            part(0, 24, &whole),
        ]
    }
    for (checks, damaged_frames) in [("", 0.0), (", checksum=y", 3.0)] {
        for form in ["", ", payload=y"] {
            let graph = format!("{{t}}(tcp{checks}{form}) > {{s}}(strsearch, needle, stream=y)");
            let view = run(&graph, damaged);
            assert_eq!(counter(&view, "t", "damaged"), damaged_frames, "{graph}");
            let is_found = view.node("s").unwrap().counts.passed > 0;
            assert_eq!(is_found, damaged_frames > 0.0, "{graph}");
        }
    }
}
