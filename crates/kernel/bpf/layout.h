/* Written by `cargo xtask header` from pass/src/isa/layout.rs and kernel/src/layout.rs. */
#ifndef FYKE_LAYOUT_H
#define FYKE_LAYOUT_H

#define FYKE_PARAMS 0x7
#define FYKE_OPCODE_MASK 0x7f
#define FYKE_NEG 0x80
#define FYKE_COUNT_SHIFT 0x8
#define FYKE_COUNT_MASK 0xf
#define FYKE_EITHER 0x1000
#define FYKE_SHORT 0x2000
#define FYKE_OFFSET_SHIFT 0x10
#define FYKE_META_DIRECTION 0x0
#define FYKE_META_IFINDEX 0x1
#define FYKE_SLOT_INSTRUCTIONS 0x20
#define FYKE_SLOTS 0x1000
#define FYKE_TRAILER 0x1f
#define FYKE_ACCEPT_SLOT 0x1
#define FYKE_LAST 0x4000
#define FYKE_OP_TRAILER 0x50
#define FYKE_OP_ROWS 0x51
#define FYKE_OP_CODE 0x52
#define FYKE_NEXT 0x0
#define FYKE_CONTINUE 0x1
#define FYKE_COUNTER 0x2
#define FYKE_REST 0x3
#define FYKE_CLASS 0x4
#define FYKE_RUN_REST 0x1
#define FYKE_PART_OFFSET_MASK 0xffff
#define FYKE_PART_L1 0x10000
#define FYKE_PART_EITHER 0x20000
#define FYKE_PART_WIDE 0x40000
#define FYKE_PART_PRESENT 0x80000
#define FYKE_BUCKET_ROWS 0x8
#define FYKE_BUCKETS 0x8000
#define FYKE_ROW_TABLE_SHIFT 0x30
#define FYKE_ROW_VALUE_SHIFT 0x10
#define FYKE_ROW_FIRST_SHIFT 0x31
#define FYKE_ROW_SECOND_SHIFT 0x1e
#define FYKE_HINTS 0x8000
#define FYKE_HINT_HASH 0x9e3779b1
#define FYKE_HINT_FIRST_SHIFT 0x1a
#define FYKE_HINT_SECOND_SHIFT 0x14
#define FYKE_MORE_ROWS 0x40000
#define FYKE_CODE_WORDS 0x10000
#define FYKE_CODE_LIMIT 0x8000
#define FYKE_COOKED_BYTES 0x14
#define FYKE_CODE_MEMORY 0x10
#define FYKE_ADDRESSES 0x8000
#define FYKE_ADDRESS_REACH 0x8
#define FYKE_COUNTERS 0x1000
#define FYKE_COUNT_REJECTED 0x0
#define FYKE_COUNT_CAPPED 0x1
#define FYKE_COUNT_EMPTY 0x2
#define FYKE_COUNT_SAMPLED 0x3
#define FYKE_COUNT_LATER 0xff0
#define FYKE_LATER 0x10
#define FYKE_FIRST_PASS_COUNTER 0x8
#define FYKE_FLAG_COUNT_REJECTED 0x1
#define FYKE_FLAG_PASS_CAPPED 0x2
#define FYKE_BUDGET_LIMIT 0x2000
#define FYKE_HEAD_BYTES 0x80
#define FYKE_DATA_AT 0x7e41
#define FYKE_DATA_LEN_AT 0x7e43
#define FYKE_CAST_CONTEXT 0x66796b01
#define FYKE_CAST_MEMORY 0x66796b02
#define FYKE_ROW_HASH 0x9e3779b97f4a7c15ull

struct fyke_instruction {
	__u32 command;
	__u32 params[FYKE_PARAMS];
};

struct fyke_control {
	__u32 head;
	__u32 budget;
	__u32 accept;
	__u32 reject;
	__u32 flags;
	__u32 rest;
	__u32 short_head;
	__u32 short_below;
	__u32 short_behind;
	__u32 cooked;
	__u32 sample;
	__u32 factor;
	__u32 unused[4];
};

struct fyke_address {
	__u64 table;
	__u32 words[4];
	__u64 unused;
};

_Static_assert(sizeof(struct fyke_address) == 32, "address");
_Static_assert(sizeof(struct fyke_instruction) == 32, "instruction");
_Static_assert(__builtin_offsetof(struct fyke_instruction, params) == 4, "params");
_Static_assert(sizeof(struct fyke_control) == 64, "control");
_Static_assert(__builtin_offsetof(struct fyke_control, head) == 0, "head");
_Static_assert(__builtin_offsetof(struct fyke_control, budget) == 4, "budget");
_Static_assert(__builtin_offsetof(struct fyke_control, accept) == 8, "accept");
_Static_assert(__builtin_offsetof(struct fyke_control, reject) == 12, "reject");
_Static_assert(__builtin_offsetof(struct fyke_control, flags) == 16, "flags");
_Static_assert(__builtin_offsetof(struct fyke_control, rest) == 20, "rest");
_Static_assert(__builtin_offsetof(struct fyke_control, short_head) == 24, "short_head");
_Static_assert(__builtin_offsetof(struct fyke_control, short_below) == 28, "short_below");
_Static_assert(__builtin_offsetof(struct fyke_control, short_behind) == 32, "short_behind");
_Static_assert(__builtin_offsetof(struct fyke_control, cooked) == 36, "cooked");
_Static_assert(__builtin_offsetof(struct fyke_control, sample) == 40, "sample");
_Static_assert(__builtin_offsetof(struct fyke_control, factor) == 44, "factor");

/* An opcode's form: kind | base | wide | first operand | adjacent. */
#define FYKE_KIND_UNKNOWN 0
#define FYKE_KIND_NONE 1
#define FYKE_KIND_ANY16 2
#define FYKE_KIND_ANY32 3
#define FYKE_KIND_INTERVAL16 4
#define FYKE_KIND_INTERVAL32 5
#define FYKE_KIND_SET 6
#define FYKE_KIND_LENGTH 7
#define FYKE_KIND_META 8
#define FYKE_KIND_ROWS 9
#define FYKE_KIND_CODE 10
#define FYKE_KIND_ADDR6 11
#define FYKE_KIND_SET6 12
#define FYKE_KIND_MASKED32 13
#define FYKE_KIND_ALL32 14
#define FYKE_KIND_ALL16 15
#define FYKE_FORM_KIND 0xf
#define FYKE_FORM_BASE 0x30
#define FYKE_FORM_NONE 0x0
#define FYKE_FORM_DIRECT 0x10
#define FYKE_FORM_L1 0x20
#define FYKE_FORM_L2 0x30
#define FYKE_FORM_WIDE 0x40
#define FYKE_FORM_FIRST_SHIFT 7
#define FYKE_FORM_ADJACENT 0x400
#define FYKE_FORMS { \
	[0x00] = 0x041, /* NOP */ \
	[0x01] = 0x053, /* D_EQ */ \
	[0x02] = 0x012, /* D_SEQ */ \
	[0x03] = 0x0d3, /* D_MEQ */ \
	[0x04] = 0x092, /* D_SMEQ */ \
	[0x05] = 0x055, /* D_RNG */ \
	[0x06] = 0x014, /* D_SRNG */ \
	[0x07] = 0x05d, /* D_LEQ_M */ \
	[0x09] = 0x063, /* L1_EQ */ \
	[0x0a] = 0x022, /* L1_SEQ */ \
	[0x0b] = 0x0e3, /* L1_MEQ */ \
	[0x0c] = 0x0a2, /* L1_SMEQ */ \
	[0x0d] = 0x065, /* L1_RNG */ \
	[0x0e] = 0x024, /* L1_SRNG */ \
	[0x0f] = 0x06d, /* L1_LEQ_M */ \
	[0x11] = 0x032, /* L2_SEQ */ \
	[0x12] = 0x034, /* L2_SRNG */ \
	[0x13] = 0x07e, /* L2_LEQ */ \
	[0x14] = 0x07d, /* L2_LEQ_M */ \
	[0x19] = 0x4d3, /* D_DMEQ */ \
	[0x1a] = 0x05d, /* D_BMEQ */ \
	[0x1b] = 0x02f, /* L1_SSEQ */ \
	[0x1c] = 0x422, /* L1_ESEQ */ \
	[0x40] = 0x156, /* D_SET */ \
	[0x41] = 0x166, /* L1_SET */ \
	[0x42] = 0x15c, /* D_SET6 */ \
	[0x43] = 0x153, /* D_PMEQ */ \
	[0x44] = 0x0d5, /* D_MRNG */ \
	[0x45] = 0x0e5, /* L1_MRNG */ \
	[0x46] = 0x15b, /* D_ADDR6 */ \
	[0x47] = 0x047, /* LEN_RNG */ \
	[0x48] = 0x0c8, /* META_MEQ */ \
	[0x4a] = 0x000, /* COND */ \
	[0x4b] = 0x000, /* PASSES */ \
	[0x51] = 0x009, /* ROWS */ \
	[0x52] = 0x00a, /* CODE */ \
}

#endif
