/* Readers: frames that the program has, a capture file, and a service that is edited and killed. FYKE_COMMAND is the
 * command; without it the service is left out. */
#include "net.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include "fyke.h"

static void write_file(const char *path, const struct frame *tcp, const struct frame *ip6, int cut)
{
	uint32_t header[] = { 0xa1b2c3d4, 2 | 4 << 16, 0, 0, 262144, 1 };
	FILE *file = fopen(path, "wb");

	fwrite(header, sizeof header, 1, file);
	for (uint32_t i = 0; i < 1000; i++) {
		const struct frame *one = i % 4 ? tcp : ip6;
		uint32_t record[] = { 1000 + i, 5, (uint32_t)one->length, (uint32_t)one->length };
		fwrite(record, sizeof record, 1, file);
		fwrite(one->bytes, one->length - (cut && i == 999), 1, file);
	}
	fclose(file);
}

static void own_frames(const struct frame *tcp, const struct frame *ip6)
{
	fyke_reader *r = fyke_reader_of("EN10MB", "tcp port 23");

	CHECK(r && fyke_match(r, tcp->bytes, tcp->length, 0) == 1);
	CHECK(fyke_match(r, ip6->bytes, ip6->length, 0) == 0);
	fyke_change changes[] = { { FYKE_SET, "greater 1000", 0 } };
	CHECK(fyke_reader_edit(r, changes, 1) == 0 && changes[0].id == 2);
	CHECK(fyke_match(r, tcp->bytes, tcp->length, 0) == 0);
	CHECK(fyke_match(r, tcp->bytes, tcp->length, 1500) == 1);
	CHECK(fyke_match(r, NULL, 60, 0) == -1 && fyke_next(r, &(fyke_frame){ 0 }, 1, 0) == -1);
	CHECK(fyke_reader_count(r).seen == 4 && fyke_reader_count(r).accepted == 2);
	CHECK(fyke_reader_close(r) == 0 && fyke_reader_close(r) == -1);
	CHECK(fyke_match(r, tcp->bytes, tcp->length, 0) == -1);
	CHECK(strstr(fyke_error(NULL), "no open reader"));
	CHECK(!fyke_reader_of("NONE SUCH", "") && !fyke_reader_of("EN10MB", "tcp prot 7"));
	CHECK(strstr(fyke_error(NULL), "^") && !fyke_reader_of(NULL, NULL));
}

static void of_file(const char *path, const struct frame *tcp, const struct frame *ip6)
{
	fyke_frame frames[64];
	int got, total = 0;

	write_file(path, tcp, ip6, 0);
	fyke_reader *r = fyke_reader_open(path, "tcp");
	CHECK(r && fyke_next(r, frames, 7, 0) >= 0);
	CHECK(fyke_next(r, NULL, 7, 0) == -1 && fyke_next(r, frames, 0, 0) == -1);
	fyke_reader_close(r);
	r = fyke_reader_open(path, "tcp");
	while ((got = fyke_next(r, frames, 64, -1)) > 0) {
		for (int i = 0; i < got; i++)
			CHECK(frames[i].captured == tcp->length && frames[i].link == 1 &&
			      frames[i].time_ns / 1000000000 >= 1000 &&
			      !memcmp(frames[i].data, tcp->bytes, tcp->length));
		total += got;
	}
	CHECK(got == FYKE_END && total == 750 && fyke_next(r, frames, 64, 0) == FYKE_END);
	fyke_reader_counts counts = fyke_reader_count(r);
	CHECK(counts.seen == 1000 && counts.accepted == 750 && counts.rejected == 250 && !counts.lost);
	CHECK(fyke_reader_text_accepted(r, 1) == 750 && fyke_reader_close(r) == 0);
	/* an edit decides about frames that have arrived and were not given */
	r = fyke_reader_open(path, "tcp");
	CHECK(fyke_next(r, frames, 1, -1) == 1);
	fyke_change changes[] = { { FYKE_SET, "ip6", 0 } };
	CHECK(fyke_reader_edit(r, changes, 1) == 0);
	while ((got = fyke_next(r, frames, 64, -1)) > 0)
		for (int i = 0; i < got; i++)
			CHECK(frames[i].captured == ip6->length);
	counts = fyke_reader_count(r);
	CHECK(got == FYKE_END && counts.seen == 1000 && counts.accepted + counts.rejected == 1000);
	fyke_reader_close(r);
	/* a file that is cut gives its frames first */
	write_file(path, tcp, ip6, 1);
	r = fyke_reader_open(path, "");
	for (total = 0; (got = fyke_next(r, frames, 64, -1)) > 0;)
		total += got;
	CHECK(got == -1 && total == 999 && *fyke_error(NULL) && fyke_next(r, frames, 1, -1) == -1);
	fyke_reader_close(r);
	CHECK(!fyke_reader_open("/none/such.pcap", "") && !fyke_reader_open("serve:none", ""));
}

static int take(fyke_reader *r, size_t length, int want)
{
	fyke_frame frames[16];
	int total = 0;

	for (int calls = 0; total < want && calls < 200; calls++) {
		int got = fyke_next(r, frames, 16, 100);
		if (got < 0)
			return got;
		for (int i = 0; i < got; i++)
			CHECK(frames[i].captured == length);
		total += got;
	}
	return total;
}

/* Reads without a limit of time, until the reader is closed. */
static void *reads(void *given)
{
	fyke_reader *r = *(fyke_reader **)given;
	fyke_frame frames[16];
	intptr_t total = 0, got;

	while ((got = fyke_next(r, frames, 16, -1)) > 0)
		for (int i = 0; i < got; i++)
			total += frames[i].captured > 0;
	if (got != -1 || !strstr(fyke_error(NULL), "closed"))
		return (void *)-1;
	return (void *)total;
}

/* A thread waits for frames without a limit; this one edits, counts and closes the reader meanwhile. */
static void beside_a_thread_that_waits(const struct frame *tcp, const struct frame *ip6)
{
	fyke_reader *r = fyke_reader_open("lo", "inbound and tcp port 23");
	fyke_change changes[] = { { FYKE_SET, "inbound and ip6 src net 2001:db8::/32", 0 } };
	fyke_reader_counts counts;
	pthread_t thread;
	void *total;
	int calls = 0;

	CHECK(r && pthread_create(&thread, NULL, reads, &r) == 0);
	usleep(100000);
	CHECK(fyke_reader_edit(r, changes, 1) == 0);
	send_frame(tcp);
	send_frame(ip6);
	do
		counts = fyke_reader_count(r);
	while (counts.accepted == 0 && ++calls < 1000 && usleep(1000) == 0);
	CHECK(counts.accepted == 1 && counts.seen == counts.accepted + counts.rejected + counts.lost);
	CHECK(fyke_reader_close(r) == 0 && pthread_join(thread, &total) == 0);
	CHECK(total == (void *)0 || total == (void *)1);
}

/* Frames that are all rejected do not make a call longer than its limit. */
static void busy_with_rejected_frames(const char *path)
{
	fyke_reader *r = fyke_reader_open(path, "arp");
	fyke_frame frame;
	int got, calls = 0;

	while ((got = fyke_next(r, &frame, 1, 0)) == 0)
		calls++;
	CHECK(got == FYKE_END && calls > 1 && fyke_reader_count(r).rejected == 1000);
	CHECK(fyke_reader_close(r) == 0);
}

static pid_t service;

static void end_service(void)
{
	if (service > 0)
		kill(service, SIGKILL);
}

static void of_service(const char *command, const struct frame *tcp, const struct frame *ip6)
{
	fyke_reader *r = NULL;
	fyke_frame frame;
	int got, status;

	own_namespace();
	/* the interface itself */
	r = fyke_reader_open("lo", "inbound and tcp port 23");
	CHECK(r);
	for (int i = 0; i < 5; i++) {
		send_frame(tcp);
		send_frame(ip6);
	}
	CHECK(take(r, tcp->length, 5) == 5 && fyke_next(r, &frame, 1, 0) == 0);
	fyke_reader_counts own = fyke_reader_count(r);
	CHECK(own.seen == own.accepted + own.rejected + own.lost && own.accepted == 5 && !own.lost);
	CHECK(fyke_reader_close(r) == 0);
	r = NULL;
	beside_a_thread_that_waits(tcp, ip6);

	service = fork();
	if (service == 0) {
		/* The test waits until no process has its pipe any more, and a failed check leaves the service running. */
		int nothing = open("/dev/null", O_WRONLY);
		dup2(nothing, 1);
		dup2(nothing, 2);
		execl(command, "fyke", "serve", "-i", "lo", (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 400 && !r; i++, usleep(50000))
		r = fyke_reader_open("serve:lo", "inbound and tcp port 23");
	CHECK(r);
	for (int i = 0; i < 10; i++) {
		send_frame(tcp);
		send_frame(ip6);
	}
	CHECK(take(r, tcp->length, 10) == 10);
	fyke_change changes[] = { { FYKE_SET, "inbound and ip6 src net 2001:db8::/32", 0 } };
	CHECK(fyke_reader_edit(r, changes, 1) == 0);
	for (int i = 0; i < 10; i++) {
		send_frame(tcp);
		send_frame(ip6);
	}
	CHECK(take(r, ip6->length, 10) == 10 && fyke_next(r, &frame, 1, 0) == 0);
	fyke_reader_counts counts = fyke_reader_count(r);
	CHECK(counts.accepted == 20 && counts.lost == 0 && !counts.partial);
	CHECK(counts.seen == counts.accepted + counts.rejected + counts.lost);
	/* the service does not answer in time: the old text stays, and the reader continues */
	fyke_change late[] = { { FYKE_SET, "inbound and tcp port 23", 0 } };
	kill(service, SIGSTOP);
	CHECK(fyke_reader_edit(r, late, 1) == -1);
	CHECK(strstr(fyke_error(NULL), "does not answer within 10 s"));
	kill(service, SIGCONT);
	for (int i = 0; i < 10; i++) {
		send_frame(tcp);
		send_frame(ip6);
	}
	CHECK(take(r, ip6->length, 10) == 10 && fyke_next(r, &frame, 1, 0) == 0);
	CHECK(fyke_reader_edit(r, late, 1) == 0 && fyke_reader_edit(r, NULL, 0) == 0);
	for (int i = 0; i < 10; i++) {
		send_frame(tcp);
		send_frame(ip6);
	}
	CHECK(take(r, tcp->length, 10) == 10);
	kill(service, SIGKILL);
	waitpid(service, &status, 0);
	service = 0;
	do
		got = fyke_next(r, &frame, 1, 1000);
	while (got >= 0);
	CHECK(got == -1 && strstr(fyke_error(NULL), "ended"));
	CHECK(fyke_next(r, &frame, 1, 0) == -1 && strstr(fyke_error(NULL), "ended"));
	CHECK(fyke_reader_edit(r, changes, 1) == -1 && strstr(fyke_error(NULL), "ended"));
	counts = fyke_reader_count(r);
	CHECK(counts.partial && counts.accepted == 40);
	CHECK(fyke_reader_close(r) == 0);
}

int main(int count, char **arguments)
{
	struct frame tcp = tcp_frame(), ip6 = ip6_frame();
	const char *command = getenv("FYKE_COMMAND");
	char path[4096];

	snprintf(path, sizeof path, "%s.pcap", arguments[0]);
	own_frames(&tcp, &ip6);
	of_file(path, &tcp, &ip6);
	write_file(path, &tcp, &ip6, 0);
	busy_with_rejected_frames(path);
	atexit(end_service);
	if (count == 1 && command)
		of_service(command, &tcp, &ip6);
	printf("ok\n");
	return 0;
}
