/* The calls of MAPI (SCAMPI's monitoring interface) over libfyke: flows to which a linear chain of functions applies.
 *
 *     int flow = mapi_create_flow("serve:eth0");
 *     mapi_apply_function(flow, "BPF_FILTER", "tcp port 80");
 *     int packets = mapi_apply_function(flow, "PKT_COUNTER");
 *     mapi_connect(flow);
 *     unsigned long long count = *(unsigned long long *)mapi_read_results(flow, packets)->res;
 *     mapi_close_flow(flow);
 *
 * A function sees the packets that the functions before it have passed. These exist:
 *
 *     function     parameters            passes                          result
 *     BPF_FILTER   text                  packets that the text accepts   those, as PKT_COUNTER
 *     STR_SEARCH   text, offset, depth   packets with the text           those, as PKT_COUNTER
 *     PKT_COUNTER                        all                             packets, unsigned long long
 *     BYTE_COUNTER                       all                             bytes on the wire, unsigned long long
 *     TO_BUFFER                          all, for mapi_get_next_pkt      packets lost: the buffer was full
 *
 * A flow reads a capture file, an interface (which needs CAP_NET_RAW) or "serve:NAME", a running `fyke serve`; there is
 * no daemon of its own. Other functions of MAPI are classes of flow graphs: docs/papers/ffpf.md lists them.
 */
#ifndef FYKE_MAPI_H
#define FYKE_MAPI_H

#include <stdarg.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A result: `res` points to it and stays current until the flow is closed, without a further call. */
typedef struct {
	void *res;
	unsigned long long ts; /* time of the call, nanoseconds since 1970 */
	int size;	       /* bytes at `res` */
} mapi_results_t;

struct mapipkt {
	unsigned long long ts;	/* time of capture, nanoseconds since 1970 */
	unsigned short ifindex; /* interface of the source, from 0 */
	unsigned caplen;	/* captured bytes */
	unsigned wlen;		/* bytes on the wire */
	unsigned char pkt;	/* the first byte; the others follow */
};

/* Creates a flow; returns its number, or -1. Nothing is read before mapi_connect. */
int mapi_create_flow(const char *device);

/* Begins to read, in a thread of the flow. */
int mapi_connect(int flow);

/* Returns the result of a function, or NULL. The structure is valid until the flow is closed. */
mapi_results_t *mapi_read_results(int flow, int function);

/* Returns the next packet of TO_BUFFER, waiting for it; NULL at the end, or after an error. Valid until the next call
 * on this flow. */
struct mapipkt *mapi_get_next_pkt(int flow, int function);
#define mapi_get_next_packet(flow, function) mapi_get_next_pkt(flow, function)

/* Ends the flow. */
int mapi_close_flow(int flow);

/* Returns the error of this thread's last call that failed, and a packet loop that failed is one. */
const char *mapi_last_error(void);

/* As mapi_apply_function, with parameters that the function does not have as NULL and 0. */
int mapi_apply(int flow, const char *function, const char *text, int offset, int depth);

/* Adds a function to the chain of a flow that is not connected; returns its number, or -1. */
static inline int mapi_apply_function(int flow, const char *function, ...)
{
	const char *text = NULL;
	int offset = 0, depth = 0;
	va_list list;

	va_start(list, function);
	if (function && (!strcmp(function, "BPF_FILTER") || !strcmp(function, "STR_SEARCH")))
		text = va_arg(list, const char *);
	if (function && !strcmp(function, "STR_SEARCH")) {
		offset = va_arg(list, int);
		depth = va_arg(list, int);
	}
	va_end(list);
	return mapi_apply(flow, function, text, offset, depth);
}

#ifdef __cplusplus
}
#endif

#endif
