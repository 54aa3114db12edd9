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
 *     function      parameters             passes                          result, an unsigned long long
 *     BPF_FILTER    text                   packets that the text accepts   their number
 *     STR_SEARCH    text, offset, depth    packets with the text           their number
 *     SAMPLE        value, mode            PERIODIC: every value-th;       their number
 *                                          PROBABILISTIC: value per cent
 *     PKT_COUNTER                          all                             packets
 *     BYTE_COUNTER                         all                             bytes on the wire
 *     PKTINFO       PKT_TS or PKT_SIZE     all                             time, nanoseconds since 1970, or bytes on
 *                                                                          the wire of the last packet
 *     GAP                                  all                             nanoseconds between the last two packets
 *     TO_FILE       MFF_PCAP, name, most   all                             packets written; most is unsigned long long,
 *                                                                          0 for all
 *     TO_BUFFER                            all, for mapi_get_next_pkt      packets lost: the buffer was full
 *
 * A file is complete when the source has ended or the flow is closed. The numbers of MFF_PCAP and the like are those of
 * this header. A parameter that MAPI gives to TO_BUFFER is accepted and not used.
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

enum { MFF_PCAP = 0 };			/* formats of TO_FILE */
enum { PERIODIC = 0, PROBABILISTIC = 1 }; /* modes of SAMPLE */
enum { PKT_TS = 0, PKT_SIZE = 1 };	/* values of PKTINFO */

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
int mapi_apply(int flow, const char *name, const char *text, int a, int b, unsigned long long c);

/* Adds a function to the chain of a flow that is not connected; returns its number, or -1. */
static inline int mapi_apply_function(int flow, const char *function, ...)
{
	const char *name = function ? function : "", *text = NULL;
	int a = 0, b = 0;
	unsigned long long c = 0;
	va_list list;

	va_start(list, function);
	if (!strcmp(name, "BPF_FILTER") || !strcmp(name, "STR_SEARCH"))
		text = va_arg(list, const char *);
	if (!strcmp(name, "STR_SEARCH") || !strcmp(name, "SAMPLE")) {
		a = va_arg(list, int);
		b = va_arg(list, int);
	} else if (!strcmp(name, "PKTINFO")) {
		a = va_arg(list, int);
	} else if (!strcmp(name, "TO_FILE")) {
		a = va_arg(list, int);
		text = va_arg(list, const char *);
		c = va_arg(list, unsigned long long);
	}
	va_end(list);
	return mapi_apply(flow, function, text, a, b, c);
}

/* Creates a flow on a capture file; the format is found in the file. */
static inline int mapi_create_offline_flow(const char *path, int format, ...)
{
	return format == MFF_PCAP ? mapi_create_flow(path) : -1;
}

typedef void (*mapi_handler)(const struct mapipkt *packet);

/* Calls `handler` with the packets of TO_BUFFER: `count` of them, or all until the end if that is not positive. Returns
 * the number of packets. */
static inline int mapi_loop(int flow, int function, int count, mapi_handler handler)
{
	struct mapipkt *packet;
	int done = 0;

	while ((count <= 0 || done < count) && (packet = mapi_get_next_pkt(flow, function))) {
		handler(packet);
		done++;
	}
	return done;
}

/* Bytes of the text of mapi_read_error. */
enum { MAPI_STR_LENGTH = 512 };

/* Stores the error of this thread's last call that failed: a number, 0 if none has failed, and a text of at most
 * MAPI_STR_LENGTH bytes. Either place may be NULL. MAPI's own numbers are not used. */
static inline void mapi_read_error(int *number, char *text)
{
	const char *error = mapi_last_error();

	if (number)
		*number = *error != 0;
	if (text) {
		strncpy(text, error, MAPI_STR_LENGTH - 1);
		text[MAPI_STR_LENGTH - 1] = 0;
	}
}

#ifdef __cplusplus
}
#endif

#endif
