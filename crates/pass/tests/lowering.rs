//! Results of lowering: the papers' instruction counts, lists as sets, contradictions removed, growth bounded.

mod support;

use fyke_filter::{Options, compile};
use fyke_frame::condition::{Compare, Load, Source, Width};
use fyke_frame::{Condition, Frame, LinkType};
use fyke_pass::{LowerError, PassSet, primitive};
use std::sync::Arc;
use std::time::Instant;
use support::{End, ethertype, host, ip_net, ip_proto, port};

fn lowered(condition: Condition) -> PassSet {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    edit.add_condition(Arc::new(condition), "").unwrap();
    edit.commit();
    set
}

fn text_lowered(text: &str) -> PassSet {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    edit.add_filter(&compile(text, &Options::default()).unwrap()).unwrap();
    edit.commit();
    set
}

fn shown(set: &PassSet) -> Vec<String> {
    set.passes().map(|pass| pass.to_string()).collect()
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn all(parts: Vec<Condition>) -> Condition {
    Condition::All(parts)
}

fn any(parts: impl IntoIterator<Item = Condition>) -> Condition {
    Condition::Any(parts.into_iter().collect())
}

fn tcp_port(end: End, number: u32) -> Condition {
    port(&[6], end, &Compare::Equal(number))
}

fn net(end: End, mask: u32, address: u32) -> Condition {
    support::net(end, mask, address)
}

/// Swift, section 5.2: the static filters 1 to 6; there they take 0, 1, 2, 2, 2 and 10 instructions.
#[test]
fn static_filters_take_no_more_instructions_than_in_the_paper() {
    let ports = [22, 80, 143, 25, 110, 21];
    let hosts =
        (0..38).map(|n| any([all(vec![ethertype(0x0800), host(End::Either, 0x0a00_0100 + n)])]));
    let filters = [
        (Condition::All(vec![]), 0, 1),
        (ethertype(0x0800), 1, 1),
        (
            all(vec![
                ethertype(0x0800),
                net(End::Source, 0xffff_ff00, 0xc0a8_0200),
                net(End::Destination, 0xff00_0000, 0x0a00_0000),
            ]),
            2,
            1,
        ),
        (all(vec![ethertype(0x0800), net(End::Either, 0xffff_ff00, 0xc0a8_0200)]), 2, 1),
        (
            all(vec![ethertype(0x0800), any(ports.map(|number| tcp_port(End::Either, number)))]),
            2,
            1,
        ),
        (
            all(vec![
                ethertype(0x0800),
                not(any([80, 25, 143].map(|number| tcp_port(End::Either, number)))),
                not(any(hosts)),
            ]),
            10,
            2,
        ),
    ];
    for (number, (condition, limit, passes)) in filters.into_iter().enumerate() {
        let set = lowered(condition);
        let shown = shown(&set);
        println!(
            "filter {}: {} instructions\n  {}",
            number + 1,
            set.instruction_count(),
            shown.join("\n  ")
        );
        assert!(set.instruction_count() <= limit, "filter {}: {shown:#?}", number + 1);
        assert!(set.pass_count() <= passes, "filter {}: {shown:#?}", number + 1);
    }
}

/// Swift, table 3: `ip src net 192.168.254.0/24 and tcp dst port 23`.
#[test]
fn the_example_of_table_3_takes_three_instructions() {
    let set = lowered(all(vec![
        ip_net(End::Source, 0xffff_ff00, 0xc0a8_fe00),
        tcp_port(End::Destination, 23),
    ]));
    assert_eq!(set.pass_count(), 1, "{:#?}", shown(&set));
    let pass = set.passes().next().unwrap();
    assert!(pass.instructions.len() <= 3, "{pass}");
    assert!(pass.instructions.contains(&fyke_pass::primitive::ether_ip_tcp_nonfrag()), "{pass}");
}

#[test]
fn lists_are_sets_and_products_of_lists_stay_small() {
    let hosts = || any((0..1_000).map(|n| host(End::Either, 0x0a00_0000 + n)));
    let ports = any((0..1_000).map(|n| tcp_port(End::Either, n)));
    // ARP and RARP have the same layout, so they share a pass.
    assert_eq!(lowered(hosts()).pass_count(), 2);
    assert_eq!(lowered(all(vec![hosts(), ports])).pass_count(), 1);
    let none = all((0..1_000).map(|n| not(host(End::Source, 0x0a00_0000 + n))).collect());
    let set = lowered(none);
    assert!(set.pass_count() <= 4, "{:#?}", shown(&set));
    let nets6 = any((0..500).map(|n| support::net6(End::Either, 64, n << 64)));
    assert_eq!(lowered(nets6).instruction_count(), 2);
    let mixed = any([
        tcp_port(End::Either, 80),
        port(&[17], End::Either, &Compare::Equal(53)),
        tcp_port(End::Either, 443),
        host(End::Either, 1),
        host(End::Either, 2),
    ]);
    assert!(lowered(mixed).pass_count() <= 7);
}

#[test]
fn what_cannot_match_is_not_built() {
    assert_eq!(lowered(all(vec![ethertype(0x0800), ethertype(0x0806)])).pass_count(), 0);
    let x = tcp_port(End::Source, 80);
    assert_eq!(lowered(all(vec![x.clone(), not(x.clone())])).pass_count(), 0);
    assert_eq!(lowered(any([x.clone(), x.clone()])).pass_count(), lowered(x).pass_count());
    let set = lowered(all(vec![ip_proto(6), not(ip_proto(17))]));
    assert_eq!((set.pass_count(), set.instruction_count()), (1, 1), "{:#?}", shown(&set));
}

#[test]
fn flags_of_tcp_are_byte_tests() {
    use fyke_frame::condition::{Expr, Operator, Relation};
    let index = Arc::new(Expr::IpHeaderLen { ip: 14 });
    let flags = Arc::new(Expr::Load { index, offset: 27, width: Width::One });
    let masked = Expr::Binary(Operator::And, flags, Arc::new(Expr::Const(2)));
    let zero = Arc::new(Expr::Const(0));
    let syn = not(Condition::Relation(Relation::Equal, Arc::new(masked), zero));
    let set = lowered(all(vec![ip_proto(6), syn]));
    let pass = set.passes().next().unwrap();
    assert_eq!(pass.instructions.len(), 2, "{pass}");
    assert!(pass.instructions.iter().all(|one| one.opcode() != Some(fyke_pass::Opcode::Cond)));
}

#[test]
fn words_of_the_tcp_payload_are_one_instruction() {
    let text = "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420";
    let set = text_lowered(text);
    let pass = set.passes().next().unwrap();
    let payload = primitive::tcp_payload(&[0x4745_5420]).unwrap();
    assert_eq!(pass.instructions, [primitive::ether_ip_tcp_nonfrag(), payload], "{pass}");
    let set = text_lowered("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn");
    assert_eq!(set.instruction_count(), 2, "{:#?}", shown(&set));
}

/// The same filters as above and table 3's, as texts.
#[test]
fn the_papers_texts_take_no_more_instructions_than_in_the_paper() {
    let hosts: Vec<String> = (1..=38).map(|n| format!("192.168.7.{n}")).collect();
    let texts = [
        (String::new(), 0),
        ("ip".into(), 1),
        ("ip src net 192.168.2.0/24 and dst net 10.0.0.0/8".into(), 2),
        ("ip src or dst net 192.168.2.0/24".into(), 2),
        ("ip and tcp port (ssh or http or imap or smtp or pop3 or ftp)".into(), 2),
        (
            format!(
                "ip and (not tcp port (80 or 25 or 143) and not ip host ({}))",
                hosts.join(" or ")
            ),
            10,
        ),
        ("ip src net 192.168.254.0/24 and tcp dst port 23".into(), 3),
    ];
    for (text, limit) in texts {
        let set = text_lowered(&text);
        println!("{} instructions: {text}", set.instruction_count());
        assert!(set.instruction_count() <= limit, "{text}: {:#?}", shown(&set));
    }
}

/// The reason why the only filter of a set did not become passes.
fn too_large(set: &PassSet) -> &LowerError {
    set.filters().next().unwrap().too_large().unwrap()
}

#[test]
fn the_part_that_multiplies_is_named() {
    let part = |n: u32| {
        let one = |len: u32, at: u32| format!("len > {len} and ip[{at}] != {n}");
        format!("({} or ({}) or ({}))", one(n, 8), one(n + 300, 9), one(n + 900, 6))
    };
    let text = (100..110).map(part).collect::<Vec<_>>().join(" and ");
    let set = text_lowered(&text);
    let LowerError::TooManyPasses { span, expression, .. } = too_large(&set) else { panic!() };
    assert_eq!(&text[span.clone()], expression);
    assert!(expression.starts_with("len >"), "{expression}");
    let ports = (1..2_000).step_by(2).map(|n| format!("portrange {n}-{} and len > {n}", 2 * n));
    let text = format!("({}) and ({})", ports.clone().collect::<Vec<_>>().join(" or "), text);
    let set = text_lowered(&text);
    assert!(too_large(&set).to_string().len() < 600, "a reason is not as long as the text");
}

#[test]
fn ten_thousand_hosts_are_two_passes() {
    let condition =
        Arc::new(any((0..10_000_u32).map(|n| host(End::Either, n.wrapping_mul(0x9e37_79b1)))));
    let mut set = PassSet::new(LinkType::EN10MB);
    let start = Instant::now();
    let mut edit = set.edit();
    edit.add_condition(condition, "").unwrap();
    edit.commit();
    println!("10,000 hosts: {:?}", start.elapsed());
    assert_eq!(set.pass_count(), 2);
}

#[test]
fn products_beyond_the_limit_are_evaluated_in_order() {
    let length = |n: u32| {
        let compare = Compare::Range(n, 2 * n);
        Condition::Load(Load { source: Source::WireLen, mask: u32::MAX, compare })
    };
    let pair = |n: u32| all(vec![length(n), not(length(n + 7))]);
    let choice = |n: u32| any([pair(4 * n + 100), pair(4 * n + 1_000), pair(4 * n + 10_000)]);
    for factors in [10, 1_000] {
        let start = Instant::now();
        let set = lowered(all((0..factors).map(choice).collect()));
        let reason = too_large(&set);
        assert!(
            matches!(reason, LowerError::TooManyPasses { limit, .. } if *limit > 4_096),
            "{reason}"
        );
        assert!(start.elapsed().as_secs() < 10);
        println!("{factors} factors given up after {:?}", start.elapsed());
        assert!(set.filters().all(|filter| filter.is_in_order()));
        assert_eq!(set.pass_count(), 1);
    }
}

#[test]
fn many_different_alternatives_are_not_an_explosion() {
    let pair = |n: u32| all(vec![host(End::Source, 0x0a00_0000 + n), tcp_port(End::Source, n)]);
    let set = lowered(any((1..=5_000).map(pair)));
    assert_eq!(set.pass_count(), 5_000);
}

/// Alternatives that share hosts and ports with others, in any order, are rows with both in the key; none of them is a
/// list in another's row. As one text or one by one, and at the papers' largest size in linear time.
#[test]
fn pairs_of_host_and_port_are_rows_of_one_table() {
    for (count, sorted) in [(1_000, false), (1_000, true), (100_000, false)] {
        let mut pairs: Vec<(u32, u32)> = (0..count)
            .map(|n: u32| (n % (count / 3), 1_024 + n % (count / 7).min(5_003)))
            .collect();
        if sorted {
            pairs.sort_unstable();
        }
        let text = pairs.iter().fold(String::from("tcp port 21"), |text, (host, port)| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + host);
            text + &format!(" or (ip host {address} and tcp port {port})")
        });
        let predicate = compile(&text, &Options::default()).unwrap();
        let mut set = PassSet::new(LinkType::EN10MB);
        let start = Instant::now();
        let mut edit = set.edit();
        edit.add_filter(&predicate).unwrap();
        let lowered = start.elapsed();
        edit.commit();
        let fyke_pass::Layout { shapes, rows, loose, .. } = set.layout();
        println!("{count} pairs: {lowered:?}, with the commit {:?}", start.elapsed());
        assert_eq!((shapes, rows, loose), (1, count as usize, 2), "sorted: {sorted}");
    }
}

/// If lists leave few alternatives, lists are better.
#[test]
fn hosts_of_few_ports_are_lists() {
    let text = (0..3_000)
        .map(|n| format!("(ip host 10.0.{}.{} and tcp port {})", n / 250, n % 250, 80 + n % 3));
    let set = text_lowered(&text.collect::<Vec<_>>().join(" or "));
    assert_eq!(set.pass_count(), 3, "{:#?}", shown(&set));
}

#[test]
fn nesting_is_limited() {
    let mut condition = Condition::Const(true);
    for n in 0..2_000 {
        condition = all(vec![ethertype(n), Condition::Any(vec![condition])]);
    }
    let mut set = PassSet::new(LinkType::EN10MB);
    let error = set.edit().add_condition(Arc::new(condition), "").unwrap_err();
    assert!(matches!(error, LowerError::TooDeep { .. }));
}

/// "and" and "or" bind alike, so a text that alternates between them is as deep as it is long.
#[test]
fn deep_texts_are_lowered_or_evaluated_in_order() {
    for (levels, too_deep) in [(400, false), (3_000, true)] {
        let text: String =
            (0..levels).map(|n| format!("port {} and greater {} or ", n + 1, n + 70)).collect();
        let set = text_lowered(&(text + "arp"));
        match set.filters().next().unwrap().too_large() {
            None | Some(LowerError::TooManyPasses { .. }) => assert!(!too_deep),
            Some(error) => {
                assert!(too_deep && matches!(error, LowerError::TooDeep { .. }), "{error}")
            }
        }
        let bytes = [&[0xff; 12][..], &[8, 6], &[0; 28]].concat();
        let arp = support::batch(&[Frame::new(LinkType::EN10MB, &bytes)]);
        assert_eq!(set.reader().evaluate(&arp, arp.all()).count(), 1);
    }
}

/// One look-up for any number of exceptions: they are rows, and there is one pass for the accepted frames.
#[test]
fn exceptions_are_rows_of_a_table() {
    for (count, term) in [
        (1_000, "host {} and port {p}"),
        (10_000, "host {} and port {p}"),
        (10_000, "ip src {} and dst port {p}"),
    ] {
        let term = |n: u32| {
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + n);
            let port = 1_000 + n % 50_000;
            let one = term.replace("{}", &address.to_string()).replace("{p}", &port.to_string());
            format!("not ({one})")
        };
        let text = (1..=count).map(term).collect::<Vec<_>>().join(" and ");
        let start = Instant::now();
        let set = text_lowered(&text);
        println!("{count} exceptions: {:?}", start.elapsed());
        assert_eq!((set.pass_count(), set.instruction_count()), (1, 1), "{:#?}", shown(&set));
        let pass = set.passes().next().unwrap();
        let one = pass.instructions[0];
        assert!(one.is_negated() && one.opcode() == Some(fyke_pass::Opcode::Passes));
        let inner = set.inner_set(one.operands()[0]).unwrap();
        let layout = inner.layout();
        assert!(layout.rows >= count as usize && layout.loose == 0, "{layout:?}");
        assert!(layout.shapes <= 4, "{layout:?}");
    }
}

/// A pass with more tests than a pass has room for puts the others into an inner set.
#[test]
fn long_conjunctions_have_inner_sets() {
    let tests: Vec<String> = (0..200).map(|n| format!("ether[{}] & 3 != 2", 20 + n)).collect();
    let set = text_lowered(&tests.join(" and "));
    assert_eq!(set.pass_count(), 1);
    assert!(set.filters().all(|filter| filter.too_large().is_none()));
    for (odd, accepted) in [(None, 1), (Some(20), 0), (Some(120), 0), (Some(219), 0)] {
        let mut bytes = [0_u8; 300];
        odd.into_iter().for_each(|at: usize| bytes[at] = 2);
        let batch = support::batch(&[Frame::new(LinkType::EN10MB, &bytes)]);
        assert_eq!(set.reader().evaluate(&batch, batch.all()).count(), accepted, "{odd:?}");
    }
}

/// Guards at offsets that no frame has are not put in chunks: their sums overflowed.
#[test]
fn far_places_are_out_of_bounds() {
    let far = |offset| support::equal(offset, Width::Two, 0xffff, 0x0202);
    for offset in [u32::MAX - 8, u32::MAX - 1, u32::MAX] {
        let set = lowered(all(vec![far(offset), far(offset - 2), tcp_port(End::Source, 80)]));
        let bytes = [2_u8; 100];
        let batch = support::batch(&[Frame::new(LinkType::EN10MB, &bytes)]);
        assert!(set.reader().evaluate(&batch, batch.all()).is_empty());
    }
}
