/* Memory that the redirecting program and user space share; src/redirect.rs is its other side. */
#ifndef FYKE_REDIRECT_H
#define FYKE_REDIRECT_H

/* Queue number for every queue. */
#define FYKE_EVERY_QUEUE 0xffffffff

struct fyke_redirect {
	/* While 0, the host gets every frame and nothing is counted. */
	__u32 on;
	/* The queue to redirect frames from. */
	__u32 queue;
	/* Frames go through the program in `filter` first, which gives those that it accepts to `fyke_deliver`. */
	__u32 filters;
	/* Longer frames are left to the host. */
	__u32 longest;
	/* Sockets of each queue, at least 1, and the factor of the hash that assigns conversations to them. */
	__u32 workers;
	__u32 factor;
	/* A bit for each worker that reads no more: the host gets its frames. */
	__u32 gone[2];
	__u32 unused[8];
};

/* Most workers: a bit of `gone` for each. */
#define FYKE_REDIRECT_WORKERS 64

#define FYKE_COUNT_REDIRECTED 0
#define FYKE_COUNT_NO_SOCKET 1
#define FYKE_COUNT_TOO_LONG 2

/* Counters of one processor. */
struct fyke_redirect_counts {
	__u64 count[8];
};

_Static_assert(sizeof(struct fyke_redirect) == 64, "redirect");
_Static_assert(__builtin_offsetof(struct fyke_redirect, workers) == 16, "workers");
_Static_assert(__builtin_offsetof(struct fyke_redirect, factor) == 20, "factor");
_Static_assert(__builtin_offsetof(struct fyke_redirect, gone) == 24, "gone");
_Static_assert(sizeof(struct fyke_redirect_counts) == 64, "counts");

#endif
