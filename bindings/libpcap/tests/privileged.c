/* A program with more rights than its user, by the set-user-ID bit: it finds the library by its run path, and the
 * library has no devices of services for it, and trusts no variable. Prints errors and returns 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define CHECK(what) do { if (!(what)) { \
	fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, errors); \
	exit(1); } } while (0)

int main(void)
{
	char errors[PCAP_ERRBUF_SIZE] = "";
	pcap_if_t *all = NULL;
	bpf_u_int32 net, mask;

	if (!getauxval(AT_SECURE)) {
		fprintf(stderr, "no more rights: the folder may be mounted without set-user-ID\n");
		return 77;
	}
	CHECK(dlsym(RTLD_DEFAULT, "fyke_pcap_version"));
	CHECK(!pcap_open_live("fyke:v1", 65535, 1, 100, errors) && strstr(errors, "fyke:v1"));
	CHECK(!strstr(errors, "fyke serve"));
	CHECK(pcap_lookupnet("fyke:v1", &net, &mask, errors) == -1 && !strstr(errors, "fyke serve"));
	CHECK(pcap_findalldevs(&all, errors) == 0);
	for (pcap_if_t *one = all; one; one = one->next)
		CHECK(strncmp(one->name, "fyke:", 5));
	pcap_freealldevs(all);
	/* the variable names a file that is none; without it the system's library is found */
	pcap_t *dead = pcap_open_dead(DLT_EN10MB, 100);
	struct bpf_program program;
	CHECK(getenv("FYKE_LIBPCAP") && dead && pcap_compile(dead, &program, "udp", 1, 0) == 0);
	pcap_freecode(&program);
	pcap_close(dead);
	fprintf(stderr, "ok\n");
	return 0;
}
