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
	u32 unused;
	/* FYKE_ARRIVAL for a socket; user space clears it before the kernel uses the memory again. */
	u64 mark;
};

#define FYKE_ARRIVAL 0x66796b6574696d65

/* Older kernels have room for 32 bytes. */
_Static_assert(sizeof(struct fyke_arrival) == 32, "arrival");
_Static_assert(__builtin_offsetof(struct fyke_arrival, device_ns) == 8, "device_ns");
_Static_assert(__builtin_offsetof(struct fyke_arrival, tag_protocol) == 16, "tag_protocol");
_Static_assert(__builtin_offsetof(struct fyke_arrival, tag) == 18, "tag");
_Static_assert(__builtin_offsetof(struct fyke_arrival, mark) == 24, "mark");

static long (*const adjust_meta)(struct xdp_md *context, int delta) =
	(void *)BPF_FUNC_xdp_adjust_meta;

/* The facts before a frame; 0 if there are none. */
static __attribute__((always_inline)) inline struct fyke_arrival *arrival_of(struct xdp_md *context)
{
	struct fyke_arrival *arrival = (void *)(long)context->data_meta;

	return (void *)(arrival + 1) <= (void *)(long)context->data ? arrival : 0;
}

/* Leaves a frame to the host, as the device delivered it. */
static __attribute__((always_inline)) inline int leave(struct xdp_md *context)
{
	if (arrival_of(context))
		adjust_meta(context, sizeof(struct fyke_arrival));
	return XDP_PASS;
}
