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
	__u32 unused[12];
};

#define FYKE_COUNT_REDIRECTED 0
#define FYKE_COUNT_NO_SOCKET 1
#define FYKE_COUNT_TOO_LONG 2

/* Counters of one processor. */
struct fyke_redirect_counts {
	__u64 count[8];
};

_Static_assert(sizeof(struct fyke_redirect) == 64, "redirect");
_Static_assert(sizeof(struct fyke_redirect_counts) == 64, "counts");

#endif
