//! A collapsed shape gives the verdict of its passes, for any fill of the table and while rows are added and removed.

use fyke_kernel::shape::{self, Part};
use fyke_kernel::{OpenError, Options, Rows, Space};
use fyke_pass::primitive;
use fyke_testkit::skip::unless_missing;

fn space() -> Option<Space> {
    unless_missing(Space::open(Options::default()), OpenError::is_unavailable)
}

/// An IPv4 packet over Ethernet with a header of this many words.
fn packet(source: u32, destination: u32, ports: (u16, u16), words: u8) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 4 * usize::from(words) + 20];
    (bytes[12], bytes[13], bytes[14], bytes[23]) = (8, 0, 0x40 | words, 6);
    bytes[26..30].copy_from_slice(&source.to_be_bytes());
    bytes[30..34].copy_from_slice(&destination.to_be_bytes());
    let end = 14 + 4 * usize::from(words);
    bytes[end..end + 2].copy_from_slice(&ports.0.to_be_bytes());
    bytes[end + 2..end + 4].copy_from_slice(&ports.1.to_be_bytes());
    bytes
}

fn host(number: u32) -> u32 {
    0x0a00_0000 | number.wrapping_mul(2_654_435_761) >> 8
}

#[test]
fn rows_and_passes_give_the_same_verdict() {
    let (Some(mut collapsed), Some(mut single)) = (space(), space()) else { return };
    let table = collapsed.passes().rows().new_table().unwrap();
    let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
    collapsed.passes().add(&[primitive::ether_ip_tcp_nonfrag(), shape]).unwrap();
    for number in 0..60 {
        let (address, port) = (host(number % 20), 1_000 + number as u16);
        collapsed.passes().rows().insert(table, shape::key(address, port)).unwrap();
        let pass = [
            primitive::ether_ip_tcp_nonfrag(),
            primitive::ip_host_either(address),
            primitive::tcp_port_either(&[port]).unwrap(),
        ];
        single.passes().add(&pass).unwrap();
    }
    let made = collapsed.snapshot().unwrap().specialise().unwrap();
    assert_eq!(made.covered(), 1);
    collapsed.adopt(made).unwrap();
    let (mut accepted, mut judged) = (0, 0);
    for number in 0..4_000_u32 {
        let pick = |salt: u32, limit: u32| (number.wrapping_mul(salt) >> 7) % limit;
        let ends = (host(pick(0x9e37_79b9, 32)), host(pick(0x85eb_ca6b, 32)));
        let ports = (1_000 + pick(0xc2b2_ae35, 64) as u16, 1_000 + (number % 64) as u16);
        let words = 5 + (number % 11) as u8;
        let mut frame = packet(ends.0, ends.1, ports, words);
        if number % 13 == 0 {
            frame.truncate(14 + 4 * usize::from(words) + (number % 5) as usize);
        }
        let returned =
            [&collapsed, &single].map(|space| space.test_run(&frame, 1).unwrap().returned);
        assert_eq!(returned[0], returned[1], "{frame:02x?}");
        let interpreted = collapsed.test_run_interpreted(&frame, 1).unwrap().returned;
        assert_eq!(interpreted, returned[1], "{frame:02x?}");
        accepted += u32::from(returned[0] != 0);
        judged += 1;
    }
    println!("{judged} frames judged alike, {accepted} accepted");
    assert!(accepted > 20);
}

#[test]
fn a_hundred_thousand_rows_are_found_and_go_away() {
    let Some(mut space) = space() else { return };
    const ROWS: u32 = 100_000;
    let table = space.passes().rows().new_table().unwrap();
    let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
    space.passes().add(&[primitive::ether_ip_tcp_nonfrag(), shape]).unwrap();
    let rows = space.passes().rows();
    let port = |number: u32| 1_024 + (number % 60_000) as u16;
    for number in 0..ROWS {
        assert!(rows.insert(table, shape::key(number, port(number))).unwrap());
    }
    assert!(!rows.insert(table, shape::key(7, port(7))).unwrap(), "it is there already");
    assert_eq!(rows.used(), ROWS as usize);
    let judge = |space: &Space, number: u32, port: u16| {
        space.test_run(&packet(1 << 31, number, (9, port), 5), 1).unwrap().returned != 0
    };
    for number in (0..ROWS).step_by(997) {
        assert!(judge(&space, number, port(number)));
        assert!(!judge(&space, number, port(number) + 1));
    }
    // Two hints per frame, and four keys that they may admit: less than one additional look-up.
    let absent = (0..100_000_u32).filter(|number| {
        let rows = space.passes().rows();
        rows.may_contain(table, shape::key(number.wrapping_mul(0x9e37_79b1), *number as u16))
    });
    let let_through = absent.count() as f64 / 100_000.0;
    println!("hints let {:.2} % of absent keys through", let_through * 100.0);
    assert!(4.0 * let_through < 0.2);
    for number in (0..ROWS).step_by(2) {
        assert!(space.passes().rows().remove(table, shape::key(number, port(number))));
    }
    for number in (0..ROWS).step_by(997) {
        assert_eq!(judge(&space, number, port(number)), number % 2 == 1);
    }
}

/// Rows that do not fit into the shared memory go to a hash map of the kernel, until it is full, too.
#[test]
fn a_full_table_continues_in_the_hash_map_until_that_is_full() {
    let Some(mut space) = space() else { return };
    let table = space.passes().rows().new_table().unwrap();
    let shape = shape::in_table(table, Part::HOST, Some(Part::PORT), 14);
    space.passes().add(&[primitive::ether_ip_tcp_nonfrag(), shape]).unwrap();
    let made = space.snapshot().unwrap().specialise().unwrap();
    space.adopt(made).unwrap();
    let rows = space.passes().rows();
    let (mut inserted, mut elsewhere_from) = (0_u32, None);
    let started = std::time::Instant::now();
    let error = loop {
        match rows.insert(table, shape::key(inserted, 1)) {
            Ok(_) => inserted += 1,
            Err(error) => break error,
        }
        if rows.elsewhere() > 0 && elsewhere_from.is_none() {
            elsewhere_from = Some(inserted);
        }
    };
    let from = elsewhere_from.unwrap();
    println!("{inserted} rows in {:?}, the first elsewhere was {from}: {error}", started.elapsed());
    assert!(from as usize > Rows::CAPACITY * 6 / 10 && rows.elsewhere() > 250_000);
    assert!(error.to_string().contains("room for"), "{error}");
    assert!((0..inserted).all(|number| rows.contains(table, shape::key(number, 1))));
    assert!(!rows.contains(table, shape::key(inserted, 1)));
    let judge = |space: &Space, number: u32| {
        let frame = packet(1 << 31, number, (9, 1), 5);
        let returned = space.test_run(&frame, 1).unwrap().returned;
        assert_eq!(returned, space.test_run_interpreted(&frame, 1).unwrap().returned);
        returned != 0
    };
    for number in (0..inserted).step_by(9_973) {
        assert!(judge(&space, number), "{number}");
    }
    assert!(!judge(&space, inserted) && !judge(&space, inserted + 7));
    for number in 0..inserted {
        assert!(space.passes().rows().remove(table, shape::key(number, 1)));
    }
    assert_eq!((space.passes().rows().used(), space.passes().rows().elsewhere()), (0, 0));
    assert!((0..inserted).step_by(9_973).all(|number| !judge(&space, number)));
}
