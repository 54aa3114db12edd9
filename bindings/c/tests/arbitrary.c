/* Arbitrary calls of readers and of flows of MAPI, by three threads that share the handles: open, closed, of another
 * type, and wrong ones. Every call returns, with a result or an error. Buffers have exactly the size that is told, so
 * that the sanitizer sees an access beyond them. FYKE_SEED repeats a run. */
#include "net.h"
#include <pthread.h>
#include "fyke.h"
#include "mapi.h"

enum { THREADS = 3, CALLS = 4000, HANDLES = 8 };

static const char *const WORDS[] = {
	"tcp", "udp port 53", "not (", "ip6", "or", "\xff\xfe", "host 10.1.2.3", "greater 1000", "",
	"inbound", "tcp[13] & 2 != 0", ")", "net 10/8", "port", "vlan 7 and", "\"",
};
static const char *const LINKS[] = {
	"EN10MB", "RAW", "LINUX_SLL2", "NONE SUCH", "", "IEEE802_11_RADIO",
};
static const char *const FUNCTIONS[] = {
	"BPF_FILTER", "STR_SEARCH", "PKT_COUNTER", "BYTE_COUNTER", "TO_BUFFER", "SAMPLE", "GAP", "PKTINFO", "HASH",
	"", "\xff", "REGEXP", "HASHSAMP", "STARTSTOP", "BINOP", "STATS", "DIST",
};

static const char *const TIMES[] = {
	"0", "1", "2", "10", "+1s", "20ms", "1us", "", "1e9s", "2001-01-01 00:00:00",
	"99999-1", "[a-z]+", "(", "\\d{1000}{1000}",
};

static char path[4096];
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static void *handles[HANDLES];
static _Atomic int last_flow;

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed * 2685821657736338717u >> 8;
}

#define ONE_OF(list, seed) (list)[next(seed) % (sizeof(list) / sizeof *(list))]

static void words(uint64_t *seed, char text[256])
{
	size_t count = next(seed) % 4;

	text[0] = 0;
	while (count--)
		strcat(strcat(text, ONE_OF(WORDS, seed)), " ");
}

static void *handle(uint64_t *seed)
{
	uint64_t number = next(seed);

	if (number % 16 == 0)
		return (void *)(uintptr_t)next(seed);
	pthread_mutex_lock(&handles_lock);
	void *found = handles[number % HANDLES];
	pthread_mutex_unlock(&handles_lock);
	return found;
}

static void keep(uint64_t *seed, void *new)
{
	pthread_mutex_lock(&handles_lock);
	void **place = &handles[next(seed) % HANDLES], *old = *place;
	*place = new;
	pthread_mutex_unlock(&handles_lock);
	fyke_reader_close(old);
}

static const char *source(uint64_t *seed)
{
	switch (next(seed) % 8) {
	case 0: return NULL;
	case 1: return "/none/such.pcap";
	case 2: return "serve:none";
	case 3: return "/";
	default: return path;
	}
}

static void of_a_reader(uint64_t *seed)
{
	fyke_reader *r = handle(seed);
	size_t count = next(seed) % 70;
	char text[256];
	unsigned char *bytes;
	fyke_frame *frames;
	fyke_change changes[4];

	words(seed, text);
	switch (next(seed) % 9) {
	case 0: keep(seed, fyke_reader_open(source(seed), next(seed) % 9 ? text : NULL)); break;
	case 1: keep(seed, fyke_reader_of(ONE_OF(LINKS, seed), text)); break;
	case 2:
		bytes = malloc(count);
		for (size_t i = 0; i < count; i++)
			bytes[i] = (unsigned char)next(seed);
		fyke_match(r, bytes, count, next(seed) % 3 ? 0 : (uint32_t)next(seed));
		free(bytes);
		break;
	case 3:
	case 4:
		frames = malloc(count * sizeof *frames);
		fyke_next(r, next(seed) % 16 ? frames : NULL, count, (int)(next(seed) % 3));
		free(frames);
		break;
	case 5:
		for (int i = 0; i < 4; i++)
			changes[i] = (fyke_change){ next(seed) % 5, i ? text : "tcp", (uint32_t)next(seed) % 5 };
		fyke_reader_edit(r, changes, next(seed) % 5);
		break;
	case 6: {
		fyke_reader_counts counts = fyke_reader_count(r);
		CHECK(counts.seen == counts.accepted + counts.rejected + counts.lost);
		break;
	}
	case 7: fyke_reader_text_accepted(r, (uint32_t)next(seed) % 9); break;
	default:
		if (next(seed) % 4 == 0)
			fyke_reader_close(r);
	}
	/* a handle of another type */
	CHECK(fyke_new_pass((fyke_filter *)r) == -1 && fyke_error(NULL)[0]);
}

static void of_a_flow(uint64_t *seed)
{
	/* one of the newest, or none */
	int flow = last_flow + 1 - (int)(next(seed) % 8), function = (int)(next(seed) % 8) - 1;
	char text[256];

	words(seed, text);
	switch (next(seed) % 8) {
	case 0:
		if ((flow = mapi_create_flow(source(seed))) > 0)
			last_flow = flow;
		break;
	case 1: mapi_connect(flow); break;
	case 2: mapi_read_results(flow, function); break;
	case 3: mapi_get_next_pkt(flow, function); break;
	case 4: mapi_close_flow(next(seed) % 4 ? flow : (int)next(seed)); break;
	case 5: CHECK(mapi_last_error()); break;
	default: {
		size_t text_count = next(seed) % 5, number_count = next(seed) % 7;
		const char **texts = malloc(text_count * sizeof *texts);
		unsigned long long *numbers = malloc(number_count * sizeof *numbers);
		for (size_t i = 0; i < text_count; i++)
			texts[i] = next(seed) % 8 ? next(seed) % 2 ? ONE_OF(TIMES, seed) : text : NULL;
		for (size_t i = 0; i < number_count; i++)
			numbers[i] = next(seed) % 4 ? next(seed) % 3 + (i % 2 ? 0 : (unsigned)flow) : next(seed);
		mapi_apply(flow, ONE_OF(FUNCTIONS, seed), texts, text_count, numbers, number_count);
		free(texts);
		free(numbers);
	}
	}
}

static void *calls(void *given)
{
	uint64_t seed = *(uint64_t *)given;

	for (int i = 0; i < CALLS; i++)
		(next(&seed) % 2 ? of_a_reader : of_a_flow)(&seed);
	return NULL;
}

static void write_file(const struct frame *tcp, const struct frame *ip6)
{
	uint32_t header[] = { 0xa1b2c3d4, 2 | 4 << 16, 0, 0, 262144, 1 };
	FILE *file = fopen(path, "wb");

	CHECK(file);
	fwrite(header, sizeof header, 1, file);
	for (uint32_t i = 0; i < 1000; i++) {
		const struct frame *one = i % 4 ? tcp : ip6;
		uint32_t record[] = { 1000 + i, 5, (uint32_t)one->length, (uint32_t)one->length };
		fwrite(record, sizeof record, 1, file);
		fwrite(one->bytes, one->length, 1, file);
	}
	fclose(file);
}

int main(int count, char **arguments)
{
	struct frame tcp = tcp_frame(), ip6 = ip6_frame();
	const char *given = getenv("FYKE_SEED");
	uint64_t base = given ? strtoull(given, NULL, 10) : 88172645463325252u, seeds[THREADS];
	pthread_t threads[THREADS];

	(void)count;
	snprintf(path, sizeof path, "%s.pcap", arguments[0]);
	write_file(&tcp, &ip6);
	printf("seed %llu\n", (unsigned long long)base);
	fflush(stdout);
	for (int i = 0; i < THREADS; i++) {
		seeds[i] = base + (uint64_t)i;
		CHECK(pthread_create(&threads[i], NULL, calls, &seeds[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < HANDLES; i++)
		fyke_reader_close(handles[i]);
	for (int flow = 1; flow < 10000; flow++)
		mapi_close_flow(flow);
	printf("ok\n");
	return 0;
}
