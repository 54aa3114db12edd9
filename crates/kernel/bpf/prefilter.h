/* Memory that the pre-filter's programs and user space share; prefilter/layout.rs is its other side. */
#ifndef FYKE_PREFILTER_H
#define FYKE_PREFILTER_H

/* Most probes: pairs of an array and the fields that some of its rules name. */
#define FYKE_PROBES 64

/* Flags of a probe. A probe without a family is free. */
#define FYKE_PROBE_V4 1
#define FYKE_PROBE_V6 2
#define FYKE_PROBE_PORT 4
#define FYKE_PROBE_VLAN 8
/* The array has a second pair of hash functions. */
#define FYKE_PROBE_PAIRS 16

/* The loader replaces this address by that of the arrays. */
#define FYKE_ARRAYS 0x66796b0466796b05
/* As in layout.h: placeholders that direct.rs replaces. */
#define FYKE_DATA_AT 0x7e41
#define FYKE_DATA_LEN_AT 0x7e43
#define FYKE_CAST_CONTEXT 0x66796b01
#define FYKE_CAST_MEMORY 0x66796b02

/* A look-up with the source and the destination of a packet. */
struct fyke_probe {
	__u32 flags;
	/* First word of the array. */
	__u32 first;
	/* Masks of VLAN and protocol, and of the port. */
	__u32 fields[2];
	/* Masks of the address, least significant word first. */
	__u32 net[4];
	/* Number of bits of the array. */
	__u64 bits;
	__u64 offset[2];
	__u64 multipliers[2][6];
	__u64 unused[5];
	__u64 more_offset[2];
	__u64 more_multipliers[2][6];
	__u64 unused_2[2];
};

struct fyke_arrays {
	__u32 enabled;
	/* Frames that match a rule are rejected. */
	__u32 negative;
	/* Probes in use are below this one. */
	__u32 probe_count;
	__u32 unused[13];
	struct fyke_probe probes[FYKE_PROBES];
	__u32 words[1];
};

/* Settings of one tap. */
struct fyke_tap {
	__u32 on;
	/* Bytes to keep of a frame that passes, if no program follows. */
	__u32 accept;
	/* Frames that pass go to the program in `after`. */
	__u32 follows;
	/* Number of the interface that gets copies of frames that pass, at tcx; 0: none. */
	__u32 copy_to;
	__u32 unused[12];
};

#define FYKE_COUNT_REJECTED 0
#define FYKE_COUNT_PASSED 1
#define FYKE_COUNT_UNREAD 2
/* At tcx: passed and rejected for each direction, and copies that the other interface did not take. */
#define FYKE_COUNT_IN 3
#define FYKE_COUNT_OUT 5
#define FYKE_COUNT_NOT_COPIED 7

/* Counters of one processor, and its scratch memory. */
struct fyke_tap_counts {
	__u64 count[8];
	__u32 scratch[32];
};

_Static_assert(sizeof(struct fyke_tap_counts) == 192, "counts");

_Static_assert(sizeof(struct fyke_probe) == 320, "probe");
_Static_assert(__builtin_offsetof(struct fyke_probe, bits) == 32, "bits");
_Static_assert(__builtin_offsetof(struct fyke_probe, multipliers) == 56, "multipliers");
_Static_assert(__builtin_offsetof(struct fyke_probe, more_offset) == 192, "more_offset");
_Static_assert(__builtin_offsetof(struct fyke_probe, more_multipliers) == 208, "more");
_Static_assert(__builtin_offsetof(struct fyke_arrays, probes) == 64, "probes");
_Static_assert(__builtin_offsetof(struct fyke_arrays, words) == 20544, "words");
_Static_assert(sizeof(struct fyke_tap) == 64, "tap");

#endif
