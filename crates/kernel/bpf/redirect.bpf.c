/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Gives the frames of an interface to AF_XDP sockets, one for each queue and worker. The host does not get these
 * frames; those of a queue without a socket, and those that are too long, pass to it and are counted.
 *
 * The worker of a frame is selected by the class that the filter before this program has stored before the frame, or
 * by its conversation if it has none.
 *
 * The time of arrival is stored before each frame. The tag that a device removed, and the device's own time, are stored
 * there by a program that is bound to the device and runs before this one (redirect/bound.rs), where the kernel and the
 * driver have that.
 *
 * The program cannot know whether a socket has room: the socket counts what it drops. So both counts together tell the
 * outcome of every frame. Linux 5.3 (the third argument of bpf_redirect_map). Source: the kernel's af_xdp.rst.
 */
#include <linux/bpf.h>
#include "redirect.h"

#define SEC(name) __attribute__((section(name), used))
#define TYPE_OF(value) int (*value)

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#include "arrival.h"

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static u32 (*const processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*const tail_call)(void *context, void *programs, u32 index) =
	(void *)BPF_FUNC_tail_call;
static long (*const redirect_map)(void *map, u64 key, u64 otherwise) =
	(void *)BPF_FUNC_redirect_map;
static u64 (*const monotonic_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct fyke_redirect *value;
} redirect SEC(".maps");

/* The loader sets max_entries to the number of processors. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct fyke_redirect_counts *value;
} counts SEC(".maps");

/* The sockets: queue * workers + worker. The loader sets max_entries. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_XSKMAP];
	TYPE_OF(max_entries)[1];
	u32 *key;
	u32 *value;
} sockets SEC(".maps");

/* Where the bound program continues: `fyke_redirect`. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_PROG_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	u32 *value;
} entry SEC(".maps");

/* The filter that frames go through. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_PROG_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	u32 *value;
} filter SEC(".maps");

/* Stores the facts before a frame, also after the bound program and the filter. */
static __attribute__((always_inline)) inline void tell(struct xdp_md *context)
{
	/* A driver may have no room before its frames; user space then takes the time of reading. */
	struct fyke_arrival *arrival = arrival_made(context);

	if (arrival) {
		arrival->ns = monotonic_ns();
		arrival->mark = FYKE_ARRIVAL;
	}
}

/* Mixes the words of an address. */
static __attribute__((always_inline)) inline u32 mixed(const u32 *words, u32 count, u32 factor)
{
	u32 folded = 0;

#pragma unroll
	for (u32 n = 0; n < 4; n++)
		if (n < count)
			folded ^= __builtin_bswap32(words[n]);
	folded *= factor;
	return folded ^ folded >> 15;
}

/* A number that all frames of a pair of addresses have, in both directions and in all fragments, after up to two tags;
 * 0 without addresses. The same rule as in capture/src/flow.rs.
 */
static __attribute__((always_inline)) inline u32 conversation(struct xdp_md *context, u32 factor)
{
	const u8 *end = (void *)(long)context->data_end;
	const u8 *at = (u8 *)(long)context->data + 14;
	u32 sum;

	if (at > end)
		return 0;
	u16 type = *(u16 *)(at - 2);

#pragma unroll
	for (u32 tags = 0; tags < 2; tags++) {
		if (type != __builtin_bswap16(0x8100) && type != __builtin_bswap16(0x88a8))
			break;
		at += 4;
		if (at > end)
			return 0;
		type = *(u16 *)(at - 2);
	}
	if (type == __builtin_bswap16(0x0800) && at + 20 <= end)
		sum = mixed((u32 *)(at + 12), 1, factor) + mixed((u32 *)(at + 16), 1, factor);
	else if (type == __builtin_bswap16(0x86dd) && at + 40 <= end)
		sum = mixed((u32 *)(at + 8), 4, factor) + mixed((u32 *)(at + 24), 4, factor);
	else
		return 0;
	return sum * factor >> 16;
}

/* The number of the socket of a frame; one that no socket has if its worker reads no more. */
static __attribute__((always_inline)) inline u32 socket_of(struct xdp_md *context,
							   struct fyke_redirect *own)
{
	u32 workers = *(volatile u32 *)&own->workers, number;

	if (workers <= 1)
		return context->rx_queue_index;
	struct fyke_arrival *arrival = arrival_of(context);

	if (arrival && arrival->class)
		number = arrival->class - 1;
	else
		number = conversation(context, *(volatile u32 *)&own->factor);
	number %= workers;
	if (*(volatile u32 *)&own->gone[number >> 5 & 1] >> (number & 31) & 1)
		return 0xffffffff;
	return context->rx_queue_index * workers + number;
}

static __attribute__((always_inline)) inline int deliver(struct xdp_md *context)
{
	u32 cpu = processor(), zero = 0;
	struct fyke_redirect_counts *here = map_lookup(&counts, &cpu);
	struct fyke_redirect *own = map_lookup(&redirect, &zero);

	if (!here || !own)
		return leave(context);
	if (context->data_end - context->data > *(volatile u32 *)&own->longest) {
		here->count[FYKE_COUNT_TOO_LONG]++;
		return leave(context);
	}
	long action = redirect_map(&sockets, socket_of(context, own), XDP_PASS);

	if (action != XDP_REDIRECT) {
		here->count[FYKE_COUNT_NO_SOCKET]++;
		return leave(context);
	}
	here->count[FYKE_COUNT_REDIRECTED]++;
	tell(context);
	return action;
}

/* Continues after the filter. */
SEC("xdp")
int fyke_deliver(struct xdp_md *context)
{
	return deliver(context);
}

SEC("xdp")
int fyke_redirect(struct xdp_md *context)
{
	u32 zero = 0;
	struct fyke_redirect *own = map_lookup(&redirect, &zero);

	if (!own || !*(volatile u32 *)&own->on)
		return leave(context);
	u32 wanted = *(volatile u32 *)&own->queue;

	if (wanted != FYKE_EVERY_QUEUE && wanted != context->rx_queue_index)
		return leave(context);
	if (*(volatile u32 *)&own->filters)
		tail_call(context, &filter, 0);
	return deliver(context);
}

char fyke_license[] SEC("license") = "Dual MIT/GPL";
