/* Forks while other threads read, open, edit and close: the child reads the handle that these threads were reading,
 * opens another one, sets a filter, gets a frame, and closes both. forks NUMBER; the service is that of `v1`, frames
 * are sent on `v0`. Compiled without sanitizers, which have locks of their own. */
#define _GNU_SOURCE
#include <linux/if_packet.h>
#include <net/if.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READERS = 2, EDITORS = 2, LIMIT_S = 20 };

#define CHECK(what) do { if (!(what)) { \
	fprintf(stderr, "process %d, line %d: %s\n", getpid(), __LINE__, #what); \
	_exit(1); } } while (0)

static pcap_t *both;
static int sender;
static _Atomic int ending;
static _Atomic unsigned long got[READERS], opened;
/* The line that the child has reached, in memory that the parent sees. */
static volatile int *line;
#define STEP (*line = __LINE__)

static void sends(int port)
{
	unsigned char frame[100] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 86,
		0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0,
		(unsigned char)(port >> 8), (unsigned char)port, 0, 66 };

	CHECK(send(sender, frame, sizeof frame, 0) == sizeof frame);
}

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	(void)data;
	CHECK(header->caplen == 100 && header->len == 100);
	++*(_Atomic unsigned long *)user;
}

static pcap_t *opens(const char *text)
{
	char error[PCAP_ERRBUF_SIZE] = "";
	struct bpf_program program;
	pcap_t *p = pcap_open_live("fyke:v1", 65535, 1, 10, error);

	if (!p)
		fprintf(stderr, "process %d: %s\n", getpid(), error);
	CHECK(p);
	CHECK(pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN) == 0);
	CHECK(pcap_setfilter(p, &program) == 0);
	pcap_freecode(&program);
	return p;
}

static void *reads(void *counter)
{
	struct pcap_stat stat;

	while (!ending) {
		CHECK(pcap_dispatch(both, -1, count, counter) >= 0);
		CHECK(pcap_stats(both, &stat) == 0);
	}
	return NULL;
}

static void *edits(void *unused)
{
	while (!ending) {
		pcap_t *p = opens("udp port 5003");
		struct pcap_pkthdr *header;
		const u_char *data;
		CHECK(pcap_next_ex(p, &header, &data) >= 0);
		pcap_close(p);
		opened++;
	}
	return unused;
}

static void *sends_all_the_time(void *unused)
{
	for (unsigned i = 0; !ending; i++) {
		sends(5001 + (int)(i % 2));
		if (i % 64 == 0)
			usleep(1000);
	}
	return unused;
}

static void child(void)
{
	_Atomic unsigned long frames = 0;
	char error[PCAP_ERRBUF_SIZE];

	alarm(LIMIT_S);
	STEP;
	CHECK(pcap_setnonblock(both, 1, error) == 0);
	STEP;
	CHECK(pcap_dispatch(both, -1, count, (u_char *)&frames) >= 0);
	STEP;
	pcap_t *own = opens("udp port 5004");
	STEP;
	sends(5004);
	STEP;
	for (frames = 0; frames == 0;)
		CHECK(pcap_dispatch(own, -1, count, (u_char *)&frames) >= 0);
	STEP;
	pcap_close(own);
	STEP;
	pcap_close(both);
	STEP;
	_exit(0);
}

static void forks(int number)
{
	alarm(3 * LIMIT_S);
	pid_t process = fork();
	CHECK(process >= 0);
	if (process == 0)
		child();
	int status;
	CHECK(waitpid(process, &status, 0) == process);
	alarm(0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	fprintf(stderr, "fork %d: the child is at line %d, status %#x\n", number, *line,
		(unsigned)status);
	_exit(1);
}

int main(int words, char **word)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("v0") };
	int number = words > 1 ? atoi(word[1]) : 200;
	pthread_t threads[READERS + EDITORS + 1];

	line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sender = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(line != MAP_FAILED && to.sll_ifindex && sender >= 0);
	CHECK(bind(sender, (struct sockaddr *)&to, sizeof to) == 0);
	both = opens("udp port 5001");
	for (int i = 0; i < READERS; i++)
		CHECK(pthread_create(&threads[i], NULL, reads, (void *)&got[i]) == 0);
	for (int i = 0; i < EDITORS; i++)
		CHECK(pthread_create(&threads[READERS + i], NULL, edits, NULL) == 0);
	CHECK(pthread_create(&threads[READERS + EDITORS], NULL, sends_all_the_time, NULL) == 0);
	for (int i = 0; i < number; i++)
		forks(i);
	/* the parent reads on, and opens */
	unsigned long before = opened, sum = got[0] + got[1];
	for (int i = 0; i < LIMIT_S * 100 && (opened < before + 4 || got[0] + got[1] == sum); i++)
		usleep(10000);
	CHECK(opened >= before + 4 && got[0] + got[1] > sum);
	ending = 1;
	alarm(LIMIT_S);
	for (int i = 0; i < READERS + EDITORS + 1; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	pcap_close(both);
	fprintf(stderr, "ok: %d forks, %lu frames, %lu handles\n", number, got[0] + got[1], opened);
	return 0;
}
