/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Facts about a frame at XDP that are not in its bytes: immediately before them, so that they go with the frame from
 * one program to the next, and to a socket. capture/src/sys/xdp.rs reads them; redirect/bound.rs has the program that
 * asks the driver.
 *
 * Included once, after the types.
 */

struct fyke_arrival {
	/* Time of the monotonic clock. */
	u64 ns;
	/* Time of the device's own clock; 0: it told none. */
	u64 device_ns;
	/* The tag that the device removed: its protocol, in the network's order, 0 if it removed none; its content. */
	u16 tag_protocol;
	u16 tag;
	/* The class of the text that accepted the frame in the filter at the driver; 0: it has none, or one above 65,535,
	 * or no text accepted the frame there (no filter, its work limit, a sample).
	 */
	u16 class;
	/* The number of that text's counter, from FYKE_FIRST_PASS_COUNTER on; 0: no text accepted the frame there. */
	u16 row;
	/* FYKE_ARRIVAL for a socket; user space clears it before the kernel uses the memory again. */
	u64 mark;
};

#define FYKE_ARRIVAL 0x66796b6574696d65

/* Older kernels have room for 32 bytes. */
_Static_assert(sizeof(struct fyke_arrival) == 32, "arrival");
_Static_assert(__builtin_offsetof(struct fyke_arrival, device_ns) == 8, "device_ns");
_Static_assert(__builtin_offsetof(struct fyke_arrival, tag_protocol) == 16, "tag_protocol");
_Static_assert(__builtin_offsetof(struct fyke_arrival, tag) == 18, "tag");
_Static_assert(__builtin_offsetof(struct fyke_arrival, class) == 20, "class");
_Static_assert(__builtin_offsetof(struct fyke_arrival, row) == 22, "row");
_Static_assert(__builtin_offsetof(struct fyke_arrival, mark) == 24, "mark");

static long (*const adjust_meta)(struct xdp_md *context, int delta) =
	(void *)BPF_FUNC_xdp_adjust_meta;

/* The facts before a frame; 0 if there are none. */
static __attribute__((always_inline)) inline struct fyke_arrival *arrival_of(struct xdp_md *context)
{
	struct fyke_arrival *arrival = (void *)(long)context->data_meta;

	return (void *)(arrival + 1) <= (void *)(long)context->data ? arrival : 0;
}

/* The facts before a frame, all 0 if they are new; 0 if the driver has no room before its frames. */
static __attribute__((always_inline)) inline struct fyke_arrival *
arrival_made(struct xdp_md *context)
{
	struct fyke_arrival *arrival = arrival_of(context);

	if (!arrival && !adjust_meta(context, -(int)sizeof(*arrival))) {
		arrival = arrival_of(context);
		if (arrival) {
			arrival->device_ns = 0;
			arrival->tag_protocol = 0;
			arrival->tag = 0;
			arrival->class = 0;
			arrival->row = 0;
		}
	}
	return arrival;
}

/* Leaves a frame to the host, as the device delivered it. */
static __attribute__((always_inline)) inline int leave(struct xdp_md *context)
{
	if (arrival_of(context))
		adjust_meta(context, sizeof(struct fyke_arrival));
	return XDP_PASS;
}
