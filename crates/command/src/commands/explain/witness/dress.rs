//! Link headers for the packets of `--witness`: all link types that carry IP and have a short header. Sources: the link
//! type descriptions at tcpdump.org; RFC 1662; IEEE 802.11, 802.2.

use fyke_frame::{LinkType, ethertype};

/// Names of the supported link types.
pub const LINKS: [&str; 14] = [
    "EN10MB",
    "RAW",
    "IPV4",
    "IPV6",
    "LINUX_SLL",
    "LINUX_SLL2",
    "NULL",
    "LOOP",
    "PPP",
    "PPP_SERIAL",
    "PPP_ETHER",
    "C_HDLC",
    "IEEE802_11",
    "IEEE802_11_RADIO",
];

/// True if packets can be built for a link type.
pub fn knows(link: LinkType) -> bool {
    LINKS.contains(&link.to_string().as_str())
}

/// Builds the link header for an EtherType; `None` if the link type cannot carry it.
pub fn header(link: LinkType, number: u16) -> Option<Vec<u8>> {
    let announced = number.to_be_bytes();
    let version = match number {
        ethertype::IPV4 => Some(4),
        ethertype::IPV6 => Some(6),
        _ => None,
    };
    // Address families: IPv4 everywhere, IPv6 as on macOS.
    let family =
        |bytes: fn(u32) -> [u8; 4]| Some(bytes(if version? == 4 { 2 } else { 30 }).to_vec());
    let ppp = |framing: &[u8]| {
        let protocol: u16 = if version? == 4 { 0x0021 } else { 0x0057 };
        Some([framing, &protocol.to_be_bytes()].concat())
    };
    let snap = |before: &[u8]| {
        let data = [&[0x08, 0x01, 0, 0][..], &[2; 18], &[0x10, 0]].concat();
        Some([before, &data, &[0xaa, 0xaa, 0x03, 0, 0, 0], &announced].concat())
    };
    match link.to_string().as_str() {
        "RAW" => version.map(|_| Vec::new()),
        "IPV4" => (version? == 4).then(Vec::new),
        "IPV6" => (version? == 6).then(Vec::new),
        "LINUX_SLL" => Some([&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 2, 0, 0][..], &announced].concat()),
        "LINUX_SLL2" => Some([&announced[..], &[0, 0, 0, 0, 0, 1, 0, 1, 0, 6], &[2; 8]].concat()),
        "NULL" => family(u32::to_le_bytes),
        "LOOP" => family(u32::to_be_bytes),
        "PPP" | "PPP_SERIAL" => ppp(&[0xff, 0x03]),
        "PPP_ETHER" => ppp(&[0x11, 0, 0, 1, 0, 80]),
        "C_HDLC" => Some([&[0x0f, 0][..], &announced].concat()),
        "IEEE802_11" => snap(&[]),
        "IEEE802_11_RADIO" => snap(&[0, 0, 8, 0, 0, 0, 0, 0]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fyke_filter::{Options, compile};
    use fyke_frame::Frame;

    #[test]
    fn both_readings_find_ip_behind_every_header() {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 53, 0, 53, 0, 8, 0, 0]);
        for name in LINKS.into_iter().filter(|name| !matches!(*name, "EN10MB" | "IPV6")) {
            let link = LinkType::from_name(name).unwrap();
            let bytes = [header(link, ethertype::IPV4).unwrap(), packet.clone()].concat();
            for reading in [fyke_filter::Reading::Compat, fyke_filter::Reading::Scoped] {
                let options = Options { link, reading, ..Options::default() };
                let predicate = compile("udp port 53", &options).unwrap();
                assert!(predicate.accepts(&Frame::new(link, &bytes)), "{name} {reading:?}");
            }
        }
    }
}
