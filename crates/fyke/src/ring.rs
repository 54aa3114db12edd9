//! Frames in shared memory: one process stores each frame once, any number of others read them.
//!
//! ```
//! use fyke::frame::{Frame, LinkType};
//! use fyke::ring::{Index, Packets, Read, Reader};
//!
//! let mut packets = Packets::create(1 << 16)?; // bytes
//! let mut index = Index::create(256, LinkType::EN10MB)?; // frames of one endpoint
//! // Publication::new(path, &packets, &index)? hands both to other processes, and Reader::connect(path)? gets them.
//! let mut reader = Reader::open(packets.fd().try_clone_to_owned()?, index.fd().try_clone_to_owned()?)?;
//!
//! let place = packets.put(&Frame::new(LinkType::EN10MB, &[7; 60]))?;
//! index.push(place);
//! let mut bytes = Vec::new();
//! assert!(matches!(reader.next(&mut bytes), Read::Frame(_)));
//! assert_eq!((bytes.len(), reader.lost()), (60, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The writer never waits: a slow reader loses the oldest frames and knows how many.

#[doc(inline)]
pub use fyke_ring::{
    Index, Memory, Packets, Publication, Read, Reader, RingError, listen, packets, reader,
};
