/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Interpreter of classic BPF: texts in their own order, with arithmetic and computed offsets. A load outside of the
 * frame or a division by zero rejects the frame, as in every BPF. Jumps only go forward, and the number of instructions
 * of all programs for one frame is limited, whatever the memory holds. About 3 ns per instruction.
 *
 * Included once, after the loads that it uses.
 */

#define METADATA 0xfffff000

INLINE u32 metadata(CONTEXT *skb, struct scratch *s, u32 field)
{
	if (field == 4)
		return packet_type(skb, s);
	if (field == 8)
		return interface(skb);
	if (field == 44)
		return removed_tag(skb);
	return field == 48 && has_removed_tag(skb);
}

/* A shift by 32 or more gives 0. */
INLINE u32 shifted(u32 value, u32 by, int left)
{
	if (by > 31)
		return 0;
	return left ? value << by : value >> by;
}

/* The sixteen operations on accumulator and operand; the caller has rejected a division by zero. */
INLINE u32 computed(u32 op, u32 a, u32 b)
{
	switch (op) {
	case 0x00: return a + b;
	case 0x10: return a - b;
	case 0x20: return a * b;
	case 0x30: return a / b;
	case 0x40: return a | b;
	case 0x50: return a & b;
	case 0x60: return shifted(a, b, 1);
	case 0x70: return shifted(a, b, 0);
	case 0x80: return -a;
	case 0x90: return a % b;
	default: return a ^ b;
	}
}

INLINE int compared(u32 op, u32 a, u32 b)
{
	switch (op) {
	case 0x10: return a == b;
	case 0x20: return a > b;
	case 0x30: return a >= b;
	default: return (a & b) != 0;
	}
}

/* State of one run. */
struct registers {
	u32 a;
	u32 x;
	u32 pc;
	int answer;
};

/* Runs one instruction; 0 if the program has ended. */
INLINE int code_step(CONTEXT *skb, struct scratch *s, struct memory *m,
		     struct registers *r)
{
	u64 word = m->code[r->pc & (FYKE_CODE_WORDS - 1)];
	u32 code = word & 0xffff, k = word >> 32;
	u32 operand = code & 8 ? r->x : k;

	r->answer = OUT_OF_BOUNDS;
	if (s->steps == 0)
		return 0;
	s->steps--;
	r->pc++;
	switch (code & 7) {
	case 0: /* load */
		if ((code & 0xe0) == 0x00) {
			r->a = k;
		} else if ((code & 0xe0) == 0x80) {
			r->a = s->len - s->cooked;
		} else if ((code & 0xe0) == 0x60) {
			r->a = s->memory[k & (FYKE_CODE_MEMORY - 1)];
		} else if ((code & 0xe0) == 0x20 && k >= METADATA) {
			r->a = metadata(skb, s, k - METADATA);
		} else {
			u64 at = (u64)k + ((code & 0xe0) == 0x40 ? r->x : 0);
			u32 less = code & 0x18 ? (code & 0x10 ? 24 : 16) : 0, value;

			if (at > 0xffffff || !load(skb, s, at, 1, 0xffffffff << less, &value))
				return 0;
			r->a = value >> less;
		}
		return 1;
	case 1: /* index register */
		if ((code & 0xe0) == 0xa0) {
			u32 byte;

			if (k > 0xffffff || !load_byte(skb, s, k, &byte))
				return 0;
			r->x = 4 * (byte & 0xf);
		} else {
			r->x = (code & 0xe0) == 0x60 ? s->memory[k & (FYKE_CODE_MEMORY - 1)] : k;
		}
		return 1;
	case 2:
		s->memory[k & (FYKE_CODE_MEMORY - 1)] = r->a;
		return 1;
	case 4:
		if (operand == 0 && ((code & 0xf0) == 0x30 || (code & 0xf0) == 0x90))
			return 0;
		r->a = computed(code & 0xf0, r->a, operand);
		return 1;
	case 5:
		if ((code & 0xf0) == 0)
			r->pc += k & (FYKE_CODE_WORDS - 1);
		else if (compared(code & 0xf0, r->a, operand))
			r->pc += word >> 16 & 0xff;
		else
			r->pc += word >> 24 & 0xff;
		return 1;
	case 6:
		r->answer = k ? TRUE : FALSE;
		return 0;
	case 7:
		if (code & 0x80)
			r->a = r->x;
		else
			r->x = r->a;
		return 1;
	}
	return 0;
}

#ifdef FYKE_CALLBACKS
struct code_context {
	CONTEXT *skb;
	struct scratch *s;
	struct memory *m;
	struct registers r;
};

static long code_callback(u32 index, void *context)
{
	struct code_context *c = context;

	return !code_step(c->skb, c->s, c->m, &c->r);
}
#endif

NOINLINE int run_code(CONTEXT *skb, struct scratch *s, u32 place)
{
	u32 zero = 0;
	struct memory *m = map_lookup(&passes, &zero);
	struct registers r = { .pc = place };

	if (!s || !m)
		return OUT_OF_BOUNDS;
	/* Stored and read back. Before Linux 6.7 the verifier checks one round of a loop by calls, and assumes that the
	 * registers always hold what they hold before the first round. It then removes jumps that are not taken there.
	 */
	s->word = 0;
	r.a = *(volatile u32 *)&s->word;
	r.x = *(volatile u32 *)&s->word;
#ifdef FYKE_CALLBACKS
	struct code_context c = { .skb = skb, .s = s, .m = m, .r = r };

	loop(FYKE_CODE_LIMIT + 1, code_callback, &c, 0);
	return c.r.answer;
#else
	while (code_step(skb, s, m, &r))
		MAY_GOTO(over);
over:
	return r.answer;
#endif
}
