/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* "Opt-C" of the dynamic comparison: a hand-written kernel filter that tracks FTP by itself.
 *
 * It reads the replies 227 and 229 of a control connection, stores the announced ends in a hash map, and accepts
 * control connections and all packets from or to a stored end. User space only attaches it. It cannot reassemble a
 * reply that is split over two segments. The map drops the least recently used ends; the program removes none. */
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define TYPE_OF(value) int (*value)
#define CONTROL_PORT 21
#define TEXT_BYTES 96
#define ENTERING 227
#define EXTENDED 229

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*const load_bytes)(const void *skb, u32 offset, void *to, u32 len) =
	(void *)BPF_FUNC_skb_load_bytes;

struct end {
	u32 address;
	u32 port;
};

/* A reply, and the state of its parser. */
struct reading {
	u8 text[TEXT_BYTES + 32];
	u32 at;
	u32 numbers[8];
	u32 count;
	u32 current;
	u32 inside;
	u32 done;
};

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_LRU_HASH];
	TYPE_OF(max_entries)[65536];
	struct end *key;
	u32 *value;
} ends SEC(".maps");

struct {
	TYPE_OF(type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	struct reading *value;
} readings SEC(".maps");

/* Number of frames accepted. */
struct {
	TYPE_OF(type)[BPF_MAP_TYPE_ARRAY];
	TYPE_OF(max_entries)[1];
	u32 *key;
	u64 *value;
} counts SEC(".maps");

static __attribute__((always_inline)) inline u32 word(const u8 *at)
{
	return (u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3];
}

/* Parses the characters: numbers between the brackets, with any separator. */
static __attribute__((always_inline)) inline void read(struct reading *r)
{
	for (;;) {
		u32 at = *(volatile u32 *)&r->at;
		if (at >= TEXT_BYTES || r->done)
			break;
		u32 c = r->text[at & 127];
		r->at = at + 1;
		if (c == '(') {
			r->inside = 1;
		} else if (r->inside && c >= '0' && c <= '9') {
			r->current = (r->current & 0xffff) * 10 + c - '0';
		} else if (r->inside && (c == ',' || c == ')' || c == '|')) {
			r->numbers[r->count & 7] = r->current;
			r->count = r->count + 1;
			r->current = 0;
			if (c == ')')
				r->done = 1;
		}
		/* may_goto */
		asm volatile goto("1: .byte 0xe5; .byte 0;"
				  ".long ((%l[out] - 1b - 8) / 8) & 0xffff; .short 0" ::::out);
	}
out:
	return;
}

static __attribute__((noinline)) int follow(struct __sk_buff *skb, u32 payload, u32 server)
{
	u32 zero = 0, one = 1, len = skb->len;
	struct reading *r = map_lookup(&readings, &zero);

	if (!r || payload + 4 > len)
		return 0;
	u64 room = len - payload;
	if (room > TEXT_BYTES)
		room = TEXT_BYTES;
	__builtin_memset(r, 0, sizeof(*r));
	asm volatile("%0 &= 127" : "+r"(room));
	if (room == 0 || load_bytes(skb, payload, r->text, room))
		return 0;
	u32 code = (r->text[0] - '0') * 100 + (r->text[1] - '0') * 10 + r->text[2] - '0';
	if ((code != ENTERING && code != EXTENDED) || r->text[3] != ' ')
		return 0;
	r->at = 4;
	read(r);
	if (!r->done)
		return 0;
	struct end end = { .address = server };
	if (code == ENTERING) {
		/* h1,h2,h3,h4,p1,p2) */
		if (r->count != 6)
			return 0;
		end.address = r->numbers[0] << 24 | r->numbers[1] << 16 | r->numbers[2] << 8 |
			      r->numbers[3];
		end.port = (r->numbers[4] << 8 | r->numbers[5]) & 0xffff;
	} else {
		/* |||port|) */
		if (r->count != 5)
			return 0;
		end.port = r->numbers[3] & 0xffff;
	}
	map_update(&ends, &end, &one, BPF_ANY);
	return 0;
}

SEC("socket")
int track(struct __sk_buff *skb)
{
	u8 head[34], tcp[14];
	u32 zero = 0;

	if (load_bytes(skb, 0, head, sizeof(head)))
		return 0;
	if (head[12] != 8 || head[13] != 0 || head[23] != 6 || ((head[20] & 0x1f) | head[21]))
		return 0;
	u32 start = 14 + 4 * (head[14] & 0xf);
	if (load_bytes(skb, start, tcp, sizeof(tcp)))
		return 0;
	struct end from = { .address = word(head + 26), .port = (u32)tcp[0] << 8 | tcp[1] };
	struct end to = { .address = word(head + 30), .port = (u32)tcp[2] << 8 | tcp[3] };
	if (from.port == CONTROL_PORT)
		follow(skb, start + 4 * (tcp[12] >> 4), from.address);
	else if (to.port != CONTROL_PORT && !map_lookup(&ends, &from) && !map_lookup(&ends, &to))
		return 0;
	u64 *count = map_lookup(&counts, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	return -1;
}

char track_license[] SEC("license") = "MIT";
