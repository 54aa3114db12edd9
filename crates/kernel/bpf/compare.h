/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Comparisons of loaded values with the operands of an instruction. A frame costs one of them for each instruction that
 * loads a value.
 *
 * Included once, after the loads that it uses.
 */

/* True if one of the operands contains one of the two values (which are equal if there is one offset). */
INLINE int any(const struct fyke_instruction *i, u32 kind, u32 first, u32 count, u32 mask, u32 x,
	       u32 y)
{
	if (kind == FYKE_KIND_ANY16) {
#pragma unroll
		for (u32 n = 0; n < 7; n++) {
			u32 pair = i->params[(first + n) & 7];
			if (2 * n >= count)
				return 0;
			if (((pair ^ x) & mask) == 0 || ((pair ^ y) & mask) == 0)
				return 1;
			if (2 * n + 1 >= count)
				return 0;
			pair >>= 16;
			if (((pair ^ x) & mask) == 0 || ((pair ^ y) & mask) == 0)
				return 1;
		}
	} else if (kind == FYKE_KIND_ANY32) {
#pragma unroll
		for (u32 n = 0; n < 7; n++) {
			u32 operand = i->params[(first + n) & 7];
			if (n >= count)
				return 0;
			if (((operand ^ x) & mask) == 0 || ((operand ^ y) & mask) == 0)
				return 1;
		}
	} else if (kind == FYKE_KIND_INTERVAL16) {
#pragma unroll
		for (u32 n = 0; n < 7; n++) {
			u32 both = i->params[(first + n) & 7];
			u32 low = both & 0xffff, high = both >> 16;
			if (n >= count)
				return 0;
			if ((x >= low && x <= high) || (y >= low && y <= high))
				return 1;
		}
	} else {
#pragma unroll
		for (u32 n = 0; n < 3; n++) {
			u32 low = i->params[(first + 2 * n) & 7];
			u32 high = i->params[(first + 2 * n + 1) & 7];
			if (n >= count)
				return 0;
			if ((x >= low && x <= high) || (y >= low && y <= high))
				return 1;
		}
	}
	return 0;
}

/* Tests up to three words of which all bytes exist. */
INLINE int masked(struct scratch *s, const struct fyke_instruction *i, u32 at, u32 count)
{
	const u32 *from = (const u32 *)bytes_at(s, at);

	if ((__builtin_bswap32(from[0]) ^ i->params[0]) & i->params[1])
		return FALSE;
	if (count > 1 && (__builtin_bswap32(from[1]) ^ i->params[2]) & i->params[3])
		return FALSE;
	if (count > 2 && (__builtin_bswap32(from[2]) ^ i->params[4]) & i->params[5])
		return FALSE;
	return TRUE;
}

/* True for forms that compare one value, or two adjacent ones, with operands of 16 or 32 bits under one mask at most.
 */
INLINE int is_single(u32 form)
{
	u32 kind = form & FYKE_FORM_KIND;

	return (kind == FYKE_KIND_ANY16 || kind == FYKE_KIND_ANY32) &&
	       (form & ~FYKE_FORM_ADJACENT) < 2 << FYKE_FORM_FIRST_SHIFT;
}

/* Evaluates such a form with one operand; the eight bytes at `at` exist. */
INLINE int single(struct scratch *s, const struct fyke_instruction *i, u32 form, u32 at)
{
	const u32 *from = (const u32 *)bytes_at(s, at);
	u32 first = form >> FYKE_FORM_FIRST_SHIFT & 1;
	u32 x = __builtin_bswap32(from[0]), y = __builtin_bswap32(from[1]);
	u32 mask = 0xffffffff;

	if (!(form & FYKE_FORM_WIDE) || i->command & FYKE_SHORT) {
		y = x & 0xffff;
		x >>= 16;
		mask = 0xffff;
	}
	if (!(i->command & FYKE_EITHER || form & FYKE_FORM_ADJACENT))
		y = x;
	if (first)
		mask = i->params[0];
	u32 operand = i->params[first];
	return ((operand ^ x) & mask) == 0 || ((operand ^ y) & mask) == 0;
}
