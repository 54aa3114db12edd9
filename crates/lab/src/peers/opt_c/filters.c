/* F1-F6 written by hand, as a good programmer would write each filter alone: the papers' "Opt-C".
 *
 * There are three forms: plain; plain with a prefetch of the headers 16 frames ahead; branch-free (for frames of at
 * least 34 bytes; shorter ones use the plain form). Compiled at run time by `cc -O3 -march=native`. Verdicts equal
 * those of libpcap's program: a load out of bounds rejects. Network order is never converted; the compiler swaps
 * the operands instead. */
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct { const u8 *data; u32 len, wire_len; } frame;

#define INLINE static inline __attribute__((always_inline))
#define BE16(x) __builtin_bswap16(x)
#define BE32(a, b, c, d) __builtin_bswap32((u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define AHEAD 16

INLINE u16 load16(const u8 *p) { u16 v; memcpy(&v, p, 2); return v; }
INLINE u32 load32(const u8 *p) { u32 v; memcpy(&v, p, 4); return v; }

#define IP BE16(0x0800)
#define NET24 BE32(255, 255, 255, 0)
#define NET BE32(192, 168, 2, 0)
/* Returns true unless this is a later fragment. */
INLINE int first(const u8 *p) { return (load16(p + 20) & BE16(0x1fff)) == 0; }
INLINE u32 ports_at(const u8 *p) { return 14 + 4 * (p[14] & 15); }

INLINE int mail_or_web(u16 port) {
	switch (BE16(port)) { case 22: case 80: case 143: case 25: case 110: case 21: return 1; }
	return 0;
}
INLINE int three(u16 port) {
	switch (BE16(port)) { case 80: case 25: case 143: return 1; }
	return 0;
}
INLINE int host38(u32 host) {
	switch (__builtin_bswap32(host)) { HOST_CASES return 1; }
	return 0;
}

INLINE int f1(const u8 *p, u32 len) { return 1; }
INLINE int f2(const u8 *p, u32 len) { return len >= 14 && load16(p + 12) == IP; }
INLINE int f3(const u8 *p, u32 len) {
	if (len < 34 || load16(p + 12) != IP) return 0;
	if ((load32(p + 26) & NET24) != NET) return 0;
	return p[30] == 10;
}
INLINE int f4(const u8 *p, u32 len) {
	if (len < 30 || load16(p + 12) != IP) return 0;
	if ((load32(p + 26) & NET24) == NET) return 1;
	return len >= 34 && (load32(p + 30) & NET24) == NET;
}
INLINE int f5(const u8 *p, u32 len) {
	if (len < 24 || load16(p + 12) != IP || p[23] != 6 || !first(p)) return 0;
	u32 at = ports_at(p);
	if (at + 2 > len) return 0;
	/* libpcap compares both ports with 22 before it compares with 80: only source port 22 needs no destination port. */
	if (at + 4 > len) return load16(p + at) == BE16(22);
	return mail_or_web(load16(p + at)) || mail_or_web(load16(p + at + 2));
}
INLINE int f6(const u8 *p, u32 len) {
	if (len < 34 || load16(p + 12) != IP) return 0;
	if (p[23] == 6 && first(p)) {
		u32 at = ports_at(p);
		if (at + 4 > len || three(load16(p + at)) || three(load16(p + at + 2))) return 0;
	}
	return !host38(load32(p + 26)) && !host38(load32(p + 30));
}

/* Branch-free forms: at least 34 bytes; ports past the end are read from the last four bytes and then ignored. */
INLINE int b1(const u8 *p, u32 len) { return 1; }
INLINE int b2(const u8 *p, u32 len) { return load16(p + 12) == IP; }
INLINE int b3(const u8 *p, u32 len) {
	return (load16(p + 12) == IP) & ((load32(p + 26) & NET24) == NET) & (p[30] == 10);
}
INLINE int b4(const u8 *p, u32 len) {
	int either = ((load32(p + 26) & NET24) == NET) | ((load32(p + 30) & NET24) == NET);
	return (load16(p + 12) == IP) & either;
}
INLINE u32 bit6(u16 port) {
	static const u64 bits[4] = { 1ull << 22 | 1ull << 25 | 1ull << 21,
		1ull << (80 - 64) | 1ull << (110 - 64), 1ull << (143 - 128), 0 };
	u32 x = BE16(port);
	return (x < 256) & (u32)(bits[(x >> 6) & 3] >> (x & 63));
}
INLINE int b5(const u8 *p, u32 len) {
	u32 at = ports_at(p), last = len - 4, from = at < last ? at : last;
	u32 two = load32(p + from), one_there = at + 2 <= len, both = at + 4 <= len;
	u32 source = load16(p + (at < len - 2 ? at : len - 2));
	u32 hit = (one_there & (source == BE16(22))) | (both & (bit6(two) | bit6(two >> 16)));
	return (load16(p + 12) == IP) & (p[23] == 6) & first(p) & hit;
}
static const u32 hosts[48] __attribute__((aligned(64))) = { HOST_LIST };
INLINE u32 any_host(u32 source, u32 destination) {
#ifdef __AVX512F__
	__m512i s = _mm512_set1_epi32(source), d = _mm512_set1_epi32(destination);
	u32 found = 0;
	for (int i = 0; i < 3; i++) {
		__m512i some = _mm512_load_si512(hosts + 16 * i);
		found |= _mm512_cmpeq_epi32_mask(s, some) | _mm512_cmpeq_epi32_mask(d, some);
	}
	return found;
#else
	u32 found = 0;
	for (int i = 0; i < 48; i++) found |= (hosts[i] == source) | (hosts[i] == destination);
	return found;
#endif
}
INLINE int b6(const u8 *p, u32 len) {
	u32 at = ports_at(p), last = len - 4, from = at < last ? at : last, missing = at > last;
	u32 two = load32(p + from), x = two & 0xffff, y = two >> 16;
	u32 hit = (x == BE16(80)) | (x == BE16(25)) | (x == BE16(143));
	hit |= (y == BE16(80)) | (y == BE16(25)) | (y == BE16(143));
	u32 tcp = (p[23] == 6) & first(p);
	u32 listed = any_host(load32(p + 26), load32(p + 30));
	return (load16(p + 12) == IP) & !(tcp & (missing | hit)) & !listed;
}

INLINE void fetch(const frame *f) {
	__builtin_prefetch(f->data + 12);
	__builtin_prefetch(f->data + 47);
}
#define LOOP(NAME, BEFORE, JUDGE) \
	void NAME(const frame *f, size_t n, u64 *out) { \
		for (size_t i = 0; i < n; i += 64) { \
			u64 w = 0; \
			size_t end = n - i < 64 ? n - i : 64; \
			for (size_t j = 0; j < end; j++) { \
				const u8 *p = f[i + j].data; \
				u32 len = f[i + j].len; \
				BEFORE; \
				w |= (u64)(JUDGE) << j; \
			} \
			out[i / 64] = w; \
		} \
	}
#define FORMS(N) \
	LOOP(plain_##N, (void)0, f##N(p, len)) \
	LOOP(prefetch_##N, fetch(f + i + j + AHEAD), f##N(p, len)) \
	LOOP(branchfree_##N, (void)0, __builtin_expect(len >= 34, 1) ? b##N(p, len) : f##N(p, len))
FORMS(1) FORMS(2) FORMS(3) FORMS(4) FORMS(5) FORMS(6)
