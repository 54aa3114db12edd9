//! Options of a capture ring, and the limits of their values.

use crate::error::LiveError;
use crate::source::DEFAULT_SNAPLEN;
use fyke_frame::LinkType;

/// Longest frame of most interfaces, without link headers.
const ORDINARY: u32 = 65_536;
/// Most bytes of link headers and tags.
const LINK_HEADERS: u32 = 64;
/// Most bytes of a block that a frame alone in it cannot have.
const BLOCK_HEADERS: u32 = 512;

/// Options of a live capture.
#[derive(Debug, Clone)]
pub struct RingOptions {
    /// Interface name; `None` (or `any`) captures from all of them, with cooked headers.
    pub interface: Option<String>,
    /// Link type of the frames; `None` = that of the interface. All interfaces together offer LINUX_SLL and LINUX_SLL2.
    pub link: Option<LinkType>,
    /// Most bytes of a frame that the ring keeps; nothing sees more of it, filters included.
    pub snaplen: u32,
    /// Bytes of a block: a power of two, at least 4,096. Frames that do not fit a block are cut: a frame of 64 KiB,
    /// the longest of most interfaces, needs 128 KiB. For an interface with longer ones (BIG TCP), and for all
    /// interfaces if one has them, blocks are as large as the snap length needs, and there are fewer of them.
    pub block_size: u32,
    /// Number of blocks, at least 4. Fewer are used if the kernel has not enough memory. As long as frames do not
    /// fill blocks, a reader may stall for this number times `retire_ms`: 5 s by default.
    pub block_count: u32,
    /// Number of blocks that are held for look-back after they have been read; at most half of them.
    pub look_back_blocks: u32,
    /// True to receive frames that are addressed to other hosts.
    pub promiscuous: bool,
    /// Milliseconds (at least 1) after which a block that is not full is handed over: the largest delay of a frame.
    pub retire_ms: u32,
    /// Milliseconds without frames after which [`Next::Idle`](crate::Next::Idle) is returned.
    pub timeout_ms: u16,
    /// With several rings: a program selects the ring of a frame ([`FilterSocket::share_by`](crate::FilterSocket)). The
    /// first one has all frames until there is a program.
    pub by_class: bool,
}

impl Default for RingOptions {
    fn default() -> Self {
        RingOptions {
            interface: None,
            link: None,
            snaplen: DEFAULT_SNAPLEN,
            block_size: 1 << 17,
            block_count: 256,
            look_back_blocks: 32,
            promiscuous: true,
            retire_ms: 20,
            timeout_ms: 100,
            by_class: false,
        }
    }
}

/// Enlarges the blocks for frames that are longer than those of most interfaces; the ring keeps its size.
pub(super) fn fitting(options: &RingOptions, longest: u32) -> RingOptions {
    let mut options = options.clone();
    if longest <= ORDINARY {
        return options;
    }
    let room = longest.saturating_add(LINK_HEADERS).min(options.snaplen) + BLOCK_HEADERS;
    let times = room.next_power_of_two() / options.block_size;
    if times > 1 {
        options.block_size *= times;
        options.block_count = (options.block_count / times).max(4);
        let held = options.look_back_blocks.div_ceil(times);
        options.look_back_blocks = held.min(options.block_count / 2);
    }
    options
}

/// Checks that the kernel can make such a ring.
pub(super) fn check(options: &RingOptions) -> Result<(), LiveError> {
    let size = options.block_size;
    let count = options.block_count;
    let refused = |what, given: u32, expected| {
        Err(LiveError::Options { what, given: given.into(), expected })
    };
    if !size.is_power_of_two() || !(1 << 12..=1 << 27).contains(&size) {
        return refused("block size", size, "a power of two from 4,096 to 134,217,728");
    }
    if !(4..=1 << 20).contains(&count) || u64::from(size) * u64::from(count) > 1 << 31 {
        return refused("block count", count, "4 or more, and at most 2 GiB in all");
    }
    if options.look_back_blocks > count / 2 {
        return refused("look-back", options.look_back_blocks, "at most half of the blocks");
    }
    if !(1..=DEFAULT_SNAPLEN).contains(&options.snaplen) {
        return refused("snapshot length", options.snaplen, "from 1 to 262,144");
    }
    if !(1..=60_000).contains(&options.retire_ms) {
        return refused("block time-out", options.retire_ms, "from 1 to 60,000 ms");
    }
    Ok(())
}
