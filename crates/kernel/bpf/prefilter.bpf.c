/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Deri's Bloom pre-filter in the kernel: rejects frames that certainly match no rule, from arrays that user space
 * writes into mapped memory.
 *
 * Programs at three places read the same arrays. `fyke_tap` is the first filter of a monitoring socket, before the
 * passes (fyke.bpf.c), and `fyke_in` and `fyke_out` count and copy frames of both directions at tcx: the host's own
 * traffic is untouched. `fyke_drop` runs at XDP: its rejects are lost for the host, too.
 *
 * The programs read frames with plain headers, as crates/table's prefilter/plain.rs does: Ethernet, at most one
 * VLAN tag, IPv4 without options or IPv6 without extension headers, and a transport that carries no other packet. All
 * other frames pass, and user space decides about them. So a frame that matches a rule is never rejected, whatever its
 * encapsulation.
 *
 * A run takes one look at each probe, and both ends of the packet; the first hit ends it. It writes only counters.
 * Linux 5.5, at tcx 6.6. Source: Deri, High-Speed Dynamic Packet Filtering (2007).
 */
#include <linux/bpf.h>
#include "prefilter.h"

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
#define TYPE_OF(value) int (*value)

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const load_bytes)(const void *skb, u32 offset, void *to, u32 len) =
	(void *)BPF_FUNC_skb_load_bytes;
static long (*const tail_call)(void *skb, void *programs, u32 index) =
	(void *)BPF_FUNC_tail_call;
static long (*const clone_redirect)(void *skb, u32 interface, u64 flags) =
	(void *)BPF_FUNC_clone_redirect;
static u32 (*const processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;

#ifdef FYKE_DIRECT
/* See fyke.bpf.c. */
struct sk_buff;
#define MEMBER(size, buffer, offset)                                                       \
	({                                                                                 \
		u64 member;                                                                \
		asm volatile("%0 = *(" size " *)(%1 + %2)"                                 \
			     : "=r"(member) : "r"(buffer), "i"(offset));                   \
		member;                                                                    \
	})
static struct sk_buff *(*const kernel_buffer)(struct __sk_buff *skb) = (void *)FYKE_CAST_CONTEXT;
static const u8 *(*const readable)(u64 address, u32 type) = (void *)FYKE_CAST_MEMORY;
#endif

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct fyke_tap *value;
} tap SEC(".maps");

/* The loader sets max_entries to the number of processors. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	TYPE_OF(map_flags)[BPF_F_MMAPABLE];
	u32 *key;
	struct fyke_tap_counts *value;
} tap_counts SEC(".maps");

/* The filter of the socket, to which frames go that pass. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_PROG_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	u32 *value;
} after SEC(".maps");

/* The loader sets it to the number of words of all arrays, a power of two, less 1. */
volatile const u32 fyke_word_mask = 0xfffff;

/* The arrays: the address of a map's only value, so that no look-up is needed. */
INLINE struct fyke_arrays *arrays(void)
{
	u64 address;

	asm volatile("%0 = %1 ll" : "=r"(address) : "i"(FYKE_ARRAYS));
	return (struct fyke_arrays *)address;
}

enum answer { NO, MAYBE, UNDECIDED };

/* Place of the bytes that a program reads. */
enum place { COPIED, IN_PLACE, PACKET };

/* Bytes that the plain forms of frames have at most before the ninth byte of the transport. */
#define HEAD_BYTES (18 + 40 + 8)

/* The start of a frame. In a copy, the network header is aligned, as the verifier demands for the stack. */
struct view {
	const u8 *at;
	/* Bytes that can be read, except for a PACKET, which has an end. */
	u32 readable;
	const u8 *end;
	/* Bytes of the frame. */
	u32 len;
	/* VLAN that the device took out of the frame, and whether it did. */
	u32 tag;
	u32 is_tagged;
	/* True if a device may have taken out a tag that the program cannot see. */
	u32 hides_tags;
};

enum ports { KNOWN, NONE, HIDDEN };

/* It is in scratch memory of the processor, on which no other program runs: softirqs are off. So the verifier looks at
 * the look-ups once; on the stack, it would remember what each kind of frame stored, and repeat them for each.
 */
struct packet {
	/* FYKE_PROBE_V4 or FYKE_PROBE_V6; 0 for a frame with nothing that rules can name. */
	u32 family;
	/* VLAN and protocol, in the form of keys. */
	u32 kind;
	u32 is_tagged;
	u32 hides_tags;
	u32 ports;
	u32 port[2];
	/* Source and destination, least significant word first. */
	u32 address[2][4];
};

_Static_assert(sizeof(struct packet) <= sizeof(((struct fyke_tap_counts *)0)->scratch), "packet");

#define PLACED(n) (from == PACKET ? v->at + (n) <= v->end : (n) <= v->readable)

INLINE u32 half(const u8 *at)
{
	return __builtin_bswap16(*(const u16 *)at);
}

INLINE u32 word(const u8 *at)
{
	return __builtin_bswap32(*(const u32 *)at);
}

/* True if a packet may follow this UDP destination port (plain.rs, is_tunnel). */
INLINE int is_tunnel(u32 port)
{
	return port == 2152 || port == 4789 || port == 4790 || port == 6081 || port == 8472;
}

INLINE int without_ports(struct packet *p, u32 why)
{
	p->ports = why;
	p->port[0] = 0;
	p->port[1] = 0;
	return 1;
}

/* Reads the ports of a transport that carries no packet; 0 if the header walk must decide. */
INLINE int transport(const u8 *at, u32 protocol, struct packet *p)
{
	if (protocol == 1 || protocol == 58 || protocol == 50)
		return without_ports(p, NONE);
	if (protocol != 6 && protocol != 17)
		return 0;
	/* A UDP length of 0 means all of the packet. */
	u32 len = half(at + 4), destination = half(at + 2);
	p->ports = KNOWN;
	p->port[0] = half(at);
	p->port[1] = destination;
	return protocol == 6 || ((len == 0 || len >= 8) && !is_tunnel(destination));
}

INLINE int read_v4(const struct view *v, enum place from, u32 at, u32 tag, struct packet *p)
{
	if (!PLACED(at + 28))
		return 0;
	const u8 *header = v->at + at;
	u32 total = half(header + 2);
	/* A total length of 0 means all of the frame. */
	if (header[0] != 0x45 || (total && total < 28))
		return 0;
	u32 protocol = header[9];
	p->family = FYKE_PROBE_V4;
	p->kind = tag | protocol;
	p->address[0][0] = word(header + 12);
	p->address[1][0] = word(header + 16);
	if (half(header + 6) & 0x1fff)
		return without_ports(p, HIDDEN);
	return transport(header + 20, protocol, p);
}

INLINE int read_v6(const struct view *v, enum place from, u32 at, u32 tag, struct packet *p)
{
	if (!PLACED(at + 48))
		return 0;
	const u8 *header = v->at + at;
	u32 payload = half(header + 4);
	if ((header[0] & 0xf0) != 0x60 || (payload && payload < 8))
		return 0;
	p->family = FYKE_PROBE_V6;
	p->kind = tag | header[6];
#pragma unroll
	for (u32 n = 0; n < 4; n++) {
		p->address[0][3 - n] = word(header + 8 + 4 * n);
		p->address[1][3 - n] = word(header + 24 + 4 * n);
	}
	return transport(header + 40, header[6], p);
}

/* Reads a frame; 0 if the header walk of user space must decide. */
INLINE int read_frame(const struct view *v, enum place from, struct packet *p)
{
	if (!PLACED(14))
		return 0;
	u32 type = half(v->at + 12), tag = v->tag << 8;

	p->family = 0;
	p->hides_tags = v->hides_tags;
	p->is_tagged = v->is_tagged;
	if (type == 0x8100) {
		if (v->is_tagged || !PLACED(18))
			return 0;
		p->is_tagged = 1;
		tag = (half(v->at + 14) & 0xfff) << 8;
		type = half(v->at + 16);
		if (type == 0x0800)
			return read_v4(v, from, 18, tag, p);
		if (type == 0x86dd)
			return read_v6(v, from, 18, tag, p);
		return 0;
	}
	if (type == 0x0800)
		return read_v4(v, from, 14, tag, p);
	if (type == 0x86dd)
		return read_v6(v, from, 14, tag, p);
	/* ARP with all of its addresses names nothing that a rule can, except for a hidden tag. */
	if (type != 0x0806 || v->is_tagged || !PLACED(20))
		return 0;
	return v->len >= 22 + 2 * ((u32)v->at[18] + v->at[19]);
}

INLINE u32 spread(u64 sum)
{
	u32 h = sum >> 32;

	h ^= h >> 15;
	h *= 0x2c1b3c6d;
	return h ^ h >> 12;
}

/* Tests the bit of one hash function. */
INLINE int is_set(const struct fyke_arrays *a, const struct fyke_probe *q, u32 function, u32 kind,
		  u32 port, const u32 *address, u32 family)
{
	const u64 *m = function < 2 ? q->multipliers[function] : q->more_multipliers[function - 2];
	u64 sum = function < 2 ? q->offset[function] : q->more_offset[function - 2];

	sum += m[0] * kind + m[1] * port;

	sum += m[2] * (address[0] & q->net[0]);
	if (family == FYKE_PROBE_V6) {
		sum += m[3] * (address[1] & q->net[1]);
		sum += m[4] * (address[2] & q->net[2]);
		sum += m[5] * (address[3] & q->net[3]);
	}
	u32 position = (spread(sum) * q->bits) >> 32;
	u32 index = (q->first + (position >> 5)) & fyke_word_mask;
	return *(volatile const u32 *)&a->words[index] >> (position & 31) & 1;
}

/* Looks up both ends of a packet. */
INLINE enum answer look_up(const struct fyke_arrays *a, const struct packet *p)
{
	u32 count = *(volatile const u32 *)&a->probe_count;
	u32 undecided = 0;

	/* Fields are read from memory again, so that the verifier does not know what was stored there. */
	asm volatile("" : "+r"(p) : : "memory");

	for (u32 n = 0; n < FYKE_PROBES; n++) {
		if (n >= count)
			break;
		const struct fyke_probe *q = &a->probes[n];
		u32 flags = *(volatile const u32 *)&q->flags;

		if (!(flags & p->family)) {
			undecided |= !p->family && p->hides_tags && flags & FYKE_PROBE_VLAN;
			continue;
		}
		if (flags & FYKE_PROBE_PORT && p->ports != KNOWN) {
			undecided |= p->ports == HIDDEN;
			continue;
		}
		if (flags & FYKE_PROBE_VLAN && !p->is_tagged) {
			undecided |= p->hides_tags;
			continue;
		}
		u32 kind = p->kind & q->fields[0];
		/* A further hash is computed only if all before it hit, the destination only if the source does not. */
#pragma unroll
		for (u32 end = 0; end < 2; end++) {
			u32 port = p->port[end] & q->fields[1];

			if (is_set(a, q, 0, kind, port, p->address[end], p->family) &&
			    is_set(a, q, 1, kind, port, p->address[end], p->family) &&
			    (!(flags & FYKE_PROBE_PAIRS) ||
			     (is_set(a, q, 2, kind, port, p->address[end], p->family) &&
			      is_set(a, q, 3, kind, port, p->address[end], p->family))))
				return MAYBE;
		}
	}
	return undecided ? UNDECIDED : NO;
}

/* Counters and scratch memory of this processor. */
INLINE struct fyke_tap_counts *counts_here(void)
{
	u32 cpu = processor();

	return map_lookup(&tap_counts, &cpu);
}

/* True if there are rules in force; without a rule, every frame passes. */
INLINE int in_force(const struct fyke_arrays *a)
{
	return *(volatile const u32 *)&a->enabled && *(volatile const u32 *)&a->probe_count;
}

/* True if a frame with this answer is rejected. An undecided one always passes. */
INLINE int rejects(const struct fyke_arrays *a, enum answer answer)
{
	return answer == (a->negative ? MAYBE : NO);
}

/* Starts the view of a frame with what is not in its bytes. */
INLINE struct view view_of(struct __sk_buff *skb)
{
	struct view v = { .len = skb->len };

	v.is_tagged = skb->vlan_present;
	if (v.is_tagged)
		v.tag = skb->vlan_tci & 0xfff;
	return v;
}

/* Reads a copy of a frame's head; 0 if user space must decide. */
INLINE int read_copy(struct __sk_buff *skb, struct view v, struct packet *p)
{
	u64 copy[9] = {};
	u64 less = v.len - 1;

	if (v.len == 0)
		return 0;
	if (less > HEAD_BYTES - 1)
		less = HEAD_BYTES - 1;
	/* The verifier needs the bound immediately before the call. */
	asm volatile("%0 &= 127" : "+r"(less));
	if (less > HEAD_BYTES - 1)
		return 0;
	if (load_bytes(skb, 0, (u8 *)copy + 2, less + 1))
		return 0;
	v.at = (u8 *)copy + 2;
	v.readable = less + 1;
	return read_frame(&v, COPIED, p);
}

/* Reads the frame of a socket; 0 if user space must decide. */
INLINE int read_socket(struct __sk_buff *skb, struct packet *p)
{
	struct view v = view_of(skb);

#ifdef FYKE_DIRECT
	struct sk_buff *buffer = kernel_buffer(skb);

	v.readable = v.len - (u32)MEMBER("u32", buffer, FYKE_DATA_LEN_AT);
	if (v.readable >= HEAD_BYTES || v.readable == v.len) {
		v.at = readable(MEMBER("u64", buffer, FYKE_DATA_AT), 0);
		return read_frame(&v, IN_PLACE, p);
	}
#endif
	return read_copy(skb, v, p);
}

/* Reads the frame of an interface; 0 if user space must decide. */
INLINE int read_interface(struct __sk_buff *skb, struct packet *p)
{
	struct view v = view_of(skb);

	v.at = (u8 *)(long)skb->data;
	v.end = (u8 *)(long)skb->data_end;
	if (v.end - v.at >= HEAD_BYTES || v.end - v.at == v.len)
		return read_frame(&v, PACKET, p);
	return read_copy(skb, v, p);
}

SEC("socket")
int fyke_tap(struct __sk_buff *skb)
{
	const struct fyke_arrays *a = arrays();
	u32 zero = 0;
	struct fyke_tap *own = map_lookup(&tap, &zero);

	if (!own)
		return -1;
	if (*(volatile u32 *)&own->on && in_force(a)) {
		struct fyke_tap_counts *counts = counts_here();
		struct packet *p = counts ? (struct packet *)counts->scratch : 0;

		if (counts && read_socket(skb, p) && rejects(a, look_up(a, p))) {
			counts->count[FYKE_COUNT_REJECTED]++;
			return 0;
		}
	}
	if (*(volatile u32 *)&own->follows)
		tail_call(skb, &after, 0);
	return own->accept;
}

/* The same at tcx: the frame passes in any case. */
INLINE int watch(struct __sk_buff *skb, u32 direction)
{
	const struct fyke_arrays *a = arrays();
	struct fyke_tap_counts *counts = counts_here();
	u32 zero = 0;
	struct fyke_tap *own = map_lookup(&tap, &zero);

	if (!counts || !own)
		return -1;
	if (in_force(a)) {
		struct packet *p = (struct packet *)counts->scratch;

		if (!read_interface(skb, p)) {
			counts->count[FYKE_COUNT_UNREAD]++;
		} else if (rejects(a, look_up(a, p))) {
			counts->count[direction + 1]++;
			return -1;
		}
	}
	counts->count[direction]++;
	u32 to = *(volatile u32 *)&own->copy_to;

	if (to && clone_redirect(skb, to, 0))
		counts->count[FYKE_COUNT_NOT_COPIED]++;
	return -1;
}

SEC("classifier/in")
int fyke_in(struct __sk_buff *skb)
{
	return watch(skb, FYKE_COUNT_IN);
}

SEC("classifier/out")
int fyke_out(struct __sk_buff *skb)
{
	return watch(skb, FYKE_COUNT_OUT);
}

/* The same for XDP: frames that are rejected are dropped, for the host, too. */
SEC("xdp")
int fyke_drop(struct xdp_md *context)
{
	const struct fyke_arrays *a = arrays();
	struct view v = {
		.at = (u8 *)(long)context->data,
		.end = (u8 *)(long)context->data_end,
		.hides_tags = 1,
	};
	struct fyke_tap_counts *counts = counts_here();
	u32 counter = FYKE_COUNT_PASSED;

	if (!counts)
		return XDP_PASS;
	if (in_force(a)) {
		struct packet *p = (struct packet *)counts->scratch;

		v.len = v.end - v.at;
		if (!read_frame(&v, PACKET, p)) {
			counter = FYKE_COUNT_UNREAD;
		} else if (rejects(a, look_up(a, p))) {
			counts->count[FYKE_COUNT_REJECTED]++;
			return XDP_DROP;
		}
	}
	counts->count[counter]++;
	return XDP_PASS;
}

/* Empty programs, to measure the overhead of a call. */
SEC("socket")
int fyke_tap_empty(struct __sk_buff *skb)
{
	return 0;
}

SEC("classifier/empty")
int fyke_tcx_empty(struct __sk_buff *skb)
{
	return -1;
}

SEC("xdp")
int fyke_drop_empty(struct xdp_md *context)
{
	return XDP_PASS;
}

char fyke_license[] SEC("license") = "Dual MIT/GPL";
