/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the program knows of a frame besides its bytes: from the kernel's buffer or, at XDP, from the driver's.
 *
 * Included once, after the scratch memory that it reads.
 */

#ifdef FYKE_XDP
#include "arrival.h"

/* Bytes of a frame. Linux 5.18, as the load of its bytes. */
static u64 (*const buffer_len)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;

/* The interface's own address: its first byte is the lowest. */
volatile const u64 fyke_own_address = 0;

INLINE u32 frame_len(CONTEXT *context)
{
	return buffer_len(context);
}

INLINE u32 interface(CONTEXT *context)
{
	return context->ingress_ifindex;
}

/* The kind of packet, as the kernel determines it for sockets after this program: frames have a link header. */
INLINE u32 packet_type(CONTEXT *context, struct scratch *s)
{
	const u64 every = 0xffffffffffff;
	u64 to = *(u64 *)s->head & every;

	if (to & 1)
		return to == every ? PACKET_BROADCAST : PACKET_MULTICAST;
	return to == fyke_own_address ? PACKET_HOST : PACKET_OTHERHOST;
}

/* A tag that the device has removed is known if the driver told it; if not, user space does not see it, either. */
INLINE u32 has_removed_tag(CONTEXT *context)
{
	struct fyke_arrival *arrival = arrival_of(context);

	return arrival && arrival->tag_protocol != 0;
}

INLINE u32 removed_tag(CONTEXT *context)
{
	struct fyke_arrival *arrival = arrival_of(context);

	return arrival && arrival->tag_protocol != 0 ? arrival->tag : 0;
}

/* Stores the class and the counter of the text that accepted a frame before the frame. */
INLINE void tell_text(struct xdp_md *context)
{
	u32 zero = 0;
	struct scratch *s = map_lookup(&scratches, &zero);
	struct fyke_arrival *arrival = arrival_made(context);

	if (!s || !arrival)
		return;
	u32 class = s->decision.class, row = s->decision.counter;

	arrival->class = class > 0xffff ? 0 : class;
	arrival->row = row < FYKE_FIRST_PASS_COUNTER || row >= FYKE_COUNTERS ? 0 : row;
}
#else
INLINE u32 frame_len(CONTEXT *skb)
{
	return skb->len;
}

INLINE u32 interface(CONTEXT *skb)
{
	return skb->ifindex;
}

INLINE u32 packet_type(CONTEXT *skb, struct scratch *s)
{
	return skb->pkt_type;
}

INLINE u32 removed_tag(CONTEXT *skb)
{
	return skb->vlan_present ? skb->vlan_tci : 0;
}

INLINE u32 has_removed_tag(CONTEXT *skb)
{
	return skb->vlan_present;
}
#endif
