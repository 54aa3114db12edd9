/* Arbitrary calls of libpcap's functions by three threads, on captures of services: handles that are open, shared,
 * not activated, closed, or nothing; programs and texts that are wrong; signals; forks. The service `v1` stays, `v2` is
 * killed and started again meanwhile. Every call returns, with a result or an error, and only the buffers that it was
 * given change. arbitrary CALLS; FYKE_SEED repeats the arguments of a run. */
#define _GNU_SOURCE
#include <linux/if_packet.h>
#include <net/if.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, HANDLES = 6, GUARD = 16 };

#define CHECK(what) do { if (!(what)) { \
	fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
	_exit(1); } } while (0)
#define ONE_OF(list, seed) (list)[next(seed) % (sizeof(list) / sizeof *(list))]

static const char *const DEVICES[] = {
	"fyke:v1", "fyke:v1", "fyke:v1", "fyke:v2", "fyke:v2", "fyke:none", "fyke:", "fyke:../v1",
	"fyke:/none/such", "fyke:v1/",
};
static const char *const TEXTS[] = {
	"udp port 5001", "udp", "tcp", "", "inbound", "len > 50", "not (", "\xff", "ether[3] & 1 = 0", "vlan 7",
	"udp prot 1", "ip broadcast", "greater 90 or port 53",
};

/* Handles that all threads use, and close. */
static pcap_t *handles[HANDLES];
static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static int calls, sender;
static _Atomic unsigned long given, failed;

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed * 2685821657736338717u >> 8;
}

static pcap_t *handle(uint64_t *seed)
{
	uint64_t number = next(seed);

	if (number % 64 == 0)
		return NULL;
	pthread_mutex_lock(&handles_lock);
	pcap_t *found = handles[number % HANDLES];
	pthread_mutex_unlock(&handles_lock);
	/* the address is one of the library's, but not that of a handle */
	return found && number % 61 == 0 ? (pcap_t *)((char *)found + 1 + number % 7) : found;
}

/* Stores a handle in the place of another one, which is closed, perhaps while it is used; sometimes twice. */
static void keep(uint64_t *seed, pcap_t *new)
{
	pthread_mutex_lock(&handles_lock);
	pcap_t **place = &handles[next(seed) % HANDLES], *old = *place;
	*place = new;
	pthread_mutex_unlock(&handles_lock);
	pcap_close(old);
	if (next(seed) % 4 == 0)
		pcap_close(old);
}

/* A buffer of errors that nothing may write beyond. */
struct errors {
	char text[PCAP_ERRBUF_SIZE], guard[GUARD];
};

static char *errors(struct errors *errors, uint64_t *seed)
{
	memset(errors, 0, sizeof *errors);
	memset(errors->guard, 0x5a, GUARD);
	return next(seed) % 16 ? errors->text : NULL;
}

static void check(const struct errors *errors)
{
	CHECK(memchr(errors->text, 0, sizeof errors->text));
	for (int i = 0; i < GUARD; i++)
		CHECK(errors->guard[i] == 0x5a);
}

static void see(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	uint64_t *seed = (uint64_t *)user;
	unsigned sum = 0;

	CHECK(header->caplen <= header->len && header->caplen <= 262144);
	for (unsigned i = 0; i < header->caplen; i++)
		sum += data[i];
	given += 1 + (sum == 1);
	if (next(seed) % 8 == 0)
		pcap_breakloop(handle(seed));
	if (next(seed) % 16 == 0) {
		struct pcap_stat stat;
		pcap_stats(handle(seed), &stat);
	}
}

static void opens(uint64_t *seed)
{
	struct errors buffer;
	char *text = errors(&buffer, seed);
	const char *device = ONE_OF(DEVICES, seed);
	pcap_t *new;

	if (next(seed) % 2) {
		new = pcap_open_live(device, (int)(next(seed) % 300) - 9, 1, (int)(next(seed) % 5), text);
	} else {
		new = pcap_create(device, text);
		if (new && next(seed) % 2)
			pcap_set_snaplen(new, (int)next(seed));
		if (new && next(seed) % 2)
			pcap_set_immediate_mode(new, 1);
		if (new && next(seed) % 2)
			pcap_set_tstamp_precision(new, (int)(next(seed) % 4) - 1);
		if (new)
			pcap_set_timeout(new, (int)(next(seed) % 5));
		/* some stay as they are */
		if (new && next(seed) % 4 && pcap_activate(new) < 0)
			failed++;
	}
	check(&buffer);
	/* nothing may wait for ever in one thread */
	if (new && pcap_setnonblock(new, 1, buffer.text) < 0)
		failed++;
	keep(seed, new);
}

static void filters(uint64_t *seed)
{
	pcap_t *p = handle(seed);
	struct bpf_insn wild[8];
	struct bpf_program program = { 0, NULL };

	for (int i = 0; i < 8; i++)
		wild[i] = (struct bpf_insn){ (u_short)next(seed), (u_char)next(seed), (u_char)next(seed),
					     (bpf_u_int32)next(seed) };
	switch (next(seed) % 8) {
	case 0:
		program = (struct bpf_program){ (u_int)(next(seed) % 9), wild };
		pcap_setfilter(p, &program);
		break;
	case 1: pcap_setfilter(p, next(seed) % 2 ? NULL : &program); break;
	case 2: pcap_setdirection(p, (pcap_direction_t)(next(seed) % 5)); break;
	case 3: pcap_compile(p, NULL, "udp", 1, 0); break;
	default:
		if (pcap_compile(p, &program, ONE_OF(TEXTS, seed), 1, (bpf_u_int32)next(seed)) < 0) {
			failed++;
			break;
		}
		if (pcap_setfilter(p, &program) < 0)
			failed++;
		pcap_freecode(&program);
	}
}

static void reads(uint64_t *seed)
{
	pcap_t *p = handle(seed);
	struct pcap_pkthdr *header, place;
	const u_char *data;

	switch (next(seed) % 7) {
	case 0: pcap_next_ex(p, next(seed) % 8 ? &header : NULL, next(seed) % 8 ? &data : NULL); break;
	case 1: pcap_next(p, next(seed) % 8 ? &place : NULL); break;
	case 2:
		pcap_dispatch(p, (int)(next(seed) % 600) - 9, next(seed) % 8 ? see : NULL, (u_char *)seed);
		break;
	case 3:
	case 4: pcap_dispatch(p, -1, see, (u_char *)seed); break;
	case 5: pcap_breakloop(p); break;
	default:
		/* ends at once, or after frames: of a handle that does not wait */
		if (p && pcap_getnonblock(p, (char[PCAP_ERRBUF_SIZE]){ 0 }) == 1)
			pcap_loop(p, 1 + (int)(next(seed) % 3), see, (u_char *)seed);
	}
}

static void asks(uint64_t *seed)
{
	pcap_t *p = handle(seed);
	struct errors buffer;
	char *text = errors(&buffer, seed);
	struct pcap_stat stat;
	bpf_u_int32 net, mask;
	int *list = NULL;
	pcap_if_t *all;

	switch (next(seed) % 16) {
	case 0: pcap_stats(p, next(seed) % 8 ? &stat : NULL); break;
	case 1: CHECK(memchr(pcap_geterr(p), 0, PCAP_ERRBUF_SIZE)); break;
	case 2: pcap_datalink(p); break;
	case 3:
		if (pcap_list_datalinks(p, &list) > 0)
			pcap_free_datalinks(list);
		break;
	case 4: pcap_set_datalink(p, (int)(next(seed) % 200)); break;
	case 5: pcap_snapshot(p); break;
	case 6: pcap_get_selectable_fd(p); break;
	case 7: pcap_fileno(p); break;
	case 8: pcap_get_required_select_timeout(p); break;
	case 9: pcap_getnonblock(p, text); break;
	case 10:
		CHECK(pcap_inject(p, "", 1) == -1);
		CHECK(pcap_sendpacket(p, (const u_char *)"", 1) == -1);
		break;
	case 11: pcap_lookupnet(ONE_OF(DEVICES, seed), &net, &mask, buffer.text); break;
	case 12: pcap_activate(p); break;
	case 13: pcap_set_timeout(p, (int)next(seed)); break;
	case 14: {
		pcap_dumper_t *dumper = next(seed) % 4 ? NULL : pcap_dump_open(p, "/none/such");
		CHECK(!dumper);
		break;
	}
	default:
		if (next(seed) % 16 == 0 && pcap_findalldevs(&all, buffer.text) == 0)
			pcap_freealldevs(all);
	}
	check(&buffer);
}

/* A child asks about handles of the parent. It neither reads nor opens, as forks.c does: another thread of the parent
 * may have been in a function of the sanitizers, with a lock that the child never gets. */
static void forks(void)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		alarm(20);
		for (int i = 0; i < HANDLES; i++) {
			pcap_breakloop(handles[i]);
		}
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *works(void *start)
{
	uint64_t seed = *(uint64_t *)start;

	for (int i = 0; i < calls; i++) {
		unsigned char frame[100] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 86, 0, 0, 0, 0,
			64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0, 0x13, 0x89 - next(&seed) % 2, 0, 66 };
		CHECK(send(sender, frame, sizeof frame, 0) == sizeof frame);
		switch (next(&seed) % 8) {
		case 0: opens(&seed); break;
		case 1: filters(&seed); break;
		case 2:
		case 3: asks(&seed); break;
		case 4:
			if (next(&seed) % 64 == 0)
				forks();
			break;
		default: reads(&seed);
		}
	}
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
	/* some handle: the lock may be this thread's */
	pcap_breakloop(handles[0]);
}

int main(int count, char **words)
{
	const char *text = getenv("FYKE_SEED");
	uint64_t base = text ? strtoull(text, NULL, 10) : 88172645463325252u, seeds[THREADS];
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("v0") };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t threads[THREADS];

	calls = count > 1 ? atoi(words[1]) : 1000;
	sender = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(to.sll_ifindex && sender >= 0 && !bind(sender, (struct sockaddr *)&to, sizeof to));
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	fprintf(stderr, "seed %llu\n", (unsigned long long)base);
	for (int i = 0; i < THREADS; i++) {
		seeds[i] = base + (uint64_t)i;
		CHECK(pthread_create(&threads[i], NULL, works, &seeds[i]) == 0);
	}
	for (int i = 0; i < 50; i++) {
		usleep(10000);
		kill(getpid(), SIGUSR1);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < HANDLES; i++)
		pcap_close(handles[i]);
	CHECK(given > 0 && failed > 0);
	fprintf(stderr, "ok: %lu frames\n", given);
	return 0;
}
