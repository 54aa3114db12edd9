//! Frames: captured bytes with metadata, batches of up to 256, masks with a bit for each frame, and the header walk.
//!
//! ```
//! use fyke::frame::{Batch, Frame, LinkType, Mask, Protocol, walk};
//!
//! // An IPv4 header and nothing more: 10.0.0.1 to 10.0.0.2.
//! let bytes = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
//! let frame = Frame::new(LinkType::IPV4, &bytes);
//! assert_eq!(walk(&frame).iter().next().map(|layer| layer.protocol), Some(Protocol::Ipv4));
//!
//! let mut batch = Batch::new();
//! batch.push(frame).expect("the first of 256");
//! assert_eq!(batch.all() & !Mask::EMPTY, Mask::first(1));
//! ```
//!
//! Nothing in a frame is trusted: it may be shorter than its headers claim. Link types are numbers with names
//! ([`LinkType::EN10MB`] is Ethernet); [`link`] describes those that the filter language knows in full.

#[doc(inline)]
pub use fyke_frame::{
    BATCH_CAPACITY, Batch, Direction, Frame, Layer, Layers, Lengths, LinkType, Mask, Meta,
    OutOfBounds, Protocol, Stop, condition, link, walk,
};
