//! The program that distributes frames over sockets by the class of the text that accepts them: the real verifier and
//! program, in both ways to read frames. The kernel runs it as it does for a group of packet sockets: the start of the
//! frame is after its link header.

use fyke_filter::{Options as Reading, compile};
use fyke_frame::LinkType;
use fyke_kernel::direct::Access;
use fyke_kernel::{Form, Mirror, OpenError, Options, Space};
use fyke_pass::PassSet;
use fyke_testkit::packet::Packet;
use fyke_testkit::skip::unless_missing;
use std::net::Ipv6Addr;

/// Classes of texts: sockets 0, 1, … have the classes 1, 2, ….
type Classed<'a> = (&'a str, u32);

/// A space with the texts in force, and the set that it mirrors.
struct Distributor {
    space: Space,
    mirror: Mirror,
    set: PassSet,
}

impl Distributor {
    /// `None` with a printed reason.
    fn open(form: Option<Form>, access: Access) -> Option<Distributor> {
        let options = Options { form, access, distributes: true, ..Options::default() };
        let space = match Space::open(options) {
            Err(error) if form == Some(Form::Loop) && error.is_by_verifier() => {
                println!("skipped: the loop needs Linux 6.9, and not 6.12");
                return None;
            }
            opened => unless_missing(opened, OpenError::is_unavailable)?,
        };
        let set = PassSet::new(LinkType::EN10MB);
        Some(Distributor { space, mirror: Mirror::default(), set })
    }

    fn add(&mut self, texts: &[Classed<'_>]) {
        let reading = Reading { live: true, ..Reading::default() };
        let mut edit = self.set.edit();
        for &(text, class) in texts {
            let filter = edit.add_filter(&compile(text, &reading).unwrap()).unwrap();
            self.mirror.set_class(filter, class);
        }
        edit.commit();
        self.mirror.sync(self.space.passes(), &self.set).unwrap();
    }

    /// The number that the program returns.
    fn socket(&self, frame: &[u8]) -> u32 {
        self.space.test_run_fanout(frame).unwrap().returned
    }
}

fn all_ways() -> Vec<Distributor> {
    let ways = [
        (None, Access::best()),
        (Some(Form::Loop), Access::Copied),
        (Some(Form::Callbacks), Access::Copied),
    ];
    ways.into_iter().filter_map(|(form, access)| Distributor::open(form, access)).collect()
}

fn udp(near: u8, port: u16) -> Vec<u8> {
    let packet = Packet::ethernet().ipv4([10, 0, 0, near], [10, 0, 1, 1]).udp(4000, port);
    packet.payload(&[7; 300]).build()
}

#[test]
fn a_frame_goes_to_the_socket_of_its_text() {
    for mut one in all_ways() {
        one.add(&[
            ("udp dst port 1", 1),
            ("udp dst port 2", 2),
            // Evaluated as code, and by bytes far from the start.
            ("udp dst port 3 and ip[200] = 7", 3),
            ("ether[0] = 0x33 and not udp", 4),
        ]);
        for (port, socket) in [(1, 0), (2, 1), (3, 2)] {
            assert_eq!(one.socket(&udp(1, port)), socket, "port {port}");
        }
        let mut arp = vec![0; 60];
        (arp[0], arp[12], arp[13]) = (0x33, 8, 6);
        assert_eq!(one.socket(&arp), 3);
        // A text that is new while frames come.
        one.add(&[("udp dst port 4", 9)]);
        assert_eq!(one.socket(&udp(1, 4)), 8);
    }
}

/// Many texts, each of one row: those of a class share a table.
#[test]
fn rows_of_many_texts_keep_their_class() {
    for mut one in all_ways() {
        let texts: Vec<(String, u32)> =
            (0..1_500).map(|n| (format!("udp dst port {}", n + 1), n % 3 + 1)).collect();
        let texts: Vec<Classed<'_>> = texts.iter().map(|(text, at)| (text.as_str(), *at)).collect();
        one.add(&texts);
        for n in (0..1_500_u32).step_by(7) {
            assert_eq!(one.socket(&udp(1, n as u16 + 1)), n % 3, "row {n}");
        }
        // Added to a table that is there.
        one.add(&[("udp dst port 2001", 2), ("udp dst port 2002", 3)]);
        assert_eq!([2_001, 2_002].map(|port| one.socket(&udp(1, port))), [1, 2]);
    }
}

/// Frames that no text accepts, or a text without a class, are distributed by conversation.
#[test]
fn other_frames_of_a_conversation_go_to_one_socket() {
    for mut one in all_ways() {
        one.add(&[("udp dst port 1", 1), ("icmp", 0)]);
        let mut sockets = Vec::new();
        for n in 0..60 {
            let (near, far) = ([10, 0, 0, n], [10, 0, 1, n]);
            let plain = Packet::ethernet().ipv4(near, far).tcp(1000, 80).build();
            let socket = one.socket(&plain);
            let same = [
                Packet::ethernet().ipv4(far, near).tcp(80, 1000).build(),
                Packet::ethernet().ipv4(near, far).icmp(8, 0, 0).build(),
                Packet::ethernet()
                    .ipv4(near, far)
                    .fragment(9, 185, false)
                    .ip_payload(6, &[0; 9])
                    .build(),
            ];
            for frame in &same {
                assert_eq!(one.socket(frame), socket, "{near:?} {frame:02x?}");
            }
            sockets.push(socket % 4);
            let six = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            let (a, b) = (six(n.into()), six(1_000));
            let there = one.socket(&Packet::ethernet().ipv6(a, b).udp(9, 2).build());
            assert_eq!(one.socket(&Packet::ethernet().ipv6(b, a).tcp(3, 4).build()), there);
        }
        assert!((0..4).all(|socket| sockets.contains(&socket)), "{sockets:?}");
        let mut arp = vec![0; 60];
        (arp[12], arp[13]) = (8, 6);
        assert_eq!(one.socket(&arp), 0, "no address");
    }
}
