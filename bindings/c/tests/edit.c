/* Uses libfyke as a C program would: a packet socket on the loopback device of a network namespace of its own, real
 * packets, a filter that changes between them. Prints errors and returns 1; returns 77 if it is not permitted to
 * run. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <linux/if_ether.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fyke_compat.h"

static int udp, packets;

/* Sends ten packets to a port of this program and returns how many frames arrive; each crosses the device twice. */
static int ten(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	char frame[2048];
	int count = 0;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 10; i++)
		sendto(udp, "ten", 3, 0, (struct sockaddr *)&to, sizeof to);
	while (recv(packets, frame, sizeof frame, MSG_DONTWAIT) > 0)
		count++;
	return count;
}

#define CHECK(what) do { if (!(what)) { \
	printf("line %d: %s: %s\n", __LINE__, #what, fyke_error(f)); return 1; } } while (0)

int main(void)
{
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	fyke_filter *f = NULL;
	char text[512];
	int sinks[2];

	if (unshare(CLONE_NEWNET)) {
		printf("skipped: network namespaces: %s\n", strerror(errno));
		return 77;
	}
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(udp, SIOCSIFFLAGS, &up))
		return 1;
	for (int i = 0; i < 2; i++) {
		struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7001 + i) };
		sinks[i] = socket(AF_INET, SOCK_DGRAM, 0);
		if (bind(sinks[i], (struct sockaddr *)&at, sizeof at))
			return 1;
	}
	packets = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	f = SPF_Open(packets);
	if (!f) {
		printf("skipped: %s\n", fyke_error(NULL));
		return 77;
	}
	CHECK(ten(7001) == 20); /* an empty filter accepts everything */

	/* ip udp dst port 7001 */
	int pass = SPF_NewPass(f);
	CHECK(pass > 0);
	CHECK(SPF_SelectOp(f, pass, 0, FYKE_ETHER_IP_UDP_NONFRAG, 0) == 0);
	CHECK(SPF_SelectOp(f, pass, 1, FYKE_PORT_DST, 0) == 0);
	CHECK(ten(7001) == 0); /* no parameter yet */
	CHECK(SPF_AddParam(f, pass, 1, 7001) == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 0);
	CHECK(SPF_AddParam(f, pass, 1, 7002) == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 20);
	CHECK(SPF_DelParam(f, pass, 1, 7001) == 0);
	CHECK(ten(7001) == 0 && ten(7002) == 20);
	CHECK(fyke_accepted(f, pass) == 80);

	/* a copy, changed by a poke: word 1 holds the first two ports */
	int copy = NPF_DupPass(f, pass);
	CHECK(copy > 0);
	CHECK(NPF_PokeInst(f, copy, 1, 1, 7001) == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 20);
	CHECK(NPF_DelPass(f, pass) == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 0);
	CHECK(fyke_print_pass(f, copy, text, sizeof text) > 0 && strstr(text, "7001"));

	/* a failed call changes nothing and its error names the problem */
	CHECK(NPF_DelPass(f, pass) == -1 && strstr(fyke_error(f), "no pass"));
	CHECK(fyke_set_text(f, "udp prot 7001") == -1 && strstr(fyke_error(f), "prot"));
	CHECK(SPF_PokeInst(f, copy, 1, 0, 0x7e) == -1);
	CHECK(fyke_attach(f, udp) == -1 && strstr(fyke_error(f), "packet socket"));
	CHECK(fyke_select_op(f, copy, 0, 99, 0) == -1 && strstr(fyke_error(f), "99"));
	CHECK(fyke_select_op(NULL, 1, 0, FYKE_TRUE, 0) == -1);
	CHECK(ten(7001) == 20 && ten(7002) == 0);

	/* textual filters */
	CHECK(fyke_set_text(f, "udp port 7002 or arp") > 0);
	CHECK(ten(7001) == 0 && ten(7002) == 20);
	CHECK(fyke_add_text(f, "ip host 127.0.0.1") > 0);
	CHECK(ten(7001) == 20);
	CHECK(fyke_set_text(f, "udp[2:2] & 0xffff = 7001 and ip[9] - 1 = 16") > 0);
	CHECK(ten(7001) == 20 && ten(7002) == 0);
	CHECK(fyke_set_text(f, "ip6 host ::2 or ip6 host ::3 or udp port 7002") > 0);
	CHECK(ten(7001) == 0 && ten(7002) == 20);
	CHECK(fyke_set_text(f, "ip protochain 17") == -1 && strstr(fyke_error(f), "user space"));
	CHECK(ten(7001) == 0 && ten(7002) == 20);
	/* the empty text accepts every frame */
	CHECK(fyke_set_text(f, "") == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 20);

	/* texts are read live: frames have a direction, and cross the device once in each */
	CHECK(fyke_set_text(f, "inbound and udp dst port 7001") > 0);
	CHECK(ten(7001) == 10 && ten(7002) == 0);

	/* texts have numbers, counts, and go one by one */
	int first = fyke_set_text(f, "udp dst port 7001");
	int second = fyke_add_text(f, "udp dst port 7002");
	CHECK(first > 0 && second > first);
	CHECK(ten(7001) == 20 && ten(7002) == 20);
	CHECK(fyke_text_accepted(f, first) == 20 && fyke_text_accepted(f, second) == 20);
	CHECK(fyke_delete_text(f, first) == 0);
	CHECK(ten(7001) == 0 && ten(7002) == 20);
	CHECK(fyke_text_accepted(f, first) == 0 && fyke_text_accepted(f, second) == 40);
	CHECK(fyke_delete_text(f, first) == -1 && strstr(fyke_error(f), "no filter"));
	CHECK(fyke_delete_text(f, -1) == -1 && fyke_delete_text(NULL, 1) == -1);
	CHECK(fyke_delete_text(f, second) == -1 && strstr(fyke_error(f), "last one"));
	/* an empty text that is added accepts every frame until it goes */
	int all = fyke_add_text(f, "");
	CHECK(all > second && ten(7001) == 20);
	CHECK(fyke_delete_text(f, all) == 0 && ten(7001) == 0);
	/* a refused text changes nothing, and its number is free */
	CHECK(fyke_add_text(f, "ip protochain 17") == -1 && ten(7001) == 0);

	/* passes made by hand stand beside texts; those of a text go with it only */
	pass = fyke_new_pass(f);
	CHECK(fyke_select_op(f, pass, 0, FYKE_ETHER_IP_UDP_NONFRAG, 0) == 0);
	CHECK(fyke_select_op(f, pass, 1, FYKE_PORT_DST, 0) == 0);
	CHECK(fyke_add_param(f, pass, 1, 7001) == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 20);
	int both = fyke_add_text(f, "icmp or arp");
	CHECK(both > all && ten(7001) == 20 && ten(7002) == 20);
	CHECK(fyke_delete_text(f, both) == 0 && fyke_delete_text(f, second) == 0);
	CHECK(ten(7001) == 20 && ten(7002) == 0);
	int third = fyke_add_text(f, "udp dst port 7002");
	CHECK(third > both && ten(7001) == 20 && ten(7002) == 20);
	for (int id = 1; id < pass + 20; id++)
		if (id != pass && fyke_print_pass(f, id, NULL, 0) >= 0)
			CHECK(fyke_del_pass(f, id) == -1 && strstr(fyke_error(f), "text"));
	CHECK(ten(7002) == 20);
	/* a text that is set takes the place of passes too */
	CHECK(fyke_set_text(f, "udp dst port 7002") > third);
	CHECK(ten(7001) == 0 && ten(7002) == 20 && fyke_del_pass(f, pass) == -1);

	fyke_close(f);
	f = NULL;
	close(packets);
	printf("ok\n");
	return 0;
}
