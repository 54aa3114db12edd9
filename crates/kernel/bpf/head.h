/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The first bytes of a frame: where they are, and what is computed from them once.
 *
 * Included once, after the functions that load words of a frame.
 */

/* Locates the head and computes what passes may need. */
INLINE void locate_head(CONTEXT *skb, struct scratch *s)
{
	u32 len = frame_len(skb), copied = len;

#ifdef FYKE_DIRECT
	struct sk_buff *buffer = kernel_buffer(skb);

	copied -= (u32)MEMBER("u32", buffer, FYKE_DATA_LEN_AT);
	s->data = MEMBER("u64", buffer, FYKE_DATA_AT);
#else
	if (copied > FYKE_HEAD_BYTES)
		copied = FYKE_HEAD_BYTES;
	copied = load_first(skb, s->head, copied);
#endif
	s->copied = copied;
	s->len = len;
	s->l2_of = 0;
	s->cooked = 0;
	s->steps = FYKE_CODE_LIMIT;
	/* Of a large frame from a packet socket only the link header may be in one piece with the head. */
	s->l1 = copied > 14 ? 14 + 4 * (*bytes_at(s, 14) & 0xf) : l1_elsewhere(skb, s, 14);
}

#ifndef FYKE_XDP
/* Writes the header that a cooked capture has in files (LINUX_SLL2) before the packet, with the fields that are known
 * here: protocol, interface, direction.
 */
NOINLINE int write_cooked_header(CONTEXT *skb, struct scratch *s)
{
	u32 len = skb->len, copied = len;

	if (!s)
		return 0;
	if (copied > FYKE_HEAD_BYTES - FYKE_COOKED_BYTES)
		copied = FYKE_HEAD_BYTES - FYKE_COOKED_BYTES;
	copied = load_first(skb, s->head + FYKE_COOKED_BYTES, copied);
	*(u16 *)s->head = skb->protocol;
	*(u16 *)(s->head + 2) = 0;
	*(u32 *)(s->head + 4) = __builtin_bswap32(skb->ifindex);
	*(u32 *)(s->head + 8) = 0;
	s->head[10] = skb->pkt_type;
	*(u64 *)(s->head + 12) = 0;
	s->data = (u64)s->head;
	s->copied = copied + FYKE_COOKED_BYTES;
	s->len = len + FYKE_COOKED_BYTES;
	s->l1 = 14 + 4 * (s->head[14] & 0xf);
	s->cooked = FYKE_COOKED_BYTES;
	return 1;
}

#endif
