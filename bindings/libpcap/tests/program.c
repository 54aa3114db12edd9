/* A program of libpcap that knows nothing of fyke, on the capture of a service of interface `v1`. It sends its frames
 * itself, on `v0`. Prints errors and returns 1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pcap_t *p;
static char errors[PCAP_ERRBUF_SIZE];
static int sender;

#define CHECK(what) do { if (!(what)) { \
	fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, p ? pcap_geterr(p) : errors); \
		exit(1); } } while (0)

/* Sends datagrams of 100 bytes to a port. */
static void sends(int port, int count)
{
	unsigned char frame[100] = {
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 86, 0, 0, 0, 0, 64, 17, 0, 0,
		10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0, port >> 8, port & 255, 0, 66, 0, 0 };

	for (int i = 0; i < count; i++)
		CHECK(send(sender, frame, sizeof frame, 0) == sizeof frame);
}

static int port_of(const u_char *data)
{
	return data[36] << 8 | data[37];
}

/* Reads until nothing arrives for a while; returns the number of frames, all of which must have this port, if any. */
static int reads(int port)
{
	struct pcap_pkthdr *header;
	const u_char *data;
	int count = 0, quiet = 0, got;

	while (quiet < 3) {
		CHECK((got = pcap_next_ex(p, &header, &data)) >= 0);
		if (got == 0) {
			quiet++;
			continue;
		}
		quiet = 0;
		count++;
		CHECK(header->len == 100 && header->caplen == 100);
		CHECK(!port || port_of(data) == port);
	}
	return count;
}

static pcap_t *opened(int snaplen, int precision)
{
	p = pcap_create("fyke:v1", errors);
	CHECK(p);
	CHECK(pcap_set_snaplen(p, snaplen) == 0 && pcap_set_promisc(p, 1) == 0
		&& pcap_set_timeout(p, 100) == 0);
	CHECK(pcap_set_buffer_size(p, 1 << 20) == 0 && pcap_set_tstamp_precision(p, precision) == 0);
	CHECK(pcap_fileno(p) == -1 && pcap_get_selectable_fd(p) == -1);
	CHECK(pcap_datalink(p) == PCAP_ERROR_NOT_ACTIVATED && pcap_dump_open(p, "/dev/null") == NULL);
	CHECK(pcap_activate(p) == 0);
	CHECK(pcap_activate(p) == PCAP_ERROR_ACTIVATED && pcap_set_snaplen(p, 9) == PCAP_ERROR_ACTIVATED);
	CHECK(pcap_datalink(p) == DLT_EN10MB && pcap_snapshot(p) == snaplen);
	return p;
}

static void filter(const char *text)
{
	struct bpf_program program;

	CHECK(pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN) == 0);
	CHECK(pcap_setfilter(p, &program) == 0);
	pcap_freecode(&program);
}

static void exact_filters_and_counts(void)
{
	struct pcap_stat stat;

	sends(5001, 10);
	CHECK(reads(5001) == 10);
	filter("udp port 5001");
	sends(5002, 5);
	sends(5001, 5);
	CHECK(reads(5001) == 5);
	CHECK(pcap_stats(p, &stat) == 0 && stat.ps_recv == 15 && stat.ps_drop == 0 && stat.ps_ifdrop == 0);

	/* frames of the filter before are in the ring, and are not returned */
	sends(5001, 20);
	usleep(200000);
	filter("udp port 5002");
	sends(5002, 3);
	CHECK(reads(5002) == 3);
	CHECK(pcap_stats(p, &stat) == 0 && stat.ps_recv == 18 && stat.ps_drop == 0);

	/* some of a batch are taken, then the filter changes */
	filter("udp");
	sends(5001, 4);
	sends(5002, 4);
	usleep(200000);
	struct pcap_pkthdr header;
	const u_char *data = pcap_next(p, &header);
	CHECK(data && port_of(data) == 5001);
	filter("udp port 5002");
	CHECK(reads(5002) == 4);

	/* read as for a live capture */
	filter("outbound");
	sends(5001, 3);
	CHECK(reads(0) == 0);
	filter("inbound and udp");
	sends(5001, 3);
	CHECK(reads(5001) == 3);
	filter("");
	CHECK(pcap_setdirection(p, PCAP_D_OUT) == 0);
	sends(5001, 3);
	CHECK(reads(0) == 0 && pcap_setdirection(p, PCAP_D_INOUT) == 0);
	CHECK(pcap_setdirection(p, 9) == -1);
}

static void programs_without_a_text(void)
{
	struct bpf_insn port[] = { BPF_STMT(BPF_LD + BPF_H + BPF_ABS, 36),
		BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, 5002, 0, 1),
		BPF_STMT(BPF_RET + BPF_K, 100), BPF_STMT(BPF_RET + BPF_K, 0) };
	struct bpf_insn endless[] = { BPF_STMT(BPF_JMP + BPF_JA, (u_int)-1) };
	struct bpf_program program = { 4, port }, wrong = { 1, endless }, none = { 0, NULL };

	sends(5002, 7);
	CHECK(pcap_setfilter(p, &program) == 0);
	sends(5001, 5);
	sends(5002, 5);
	int count = reads(5002);
	CHECK(count >= 5 && count <= 12);
	CHECK(pcap_setfilter(p, &wrong) == -1 && strlen(pcap_geterr(p)) > 5);
	CHECK(pcap_setfilter(p, &none) == -1 && pcap_setfilter(p, NULL) == -1);
	sends(5001, 5);
	sends(5002, 5);
	CHECK(reads(5002) == 5);

	/* compiled for another link type: the instructions decide, and reject Ethernet headers */
	pcap_t *raw = pcap_open_dead(DLT_RAW, 65535);
	CHECK(raw && pcap_compile(raw, &program, "ip", 1, 0) == 0 && pcap_setfilter(p, &program) == 0);
	pcap_freecode(&program);
	pcap_close(raw);
	sends(5001, 3);
	CHECK(reads(0) == 0);
	filter("udp port 5001");
	CHECK(pcap_compile(p, &program, "udp prot 5001", 1, 0) == -1 && strstr(pcap_geterr(p), "syntax"));
	CHECK(pcap_compile(p, &program, "ether proto \\rarp", 1, 0) == 0
		&& program.bf_insns[1].k == 0x8035);
	pcap_freecode(&program);
}

static int ready(void)
{
	struct pollfd one = { .fd = pcap_get_selectable_fd(p), .events = POLLIN };

	CHECK(one.fd >= 0);
	int got = poll(&one, 1, 300);
	CHECK(got >= 0);
	return got;
}

static int seen;

static void see(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
	seen++;
	CHECK(header->caplen > 41 && port_of(data) == 5001 && !strcmp((char *)user, "user"));
	struct pcap_stat stat;
	CHECK(pcap_stats(p, &stat) == 0);
}

static void waiting(void)
{
	while (pcap_dispatch(p, -1, see, (u_char *)"user") > 0)
		;
	seen = 0;
	CHECK(pcap_setnonblock(p, 1, errors) == 0 && pcap_getnonblock(p, errors) == 1);
	CHECK(pcap_dispatch(p, -1, see, (u_char *)"user") == 0);
	CHECK(!ready());
	sends(5001, 1);
	CHECK(ready());
	for (int i = 0; i < 100 && !seen; i++)
		CHECK(pcap_dispatch(p, -1, see, (u_char *)"user") >= 0);
	CHECK(seen == 1 && !ready());
	/* readable as long as frames are left */
	sends(5001, 3);
	for (int left = 3; left > 0; ) {
		CHECK(ready());
		int got = pcap_dispatch(p, 1, see, (u_char *)"user");
		CHECK(got >= 0 && got <= 1);
		left -= got;
	}
	CHECK(seen == 4 && !ready() && pcap_setnonblock(p, 0, errors) == 0);
}

static void on_alarm(int number)
{
	(void)number;
	pcap_breakloop(p);
}

static void *breaks(void *unused)
{
	usleep(200000);
	pcap_breakloop(p);
	return unused;
}

static void *closes(void *unused)
{
	usleep(200000);
	pcap_close(p);
	return unused;
}

static void ends(void)
{
	pthread_t thread;
	struct sigaction action = { .sa_handler = on_alarm };

	sends(5001, 5);
	CHECK(pcap_loop(p, 5, see, (u_char *)"user") == 0);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	alarm(1);
	CHECK(pcap_loop(p, -1, see, (u_char *)"user") == PCAP_ERROR_BREAK);
	CHECK(pthread_create(&thread, NULL, breaks, NULL) == 0);
	CHECK(pcap_loop(p, -1, see, (u_char *)"user") == PCAP_ERROR_BREAK);
	pthread_join(thread, NULL);
	/* the break is forgotten */
	sends(5001, 1);
	CHECK(pcap_loop(p, 1, see, (u_char *)"user") == 0);

	/* another thread closes the handle that this one reads */
	CHECK(pthread_create(&thread, NULL, closes, NULL) == 0);
	CHECK(pcap_loop(p, -1, see, (u_char *)"user") < 0);
	pthread_join(thread, NULL);
	struct pcap_pkthdr *header;
	const u_char *data;
	CHECK(pcap_next_ex(p, &header, &data) == -1 && strstr(pcap_geterr(p), "closed"));
	CHECK(pcap_datalink(p) == -1 && pcap_setnonblock(p, 1, errors) == -1 && pcap_fileno(p) == -1);
	pcap_close(p);
	pcap_close(NULL);
	CHECK(pcap_datalink(NULL) == -1 && pcap_next_ex(NULL, &header, &data) == -1);
}

/* A program that becomes a daemon after it has opened the device. */
static void forks(void)
{
	opened(65535, PCAP_TSTAMP_PRECISION_MICRO);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		filter("udp port 5001");
		sends(5001, 3);
		CHECK(reads(5001) == 3);
		pcap_close(p);
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	pcap_close(p);
}

static void cuts_times_and_files(const char *name)
{
	struct pcap_pkthdr *header;
	const u_char *data;
	int fine = 0;

	opened(60, PCAP_TSTAMP_PRECISION_NANO);
	pcap_dumper_t *dumper = pcap_dump_open(p, name);
	CHECK(dumper);
	filter("udp port 5001");
	sends(5001, 10);
	for (int i = 0; i < 10; ) {
		int got = pcap_next_ex(p, &header, &data);
		CHECK(got >= 0);
		if (got == 0)
			continue;
		CHECK(header->caplen == 60 && header->len == 100 && header->ts.tv_usec < 1000000000);
		fine |= header->ts.tv_usec % 1000 != 0;
		pcap_dump((u_char *)dumper, header, data);
		i++;
	}
	CHECK(fine);
	pcap_dump_close(dumper);
	pcap_close(p);
	p = pcap_open_offline(name, errors);
	CHECK(p && pcap_snapshot(p) == 60);
	for (int i = 0; i < 10; i++)
		CHECK(pcap_next_ex(p, &header, &data) == 1);
	CHECK(pcap_next_ex(p, &header, &data) == PCAP_ERROR_BREAK);
	pcap_close(p);
	p = NULL;
}

static int descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = 0;

	CHECK(all);
	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* A handle that is closed keeps no descriptor. */
static void closed_handles(void)
{
	int before = descriptors();

	for (int i = 0; i < 20; i++) {
		opened(65535, PCAP_TSTAMP_PRECISION_MICRO);
		pcap_close(p);
	}
	p = NULL;
	CHECK(descriptors() <= before);
}

/* Reads this number of frames of a port, which may take long, and no more. */
static void expects(int port, int count)
{
	struct pcap_pkthdr *header;
	const u_char *data;

	for (int calls = 0; count > 0 && calls < 200; calls++) {
		int got = pcap_next_ex(p, &header, &data);
		CHECK(got >= 0 && (got == 0 || port_of(data) == port));
		count -= got;
	}
	CHECK(count == 0 && reads(port) == 0);
}

/* The service does not answer for longer than an edit waits, and ends in order later. */
static void while_the_service_stops(pid_t service)
{
	struct bpf_program program;
	struct pcap_pkthdr *header;
	const u_char *data;

	filter("udp port 5001");
	sends(5001, 5);
	usleep(200000);
	CHECK(pcap_compile(p, &program, "udp port 5002", 1, 0) == 0);
	CHECK(kill(service, SIGSTOP) == 0);
	/* A thread of it may answer until it has stopped. */
	usleep(300000);
	CHECK(pcap_setfilter(p, &program) == -1);
	CHECK(strstr(pcap_geterr(p), "does not answer within 10 s"));
	CHECK(kill(service, SIGCONT) == 0);
	expects(5001, 5);
	sends(5001, 4);
	sends(5002, 4);
	expects(5001, 4);
	CHECK(pcap_setfilter(p, &program) == 0);
	sends(5001, 4);
	sends(5002, 4);
	expects(5002, 4);
	CHECK(kill(service, SIGINT) == 0);
	while (pcap_next_ex(p, &header, &data) >= 0)
		;
	CHECK(pcap_setfilter(p, &program) == -1 && strstr(pcap_geterr(p), "ended"));
	pcap_freecode(&program);
}

static void devices(void)
{
	pcap_if_t *all, *one;
	int found = 0;
	bpf_u_int32 net, mask;

	CHECK(pcap_findalldevs(&all, errors) == 0);
	for (one = all; one; one = one->next)
		found += !strcmp(one->name, "fyke:v1") + 10 * !strcmp(one->name, "v0");
	CHECK(found == 11);
	pcap_freealldevs(all);
	CHECK(!pcap_open_live("fyke:none", 65535, 1, 100, errors) && strstr(errors, "none"));
	CHECK(!pcap_open_live("fyke:", 65535, 1, 100, errors)
		&& !pcap_open_live("fyke:../x y", 65535, 1, 1, errors));
	CHECK(pcap_lookupnet("fyke:none", &net, &mask, errors) == -1);
	pcap_t *many[300];
	int count = 0;
	while (count < 300 && (many[count] = pcap_create("fyke:v1", errors)))
		count++;
	CHECK(count == 256 && strstr(errors, "256"));
	while (count)
		pcap_close(many[--count]);
	p = pcap_open_live("v1", 65535, 1, 100, errors);
	CHECK(p);
	filter("udp port 5001");
	sends(5001, 2);
	CHECK(pcap_loop(p, 2, see, (u_char *)"user") == 0);
	pcap_close(p);
}

int main(int count, char **words)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = 0 };

	to.sll_ifindex = if_nametoindex("v0");
	sender = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(to.sll_ifindex && sender >= 0 && !bind(sender, (struct sockaddr *)&to, sizeof to));
	opened(65535, PCAP_TSTAMP_PRECISION_MICRO);
	if (count > 2 && !strcmp(words[2], "until-the-service-dies")) {
		fprintf(stderr, "ready\n");
		int status = pcap_loop(p, -1, see, (u_char *)"user");
		fprintf(stderr, "%d: %s\n", status, pcap_geterr(p));
		struct bpf_program program;
		CHECK(pcap_compile(p, &program, "udp", 1, 0) == 0 && pcap_setfilter(p, &program) == -1);
		pcap_close(p);
		return status == -1 ? 0 : 1;
	}
	if (count > 3 && !strcmp(words[2], "while-the-service-stops")) {
		while_the_service_stops(atoi(words[3]));
		fprintf(stderr, "ok\n");
		return 0;
	}
	exact_filters_and_counts();
	programs_without_a_text();
	waiting();
	ends();
	forks();
	cuts_times_and_files(words[1]);
	devices();
	closed_handles();
	fprintf(stderr, "ok\n");
	return 0;
}
