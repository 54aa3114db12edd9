/* A network namespace with frames, for the programs of the tests. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { \
	printf("line %d: %s: %s\n", __LINE__, #what, fyke_error(NULL)); exit(1); } } while (0)

struct frame {
	uint8_t bytes[96];
	size_t length;
};

/* TCP, 10.1.2.3 port 1000 to 192.168.254.7 port 23, with a payload. */
static inline struct frame tcp_frame(void)
{
	static const uint8_t header[] = {
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0,
		0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 10, 1, 2, 3, 192, 168, 254, 7,
		3, 232, 0, 23, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 16, 0, 0, 0, 0, 0,
	};
	struct frame frame = { .length = sizeof header + 20 };

	memcpy(frame.bytes, header, sizeof header);
	memcpy(frame.bytes + sizeof header, "GET /index.html HTTP", 20);
	return frame;
}

/* IPv6 without a payload, 2001:db8::1 to fe80::2. */
static inline struct frame ip6_frame(void)
{
	static const uint8_t header[] = {
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 59, 64,
		0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
	};
	struct frame frame = { .length = sizeof header + 8 };

	memcpy(frame.bytes, header, sizeof header);
	return frame;
}

/* Ends the program with 77 if it is not permitted to run. */
static inline void own_namespace(void)
{
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int any;

	if (unshare(CLONE_NEWNET)) {
		printf("skipped: network namespaces: %s\n", strerror(errno));
		exit(77);
	}
	any = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(any, SIOCSIFFLAGS, &up))
		exit(1);
	close(any);
}

static inline void send_frame(const struct frame *frame)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("lo") };
	int out = socket(AF_PACKET, SOCK_RAW, 0);
	ssize_t sent = sendto(out, frame->bytes, frame->length, 0, (struct sockaddr *)&to, sizeof to);

	if (sent != (ssize_t)frame->length)
		exit(1);
	close(out);
}

/* Sends a frame; returns the times that it arrives at a packet socket. */
static inline int arrives(int packets, const struct frame *frame)
{
	uint8_t bytes[2048];
	int count = 0;

	send_frame(frame);
	while (recv(packets, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		count++;
	return count;
}
