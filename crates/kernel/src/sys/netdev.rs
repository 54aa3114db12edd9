//! What drivers tell programs at XDP about frames, from the family `netdev` of generic netlink. Minimum kernel: 6.8.
//!
//! Source: the kernel's `Documentation/netlink/specs/netdev.yaml`.

use super::objects::{HEADER_BYTES, Netlink, attribute, put_attribute, request};
use std::io;

/// The driver tells the device's time of a frame.
pub const TIME: u64 = 1;
/// The driver tells the tag that the device removed.
pub const TAG: u64 = 4;

const GENERIC_BYTES: usize = 4;
/// Number of the family that knows all others, its command that finds one, and the attributes for that.
const FAMILIES: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Command that asks for an interface, and attributes.
const GET_DEVICE: u8 = 1;
const INTERFACE: u16 = 1;
const RECEIVED_FACTS: u16 = 5;

/// Returns the bits of what the driver of an interface tells ([`TIME`], [`TAG`]).
pub fn told_by_driver(interface: u32) -> io::Result<u64> {
    let family = ask(FAMILIES, GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_NUMBER)?;
    let &number = family.first_chunk().ok_or_else(short)?;
    let number = u16::from_ne_bytes(number);
    let facts = ask(number, GET_DEVICE, INTERFACE, &interface.to_ne_bytes(), RECEIVED_FACTS)?;
    facts.first_chunk().map(|facts| u64::from_ne_bytes(*facts)).ok_or_else(short)
}

/// Sends a command with one attribute, and returns one of the answer; empty if it is not there.
fn ask(family: u16, command: u8, given: u16, value: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let mut bytes = request(family, GENERIC_BYTES);
    bytes[HEADER_BYTES..HEADER_BYTES + 2].copy_from_slice(&[command, 1]);
    put_attribute(&mut bytes, given, value);
    let answer = Netlink::ask(libc::NETLINK_GENERIC, &bytes)?.receive()?;
    Netlink::refusal(&answer)?;
    let attributes = answer.get(HEADER_BYTES + GENERIC_BYTES..).ok_or_else(short)?;
    Ok(attribute(attributes, wanted).unwrap_or_default().to_vec())
}

fn short() -> io::Error {
    io::Error::other("the kernel's answer about the interface is too short")
}
