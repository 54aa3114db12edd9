//! The types at the root of the library, against the conformance corpus, and from several threads.

use fyke::filter::{Options, Reading};
use fyke::filters::Change;
use fyke::frame::{Batch, Frame, LinkType, Mask, Meta};
use fyke::{Error, Filter, FilterBuilder, LiveFilter, LiveReader};
use fyke_testkit::conformance::Conformance;
use fyke_testkit::packet::Packet;
use std::net::Ipv4Addr;

fn one<'a>(frame: Frame<'a>) -> Batch<'a> {
    let mut batch = Batch::new();
    batch.push(frame).expect("the first of 256");
    batch
}

#[test]
fn every_case_of_the_corpus_has_its_verdicts() {
    let corpus = Conformance::load();
    let mut judged = 0;
    for case in &corpus.cases {
        let link = LinkType::from_name(&case.link).expect("the corpus names known link types");
        let builder = Filter::builder().link(link);
        let filter = builder.compile(&case.text).unwrap();
        let mut live = builder.compile_live(&case.text).unwrap().reader();
        for verdict in corpus.verdicts(case) {
            let mut frame = Frame::new(link, &verdict.data);
            let whole = frame.wire_len == verdict.wire_len;
            frame.wire_len = verdict.wire_len;
            let batch = one(frame);
            let answers = [
                filter.matches_frame(&frame),
                filter.matches_batch(&batch).get(0),
                live.matches_frame(&frame),
                live.matches_batch(&batch).get(0),
            ];
            let shown = || format!("{}: {:?} on {}", case.name, case.text, verdict.frame);
            assert_eq!(answers, [verdict.accepted; 4], "{}", shown());
            if whole {
                assert_eq!(filter.matches(&verdict.data), verdict.accepted, "{}", shown());
                assert_eq!(live.matches(&verdict.data), verdict.accepted, "{}", shown());
            }
            judged += 1;
        }
    }
    assert!(judged > 500, "{judged}");
    for refused in &corpus.refused {
        let link = LinkType::from_name(&refused.link).expect("a known link type");
        let refusal = Filter::builder().link(link).compile(&refused.text);
        assert!(matches!(refusal, Err(Error::Text(_))), "{:?}", refused.text);
    }
}

/// Short frames, tables, and texts that only the ordered evaluator takes need memory from the pool.
#[test]
fn threads_share_one_filter_on_every_way() {
    let hosts: Vec<String> = (0..3000).map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect();
    let hosts = format!("src host {}", hosts.join(" or "));
    let texts = [("tcp port 80", false), (&hosts, false), ("not tcp port 80", true)];
    for (text, scoped) in texts {
        let filter = Filter::builder().scoped(scoped).compile(text).unwrap();
        let expect = fyke::filter::compile(
            text,
            &Options {
                reading: if scoped { Reading::Scoped } else { Reading::Compat },
                ..Options::default()
            },
        )
        .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                let (filter, expect) = (&filter, expect.clone());
                scope.spawn(move || {
                    for round in 0..2000_u32 {
                        let port = if round % 3 == 0 { 80 } else { 81 };
                        let last = (round % 250) as u8;
                        let packet = Packet::ethernet().ipv4([10, 1, thread, last], [10, 9, 9, 9]);
                        let bytes = packet.tcp(port, 1024).build();
                        let bytes = &bytes[..if round % 7 == 0 { 30 } else { bytes.len() }];
                        let frame = Frame::new(LinkType::EN10MB, bytes);
                        let wanted = expect.accepts(&frame);
                        assert_eq!(filter.matches(bytes), wanted, "{text} {bytes:02x?}");
                        assert_eq!(filter.matches_batch(&one(frame)).get(0), wanted);
                        if round == 0 {
                            assert_eq!(filter.clone().matches(bytes), wanted);
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn frames_of_another_link_type_are_rejected_and_aliases_are_not() {
    let packet = Packet::raw().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    for text in ["", "ip", "not arp"] {
        let builder = Filter::builder().link(LinkType::RAW);
        let filter = builder.compile(text).unwrap();
        let mut live = builder.compile_live(text).unwrap().reader();
        let ethernet = Frame::new(LinkType::EN10MB, &packet);
        assert!(!filter.matches_frame(&ethernet) && !live.matches_frame(&ethernet), "{text}");
        assert_eq!(filter.matches_batch(&one(ethernet)), Mask::EMPTY);
        for &number in LinkType::RAW.description().expect("a known link type").numbers {
            let frame = Frame::new(number, &packet);
            assert!(filter.matches_frame(&frame) && live.matches_frame(&frame), "{number:?}");
        }
    }
}

#[test]
fn a_live_capture_reads_tags_from_the_metadata() {
    let tagged = Packet::ethernet().vlan(5).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let meta = Meta { restored: true, ..Meta::default() };
    let restored = Frame { meta, ..Frame::new(LinkType::EN10MB, &tagged) };
    let live = Filter::builder().live_capture(true).compile("ip and not vlan").unwrap();
    let file = Filter::compile("ip and not vlan").unwrap();
    assert!(!file.matches_frame(&restored));
    // libpcap's reading: `ip` looks where the device left the type, after it has taken the tag out.
    let expect = Filter::builder().live_capture(true).compile("ip").unwrap();
    assert!(expect.matches_frame(&restored) && !live.matches_frame(&restored));
    assert!(expect.matches_batch(&one(restored)).get(0));
    assert!(matches!(Filter::compile("inbound"), Err(Error::Text(_))));
    assert!(Filter::builder().live_capture(true).compile("inbound").is_ok());
}

#[test]
fn options_reach_the_text() {
    let broadcast = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 255]).udp(1, 2).build();
    assert!(matches!(Filter::compile("ip broadcast"), Err(Error::Text(_))));
    let narrow = Filter::builder().netmask(Ipv4Addr::new(255, 255, 255, 0));
    assert!(narrow.compile("ip broadcast").unwrap().matches(&broadcast));
    let wide = Filter::builder().netmask(Ipv4Addr::new(255, 255, 0, 0));
    assert!(!wide.compile("ip broadcast").unwrap().matches(&broadcast));
    let tunnel = Packet::ethernet().vlan(7).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 80).build();
    assert!(!Filter::compile("port 80").unwrap().matches(&tunnel));
    assert!(Filter::builder().scoped(true).compile("port 80").unwrap().matches(&tunnel));
    assert!(matches!(Filter::compile("host localhost"), Err(Error::Text(_))));
    let resolver = |_: &str| vec!["10.0.0.2".parse().expect("an address")];
    let named = Filter::builder().resolver(resolver).compile("vlan and host any.example").unwrap();
    assert!(named.matches(&tunnel));
    assert_eq!((named.text(), named.link()), ("vlan and host any.example", LinkType::EN10MB));
}

#[test]
fn edits_are_seen_by_the_next_call_and_counted() {
    let udp = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 53).build();
    let filter = LiveFilter::compile("tcp").unwrap();
    let mut reader = filter.reader();
    assert!(!reader.matches(&udp));
    let dns = filter.clone().add("udp port 53").unwrap();
    assert!(reader.matches(&udp));
    assert!(filter.reader().matches(&udp));
    let counted = filter.counts();
    assert_eq!(counted.iter().map(|one| one.accepted).collect::<Vec<_>>(), [0, 2]);
    assert!(matches!(filter.add("udp prot 53"), Err(Error::Text(_))));
    let group = [Change::Add("arp"), Change::Remove(77)];
    assert!(matches!(filter.edit(&group), Err(Error::Group(refused)) if refused.place == 1));
    filter.remove(dns).unwrap();
    assert!(!reader.matches(&udp));
    assert!(matches!(filter.remove(1), Err(Error::Filters(_))));
    assert_eq!(filter.set("").unwrap(), None);
    assert!(reader.matches(&udp));
    assert_eq!(reader.epoch(), filter.epoch());
}

/// Readers run while another thread edits; after the last edit all of them have its verdict.
#[test]
fn readers_on_several_threads_follow_a_writer() {
    let udp = Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 53).build();
    let filter = LiveFilter::compile("tcp").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (mut reader, udp) = (filter.reader(), &udp);
            scope.spawn(move || while !reader.matches(udp) {});
        }
        for _ in 0..200 {
            let id = filter.add("arp").unwrap();
            filter.remove(id).unwrap();
        }
        filter.add("udp").unwrap();
    });
    assert_eq!(filter.counts()[1].accepted, 3);
}

#[test]
fn handles_go_to_other_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Filter>();
    shared::<LiveFilter>();
    shared::<FilterBuilder>();
    sent::<LiveReader>();
    sent::<Error>();
}

#[test]
fn the_debug_form_of_an_error_is_its_text() {
    let errors: [Error; 2] = [
        Filter::compile("tcp prot 80").unwrap_err(),
        LiveFilter::compile("arp").unwrap().remove(7).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(!format!("{error:?}").contains("Text("));
    }
}

#[test]
fn an_added_empty_text_accepts_every_frame() {
    let filter = LiveFilter::compile("arp").unwrap();
    let mut reader = filter.reader();
    assert!(!reader.matches(&[0; 60]));
    assert_eq!(filter.add("").unwrap(), 2);
    assert!(reader.matches(&[0; 60]));
    filter.remove(2).unwrap();
    assert!(!reader.matches(&[0; 60]));
}
