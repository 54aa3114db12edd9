//! Tests frames: one at a time, and a batch for speed.

use fyke::Filter;
use fyke::frame::{Batch, Frame, LinkType};

/// An Ethernet frame with an IPv4 and a UDP header.
fn udp(destination_port: u16) -> [u8; 60] {
    let mut bytes = [0; 60];
    bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    bytes[23] = 17;
    bytes[36..38].copy_from_slice(&destination_port.to_be_bytes());
    bytes
}

fn main() -> Result<(), fyke::Error> {
    let filter = Filter::compile("udp port 53 or 5353")?;
    assert!(filter.matches(&udp(53)));
    assert!(!filter.matches(&udp(80)));

    let frames = [udp(53), udp(80), udp(5353)];
    let mut batch = Batch::new();
    for bytes in &frames {
        batch.push(Frame::new(LinkType::EN10MB, bytes)).expect("at most 256 of one link type");
    }
    let accepted = filter.matches_batch(&batch);
    assert_eq!(accepted.iter().collect::<Vec<_>>(), [0, 2]);

    let error = Filter::compile("udp prot 53").expect_err("a mistake");
    println!("{} accepts {} of {} frames\n\n{error}", filter.text(), accepted.count(), batch.len());
    Ok(())
}
