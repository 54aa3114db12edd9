//! The SIP and RTSP trackers on captures: the media that they attribute to calls. Counted with tshark: frames of RTP,
//! RTCP and T.38 with `rtp.setup-frame`, `rtcp.setup-frame` or `t38.setup-frame`, without those that ICMP errors
//! quote.

use fyke_capture::{Next, Source, open_file};
use fyke_testkit::corpus::Corpus;
use fyke_track::{CallFrame, DceRpc, Event, Irc, Limits, Pptp, Rtsp, Sip, Skinny, Tracker};
use std::collections::BTreeSet;
use std::path::Path;

/// Result of a run: numbers of the frames of media, from 1, and number of frames of signalling that belong to a call.
struct Found {
    media: BTreeSet<u64>,
    signalling: u64,
    calls: BTreeSet<u64>,
    announced: u64,
}

fn run(path: &Path, tracker: &mut dyn Tracker) -> Found {
    let mut source = open_file(path).unwrap();
    let (mut events, mut number) = (Vec::new(), 0);
    let (media, calls) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Found { media, signalling: 0, calls, announced: 0 };
    while let Next::Frames(batch, _) = source.next().unwrap() {
        for frame in batch.frames() {
            number += 1;
            tracker.frame(frame, &mut events);
            let Some(CallFrame { call, label, .. }) = tracker.call() else { continue };
            found.calls.insert(call);
            match label {
                Some(_) => drop(found.media.insert(number)),
                None => found.signalling += 1,
            }
        }
    }
    let opened = |event: &&Event| matches!(event, Event::Open(_));
    found.announced = events.iter().filter(opened).count() as u64;
    tracker.expire(u64::MAX, &mut events);
    found
}

/// File, SIP ports, calls, frames of media.
const EXPECTED: &[(&str, &[u16], u64, u64)] = &[
    ("ndpi__FAX-Call-t38-CA-TDM-SIP-FB-1.pcap", &[5060], 2, 1_330),
    ("arkime__gtp-iphone.pcap", &[5060], 1, 30),
    ("sngrep__ipv6frag.pcap", &[5062], 1, 0),
    ("suricata__sip-body-large.pcap", &[5060], 1, 0),
    ("suricata__sdp.pcap", &[5060], 1, 0),
    ("suricata__sip_compact_form.pcap", &[5060], 1, 0),
    ("pcpp__sip_non_default_port.pcap", &[52380], 2, 0),
];

#[test]
fn the_media_of_sip_calls_is_found() {
    let corpus = Corpus::open();
    for (name, ports, calls, media) in EXPECTED {
        let Some(folder) = corpus.shared("traces/voip") else { return };
        let mut sip = Sip::at_ports(ports, Limits::default());
        let found = run(&folder.join(name), &mut sip);
        let counted = (found.calls.len() as u64, found.media.len() as u64);
        assert_eq!(counted, (*calls, *media), "{name}: {:?}", sip.counters());
        assert_eq!(sip.expectation_count(), 0, "{name}");
    }
}

#[test]
fn rtsp_over_tcp_is_read_and_media_that_never_came_is_not_invented() {
    let Some(folder) = Corpus::open().shared("traces/voip") else { return };
    let mut rtsp = Rtsp::at_ports(&[8554], Limits::default());
    let found = run(&folder.join("ndpi__rtsp.pcapng"), &mut rtsp);
    assert!(found.signalling > 100 && found.media.is_empty());
    // Seven connections, six of them with two SETUPs; each has two ports of the client and two of the server.
    assert_eq!((found.calls.len(), found.announced), (7, 48));
}

#[test]
fn the_service_that_an_endpoint_mapper_names_is_found() {
    let Some(folder) = Corpus::open().shared("traces/mixed") else { return };
    let found = run(&folder.join("dev-mix.pcap"), &mut DceRpc::default());
    assert_eq!((found.announced, found.media.first()), (1, Some(&94_890)));
    assert_eq!(found.media.len(), 30, "frames of 172.16.66.36 port 49683 that tshark shows");
}

#[test]
fn tunnels_of_pptp_are_found() {
    let Some(folder) = Corpus::open().shared("traces/tcp-streams") else { return };
    let found = run(&folder.join("tcpdump__pptp.pcap"), &mut Pptp::default());
    assert_eq!(found.media, BTreeSet::from([16]), "tshark shows one frame of GRE");
    assert_eq!((found.calls.len(), found.announced), (1, 1));
}

#[test]
fn what_announces_nothing_is_not_invented() {
    let corpus = Corpus::open();
    if let Some(folder) = corpus.shared("traces/voip") {
        let found = run(&folder.join("ndpi__sccp_hw_conf_register.pcapng"), &mut Skinny::default());
        assert!(found.signalling > 10 && found.media.is_empty());
        assert_eq!((found.calls.len(), found.announced), (1, 0), "a registration only");
    }
    let Some(folder) = corpus.shared("traces/malformed") else { return };
    // Text about DCC that is no message of clients to each other.
    for name in ["zeek__irc-dcc-send-malformed-port.pcap", "zeek__irc-dcc-send-malformed-host.pcap"]
    {
        let found = run(&folder.join(name), &mut Irc::default());
        assert_eq!((found.announced, found.calls.len()), (0, 1), "{name}");
    }
}
