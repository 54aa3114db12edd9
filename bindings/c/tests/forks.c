/* Forks while other threads open, use and close readers and flows: the child gets errors for those of the parent, and
 * opens some itself. Compiled without sanitizers, which have locks of their own. */
#include <fyke.h>
#include <mapi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, FORKS = 200, LIMIT_S = 20 };

#define CHECK(what) do { if (!(what)) { \
	printf("process %d, line %d: %s: %s\n", getpid(), __LINE__, #what, fyke_error(NULL)); \
	fflush(stdout); \
	_exit(1); } } while (0)

static const uint8_t frame[42] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28,
	0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0, 0, 53, 0, 8, 0, 0 };
static _Atomic int ending;

static void uses(void)
{
	fyke_reader *reader = fyke_reader_of("EN10MB", "udp port 53");
	fyke_change change = { FYKE_SET, "tcp", 0 };

	CHECK(reader && fyke_match(reader, frame, sizeof frame, 0) == 1);
	CHECK(fyke_reader_edit(reader, &change, 1) == 0);
	CHECK(fyke_match(reader, frame, sizeof frame, 0) == 0);
	CHECK(fyke_reader_close(reader) == 0);
	int flow = mapi_create_flow("/none/such");
	CHECK(flow > 0 && mapi_apply_function(flow, "PKT_COUNTER") == 0);
	CHECK(mapi_close_flow(flow) == 0);
}

static void *works(void *unused)
{
	while (!ending)
		uses();
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];
	fyke_reader *reader = fyke_reader_of("EN10MB", "udp");
	int flow = mapi_create_flow("/none/such");

	CHECK(reader && flow > 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, works, NULL) == 0);
	for (int i = 0; i < FORKS; i++) {
		int status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(LIMIT_S);
			CHECK(fyke_match(reader, frame, sizeof frame, 0) == -1);
			CHECK(strstr(fyke_error(NULL), "belongs to process"));
			CHECK(fyke_reader_close(reader) == -1 && mapi_close_flow(flow) == -1);
			uses();
			CHECK(mapi_close_flow(flow) == -1);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	ending = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(fyke_reader_close(reader) == 0 && mapi_close_flow(flow) == 0);
	printf("ok\n");
	return 0;
}
