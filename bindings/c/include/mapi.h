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
 *     REGEXP        expression             packets in which it is found    their number
 *     SAMPLE        value, mode            PERIODIC: every value-th;       their number
 *                                          PROBABILISTIC: value per cent
 *     HASHSAMP      share, 0               conversations with a hash       their packets
 *                                          below share, of 1,024
 *     STARTSTOP     start, stop            packets between two times       mapi_startstop_t
 *     PKT_COUNTER                          all                             packets
 *     BYTE_COUNTER                         all                             bytes on the wire
 *     PKTINFO       PKT_TS or PKT_SIZE     all                             time, nanoseconds since 1970, or bytes on
 *                                                                          the wire of the last packet
 *     GAP                                  all                             nanoseconds between the last two packets
 *     BINOP         type, flow, function,  all                             sum (BINOP_ADD) or difference (BINOP_SUB) of
 *                   flow, function                                         two results
 *     STATS         flow, function, when   all                             mapi_stats_t, of a result
 *     DIST          flow, function, from,  all                             mapi_dist_t, of a result
 *                   to, interval
 *     TO_FILE       MFF_PCAP, name, most   all                             packets written; most is unsigned long long,
 *                                                                          0 for all
 *     TO_BUFFER                            all, for mapi_get_next_pkt      packets lost: the buffer was full
 *
 * Results, from, to, interval, start, stop and when are read and told as follows. BINOP, STATS and DIST take the first
 * word of the result of a function that was applied before, when a packet reaches them. "from", "to" and "interval"
 * are texts: numbers, or times such as "20ms" (s, ms, us, ns) for results in nanoseconds; there are at most 65,536
 * intervals.
 * "when" is a text: "0", with each packet; "1", from the second packet on; a time such as "1s", the increase within
 * each such period. "start" and "stop" are texts: "+1.5s", after the first packet and after the start, or
 * "2026-11-28 05:30:00" in UTC; both are within. REGEXP is a regular expression on bytes, without back references.
 *
 * A file is complete when the source has ended or the flow is closed. The numbers of MFF_PCAP and the like are those of
 * this header. A parameter that MAPI gives to TO_BUFFER is accepted and not used.
 *
 * A flow reads a capture file, an interface (which needs CAP_NET_RAW) or "serve:NAME", a running `fyke serve`; there is
 * no daemon of its own.
 *
 * Not there: BUCKET, BURST, THRESHOLD, HASH, RES2FILE, SYNC, TOP, COOKING, UNCOOK, ANONYMIZE, ANONYMIZEIP, PRINT,
 * EXPIRED_FLOWS, TRACK_FTP and the other TRACK functions; flows of several machines (the scope of a flow);
 * mapi_get_next_flow_info, mapi_get_flow_info, mapi_get_function_info, and the calls of 2002 for options, subflows and
 * the removal of functions. Many of the functions are classes of flow graphs: docs/papers/ffpf.md has the table.
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
enum { BINOP_ADD = 0, BINOP_SUB = 1 };	/* types of BINOP */

/* The result of STATS. */
typedef struct {
	unsigned long long count; /* values taken */
	double sum;
	double sum2; /* of the squares */
	unsigned long long min, max;
} mapi_stats_t;

/* The result of DIST. Values from `min` + i × `interval` on, and below the next interval, are counted in data[i]. */
typedef struct {
	unsigned long long min, max, interval;
	unsigned long long intervals; /* number of data */
	unsigned long long below;     /* values below min */
	unsigned long long above;     /* values of max and above */
	unsigned long long data[1];   /* the first; the others follow */
} mapi_dist_t;

/* The result of STARTSTOP: times in nanoseconds since 1970, 0 if there was no packet. */
typedef struct {
	unsigned long long first;	     /* of the first packet */
	unsigned long long first_processed; /* of the first that passed */
	unsigned long long last;	     /* of the last that passed */
} mapi_startstop_t;

/* Creates a flow; returns its number, or -1. Nothing is read before mapi_connect. */
int mapi_create_flow(const char *device);

/* Creates a flow on a capture file of a format, MFF_PCAP; mapi_create_offline_flow has MAPI's name. */
int mapi_create_offline(const char *path, int format);

/* Begins to read, in a thread of the flow. */
int mapi_connect(int flow);

/* Returns the result of a function, or NULL. The structure is valid until the flow is closed. */
mapi_results_t *mapi_read_results(int flow, int function);

/* Returns the next packet of TO_BUFFER, waiting for it; NULL at the end, or after an error. Valid until the next call
 * on this flow. */
struct mapipkt *mapi_get_next_pkt(int flow, int function);
#define mapi_get_next_packet(flow, function) mapi_get_next_pkt(flow, function)

/* Ends the flow. Returns -1 if there is no such flow, or if it had failed and no call has told that: its source has
 * ended with an error, or a file of TO_FILE lacks packets. The flow is closed nevertheless. */
int mapi_close_flow(int flow);

/* Returns the error of this thread's last call that failed, and a packet loop that failed is one. */
const char *mapi_last_error(void);

/* As mapi_apply_function, with the function's texts and its numbers in arrays, each in the order of the table. Those at
 * the end may be left out if they are 0. */
int mapi_apply(int flow, const char *name, const char *const *texts, size_t text_count,
	       const unsigned long long *numbers, size_t number_count);

/* The parameters of a function, each a letter: a text, an int, an unsigned long long. */
static inline const char *mapi_parameters(const char *name)
{
	static const char *const all[][2] = {
		{ "BPF_FILTER", "s" }, { "STR_SEARCH", "sii" }, { "REGEXP", "s" }, { "SAMPLE", "ii" },
		{ "HASHSAMP", "ii" }, { "STARTSTOP", "ss" }, { "PKTINFO", "i" }, { "BINOP", "iiiii" },
		{ "STATS", "iis" }, { "DIST", "iisss" }, { "TO_FILE", "isl" },
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(name, all[i][0]))
			return all[i][1];
	return "";
}

/* Adds a function to the chain of a flow that is not connected; returns its number, or -1. */
static inline int mapi_apply_function(int flow, const char *function, ...)
{
	const char *texts[5] = { 0 }, *letter = function ? mapi_parameters(function) : "";
	unsigned long long numbers[5] = { 0 };
	size_t text_count = 0, number_count = 0;
	va_list list;

	va_start(list, function);
	for (; *letter; letter++)
		if (*letter == 's')
			texts[text_count++] = va_arg(list, const char *);
		else if (*letter == 'i')
			numbers[number_count++] = (unsigned long long)va_arg(list, int);
		else
			numbers[number_count++] = va_arg(list, unsigned long long);
	va_end(list);
	return mapi_apply(flow, function, texts, text_count, numbers, number_count);
}

/* Creates a flow on a capture file; the format is found in the file. */
static inline int mapi_create_offline_flow(const char *path, int format, ...)
{
	return mapi_create_offline(path, format);
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
