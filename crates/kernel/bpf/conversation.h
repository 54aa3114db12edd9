/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Frames as a program that selects a socket sees them, and the socket of a conversation.
 *
 * Included once, after the functions that load words of a frame.
 */

#define LINK_HEADER 14

/* Linux 4.18. */
static long (*const load_bytes_from)(const void *skb, u32 offset, void *to, u32 len, u32 start) =
	(void *)BPF_FUNC_skb_load_bytes_relative;

/* The kernel has moved the start of an incoming frame to the end of its link header. */
NOINLINE int restore_link_header(CONTEXT *skb, struct scratch *s)
{
	if (!s)
		return 0;
#ifdef FYKE_DIRECT
	s->data -= LINK_HEADER;
	s->copied += LINK_HEADER;
#else
	u32 len = skb->len, copied = len;

	if (copied > FYKE_HEAD_BYTES - LINK_HEADER)
		copied = FYKE_HEAD_BYTES - LINK_HEADER;
	if (load_bytes_from(skb, 0, s->head, LINK_HEADER, BPF_HDR_START_MAC))
		return 0;
	s->copied = load_first(skb, s->head + LINK_HEADER, copied) + LINK_HEADER;
#endif
	s->len += LINK_HEADER;
	s->cooked = LINK_HEADER;
	s->l1 = s->copied > 14 ? 14 + 4 * (*bytes_at(s, 14) & 0xf) : l1_elsewhere(skb, s, 14);
	return 1;
}

/* Mixes `words` words of an address; 0 in place of those that the frame does not have. */
INLINE u32 mixed(CONTEXT *skb, struct scratch *s, u32 at, u32 words, u32 factor)
{
	u32 folded = 0, word;

#pragma unroll
	for (u32 n = 0; n < 4; n++)
		if (n < words && load(skb, s, at + 4 * n, 1, 0xffffffff, &word))
			folded ^= word;
	folded *= factor;
	return folded ^ folded >> 15;
}

/* A number that all frames of a pair of addresses have, in both directions and in all fragments; 0 without addresses.
 * The same rule as in capture/src/flow.rs.
 */
NOINLINE u32 conversation(CONTEXT *skb, struct scratch *s, u32 factor)
{
	u32 word, at = LINK_HEADER, sum;

	if (!s || !load(skb, s, at - 2, 0, 0xffff, &word))
		return 0;
	if (word == 0x8100 || word == 0x88a8) {
		at += 4;
		if (!load(skb, s, at - 2, 0, 0xffff, &word))
			return 0;
	}
	if (word == 0x0800)
		sum = mixed(skb, s, at + 12, 1, factor) + mixed(skb, s, at + 16, 1, factor);
	else if (word == 0x86dd)
		sum = mixed(skb, s, at + 8, 4, factor) + mixed(skb, s, at + 24, 4, factor);
	else
		return 0;
	return sum * factor >> 16;
}
