/* Flows of MAPI on a capture file: a linear chain of functions, results, packets, and wrong calls. */
#include "net.h"
#include "fyke.h"
#include "mapi.h"

static unsigned long long result(int flow, int function)
{
	mapi_results_t *results = mapi_read_results(flow, function);

	CHECK(results && results->size == 8 && results->ts > 0);
	return *(unsigned long long *)results->res;
}

static void write_file(const char *path)
{
	struct frame tcp = tcp_frame(), ip6 = ip6_frame();
	uint32_t header[] = { 0xa1b2c3d4, 2 | 4 << 16, 0, 0, 262144, 1 };
	FILE *file = fopen(path, "wb");

	fwrite(header, sizeof header, 1, file);
	for (uint32_t i = 0; i < 1000; i++) {
		struct frame one = i % 4 ? tcp : ip6;
		uint32_t record[] = { 1000 + i, 5, (uint32_t)one.length, (uint32_t)one.length + 10 };
		if (i % 5 == 0)
			one.bytes[one.length - 1] = '!';
		fwrite(record, sizeof record, 1, file);
		fwrite(one.bytes, one.length, 1, file);
	}
	fclose(file);
}

static unsigned long long times;

static void see(const struct mapipkt *packet)
{
	times += packet->ts / 1000000000;
}

/* Samples, gaps, sizes and a file; the packets by mapi_loop. */
static void samples_and_files(const char *path)
{
	char file[4200], text[MAPI_STR_LENGTH];
	int number = 0;

	snprintf(file, sizeof file, "%s.written", path);
	int flow = mapi_create_offline_flow(path, MFF_PCAP);
	int gap = mapi_apply_function(flow, "GAP");
	int size = mapi_apply_function(flow, "PKTINFO", PKT_SIZE);
	int when = mapi_apply_function(flow, "PKTINFO", PKT_TS);
	int tenth = mapi_apply_function(flow, "SAMPLE", 10, PERIODIC);
	int written = mapi_apply_function(flow, "TO_FILE", MFF_PCAP, file, 30ULL);
	int half = mapi_apply_function(flow, "SAMPLE", 50, PROBABILISTIC);
	int none = mapi_apply_function(flow, "SAMPLE", 0, PROBABILISTIC);
	int buffer = mapi_apply_function(flow, "TO_BUFFER", 0);
	CHECK(gap == 0 && none == 6 && buffer == 7);
	CHECK(mapi_apply_function(flow, "SAMPLE", 0, PERIODIC) == -1);
	CHECK(mapi_apply_function(flow, "SAMPLE", 101, PROBABILISTIC) == -1);
	CHECK(mapi_apply_function(flow, "SAMPLE", 1, 7) == -1);
	CHECK(mapi_apply_function(flow, "PKTINFO", 9) == -1);
	CHECK(mapi_apply_function(flow, "TO_FILE", 3, file, 0ULL) == -1);
	mapi_read_error(&number, text);
	CHECK(number != 0 && strstr(text, "TO_FILE has no format 3"));
	CHECK(mapi_connect(flow) == 0 && !mapi_get_next_pkt(flow, buffer));
	CHECK(result(flow, gap) == 1000000000 && result(flow, when) == 1999000005000);
	CHECK(result(flow, size) == tcp_frame().length + 10);
	CHECK(result(flow, tenth) == 100 && result(flow, written) == 30 && result(flow, none) == 0);
	CHECK(result(flow, half) > 10 && result(flow, half) < 90 && mapi_close_flow(flow) == 0);

	/* the file has every tenth packet of the first 300 */
	flow = mapi_create_flow(file);
	buffer = mapi_apply_function(flow, "TO_BUFFER", 0);
	CHECK(mapi_connect(flow) == 0 && mapi_loop(flow, buffer, 10, see) == 10);
	CHECK(mapi_loop(flow, buffer, -1, see) == 20 && times == 30 * 1009 + 10 * 435);
	CHECK(mapi_close_flow(flow) == 0 && mapi_loop(flow, buffer, -1, see) == 0);
	CHECK(unlink(file) == 0 && mapi_create_offline_flow(path, 9) == -1);
	CHECK(strstr(mapi_last_error(), "no format 9"));
	/* a folder that is missing is refused at once; a file that cannot be made is an error of the connection */
	flow = mapi_create_flow(path);
	CHECK(mapi_apply_function(flow, "TO_FILE", MFF_PCAP, "/none/such.pcap", 0ULL) == -1);
	CHECK(strstr(mapi_last_error(), "/none/such.pcap"));
	CHECK(mapi_apply_function(flow, "TO_FILE", MFF_PCAP, "/proc/none.pcap", 0ULL) == 0);
	CHECK(mapi_connect(flow) == -1 && strstr(mapi_last_error(), "/proc/none.pcap"));
	CHECK(mapi_connect(flow) == -1 && strstr(mapi_last_error(), "/proc/none.pcap"));
	CHECK(mapi_close_flow(flow) == 0);
	/* a file without space: none of its packets is written, and the flow has failed */
	flow = mapi_create_flow(path);
	written = mapi_apply_function(flow, "TO_FILE", MFF_PCAP, "/dev/full", 0ULL);
	buffer = mapi_apply_function(flow, "TO_BUFFER");
	CHECK(written == 0 && buffer == 1 && mapi_connect(flow) == 0);
	while (mapi_get_next_pkt(flow, buffer))
		;
	CHECK(result(flow, written) == 0 && strstr(mapi_last_error(), "TO_FILE"));
	CHECK(!mapi_get_next_pkt(flow, buffer) && strstr(mapi_last_error(), "TO_FILE"));
	CHECK(mapi_close_flow(flow) == 0);
	flow = mapi_create_flow(path);
	written = mapi_apply_function(flow, "TO_FILE", MFF_PCAP, "/dev/full", 0ULL);
	CHECK(written == 0 && mapi_connect(flow) == 0);
	usleep(300000);
	CHECK(mapi_close_flow(flow) == -1 && strstr(mapi_last_error(), "TO_FILE"));
	CHECK(mapi_close_flow(flow) == -1 && strstr(mapi_last_error(), "no flow"));
}

/* Functions on results, on times, on conversations and on expressions. */
static void derived(const char *path)
{
	struct frame tcp = tcp_frame(), ip6 = ip6_frame();
	int flow = mapi_create_flow(path), other = mapi_create_flow(path);
	int far = mapi_apply_function(other, "PKT_COUNTER");
	int size = mapi_apply_function(flow, "PKTINFO", PKT_SIZE);
	int sizes = mapi_apply_function(flow, "STATS", flow, size, "0");
	int spread = mapi_apply_function(flow, "DIST", flow, size, "0", "1000", "10");
	int packets = mapi_apply_function(flow, "PKT_COUNTER");
	int rate = mapi_apply_function(flow, "STATS", flow, packets, "10s");
	int within = mapi_apply_function(flow, "STARTSTOP", "+100s", "+99.5s");
	int later = mapi_apply_function(flow, "PKT_COUNTER");
	int sum = mapi_apply_function(flow, "BINOP", BINOP_ADD, flow, packets, other, far);
	int less = mapi_apply_function(flow, "BINOP", BINOP_SUB, flow, packets, flow, later);
	int found = mapi_apply_function(flow, "REGEXP", "index\\.html H.TP");
	CHECK(far == 0 && size == 0 && found == 9);
	CHECK(mapi_apply_function(flow, "BINOP", 7, flow, packets, flow, packets) == -1);
	CHECK(mapi_apply_function(flow, "BINOP", BINOP_ADD, flow, 99, flow, packets) == -1);
	CHECK(mapi_apply_function(flow, "STATS", 9999, packets, "0") == -1);
	CHECK(mapi_apply_function(flow, "STATS", flow, packets, "soon") == -1);
	CHECK(mapi_apply_function(flow, "STATS", flow, packets, (const char *)NULL) == -1);
	CHECK(mapi_apply_function(flow, "DIST", flow, packets, "5", "5", "1") == -1);
	CHECK(mapi_apply_function(flow, "DIST", flow, packets, "0", "1s", "1") == -1);
	CHECK(mapi_apply_function(flow, "STARTSTOP", "+1s", "2026-11-28 05:30:00") == -1);
	CHECK(mapi_apply_function(flow, "STARTSTOP", "2026-11-31 05:30:00", "+1s") == -1);
	CHECK(mapi_apply_function(flow, "REGEXP", "(") == -1 && strstr(mapi_last_error(), "REGEXP"));
	CHECK(mapi_apply_function(flow, "HASHSAMP", 0, 0) == -1);
	CHECK(mapi_apply_function(flow, "HASHSAMP", 9, 1) == -1);
	int share = mapi_apply_function(flow, "HASHSAMP", 1024, 0);
	int buffer = mapi_apply_function(flow, "TO_BUFFER");
	int other_buffer = mapi_apply_function(other, "TO_BUFFER");
	CHECK(mapi_connect(other) == 0 && mapi_loop(other, other_buffer, -1, see) == 1000);
	CHECK(mapi_connect(flow) == 0 && mapi_loop(flow, buffer, -1, see) == 60);

	mapi_stats_t *stats = mapi_read_results(flow, sizes)->res;
	double t = (double)tcp.length + 10, s = (double)ip6.length + 10;
	CHECK(mapi_read_results(flow, sizes)->size == sizeof *stats && stats->count == 1000);
	CHECK(stats->sum == 750 * t + 250 * s && stats->sum2 == 750 * t * t + 250 * s * s);
	CHECK((double)stats->min == (t < s ? t : s) && (double)stats->max == (t > s ? t : s));
	mapi_dist_t *dist = mapi_read_results(flow, spread)->res;
	CHECK(dist->intervals == 100 && dist->below == 0 && dist->above == 0);
	CHECK(dist->data[(tcp.length + 10) / 10] >= 750 && dist->data[(ip6.length + 10) / 10] >= 250);
	/* the first packet begins the first of 99 periods of ten packets */
	stats = mapi_read_results(flow, rate)->res;
	CHECK(stats->count == 99 && stats->min == 10 && stats->max == 10 && stats->sum == 990);
	mapi_startstop_t *times_of = mapi_read_results(flow, within)->res;
	CHECK(times_of->first / 1000000000 == 1000 && times_of->first_processed / 1000000000 == 1100);
	CHECK(times_of->last / 1000000000 == 1199 && result(flow, later) == 100);
	/* the last of them is packet 200; the other flow had all of its 1,000 packets before */
	CHECK(result(flow, sum) == 1200 && result(flow, less) == 100);
	CHECK(result(flow, found) == 60 && result(flow, share) == 60);
	CHECK(mapi_close_flow(other) == 0 && result(flow, sum) == 1200 && mapi_close_flow(flow) == 0);

	/* both directions of a conversation, or none */
	flow = mapi_create_flow(path);
	share = mapi_apply_function(flow, "HASHSAMP", 512, 0);
	buffer = mapi_apply_function(flow, "TO_BUFFER");
	CHECK(mapi_connect(flow) == 0);
	int chosen = mapi_loop(flow, buffer, -1, see);
	CHECK((chosen == 0 || chosen == 250 || chosen == 750 || chosen == 1000)
	      && result(flow, share) == (unsigned)chosen && mapi_close_flow(flow) == 0);
}

int main(int count, char **arguments)
{
	struct frame tcp = tcp_frame();
	struct mapipkt *packet;
	char path[4096];
	int packets = 0;

	(void)count;
	snprintf(path, sizeof path, "%s.pcap", arguments[0]);
	write_file(path);
	samples_and_files(path);
	derived(path);
	int flow = mapi_create_flow(path);
	CHECK(flow > 0);
	int all = mapi_apply_function(flow, "PKT_COUNTER");
	int filter = mapi_apply_function(flow, "BPF_FILTER", "tcp port 23");
	int bytes = mapi_apply_function(flow, "BYTE_COUNTER");
	int search = mapi_apply_function(flow, "STR_SEARCH", "HTTP", 54, 0);
	int buffer = mapi_apply_function(flow, "TO_BUFFER");
	CHECK(all == 0 && filter == 1 && bytes == 2 && search == 3 && buffer == 4);
	CHECK(mapi_apply_function(flow, "TO_BUFFER") == -1);
	CHECK(mapi_apply_function(flow, "HASH") == -1 && strstr(mapi_last_error(), "HASH"));
	CHECK(mapi_apply_function(flow, "STR_SEARCH", "HTTP", -1, 0) == -1);
	CHECK(mapi_apply_function(flow, "BPF_FILTER", (const char *)NULL) == -1);
	CHECK(result(flow, all) == 0 && !mapi_get_next_pkt(flow, buffer)); /* not connected */
	CHECK(mapi_connect(flow) == 0 && mapi_connect(flow) == -1);
	CHECK(mapi_apply_function(flow, "PKT_COUNTER") == -1);
	unsigned long long *passed = mapi_read_results(flow, search)->res;
	while ((packet = mapi_get_next_packet(flow, buffer))) {
		CHECK(packet->caplen == tcp.length && packet->wlen == tcp.length + 10);
		CHECK(packet->ts / 1000000000 >= 1000 && !memcmp(&packet->pkt, tcp.bytes, tcp.length));
		packets++;
	}
	/* 750 of TCP, without those of every fifth frame */
	CHECK(packets == 600 && *passed == 600);
	CHECK(result(flow, all) == 1000 && result(flow, filter) == 750);
	CHECK(result(flow, bytes) == 750 * (tcp.length + 10) && result(flow, buffer) == 0);
	CHECK(!mapi_read_results(flow, 5) && !mapi_read_results(flow, -1));
	CHECK(mapi_close_flow(flow) == 0 && mapi_close_flow(flow) == -1);
	CHECK(!mapi_read_results(flow, all) && !mapi_get_next_pkt(flow, buffer));

	/* a flow is closed while its packets wait */
	flow = mapi_create_flow(path);
	buffer = mapi_apply_function(flow, "TO_BUFFER");
	CHECK(mapi_connect(flow) == 0 && mapi_get_next_pkt(flow, buffer) && mapi_close_flow(flow) == 0);
	/* a wrong text is refused at once, and the flow stays; errors of devices come with the connection */
	flow = mapi_create_flow(path);
	CHECK(mapi_apply_function(flow, "BPF_FILTER", "tcp prot 7") == -1);
	CHECK(strstr(mapi_last_error(), "prot") && mapi_connect(flow) == 0 && mapi_close_flow(flow) == 0);
	flow = mapi_create_flow("/none/such.pcap");
	CHECK(mapi_connect(flow) == -1 && mapi_close_flow(flow) == 0);
	CHECK(mapi_create_flow(NULL) == -1 && mapi_connect(77) == -1 && mapi_close_flow(-1) == -1);
	printf("ok\n");
	return 0;
}
