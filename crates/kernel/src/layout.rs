//! Layout of the memory that the kernel program and user space share.
//!
//! Three maps with one value each (or one value per processor), all mapped into the writer's memory:
//!
//! ```text
//! passes    Control │ slot 0 │ slot 1 │ … │ slot 4095 │ code   a slot is 32 instructions of 32 bytes
//! rows      bucket 0 │ … │ bucket 32767 │ hints │ addresses   a bucket is 8 rows of 8 bytes: one cache line
//! counters  per processor: tallies │ one number per pass
//! ```
//!
//! * A pass has one slot, a long pass several. The last instruction of a slot is its *trailer*: the next pass if this
//!   one fails, the slot in which a long pass continues, and the index of the pass's counter.
//! * References are *instruction numbers*, slot times 32; 0 is the end of the list.
//! * Passes in force form a list from [`Control::head`]. **Nothing reachable from there is ever written, except for the
//!   `next` word of a trailer, by one aligned store.** So a half-written instruction is never executed.
//! * *Code* is programs of classic BPF, one word per instruction: texts, or the parts of texts that passes cannot
//!   express. If a frame is shorter than some load of the texts, only this code evaluates it, through a separate list
//!   from [`Control::short_head`].
//! * A row is one word: the table's number in the upper 16 bits (0 = free), the key in the lower 48. One store adds or
//!   removes it.
//!
//! `cargo xtask header` writes the C header from this file and `pass`'s `layout.rs`.

/// Instructions of a slot, with the trailer.
pub const SLOT_INSTRUCTIONS: usize = 32;
/// Number of slots; slot 0 is the end of the list, slot 1 accepts every frame.
pub const SLOTS: usize = 4096;
/// Index of a slot's trailer.
pub const TRAILER: usize = SLOT_INSTRUCTIONS - 1;
/// The slot that accepts every frame.
pub const ACCEPT_SLOT: u32 = 1;

/// Command bit: if this instruction holds, so does the pass.
pub const LAST: u32 = 1 << 14;

/// Opcode of trailers: a long pass continues at `params[CONTINUE]`.
pub const OP_TRAILER: u32 = 0x50;
/// Opcode of a collapsed shape: looks the frame's key up among the rows of table `params[0]`. `params[1]` and
/// `params[3]` locate the words of the key (see [`PART_OFFSET_MASK`]), `params[2]` and `params[4]` are their masks,
/// `params[6]` is the addressing word.
pub const OP_ROWS: u32 = 0x51;
/// Opcode of a program in classic BPF: it starts at word `params[0]` of the code.
pub const OP_CODE: u32 = 0x52;

/// Words of code.
pub const CODE_WORDS: usize = 1 << 16;
/// Most code instructions for one frame, whatever length the memory contains.
pub const CODE_LIMIT: u32 = 1 << 15;
/// Words of memory that a program in classic BPF has.
pub const CODE_MEMORY: usize = 16;

/// Trailer parameter: the next pass if this one fails.
pub const NEXT: usize = 0;
/// Trailer parameter: the slot in which a long pass continues.
pub const CONTINUE: usize = 1;
/// Trailer parameter: the pass's counter.
pub const COUNTER: usize = 2;
/// Trailer parameter: the next pass that the specialised tier does not cover, if this one fails.
pub const REST: usize = 3;
/// Trailer parameter: the class of the frames that the pass accepts, for a program that distributes frames over
/// sockets; the number of a socket plus one, 0 = none.
pub const CLASS: usize = 4;

/// Value that a specialised program stores in the first word of the frame's control block (`cb`): the interpreter must
/// run the remaining passes, from [`Control::rest`]. Otherwise the word is 0.
pub const RUN_REST: u32 = 1;
/// Most passes that a specialised program may cover. Each has a word in slot 0, which no frame executes. The word is
/// not 0 while the pass is the one from which the program was generated.
pub const LIVE_WORDS: usize = SLOT_INSTRUCTIONS * 8;

/// Part of a key: offset of the word.
pub const PART_OFFSET_MASK: u32 = 0xffff;
/// Part of a key: the offset is relative to the end of the IPv4 header.
pub const PART_L1: u32 = 1 << 16;
/// Part of a key: either of two adjacent words may match.
pub const PART_EITHER: u32 = 1 << 17;
/// Part of a key: the word is 32 bits wide. Only the first part can be; the second is 16 bits wide.
pub const PART_WIDE: u32 = 1 << 18;
/// Part of a key: the part exists.
pub const PART_PRESENT: u32 = 1 << 19;

/// Rows of a bucket.
pub const BUCKET_ROWS: usize = 8;
/// Buckets.
pub const BUCKETS: usize = 1 << 15;
/// Position of the table's number in a row.
pub const ROW_TABLE_SHIFT: u32 = 48;
/// Position of a single 32-bit value in a row's key.
pub const ROW_VALUE_SHIFT: u32 = 16;
/// Multiplier of the rows' hash: `h = row * m; h = (h ^ h >> 32) * m`.
pub const ROW_HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// The first bucket of a row is `hash >> ROW_FIRST_SHIFT`.
pub const ROW_FIRST_SHIFT: u32 = 49;
/// The second bucket of a row is `hash >> ROW_SECOND_SHIFT`, with the same number of bits.
pub const ROW_SECOND_SHIFT: u32 = 30;

/// Hint words. All rows with the same upper 32 bits of the key (and others with the same hash) have one word in common.
/// Two of its bits are set for the lower 16 bits of each key. If they are not set, there is no such row.
pub const HINTS: usize = 1 << 15;
/// Multiplier of the lower 16 bits of a key; the upper bits of the 32-bit product select the two hint bits.
pub const HINT_HASH: u32 = 0x9e37_79b1;
/// The first bit of a hint is `product >> HINT_FIRST_SHIFT`.
pub const HINT_FIRST_SHIFT: u32 = 26;
/// The second bit of a hint is `product >> HINT_SECOND_SHIFT`, with the same number of bits.
pub const HINT_SECOND_SHIFT: u32 = 20;

/// Size of the hash map for rows that do not fit into the buckets.
pub const MORE_ROWS: usize = 1 << 18;

/// Most addresses of 16 bytes in all sets of IPv6 prefixes.
pub const ADDRESSES: usize = 1 << 15;
/// An address is stored in the entry that its hash gives, or in a later one at a distance below this number.
pub const ADDRESS_REACH: usize = 8;

/// Counters of a processor.
pub const COUNTERS: usize = 4096;
/// Counter: frames that no pass accepted.
pub const COUNT_REJECTED: usize = 0;
/// Counter: frames that reached the limit of work; they are rejected, or accepted with [`FLAG_PASS_CAPPED`].
pub const COUNT_CAPPED: usize = 1;
/// Counter: frames accepted because there is no pass.
pub const COUNT_EMPTY: usize = 2;
/// Counter: frames that no pass accepted and that were accepted as a sample.
pub const COUNT_SAMPLED: usize = 3;
/// The first counter that passes get.
pub const FIRST_PASS_COUNTER: usize = 8;
/// Number of the last counters, for frames that only a later filter of a chain rejects. A pass with such a counter
/// comes after all others and rejects the frames that it matches.
pub const LATER: usize = 16;
/// The first of these counters.
pub const COUNT_LATER: usize = COUNTERS - LATER;

/// Flag of [`Control::flags`]: rejected frames are also counted.
pub const FLAG_COUNT_REJECTED: u32 = 1;
/// Flag of [`Control::flags`]: frames that need more work than the limit are accepted, for a reader that decides.
pub const FLAG_PASS_CAPPED: u32 = 2;

/// Most instructions for one frame, whatever limit the memory contains: another process may have written it.
pub const BUDGET_LIMIT: u32 = 8192;

/// Bytes of the link header of cooked captures (LINUX_SLL2).
pub const COOKED_BYTES: u32 = 20;

/// Bytes of a frame that the program copies at once; it reads later bytes one by one.
pub const HEAD_BYTES: usize = 128;

/// In the object: placeholder for the number of `bpf_cast_to_kern_ctx` in the running kernel.
pub const CAST_CONTEXT: u32 = 0x6679_6b01;
/// In the object: placeholder for the number of `bpf_rdonly_cast`.
pub const CAST_MEMORY: u32 = 0x6679_6b02;
/// In the object: placeholder for the offset of `sk_buff::data`. Odd, so no other 8-byte load has it.
pub const DATA_AT: i16 = 0x7e41;
/// In the object: placeholder for the offset of `sk_buff::data_len`.
pub const DATA_LEN_AT: i16 = 0x7e43;

/// Control words of the program, at the start of the memory of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Control {
    /// Instruction number of the first pass; 0 rejects every frame.
    pub head: u32,
    /// Most instructions for one frame.
    pub budget: u32,
    /// Return value for accepted frames (for a socket: bytes to keep).
    pub accept: u32,
    /// Return value for other frames.
    pub reject: u32,
    /// [`FLAG_COUNT_REJECTED`] and [`FLAG_PASS_CAPPED`].
    pub flags: u32,
    /// Instruction number of the first pass that the specialised tier does not cover.
    pub rest: u32,
    /// Instruction number of the first pass for short frames.
    pub short_head: u32,
    /// Frames with fewer bytes than this are short.
    pub short_below: u32,
    /// Frames with fewer bytes than this after the end of the IPv4 header at 14 are short, too.
    pub short_behind: u32,
    /// Bytes of the link header that a cooked socket (`SOCK_DGRAM`) does not deliver but texts count: 0 or
    /// [`COOKED_BYTES`].
    pub cooked: u32,
    /// One in this number of frames that no pass accepts is accepted; 0 = none.
    pub sample: u32,
    /// Odd factor of the hash that assigns conversations to sockets.
    pub factor: u32,
}

/// One prefix of a set of IPv6 prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Address {
    /// The set's table; 0 = free.
    pub table: u64,
    /// The words of the prefix, in network order.
    pub words: [u32; 4],
    /// Padding; not used.
    pub unused: u64,
}

const _: () = assert!(size_of::<Address>() == 32);

const _: () = assert!(size_of::<Control>() == 64);
const _: () = assert!(HINTS == 1 << (64 - ROW_FIRST_SHIFT));
const _: () = assert!(BUCKETS == 1 << (64 - ROW_FIRST_SHIFT));
