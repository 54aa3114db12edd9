/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel space of fyke: runs the passes that user space writes into mapped memory.
 *
 * One program, verified once, as socket filter and for tcx. A frame costs one bounded copy of its first bytes, and one
 * step per instruction: about 3 ns for a pass that fails at once. The program writes only scratch memory and counters,
 * so frames and edits do not disturb each other: see layout.rs.
 *
 * Built twice. With FYKE_DIRECT it reads the frame's bytes in place (Linux 6.17, see direct.rs); without it a call
 * copies them to scratch memory.
 *
 * The verifier determines the structure: headers in a per-processor value, one flat loop that starts at a number from a
 * map, one may_goto (Linux 6.9), no calls except for bytes after the copied ones. With FYKE_CALLBACKS, bpf_loop runs
 * the loops (Linux 5.17), at 8 ns per instruction; the rest is the same. Source: Wu, Xie, Wang 2008, section 4.1;
 * Wu 2007, chapter IV.
 */
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include "layout.h"

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
/* Verified separately, without assumptions about its callers; Linux 5.6. */
#define NOINLINE __attribute__((noinline))
#define TYPE_OF(value) int (*value)

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

/* At XDP the frame is in memory of the driver, without the kernel's buffer: with FYKE_XDP. */
#ifdef FYKE_XDP
#define CONTEXT struct xdp_md
#define LOAD_BYTES BPF_FUNC_xdp_load_bytes
#else
#define CONTEXT struct __sk_buff
#define LOAD_BYTES BPF_FUNC_skb_load_bytes
#endif

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const load_bytes)(const void *skb, u32 offset, void *to, u32 len) =
	(void *)LOAD_BYTES;
#ifdef FYKE_CALLBACKS
/* Linux 5.17. */
static long (*const loop)(u32 times, void *callback, void *context, u64 flags) =
	(void *)BPF_FUNC_loop;
#else
/* Ends its loop after some millions of rounds, which bounds the loop for the verifier. Linux 6.9. */
#define MAY_GOTO(label)                                                  \
	asm volatile goto("1: .byte 0xe5; .byte 0;"                      \
			  ".long ((%l[" #label "] - 1b - 8) / 8) & 0xffff; .short 0" ::::label)
#endif
static long (*const tail_call)(void *skb, void *programs, u32 index) =
	(void *)BPF_FUNC_tail_call;
static u32 (*const processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static u32 (*const random)(void) = (void *)BPF_FUNC_get_prandom_u32;

#ifdef FYKE_DIRECT
/* The kernel's own buffer. The loader replaces the offsets of its members (direct.rs): libraries read the types of the
 * whole kernel for this, which takes 30 ms.
 */
struct sk_buff;
#define MEMBER(size, buffer, offset)                                                       \
	({                                                                                 \
		u64 member;                                                                \
		asm volatile("%0 = *(" size " *)(%1 + %2)"                                 \
			     : "=r"(member) : "r"(buffer), "i"(offset));                   \
		member;                                                                    \
	})

/* Functions of the kernel; the loader replaces these placeholders by their numbers (direct.rs). The verifier turns the
 * calls into moves. The result of the second one may be read at any offset; a bad address reads as 0.
 */
static struct sk_buff *(*const kernel_buffer)(CONTEXT *skb) = (void *)FYKE_CAST_CONTEXT;
static const u8 *(*const readable)(u64 address, u32 type) = (void *)FYKE_CAST_MEMORY;
#endif

struct memory {
	struct fyke_control control;
	/* Two more than used, so that reading the eighth parameter of the last instruction stays inside. */
	struct fyke_instruction instructions[FYKE_SLOTS * FYKE_SLOT_INSTRUCTIONS + 2];
	u64 code[FYKE_CODE_WORDS];
};

struct bucket_array {
	u64 rows[FYKE_BUCKETS * FYKE_BUCKET_ROWS];
	u64 hints[FYKE_HINTS];
	struct fyke_address addresses[FYKE_ADDRESSES + FYKE_ADDRESS_REACH];
	/* Number of rows that are in `more_rows` because the buckets had no room for them. */
	u64 more;
};

struct tallies {
	u64 count[FYKE_COUNTERS];
};

#include "fanout.h"

/* State of the frame under evaluation. After `head` there is room for a load that starts in it. */
struct scratch {
	u8 head[FYKE_HEAD_BYTES + 16];
	/* Address and number of the first bytes. */
	u64 data;
	u32 copied;
	u32 len;
	u32 l1;
	u32 l2_of;
	u32 l2;
	u32 word;
	/* Length of the link header that a cooked socket does not deliver. */
	u32 cooked;
	/* Instructions that code may still execute for this frame, and its memory. */
	u32 steps;
	u32 memory[FYKE_CODE_MEMORY];
	struct decision decision;
};

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct memory *value;
} passes SEC(".maps");

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct bucket_array *value;
} rows SEC(".maps");

/* Rows that do not fit into `rows`. An edit of one is a system call. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_HASH];
	TYPE_OF(max_entries)[FYKE_MORE_ROWS];
	TYPE_OF(map_flags)[BPF_F_NO_PREALLOC];
	u64 *key;
	u8 *value;
} more_rows SEC(".maps");

/* The loader sets max_entries to the number of processors. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct tallies *value;
} counters SEC(".maps");

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	struct scratch *value;
} scratches SEC(".maps");

/* Programs in which a specialised program continues: slot 0 is `fyke_socket`. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_PROG_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	u32 *value;
} tiers SEC(".maps");

/* Set by the lender of the memory to revoke the loan. Not in memory that is lent. */
volatile u32 fyke_revoked;

static const u32 forms[128] = FYKE_FORMS;

enum answer { FALSE = 0, TRUE = 1, OUT_OF_BOUNDS = 2 };

#define NOWHERE 0xffffffff

#include "frame.h"

/* Adds one to a counter of this processor, on which no other program runs: softirqs are off. */
INLINE void tally(u32 index)
{
	u32 cpu = processor();
	struct tallies *own = map_lookup(&counters, &cpu);

	/* A compiler that knows the range would leave the mask out, which the verifier needs. */
	asm volatile("" : "+r"(index));
	if (own)
		own->count[index & (FYKE_COUNTERS - 1)]++;
}

/* Number of bytes of a word under a mask, from the first one on. */
INLINE u32 needed(u32 mask, u32 width)
{
	u32 need = width;

	if ((mask & 0xff) == 0)
		need--;
	if ((mask & 0xffff) == 0)
		need--;
	if (width == 4 && (mask & 0xffffff) == 0)
		need--;
	if (width == 4 && mask == 0)
		need--;
	return need;
}

/* Loads a word outside of the head: its bytes under the mask, and zeros for the others. */
NOINLINE int load_far(CONTEXT *skb, struct scratch *s, u32 at, u32 mask, u32 width)
{
	u32 need = needed(mask, width);

	if (!s)
		return 0;
	s->word = 0;
	if (need == 0)
		return 1;
	if (need > 4 || at > 0xffffff || at + need > s->len)
		return 0;
	/* The verifier needs the bound immediately before the call. */
	u64 less = need - 1;
	asm volatile("%0 &= 3" : "+r"(less));
	if (at < s->cooked)
		return 0;
	return load_bytes(skb, at - s->cooked, &s->word, less + 1) == 0;
}

/* Copies the packet's first bytes, up to the size of the head; returns their number. */
INLINE u32 load_first(CONTEXT *skb, u8 *to, u32 bytes)
{
	u64 less = bytes - 1;

	if (bytes == 0)
		return 0;
	/* As above: a verifier of Linux 6.1 forgets a bound when the number moves to another register. */
	asm volatile("%0 &= %1" : "+r"(less) : "i"(FYKE_HEAD_BYTES - 1));
	return load_bytes(skb, 0, to, less + 1) == 0 ? bytes : 0;
}

/* Address of an existing byte and the eleven after it. */
INLINE const u8 *bytes_at(struct scratch *s, u32 at)
{
#ifdef FYKE_DIRECT
	return readable(s->data, 0) + at;
#else
	return s->head + (at & (FYKE_HEAD_BYTES - 1));
#endif
}

/* Loads the word at `at`, in host order; out of bounds if a byte under the mask does not exist. A client without
 * privilege may have chosen `at`, so its end may exceed 32 bits.
 */
INLINE int load(CONTEXT *skb, struct scratch *s, u32 at, u32 wide, u32 mask, u32 *value)
{
	if ((u64)at + 4 <= s->copied) {
		const u8 *from = bytes_at(s, at);
		*value = wide ? __builtin_bswap32(*(u32 *)from) : __builtin_bswap16(*(u16 *)from);
		return 1;
	}
	if (!load_far(skb, s, at, mask, wide ? 4 : 2))
		return 0;
	u32 word = __builtin_bswap32(s->word);
	*value = wide ? word : word >> 16;
	return 1;
}

INLINE int load_byte(CONTEXT *skb, struct scratch *s, u32 at, u32 *value)
{
	u32 word;

	if (!load(skb, s, at, 1, 0xff000000, &word))
		return 0;
	*value = word >> 24;
	return 1;
}

NOINLINE u32 l1_elsewhere(CONTEXT *skb, struct scratch *s, u32 header)
{
	u32 byte;

	if (!s || !load_byte(skb, s, header, &byte))
		return NOWHERE;
	return header + 4 * (byte & 0xf);
}

INLINE u32 l1_start(CONTEXT *skb, struct scratch *s, u32 header)
{
	return header == 14 ? s->l1 : l1_elsewhere(skb, s, header);
}

/* The end of the second header; computed once per frame for the usual header and field. */
NOINLINE u32 l2_start(CONTEXT *skb, struct scratch *s, u32 header, u32 field)
{
	u32 of = 1u << 31 | header << 16 | field;
	u32 byte, start;

	if (!s)
		return NOWHERE;
	if (s->l2_of == of)
		return s->l2;
	start = l1_start(skb, s, header);
	if (start != NOWHERE)
		start = load_byte(skb, s, start + field, &byte) ? start + 4 * (byte >> 4) : NOWHERE;
	s->l2_of = of;
	s->l2 = start;
	return start;
}

#include "rows.h"

/* Loads one part of a collapsed shape's key: one or two words. */
INLINE int part(CONTEXT *skb, struct scratch *s, u32 place, u32 mask, u32 header,
		u32 *first, u32 *second)
{
	u32 at = place & FYKE_PART_OFFSET_MASK;
	u32 wide = place & FYKE_PART_WIDE;

	if (place & FYKE_PART_L1) {
		u32 start = l1_start(skb, s, header & 0xffff);
		if (start == NOWHERE)
			return 0;
		at += start;
	}
	if (!load(skb, s, at, wide, mask, first))
		return 0;
	*first &= mask;
	*second = *first;
	if (place & FYKE_PART_EITHER) {
		if (!load(skb, s, at + (wide ? 4 : 2), wide, mask, second))
			return 0;
		*second &= mask;
	}
	return 1;
}

/* Evaluates a collapsed shape: one or two hints, and a look-up if they admit the key, whatever the number of rows. */
NOINLINE int collapsed(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i)
{
	u32 a, b, c = 0, d = 0;

	if (!s || !i)
		return OUT_OF_BOUNDS;
	u32 table = i->params[0], header = i->params[6], low = i->params[3];

	if (!part(skb, s, i->params[1], i->params[2], header, &a, &b))
		return OUT_OF_BOUNDS;
	if (low & FYKE_PART_PRESENT && !part(skb, s, low, i->params[4], header, &c, &d))
		return OUT_OF_BOUNDS;
	c &= 0xffff;
	d &= 0xffff;
	u32 zero = 0;
	struct bucket_array *all = map_lookup(&rows, &zero);
	if (!all)
		return FALSE;
	table &= 0xffff;
	if (is_one_row(all, table, a, c, d))
		return TRUE;
	return a != b && is_one_row(all, table, b, c, d) ? TRUE : FALSE;
}

/* Tests a run of words, all of which must match. */
INLINE int run(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i,
	       u32 kind, u32 at, u32 count)
{
	int answer = TRUE;

	for (u32 n = 0; n < 5; n++) {
		u32 value, want, mask = 0xffffffff, wide = 1;

		if (n >= count)
			break;
		if (kind == FYKE_KIND_MASKED32) {
			if (n >= 3)
				break;
			want = i->params[2 * n];
			mask = i->params[2 * n + 1];
		} else if (kind == FYKE_KIND_ALL16) {
			want = i->params[0] >> (16 * (n & 1)) & 0xffff;
			mask = 0xffff;
			wide = 0;
		} else {
			want = i->params[n];
		}
		if (mask && !load(skb, s, at, wide, mask, &value))
			return OUT_OF_BOUNDS;
		if (mask && ((value ^ want) & mask))
			answer = FALSE;
		at += wide ? 4 : 2;
	}
	return answer;
}

/* Tests that the first `bits` bits of 16 bytes are those of params[2] to params[5]. */
NOINLINE int prefix(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i,
		    u32 at)
{
	if (!s || !i)
		return OUT_OF_BOUNDS;
	u32 bits = i->params[0];
	int answer = TRUE;

#pragma unroll
	for (u32 n = 0; n < 4; n++) {
		u32 value, mask = 0xffffffff;

		if (bits <= 32 * n)
			break;
		if (bits < 32 * (n + 1))
			mask <<= 32 * (n + 1) - bits;
		if (!load(skb, s, at + 4 * n, 1, mask, &value))
			return OUT_OF_BOUNDS;
		if ((value ^ i->params[2 + n]) & mask)
			answer = FALSE;
	}
	return answer;
}

INLINE int addr6(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i, u32 at)
{
	int first = prefix(skb, s, i, at);

	if (first == OUT_OF_BOUNDS || i->params[1] == 0)
		return first;
	int second = prefix(skb, s, i, at + i->params[1]);
	if (second == OUT_OF_BOUNDS)
		return second;
	return first == TRUE || second == TRUE ? TRUE : FALSE;
}

NOINLINE int run_noinline(CONTEXT *skb, struct scratch *s,
			  const struct fyke_instruction *i, u32 where)
{
	if (!s || !i)
		return OUT_OF_BOUNDS;
	u32 form = forms[i->command & FYKE_OPCODE_MASK];

	if ((form & FYKE_FORM_KIND) == FYKE_KIND_ADDR6)
		return addr6(skb, s, i, where);
	if ((form & FYKE_FORM_KIND) == FYKE_KIND_SET6)
		return set6_noinline(skb, s, i, where);
	return run(skb, s, i, form & FYKE_FORM_KIND, where,
		   i->command >> FYKE_COUNT_SHIFT & FYKE_COUNT_MASK);
}

#include "code.h"

#include "compare.h"

/* Loads for tests without an offset in the frame. */
INLINE int load_other(CONTEXT *skb, struct scratch *s, const struct fyke_instruction *i,
		  u32 kind, u32 *x, u32 *mask)
{
	*mask = 0xffffffff;
	if (kind == FYKE_KIND_LENGTH) {
		/* libpcap's filters do not count the header of cooked captures, either. */
		*x = s->len - s->cooked;
	} else {
		*mask = i->params[0];
		u32 field = i->command >> FYKE_OFFSET_SHIFT;
		*x = field == FYKE_META_DIRECTION ? packet_type(skb, s) + 1 : interface(skb);
	}
	return 1;
}

/* An instruction and the one after it: `any` may read the eighth parameter, which none has. */
struct pair {
	struct fyke_instruction one;
	struct fyke_instruction after;
};

/* Evaluates an instruction. The verifier looks at a function once, for any arguments. While this one was inlined into
 * the loop, the verifier repeated most of its paths for most states of the loop: 72,500 instructions, now 11,600.
 */
NOINLINE int evaluate(CONTEXT *skb, struct scratch *s, const struct pair *instruction)
{
	if (!s || !instruction)
		return OUT_OF_BOUNDS;
	const struct fyke_instruction *i = &instruction->one;
	u32 command = i->command;
	u32 form = forms[command & FYKE_OPCODE_MASK];
	u32 kind = form & FYKE_FORM_KIND;
	u32 count = command >> FYKE_COUNT_SHIFT & FYKE_COUNT_MASK;
	u32 first = form >> FYKE_FORM_FIRST_SHIFT & 7;
	u32 at = command >> FYKE_OFFSET_SHIFT;
	u32 base = form & FYKE_FORM_BASE;
	u32 wide, mask, x, y, far;

	if (base == FYKE_FORM_L1) {
		u32 start = l1_start(skb, s, i->params[6] & 0xffff);
		if (start == NOWHERE)
			return OUT_OF_BOUNDS;
		at += start;
	} else if (base == FYKE_FORM_L2) {
		u32 start = l2_start(skb, s, i->params[5] & 0xffff, i->params[6] & 0xffff);
		if (start == NOWHERE)
			return OUT_OF_BOUNDS;
		at += start;
	} else if (base == FYKE_FORM_NONE) {
		if (kind == FYKE_KIND_NONE)
			return TRUE;
		if (kind == FYKE_KIND_ROWS)
			return collapsed(skb, s, i);
		if (kind == FYKE_KIND_CODE)
			return run_code(skb, s, i->params[0]);
		if (kind == FYKE_KIND_UNKNOWN)
			return OUT_OF_BOUNDS;
		load_other(skb, s, i, kind, &x, &mask);
		kind = kind == FYKE_KIND_LENGTH ? FYKE_KIND_INTERVAL32 : FYKE_KIND_ANY32;
		return any(i, kind, first, count, mask, x & mask, x & mask);
	}
	if (kind == FYKE_KIND_MASKED32 && (u64)at + 12 <= s->copied)
		return masked(s, i, at, count);
	if (kind >= FYKE_KIND_ADDR6)
		return run_noinline(skb, s, i, at);
	wide = form & FYKE_FORM_WIDE;
	if (command & FYKE_SHORT)
		wide = 0;
	mask = wide ? 0xffffffff : 0xffff;
	if (first)
		mask = i->params[0];
	if (!load(skb, s, at, wide, mask, &x))
		return OUT_OF_BOUNDS;
	far = 0;
	if (command & FYKE_EITHER || form & FYKE_FORM_ADJACENT)
		far = wide ? 4 : 2;
	if (first == 2)
		far = i->params[1];
	x &= mask;
	y = x;
	if (far) {
		if (!load(skb, s, at + far, wide, mask, &y))
			return OUT_OF_BOUNDS;
		y &= mask;
	}
	if (kind == FYKE_KIND_SET)
		return in_set(i->params[2], x, y);
	return any(i, kind, first, count, mask, x, y);
}

#include "head.h"

#ifndef FYKE_XDP
#include "conversation.h"
#endif

/* Position of a frame in the list. */
struct walk {
	u32 pc;
	u32 next;
	u32 budget;
	u32 counter;
	u32 class;
	enum { REJECTED, CAPPED, ACCEPTED } verdict;
};

/* Runs one instruction; 0 if there is a verdict. */
INLINE int step(CONTEXT *skb, struct scratch *s, struct memory *m, struct walk *w)
{
	u32 pc = w->pc & (FYKE_SLOTS * FYKE_SLOT_INSTRUCTIONS - 1);

	w->verdict = REJECTED;
	if (pc == 0)
		return 0;
	w->verdict = CAPPED;
	if (w->budget == 0)
		return 0;
	w->budget--;
	const struct fyke_instruction *i = &m->instructions[pc];
	u32 command = i->command;
	const struct fyke_instruction *trailer = &m->instructions[pc | FYKE_TRAILER];

	if ((command & FYKE_OPCODE_MASK) == FYKE_OP_TRAILER) {
		w->pc = *(volatile u32 *)&i->params[FYKE_CONTINUE];
		return 1;
	}
	u32 form = forms[command & FYKE_OPCODE_MASK], at = command >> FYKE_OFFSET_SHIFT;
	u32 count = command >> FYKE_COUNT_SHIFT & FYKE_COUNT_MASK;
	int answer;

	/* PERF: the usual instructions, without a call: `ip` takes 6 ns instead of 16, `src or dst net` 16 instead of 35
	 * (bench dynamic, case cost). Processors that protect returns need 10 ns for a call.
	 */
	u32 base = form & FYKE_FORM_BASE;
	if (base == FYKE_FORM_L1 && (i->params[6] & 0xffff) == 14)
		at += s->l1;
	else if (base == FYKE_FORM_L1)
		at = NOWHERE;
	if (form == FYKE_KIND_ROWS)
		answer = collapsed(skb, s, i);
	else if ((form & FYKE_FORM_KIND) == FYKE_KIND_NONE)
		answer = TRUE;
	else if (base == FYKE_FORM_L2 || base == FYKE_FORM_NONE || (u64)at + 12 > s->copied)
		answer = evaluate(skb, s, (const struct pair *)i);
	else if ((form & FYKE_FORM_KIND) == FYKE_KIND_MASKED32)
		answer = masked(s, i, at, count);
	else if (count == 1 && is_single(form))
		answer = single(s, i, form, at);
	else
		answer = evaluate(skb, s, (const struct pair *)i);

	if (answer != (command & FYKE_NEG ? FALSE : TRUE)) {
		w->pc = *(volatile u32 *)&trailer->params[w->next & 3];
	} else if (command & FYKE_LAST) {
		w->counter = trailer->params[FYKE_COUNTER];
		w->class = trailer->params[FYKE_CLASS];
		w->verdict = ACCEPTED;
		return 0;
	} else {
		w->pc = pc + 1;
	}
	return 1;
}

#ifdef FYKE_CALLBACKS
struct passes_context {
	CONTEXT *skb;
	struct scratch *s;
	struct memory *m;
	struct walk walk;
};

static long passes_callback(u32 index, void *context)
{
	struct passes_context *c = context;

	return !step(c->skb, c->s, c->m, &c->walk);
}
#endif

/* Runs all passes, or those that a specialised program does not cover: the value for the frame, and its counter. The
 * head of the frame has been located.
 */
INLINE struct decision judge(CONTEXT *skb, struct scratch *s, struct memory *m, u32 left)
{
	struct decision made = { .counter = FYKE_COUNTERS };

	/* All later addresses depend on this load, so the words that the writer stored before it published are
	 * visible, on every processor that Linux supports.
	 */
	struct walk w = {
		.pc = left ? *(volatile u32 *)&m->control.rest : *(volatile u32 *)&m->control.head,
		.next = left ? FYKE_REST : FYKE_NEXT,
		.budget = *(volatile u32 *)&m->control.budget,
	};

	/* Short frames are evaluated only by the texts, in their own order. */
	u32 after_header = m->control.short_behind;
	if (s->len < m->control.short_below || (after_header && s->len < s->l1 + after_header)) {
		w.next = FYKE_NEXT;
		w.pc = *(volatile u32 *)&m->control.short_head;
	}
	if (w.budget > FYKE_BUDGET_LIMIT)
		w.budget = FYKE_BUDGET_LIMIT;
	/* Stored and read back, because the loop must start from a number that the verifier does not know. */
	s->word = w.budget;
	w.budget = *(volatile u32 *)&s->word;
#ifdef FYKE_CALLBACKS
	struct passes_context c = { .skb = skb, .s = s, .m = m, .walk = w };

	loop(FYKE_BUDGET_LIMIT + 1, passes_callback, &c, 0);
	w = c.walk;
#else
	while (step(skb, s, m, &w))
		MAY_GOTO(over);
over:
#endif
	made.verdict = m->control.reject;
	if (w.verdict == ACCEPTED && w.counter - FYKE_COUNT_LATER < FYKE_LATER) {
		made.counter = w.counter;
	} else if (w.verdict == ACCEPTED) {
		made.counter = w.counter;
		made.class = w.class;
		made.verdict = m->control.accept;
	} else if (w.verdict == CAPPED || s->steps == 0) {
		made.counter = FYKE_COUNT_CAPPED;
		if (m->control.flags & FYKE_FLAG_PASS_CAPPED)
			made.verdict = m->control.accept;
	} else {
		/* One in this number passes, for a reader that evaluates it again, rejects it and counts it. */
		u32 sample = *(volatile u32 *)&m->control.sample;

		if (sample && random() % sample == 0) {
			made.counter = FYKE_COUNT_SAMPLED;
			made.verdict = m->control.accept;
		} else if (m->control.flags & FYKE_FLAG_COUNT_REJECTED) {
			made.counter = FYKE_COUNT_REJECTED;
		}
	}
	return made;
}

INLINE int run_passes(CONTEXT *skb, u32 left)
{
	u32 zero = 0;
	struct memory *m = map_lookup(&passes, &zero);
	struct scratch *s = map_lookup(&scratches, &zero);

	if (!m || !s || fyke_revoked)
		return 0;
#ifndef FYKE_XDP
	if (s->decision.made) {
		s->decision.made = 0;
		if (s->decision.counter < FYKE_COUNTERS)
			tally(s->decision.counter);
		return s->decision.verdict;
	}
#endif
	locate_head(skb, s);
#ifndef FYKE_XDP
	if (m->control.cooked)
		write_cooked_header(skb, s);
#endif
	struct decision made = judge(skb, s, m, left);

#ifdef FYKE_XDP
	s->decision = made;
#endif
	if (made.counter < FYKE_COUNTERS)
		tally(made.counter);
	return made.verdict;
}

#ifdef FYKE_XDP
/* Gives accepted frames to the program in `tiers`; the host gets all others. */
SEC("xdp")
int fyke_driver(struct xdp_md *context)
{
	if (run_passes(context, 0)) {
		tell_text(context);
		tail_call(context, &tiers, 0);
	}
	return leave(context);
}
#else
SEC("socket")
int fyke_socket(CONTEXT *skb)
{
	return run_passes(skb, skb->cb[0] == FYKE_RUN_REST);
}

/* Runs fyke_socket, for kernels up to 6.7: there a program counts against the option memory of its socket (20 KiB), and
 * fyke_socket is longer. The slot is empty if the writer has ended; all frames are accepted then, as by a specialised
 * program that needs the interpreter.
 */
SEC("socket")
int fyke_entry(CONTEXT *skb)
{
	u32 zero = 0;
	struct memory *m = map_lookup(&passes, &zero);

	/* Run all passes, not only the rest. */
	skb->cb[0] = 0;
	tail_call(skb, &tiers, 0);
	return m && !fyke_revoked ? m->control.accept : 0;
}

/* Selects the socket of a group that gets a frame (PACKET_FANOUT_EBPF), and decides for the program of that socket,
 * which runs next on this processor. The kernel takes the result modulo the number of sockets.
 */
SEC("socket")
int fyke_fanout(CONTEXT *skb)
{
	u32 zero = 0;
	struct memory *m = map_lookup(&passes, &zero);
	struct scratch *s = map_lookup(&scratches, &zero);

	if (!m || !s || fyke_revoked)
		return 0;
	locate_head(skb, s);
	if (skb->pkt_type != PACKET_OUTGOING && !restore_link_header(skb, s)) {
		s->decision.made = 0;
		return 0;
	}
	struct decision made = judge(skb, s, m, 0);

	s->decision = made;
	s->decision.made = 1;
	return made.class ? made.class - 1 : conversation(skb, s, m->control.factor);
}

SEC("classifier")
int fyke_tcx(CONTEXT *skb)
{
	return run_passes(skb, 0);
}

/* Empty program, to measure the overhead of a call. */
SEC("socket")
int fyke_empty(CONTEXT *skb)
{
	return 0;
}

#endif

char fyke_license[] SEC("license") = "Dual MIT/GPL";
