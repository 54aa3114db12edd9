//! Frames of link types that are rare in the corpus: the network layer of Ethernet frames after generated headers,
//! mostly valid, of all kinds that the link type has.

use fyke_frame::LinkType;
use fyke_lab::peers::libpcap::OwnedFrame;
use fyke_testkit::random::Random;

/// Converts an Ethernet frame to another link type, with the same network layer.
pub fn dress(random: &mut Random, link: LinkType, ethernet: &OwnedFrame) -> OwnedFrame {
    let number = ethernet.data.get(12..14).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
    let payload = ethernet.data.get(14..).unwrap_or(&[]);
    let mut data = header(random, link, number, &ethernet.data);
    data.extend(payload);
    let cut = ethernet.wire_len.saturating_sub(ethernet.data.len() as u32);
    let wire_len = (data.len() as u32).saturating_add(cut);
    OwnedFrame { data, wire_len, link }
}

fn header(random: &mut Random, link: LinkType, number: u16, ethernet: &[u8]) -> Vec<u8> {
    let addresses = |at: usize| ethernet.get(at..at + 6).unwrap_or(&[0; 6]).to_vec();
    let (to, from) = (addresses(0), addresses(6));
    let name = link.to_string();
    match name.as_str() {
        "FDDI" => [vec![0x50], to, from, llc(random, number)].concat(),
        "IEEE802" => [vec![0x10, 0x40], to, from, llc(random, number)].concat(),
        "IP_OVER_FC" => [vec![0, 0], to, vec![0, 0], from, llc(random, number)].concat(),
        "ATM_RFC1483" | "ATM_CLIP" => llc(random, number),
        "SUNATM" => sun_atm(random, number, ethernet),
        "PPI" | "PRISM_HEADER" => [radio(random, &name), wlan(random, number, &to, &from)].concat(),
        _ if name.starts_with("IEEE802_11") => {
            [radio(random, &name), wlan(random, number, &to, &from)].concat()
        }
        "PPP" | "PPP_SERIAL" => [vec![0xff, 0x03], ppp(random, number)].concat(),
        "PPP_PPPD" => [vec![random.below(2) as u8, 0x03], ppp(random, number)].concat(),
        "PPP_ETHER" => [vec![0x11, 0, 0, 5, 0, 80], ppp(random, number)].concat(),
        "PPP_BSDOS" => [vec![0; 5], ppp(random, number), vec![0; 17]].concat(),
        "C_HDLC" if random.chance(4) => vec![0x0f, 0, 0xfe, 0xfe, 0, 0x83],
        "C_HDLC" => [vec![0x0f, 0], number.to_be_bytes().to_vec()].concat(),
        "FRELAY" => {
            let identifier = random.pick(&[0xcc, 0x8e, 0x81, 0x82, 0x83]);
            vec![0x18, 0x41, 0x03, identifier]
        }
        "SLIP" => [vec![random.below(2) as u8], vec![0; 15]].concat(),
        "SLIP_BSDOS" => vec![0x45; 24],
        "NULL" | "ENC" | "LOOP" => {
            let family = random.pick(&[2_u32, 2, 24, 28, 30, 10]);
            let mut bytes = match name.as_str() {
                "LOOP" => family.to_be_bytes().to_vec(),
                _ => family.to_le_bytes().to_vec(),
            };
            bytes.resize(if name == "ENC" { 12 } else { 4 }, 0);
            bytes
        }
        "PFLOG" => packet_log(random),
        "ARCNET" | "ARCNET_LINUX" => {
            let protocol = random.pick(&[212, 240, 213, 241, 214, 196, 221]);
            let mut bytes = vec![random.below(3) as u8, random.below(3) as u8];
            bytes.resize(if name == "ARCNET" { 2 } else { 4 }, 0);
            bytes.extend([protocol, 0, 0, 1]);
            bytes
        }
        "SYMANTEC_FIREWALL" => {
            let mut bytes = vec![0; 6];
            bytes.extend(number.to_be_bytes());
            bytes.resize(44, 0);
            bytes
        }
        "APPLE_IP_OVER_IEEE1394" => {
            let mut bytes = vec![1; 16];
            bytes.extend(number.to_be_bytes());
            bytes
        }
        "IPNET" => {
            let mut bytes = vec![1, random.pick(&[2, 26]), 0, 1 + random.below(2) as u8];
            bytes.resize(24, 0);
            bytes
        }
        "NETANALYZER" => [vec![0; 4], ethernet.get(..14).unwrap_or(&[]).to_vec()].concat(),
        "NETANALYZER_TRANSPARENT" => {
            [vec![0; 12], ethernet.get(..14).unwrap_or(&[]).to_vec()].concat()
        }
        "BACNET_MS_TP" => [vec![0x55, 0xff], random_bytes(random, 6)].concat(),
        "MTP2" | "MTP2_WITH_PHDR" | "ERF" => random_bytes(random, 30),
        _ if name.starts_with("JUNIPER") => {
            [vec![0x4d, 0x47, 0x43], random_bytes(random, 1 + 20)].concat()
        }
        "RAW" | "IPV4" | "IPV6" | "LTALK" => Vec::new(),
        _ => random_bytes(random, 12),
    }
}

/// Returns random bytes, mostly small, as header fields are.
fn random_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.pick(&[0, 0, 1, 2, 3, 5, 0x10, 0x40, 0x83, 0xff])).collect()
}

fn llc(random: &mut Random, number: u16) -> Vec<u8> {
    match random.below(8) {
        0 => vec![0xfe, 0xfe, 0x03, 0x83],
        1 => vec![0xe0, 0xe0, 0x03],
        2 => vec![0x42, 0x42, 0x03],
        3 => vec![0xf0, 0xf0, 0x7f, 0x01],
        4 => vec![0xaa, 0xaa, 0x03, 0x08, 0x00, 0x07, 0x80, 0x9b],
        _ => [vec![0xaa, 0xaa, 0x03, 0, 0, 0], number.to_be_bytes().to_vec()].concat(),
    }
}

fn ppp(random: &mut Random, number: u16) -> Vec<u8> {
    let protocol = match number {
        0x0800 => 0x0021,
        0x86dd => 0x0057,
        _ => random.pick(&[0x0281, 0x0023, 0x002d, 0xc021]),
    };
    u16::to_be_bytes(protocol).to_vec()
}

/// Creates a radio header of the link type.
fn radio(random: &mut Random, name: &str) -> Vec<u8> {
    let len = random.pick(&[8_u8, 8, 9, 18, 24, 26]);
    let mut bytes = match name {
        "IEEE802_11" => return Vec::new(),
        "IEEE802_11_RADIO" => {
            let present = random.pick(&[0_u32, 2, 2, 3, 3, 1, 0x8000_0002, 0x0000_482f]);
            [vec![0, 0, len, 0], present.to_le_bytes().to_vec()].concat()
        }
        "PPI" => vec![0, 0, len, 0, random.pick(&[105, 105, 105, 1]), 0, 0, 0],
        "PRISM_HEADER" if random.chance(2) => return [0, 0, 0, 0x44].repeat(36),
        _ => vec![0x80, 0x21, 0x10, 0x01, 0, 0, 0, len],
    };
    while bytes.len() < usize::from(len) {
        bytes.push(random.pick(&[0, 0, 0x20, 0x30, 0x02]));
    }
    bytes
}

fn wlan(random: &mut Random, number: u16, to: &[u8], from: &[u8]) -> Vec<u8> {
    let control =
        random.pick(&[8, 8, 0x88, 0x88, 0x48, 0xc8, 0x80, 0x40, 0, 0xd4, 0xc4, 0xb4, 0x0c]);
    let direction = random.below(4) as u8;
    let mut bytes = vec![control, direction, 0, 0];
    for index in 0..3 {
        bytes.extend(if (index + usize::from(direction)) % 2 == 0 { to } else { from });
        if index == 2 {
            bytes.extend([0x10, 0]);
        }
    }
    if control & 0x80 != 0 {
        bytes.extend([0, 0]);
    }
    if random.chance(4) {
        bytes.extend(from);
    }
    bytes.extend(llc(random, number));
    bytes
}

fn packet_log(random: &mut Random) -> Vec<u8> {
    let len = random.pick(&[61, 61, 64, 45, 48]);
    let mut bytes = vec![len, random.pick(&[2, 10]), random.below(3) as u8, random.below(4) as u8];
    bytes.extend(b"em0\0\0\0\0\0\0\0\0\0\0\0\0\0anchor\0\0\0\0\0\0\0\0\0\0");
    bytes.extend([0, 0, 0, random.below(4) as u8, 0, 0, 0, random.below(4) as u8]);
    bytes.resize(60, 0);
    bytes.push(1 + random.below(2) as u8);
    bytes.resize(usize::from(len).next_multiple_of(4), 0);
    bytes
}

/// Creates LLC, LAN emulation or signalling.
fn sun_atm(random: &mut Random, number: u16, ethernet: &[u8]) -> Vec<u8> {
    let kind = random.pick(&[1, 2, 2, 5, 6]);
    let channel = random.pick(&[1, 2, 3, 4, 5, 16, 100]);
    let mut bytes = vec![kind | random.pick(&[0, 0x80]), random.pick(&[0, 0, 1]), 0, channel];
    match kind {
        1 => {
            bytes.extend([random.pick(&[0, 0xff]), 0]);
            bytes.extend(ethernet.get(..14).unwrap_or(&[]));
        }
        2 => bytes.extend(llc(random, number)),
        _ => bytes.extend([9, 3, 0, 0, 1, random.pick(&[5, 2, 7, 0x0f, 0x4d, 0x5a, 1]), 0, 9]),
    }
    bytes
}
