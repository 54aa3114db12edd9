//! Opcodes and calls that no text uses: payload words after a TCP header, two networks in one instruction, and single
//! words of an instruction overwritten.

use fyke_frame::{Frame, LinkType};
use fyke_pass::{Instruction, PassId, PassSet, primitive};
use fyke_testkit::packet::Packet;

fn set_of(instructions: &[Instruction]) -> (PassSet, PassId) {
    let mut set = PassSet::new(LinkType::EN10MB);
    let mut edit = set.edit();
    let id = edit.new_pass().unwrap();
    for (index, instruction) in instructions.iter().enumerate() {
        edit.set_instruction(id, index, *instruction).unwrap();
    }
    edit.commit();
    (set, id)
}

/// Equal verdicts of the evaluator of one frame and of the one of batches.
fn accepts(set: &PassSet, bytes: &[u8]) -> bool {
    let frame = Frame::new(LinkType::EN10MB, bytes);
    let mut reader = set.reader();
    let one = reader.judge_one(&frame).accepted;
    let mut batch = fyke_frame::Batch::new();
    batch.push(frame).unwrap();
    assert_eq!(reader.evaluate(&batch, batch.all()).get(0), one, "{bytes:02x?}");
    one
}

fn packet(to: u8) -> Packet {
    Packet::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, to])
}

#[test]
fn payload_words_are_found_behind_headers_of_every_length() {
    const WORDS: [u32; 5] = [0x4745_5420, 0x2f6c_616d, 0x7020_4854, 0x5450_2f31, 0x2e31_0d0a];
    let payload: Vec<u8> = WORDS.iter().flat_map(|word| word.to_be_bytes()).collect();
    for count in 1..=WORDS.len() {
        let words = primitive::tcp_payload(&WORDS[..count]).unwrap();
        let (set, _) = set_of(&[primitive::ether_ip_tcp_nonfrag(), words]);
        for (ip_options, tcp_options) in [(0, 0), (4, 0), (0, 12), (40, 40)] {
            let tcp = packet(2).ip_options(&vec![1; ip_options]).tcp(1, 80);
            let tcp = tcp.tcp_options(&vec![1; tcp_options]);
            let whole = tcp.clone().payload(&payload).build();
            assert!(accepts(&set, &whole), "{count} words");
            let begins = whole.len() - payload.len();
            for at in 0..payload.len() {
                let mut changed = whole.clone();
                changed[begins + at] ^= 1;
                assert_eq!(accepts(&set, &changed), at >= 4 * count, "{count} words, byte {at}");
                let cut = &whole[..begins + at];
                assert_eq!(accepts(&set, cut), at >= 4 * count, "{count} words, cut at {at}");
            }
        }
    }
}

#[test]
fn masked_payload_words_leave_out_what_the_mask_does() {
    let words = [(0x1603_0000, 0xffff_0000), (0x0000_0100, 0x0000_ff00)];
    let words = primitive::tcp_payload_masked(&words).unwrap();
    let (set, _) = set_of(&[primitive::ether_ip_tcp_nonfrag(), words]);
    let with = |payload: &[u8]| packet(2).tcp(1, 443).payload(payload).build();
    assert!(accepts(&set, &with(&[0x16, 3, 1, 2, 9, 9, 1, 9])));
    assert!(accepts(&set, &with(&[0x16, 3, 9, 9, 0, 0, 1, 0])));
    for payload in
        [[0x17, 3, 1, 2, 9, 9, 1, 9], [0x16, 2, 1, 2, 9, 9, 1, 9], [0x16, 3, 1, 2, 9, 9, 2, 9]]
    {
        assert!(!accepts(&set, &with(&payload)), "{payload:02x?}");
    }
}

#[test]
fn two_networks_hold_in_their_own_direction() {
    let nets =
        primitive::ip_src_and_dst_net((0xffff_ff00, 0x0a00_0000), (0xffff_0000, 0xc0a8_0000));
    let (set, _) = set_of(&[primitive::ether_ip(), nets]);
    let from_to = |from: [u8; 4], to: [u8; 4]| {
        accepts(&set, &Packet::ethernet().ipv4(from, to).udp(1, 2).build())
    };
    assert!(from_to([10, 0, 0, 77], [192, 168, 5, 6]));
    assert!(!from_to([10, 0, 1, 77], [192, 168, 5, 6]));
    assert!(!from_to([10, 0, 0, 77], [192, 169, 5, 6]));
    assert!(!from_to([192, 168, 5, 6], [10, 0, 0, 77]));
}

#[test]
fn a_poked_word_is_that_word_of_that_instruction() {
    let to = |host: u8| packet(host).udp(1, 2).build();
    let address = |host: u8| 0x0a00_0000 | u32::from(host);
    let body = [primitive::ether_ip(), primitive::ip_dst_host(address(7))];
    let (mut set, id) = set_of(&body);
    assert!(accepts(&set, &to(7)) && !accepts(&set, &to(9)));
    let place = body[1].params.iter().position(|&word| word == address(7)).unwrap();
    let mut edit = set.edit();
    edit.poke(id, 1, 1 + place, address(9)).unwrap();
    edit.commit();
    assert!(!accepts(&set, &to(7)) && accepts(&set, &to(9)));
    let mut expected = body;
    expected[1].params[place] = address(9);
    assert_eq!(set.pass(id).unwrap().instructions, expected);
    // The command word of one instruction replaced by another's: all but IPv4, to that host.
    let mut edit = set.edit();
    edit.poke(id, 0, 0, primitive::ether_ip().negated().command).unwrap();
    edit.commit();
    assert!(!accepts(&set, &to(9)));
}
