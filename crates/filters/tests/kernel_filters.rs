//! Texts in the kernel: groups of changes over several link types, refusals, passes made by hand. Needs root.

use fyke_filter::Options;
use fyke_filters::{
    Author, ByHand, ByHandError, CallsRefused, Change, FilterError, FilterSet, HandCalls, HandEdit,
    HandError, KernelFilters, SocketError,
};
use fyke_frame::{Batch, Frame, LinkType};
use fyke_kernel::{OpenError, PacketSocket};
use fyke_pass::{Operation, PassId, primitive};
use fyke_testkit::random::Random;
use fyke_testkit::skip::unless_missing;
use rustix::net::{AddressFamily, SocketType, socket};
use std::collections::BTreeSet;
use std::os::fd::AsFd;

/// Filters without a text, or `None` with a printed reason.
fn open() -> Option<KernelFilters> {
    unless_missing(KernelFilters::open(LinkType::EN10MB), OpenError::is_unavailable)
}

/// A packet socket that receives nothing: with link headers, or cooked.
fn packet_socket(kind: SocketType) -> PacketSocket {
    PacketSocket::of(socket(AddressFamily::PACKET, kind, None).unwrap()).unwrap()
}

/// Frames on Ethernet: UDP to a port, and ARP.
fn udp(port: u16) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    (bytes[12], bytes[14], bytes[23]) = (8, 0x45, 17);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes
}

fn arp(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    (bytes[12], bytes[13]) = (8, 6);
    bytes
}

fn accepts(filters: &KernelFilters, frame: &[u8]) -> bool {
    filters.space(|space| space.test_run(frame, 1)).unwrap().returned != 0
}

/// Numbers, texts and hits.
fn listed(filters: &KernelFilters) -> Vec<(u64, String, u64)> {
    let counts = filters.counts().into_iter();
    counts.map(|count| (count.id, count.text.to_string(), count.accepted)).collect()
}

#[test]
fn a_refused_group_leaves_texts_counts_and_numbers() {
    let Some(filters) = open() else { return };
    assert!(accepts(&filters, &udp(9)), "no text accepts every frame");
    let first = filters.add("udp dst port 7").unwrap();
    for _ in 0..3 {
        assert!(accepts(&filters, &udp(7)) && !accepts(&filters, &udp(8)));
    }
    let before = (listed(&filters), filters.epoch(), filters.tallies());
    assert_eq!(before.0, [(first, "udp dst port 7".to_owned(), 3)]);
    let unchanged = || assert_eq!((listed(&filters), filters.epoch(), filters.tallies()), before);
    let refused = filters
        .edit(&[Change::Remove(first), Change::Add("ip protochain 17"), Change::Add("udp")])
        .unwrap_err();
    assert_eq!(refused.place, 1, "the change that cannot be is named");
    assert!(matches!(refused.error, FilterError::Kernel(_)), "{refused}");
    unchanged();
    let refused = filters.edit(&[Change::Set("arp"), Change::Add("prot 5")]).unwrap_err();
    assert!(refused.place == 1 && matches!(refused.error, FilterError::Text(_)), "{refused}");
    unchanged();
    let last = filters.remove(first).unwrap_err();
    assert!(matches!(last, FilterError::LastFilter(id) if id == first), "{last}");
    unchanged();
    assert!(accepts(&filters, &udp(7)) && !accepts(&filters, &udp(8)));
    let second = filters.add("udp dst port 8").unwrap();
    assert_eq!(second, first + 1, "numbers of refused texts are free");
    let group = [Change::Remove(first), Change::Add("arp"), Change::Remove(second)];
    assert_eq!((filters.edit(&[]).unwrap(), filters.epoch()), (vec![], before.1 + 1));
    let ids = filters.edit(&group).unwrap();
    assert_eq!((ids, filters.epoch()), (vec![None, Some(second + 1), None], before.1 + 2));
    assert!(accepts(&filters, &arp(60)) && !accepts(&filters, &udp(7)));
    assert_eq!(filters.set("").unwrap(), None);
    assert!(accepts(&filters, &udp(9)));
    assert_eq!(filters.add("").unwrap(), second + 2, "an empty text that is added is a text");
    assert!(accepts(&filters, &udp(9)) && listed(&filters)[0].2 == 1);
}

#[test]
fn what_one_link_type_refuses_no_link_type_gets() {
    let Some(filters) = open() else { return };
    let first = filters.add("udp dst port 7 or arp").unwrap();
    let cooked = packet_socket(SocketType::DGRAM);
    filters.attach(cooked.as_fd(), LinkType::LINUX_SLL2).unwrap();
    assert!(accepts(&filters, &udp(7)) && accepts(&filters, &arp(60)));
    let before = (listed(&filters), filters.view(), filters.epoch());
    assert_eq!(before.0[0].2, 2);
    let links: Vec<_> = before.1[0].passes.iter().map(|pass| pass.link).collect();
    assert!(links.contains(&LinkType::LINUX_SLL2) && links.contains(&LinkType::EN10MB));
    // A socket with a link header could run it; a socket without one does not have this byte.
    let refused = filters.edit(&[Change::Set("link[12] = 8"), Change::Add("tcp")]).unwrap_err();
    assert!(refused.to_string().contains("cooked"), "{refused}");
    assert_eq!((listed(&filters), filters.view(), filters.epoch()), before, "counts stay, too");
    assert!(accepts(&filters, &udp(7)) && !accepts(&filters, &udp(8)));
    assert_eq!(filters.set("tcp").unwrap(), Some(first + 1));
    assert!(!accepts(&filters, &udp(7)));
}

#[test]
fn a_link_type_that_turns_up_between_lowering_and_applying_gets_the_texts() {
    let Some(filters) = open() else { return };
    let group = [Change::Add("udp dst port 7"), Change::Add("arp")];
    let lowered = filters.lower(&group).unwrap();
    let cooked = packet_socket(SocketType::DGRAM);
    filters.attach(cooked.as_fd(), LinkType::LINUX_SLL2).unwrap();
    assert_eq!(filters.epoch(), 0, "nothing is in force yet");
    filters.apply(lowered, ByHand::Stay).unwrap();
    for view in filters.view() {
        let links: BTreeSet<_> = view.passes.iter().map(|pass| pass.link).collect();
        assert_eq!(links, [LinkType::EN10MB, LinkType::LINUX_SLL2].into(), "{view:?}");
    }
    // A socket does not get texts that are not valid for its frames; after their removal it does.
    let tunnel = packet_socket(SocketType::RAW);
    let refused = filters.attach(tunnel.as_fd(), LinkType::RAW).unwrap_err();
    assert!(matches!(refused, SocketError::Filter(FilterError::Text(_))), "{refused}");
    filters.remove(2).unwrap();
    filters.attach(tunnel.as_fd(), LinkType::RAW).unwrap();
    assert!(filters.view()[0].passes.iter().any(|pass| pass.link == LinkType::RAW));
}

#[test]
fn passes_made_by_hand_stay_beside_texts() {
    let Some(filters) = open() else { return };
    filters.add("udp dst port 7").unwrap();
    let by_hand = filters.by_hand(None, |passes| passes.add(&[primitive::ether_arp()])).unwrap();
    let judged = |seven: bool, eight: bool| {
        assert_eq!((accepts(&filters, &udp(7)), accepts(&filters, &udp(8))), (seven, eight));
        // The text tests bytes that this frame does not have.
        assert!(accepts(&filters, &arp(14)) && accepts(&filters, &arp(60)));
    };
    judged(true, false);
    let eight = filters.add("udp dst port 8").unwrap();
    judged(true, true);
    let of_text = filters.space(|space| space.view().ids().find(|id| *id != by_hand)).unwrap();
    let refused = filters.by_hand(Some(of_text), |passes| passes.remove(of_text)).unwrap_err();
    assert!(matches!(refused, ByHandError::OfText { .. }), "{refused}");
    filters.remove(eight).unwrap();
    judged(true, false);
    filters.remove(eight - 1).unwrap();
    judged(false, false);
    // A text that is set replaces them in the same step.
    let group = [Change::Set("udp dst port 8")];
    filters.apply(filters.lower(&group).unwrap(), ByHand::GiveWay).unwrap();
    assert!(accepts(&filters, &udp(8)) && !accepts(&filters, &arp(60)));
    assert!(filters.by_hand(Some(by_hand), |passes| passes.remove(by_hand)).is_err());
}

/// Carries out calls of a client; returns the passes that they made, or the reason why they are refused.
fn call(
    filters: &KernelFilters,
    mut calls: impl FnMut(&mut HandEdit<'_>) -> Result<Vec<PassId>, HandError>,
) -> Result<Vec<PassId>, String> {
    let mut carry_out = |edit: &mut HandEdit<'_>| -> Result<Vec<u64>, CallsRefused> {
        Ok(calls(edit)?.into_iter().map(|pass| pass.0).collect())
    };
    let (author, count) = (Author::default(), 1);
    let made = filters.edit_by_calls(&mut HandCalls { author, count, carry_out: &mut carry_out });
    made.map(|all| all.into_iter().map(PassId).collect()).map_err(|refused| refused.to_string())
}

#[test]
fn calls_on_passes_are_evaluated_in_the_kernel_beside_texts() {
    let Some(filters) = open() else { return };
    let text = filters.add("udp dst port 7").unwrap();
    let port = |edit: &mut HandEdit<'_>, port: u32| {
        let pass = edit.add()?;
        edit.select(pass, 0, Operation::EtherIpUdpNonfrag, u32::MAX)?;
        edit.select(pass, 1, Operation::PortDst, u32::MAX)?;
        edit.add_operand(pass, 1, port).map(|()| pass)
    };
    let made = call(&filters, |edit| Ok(vec![port(edit, 8)?])).unwrap();
    let judged = |accepted: &[u16]| {
        for number in 6..=12 {
            assert_eq!(accepts(&filters, &udp(number)), accepted.contains(&number), "{number}");
        }
    };
    judged(&[7, 8]);
    assert!(!accepts(&filters, &arp(14)), "a frame that ends within the headers");
    let by_hand = filters.made_by_calls().unwrap();
    assert_eq!((by_hand.filter.accepted, by_hand.passes[0].id), (1, made[0].0));
    // A refused call leaves everything.
    // Number 0 is that of the text's own order.
    let of_text = filters.view()[0].passes.iter().map(|pass| PassId(pass.id)).collect::<Vec<_>>();
    let of_text: Vec<_> = of_text.into_iter().filter(|pass| pass.0 > 0).collect();
    let before = (filters.epoch(), listed(&filters));
    let refused = call(&filters, |edit| {
        edit.add_operand(made[0], 1, 9)?;
        edit.remove(of_text[0]).map(|()| Vec::new())
    });
    assert!(refused.unwrap_err().contains("is not one that was made by hand"));
    assert_eq!((filters.epoch(), listed(&filters)), before);
    judged(&[7, 8]);
    call(&filters, |edit| edit.add_operand(made[0], 1, 9).map(|()| Vec::new())).unwrap();
    judged(&[7, 8, 9]);
    // As for IPv4 and IPv6, the text has several.
    let duplicate =
        |edit: &mut HandEdit<'_>| of_text.iter().map(|id| edit.duplicate(*id)).collect();
    let copies: Vec<PassId> = call(&filters, duplicate).unwrap();
    // Edits of texts leave the passes; without a text, they alone accept frames, and those of other link types none.
    filters.edit(&[Change::Set("udp dst port 10")]).unwrap();
    judged(&[7, 8, 9, 10]);
    // A frame that is shorter than one for the same port over IPv6.
    assert!(accepts(&filters, &udp(8)[..46]) && !accepts(&filters, &udp(6)[..46]));
    let accepted = || filters.made_by_calls().unwrap().filter.accepted;
    let before = accepted();
    filters.edit(&[Change::Set("")]).unwrap();
    assert_eq!(accepted(), before, "counts stay");
    judged(&[7, 8, 9]);
    assert!(filters.is_empty() && !accepts(&filters, &arp(60)));
    let cooked = packet_socket(SocketType::DGRAM);
    filters.attach(cooked.as_fd(), LinkType::LINUX_SLL2).unwrap();
    assert_ne!(filters.add("udp dst port 11").unwrap(), text);
    let remove = |edit: &mut HandEdit<'_>, all: &[PassId]| {
        all.iter().try_for_each(|pass| edit.remove(*pass)).map(|()| Vec::new())
    };
    call(&filters, |edit| remove(edit, &copies)).unwrap();
    judged(&[8, 9, 11]);
    // Many of one form are rows of a table, which counts them together.
    let before = accepted();
    call(&filters, |edit| (100..140).map(|number| port(edit, number)).collect()).unwrap();
    judged(&[8, 9, 11]);
    assert!((100..140).all(|number| accepts(&filters, &udp(number))));
    let by_hand = filters.made_by_calls().unwrap();
    assert_eq!((by_hand.passes.len(), by_hand.filter.accepted), (41, before + 2 + 40));
    let all: Vec<PassId> = by_hand.passes.iter().map(|pass| PassId(pass.id)).collect();
    call(&filters, |edit| remove(edit, &all)).unwrap();
    judged(&[11]);
    assert!(filters.made_by_calls().is_none());
}

/// Prints the cost of an edit of one text among many: `cargo test --workspace --test kernel_filters -- --ignored
/// --nocapture edits_among`. Checks verdicts, not times.
#[test]
#[ignore = "a measurement"]
fn edits_among_many_texts_are_timed() {
    for texts in [10_u32, 1_000, 10_000] {
        let Some(filters) = open() else { return };
        let text = |number: u32| {
            let host = std::net::Ipv4Addr::from(0x0a00_0000 + number);
            format!("src host {host} and udp dst port {}", 1_024 + number % 50_000)
        };
        let frame = |number: u32| {
            let mut bytes = udp(1_024 + (number % 50_000) as u16);
            bytes[26..30].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
            bytes
        };
        let all: Vec<String> = (0..texts).map(text).collect();
        let all: Vec<Change<'_>> = all.iter().map(|text| Change::Add(text)).collect();
        let started = std::time::Instant::now();
        let ids = filters.edit(&all).unwrap();
        let filled = started.elapsed();
        let (mut adds, mut removals) = (Vec::new(), Vec::new());
        for number in texts..texts + 50 {
            assert!(!accepts(&filters, &frame(number)));
            let started = std::time::Instant::now();
            let id = filters.add(&text(number)).unwrap();
            adds.push(started.elapsed());
            assert!(accepts(&filters, &frame(number)) && accepts(&filters, &frame(texts / 2)));
            let started = std::time::Instant::now();
            filters.remove(id).unwrap();
            removals.push(started.elapsed());
            assert!(!accepts(&filters, &frame(number)));
        }
        adds.sort();
        removals.sort();
        assert_eq!(ids.len(), filters.len());
        println!("{texts} texts in {filled:?}: add {:?}, remove {:?}", adds[25], removals[25]);
    }
}

/// A random text of each kind that the kernel stores differently: rows of shared tables, tables of one text, single
/// passes, sets, byte expressions, exceptions.
fn any_text(random: &mut Random) -> String {
    let host = |random: &mut Random| format!("10.0.0.{}", random.below(40));
    let port = |random: &mut Random| 1_000 + random.below(40);
    match random.below(9) {
        0 => format!("host {}", host(random)),
        1 | 2 => pair(random.below(40), port(random)),
        3 => {
            let all: Vec<_> = (0..10 + random.below(20)).map(|_| host(random)).collect();
            format!("udp and (src host {})", all.join(" or src host "))
        }
        4 => format!("not host {} and udp dst port {}", host(random), port(random)),
        5 => format!("udp[2:2] + 1 = {} and ip[8] < 70", port(random)),
        6 => format!("ip6 host 2001:db8::{} or ip6 host 2001:db8::7", random.below(9)),
        7 => {
            let all: Vec<_> = (0..60).map(|_| port(random).to_string()).collect();
            format!("tcp port {}", all.join(" or "))
        }
        _ => ["arp", "ip6 and tcp", "udp and len > 70", "ip[0] = 0"][random.below(4)].into(),
    }
}

fn pair(host: usize, port: usize) -> String {
    format!("src host 10.0.0.{host} and udp dst port {port}")
}

/// An Ethernet frame with the fields that those texts test, at least `least` bytes long.
fn any_frame(random: &mut Random, least: usize) -> Vec<u8> {
    let mut bytes = vec![0; 80];
    let port = 1_000 + random.below(42) as u16;
    match random.below(8) {
        0 => (bytes[12], bytes[13]) = (8, 6),
        1 => {
            (bytes[12], bytes[13], bytes[14], bytes[20]) = (0x86, 0xdd, 0x60, 6);
            bytes[22..26].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
            bytes[37] = random.below(10) as u8;
        }
        kind => {
            (bytes[12], bytes[14], bytes[22]) = (8, 0x45, 60 + random.below(20) as u8);
            bytes[23] = if kind < 4 { 6 } else { 17 };
            bytes[26..30].copy_from_slice(&[10, 0, 0, random.below(120) as u8]);
            bytes[30..34].copy_from_slice(&[10, 0, 0, random.below(120) as u8]);
            bytes[36..38].copy_from_slice(&port.to_be_bytes());
        }
    }
    bytes.truncate(least + random.below(81 - least));
    bytes
}

/// Makes the same edits in both spaces: they must give the same numbers, and the same verdict on every frame. The lists
/// in the kernel after many edits must equal those that a whole comparison makes.
fn spaces_agree(seed: u64, texts: usize, least: usize) {
    let Some(kernel) = open() else { return };
    let mut random = Random::new(seed);
    println!("seed {seed}, {texts} texts at first");
    let options = Options { link: LinkType::EN10MB, live: true, ..Options::default() };
    let user = FilterSet::new(options);
    let mut reader = user.reader();
    let first: Vec<String> =
        (0..texts).map(|number| pair(number % 40, 1_000 + number / 40)).collect();
    let first: Vec<Change<'_>> = first.iter().map(|text| Change::Add(text)).collect();
    assert_eq!(kernel.edit(&first).unwrap(), user.edit(&first).unwrap());
    let mut accepted = 0;
    for step in 0..250 {
        // Among many texts nearly all are pairs, because otherwise almost every frame would be accepted.
        let any = |random: &mut Random| match texts > 100 && random.below(50) > 0 {
            true => pair(random.below(40), 1_000 + random.below(40)),
            false => any_text(random),
        };
        let words: Vec<String> = (0..3).map(|_| any(&mut random)).collect();
        let mut present: Vec<u64> = user.counts().iter().map(|count| count.id).collect();
        let mut group = Vec::new();
        for text in &words[..1 + random.below(3)] {
            if present.is_empty() || random.below(2) == 0 {
                group.push(Change::Add(text));
            } else {
                let at = random.below(present.len());
                group.push(Change::Remove(present.swap_remove(at)));
            }
        }
        if random.below(60) == 0 && texts < 100 {
            group.push(Change::Set(&words[2]));
        }
        match (kernel.edit(&group), user.edit(&group)) {
            (Ok(own), Ok(expected)) => assert_eq!(own, expected, "{group:?}"),
            (Err(own), Err(expected)) => assert_eq!(own.to_string(), expected.to_string()),
            (own, expected) => panic!("step {step}: {own:?}, and in user space {expected:?}"),
        }
        reader.refresh();
        for _ in 0..40 {
            let bytes = any_frame(&mut random, least);
            let mut batch = Batch::new();
            assert!(batch.push(Frame::new(LinkType::EN10MB, &bytes)).is_ok());
            let expected = reader.evaluate(&batch, batch.all()).unwrap().count() == 1;
            let judged = accepts(&kernel, &bytes);
            assert_eq!(judged, expected, "step {step} after {group:?}: {bytes:02x?}");
            accepted += u32::from(judged);
        }
    }
    let counts: u64 = kernel.counts().iter().map(|count| count.accepted).sum();
    let tallies = kernel.tallies();
    assert_eq!(tallies.accepted + tallies.unfiltered, u64::from(accepted));
    assert!(accepted > 500 && accepted < 9_500 && counts <= tallies.accepted, "{accepted}");
}

#[test]
fn both_spaces_agree_on_few_texts_and_short_frames() {
    (1..4).for_each(|seed| spaces_agree(seed, 5, 14));
}

#[test]
fn both_spaces_agree_on_texts_that_share_tables() {
    (4..6).for_each(|seed| spaces_agree(seed, 700, 74));
}
