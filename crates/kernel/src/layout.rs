//! Where everything is in the memory that the kernel program and user space share.
//!
//! Three maps of one value (or one value per processor) each, all of them mapped into the writer's memory:
//!
//! ```text
//! passes    Control │ slot 0 │ slot 1 │ … │ slot 4095 │ code   a slot is 32 instructions of 32 bytes
//! rows      bucket 0 │ … │ bucket 32767 │ hints │ addresses   a bucket is 8 rows of 8 bytes: one cache line
//! counters  per processor: tallies │ one number per pass
//! ```
//!
//! * A pass lies in one slot, a long one in several. The last instruction of a slot is its *trailer*: where to go
//!   when the pass fails, where a long pass goes on, which number counts its frames.
//! * Places are *instruction numbers*, slot times 32; 0 is the end of the list.
//! * Live passes form a list from [`Control::head`]. **What is reachable from there is never written, except for the
//!   `next` word of a trailer, which is one aligned store.** So a half-written instruction is never executed.
//! * *Code* are programs of classic BPF, one word an instruction: texts, or what of them passes cannot say. A frame too
//!   short for what the texts look at is judged by them alone, through a list of its own from [`Control::short_head`].
//! * A row is one word: the table's number in the upper 16 bits (0 = free), the key in the lower 48. It appears and
//!   goes away by one store.
//!
//! `cargo xtask header` writes the C header from this file and `pass`'s `layout.rs`.

/// Instructions of a slot, the trailer included.
pub const SLOT_INSTRUCTIONS: usize = 32;
/// Slots; slot 0 is the end of the list, slot 1 accepts every frame.
pub const SLOTS: usize = 4096;
/// Index of a slot's trailer.
pub const TRAILER: usize = SLOT_INSTRUCTIONS - 1;
/// The slot that accepts every frame.
pub const ACCEPT_SLOT: u32 = 1;

/// Command bit: the pass holds when this instruction does.
pub const LAST: u32 = 1 << 14;

/// Opcode of trailers: a long pass goes on at `params[CONTINUE]`.
pub const OP_TRAILER: u32 = 0x50;
/// Opcode of a collapsed shape: the frame's key is looked up among the rows of table `params[0]`. `params[1]` and
/// `params[3]` are places (see [`PART_OFFSET_MASK`]), `params[2]` and `params[4]` their masks,
/// `params[6]` is the addressing word.
pub const OP_ROWS: u32 = 0x51;
/// Opcode of a program in classic BPF: it starts at word `params[0]` of the code.
pub const OP_CODE: u32 = 0x52;

/// Words of code.
pub const CODE_WORDS: usize = 1 << 16;
/// Most instructions of code for one frame, whatever the memory says.
pub const CODE_LIMIT: u32 = 1 << 15;
/// Words of memory that a program in classic BPF has.
pub const CODE_MEMORY: usize = 16;

/// Trailer parameter: where to go when the pass fails.
pub const NEXT: usize = 0;
/// Trailer parameter: where a long pass goes on.
pub const CONTINUE: usize = 1;
/// Trailer parameter: the pass's counter.
pub const COUNTER: usize = 2;
/// Trailer parameter: where to go when the pass fails and only what the specialised tier does not cover is run.
pub const REST: usize = 3;

/// What a specialised program leaves in the first word of the frame's control block (`cb`) for the interpreter: run
/// what is left, from [`Control::rest`]. Otherwise there is 0.
pub const RUN_REST: u32 = 1;
/// Passes that a specialised program may cover. Each has a word in slot 0, which no frame executes: not 0 as long as
/// the pass is what the program was made from.
pub const LIVE_WORDS: usize = SLOT_INSTRUCTIONS * 8;

/// Part of a key: offset of the word.
pub const PART_OFFSET_MASK: u32 = 0xffff;
/// Part of a key: the offset counts from the end of the IPv4 header.
pub const PART_L1: u32 = 1 << 16;
/// Part of a key: two adjacent words, any of them.
pub const PART_EITHER: u32 = 1 << 17;
/// Part of a key: the word is 32 bits wide. The first part may be, the second is 16 bits wide.
pub const PART_WIDE: u32 = 1 << 18;
/// Part of a key: there is one.
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
/// The second bucket of a row is `hash >> ROW_SECOND_SHIFT`, in as many bits.
pub const ROW_SECOND_SHIFT: u32 = 30;

/// Hints: one word for all rows whose keys begin with the same 32 bits (and for others that share it). Two of its bits
/// stand for the other 16 bits of a key. Where they are not set there is no such row.
pub const HINTS: usize = 1 << 15;
/// Multiplier of the lower 16 bits of a key; the upper bits of the product (32 bits) choose the two hint bits.
pub const HINT_HASH: u32 = 0x9e37_79b1;
/// The first bit of a hint is `product >> HINT_FIRST_SHIFT`.
pub const HINT_FIRST_SHIFT: u32 = 26;
/// The second bit of a hint is `product >> HINT_SECOND_SHIFT`, in as many bits.
pub const HINT_SECOND_SHIFT: u32 = 20;

/// Rows of the hash map that takes those for which the buckets have no room.
pub const MORE_ROWS: usize = 1 << 18;

/// Addresses of 16 bytes that sets of IPv6 prefixes have room for.
pub const ADDRESSES: usize = 1 << 15;
/// An address lies at its place or behind it, fewer than this many on.
pub const ADDRESS_REACH: usize = 8;

/// Numbers of a processor.
pub const COUNTERS: usize = 4096;
/// Counter: frames that no pass accepted.
pub const COUNT_REJECTED: usize = 0;
/// Counter: frames given up because the work per frame is capped.
pub const COUNT_CAPPED: usize = 1;
/// Counter: frames accepted because there is no pass.
pub const COUNT_EMPTY: usize = 2;
/// The first counter that passes get.
pub const FIRST_PASS_COUNTER: usize = 8;

/// Flag of [`Control::flags`]: rejected frames are counted too.
pub const FLAG_COUNT_REJECTED: u32 = 1;

/// Most instructions for one frame, whatever the memory says: it may be somebody else's.
pub const BUDGET_LIMIT: u32 = 8192;

/// Bytes of the link header of cooked captures (LINUX_SLL2).
pub const COOKED_BYTES: u32 = 20;

/// Bytes of a frame that the program copies at once; what lies behind them is read one by one.
pub const HEAD_BYTES: usize = 128;

/// In the object: a call of `bpf_cast_to_kern_ctx`, whose number on the running kernel comes in its place.
pub const CAST_CONTEXT: u32 = 0x6679_6b01;
/// In the object: a call of `bpf_rdonly_cast`.
pub const CAST_MEMORY: u32 = 0x6679_6b02;

/// What steers the program, at the start of the memory of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Control {
    /// Instruction number of the first pass; 0 rejects every frame.
    pub head: u32,
    /// Most instructions for one frame.
    pub budget: u32,
    /// What the program returns for accepted frames (for a socket: bytes to keep).
    pub accept: u32,
    /// What the program returns for other frames.
    pub reject: u32,
    /// See [`FLAG_COUNT_REJECTED`].
    pub flags: u32,
    /// Instruction number of the first pass that the specialised tier does not cover.
    pub rest: u32,
    /// Instruction number of the first pass for frames that are too short for the others.
    pub short_head: u32,
    /// Frames with fewer bytes are.
    pub short_below: u32,
    /// So are frames with fewer bytes than this behind the end of the IPv4 header at 14.
    pub short_behind: u32,
    /// Bytes that a cooked socket (`SOCK_DGRAM`) is spared, and texts take to be there: 0 or [`COOKED_BYTES`].
    pub cooked: u32,
}

/// One prefix of a set of IPv6 prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Address {
    /// The set's table; 0 = free.
    pub table: u64,
    /// Its words, the first on the wire first.
    pub words: [u32; 4],
    /// Nothing yet.
    pub unused: u64,
}

const _: () = assert!(size_of::<Address>() == 32);

const _: () = assert!(size_of::<Control>() == 64);
const _: () = assert!(HINTS == 1 << (64 - ROW_FIRST_SHIFT));
const _: () = assert!(BUCKETS == 1 << (64 - ROW_FIRST_SHIFT));
