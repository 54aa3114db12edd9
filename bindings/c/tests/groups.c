/* Operations, groups of edits, wrong handles, threads, forks, and arbitrary arguments. */
#include "net.h"
#include <pthread.h>
#include "fyke.h"

static const struct operation {
	uint32_t op, arg, values[6];
	size_t count;
	int tcp; /* times that the TCP frame arrives; it crosses the device twice */
} OPERATIONS[] = {
	{ FYKE_TRUE, 0, { 0 }, 0, 2 },
	{ FYKE_NEVER, 0, { 0 }, 0, 0 },
	{ FYKE_ETHER_IP, 0, { 0 }, 0, 2 },
	{ FYKE_ETHER_IP6, 0, { 0 }, 0, 0 },
	{ FYKE_ETHER_TYPE, 0, { 0x800, 0x806 }, 2, 2 },
	{ FYKE_ETHER_IP_PROTO_NONFRAG, 6, { 0 }, 0, 2 },
	{ FYKE_ETHER_IP_PROTO_NONFRAG, 17, { 0 }, 0, 0 },
	{ FYKE_IP_SRC, 0xff000000, { 0x0a000000 }, 1, 2 },
	{ FYKE_IP_DST, 0xff000000, { 0x0a000000 }, 1, 0 },
	{ FYKE_IP_HOST, 0xffff0000, { 0xc0a80000 }, 1, 2 },
	{ FYKE_IP_SRC_HOST, 0, { 0x01010101, 0x0a010203 }, 2, 2 },
	{ FYKE_IP_DST_HOST, 0, { 0x0a010203 }, 1, 0 },
	{ FYKE_IP_SRC_AND_DST_NET, 0, { 0x0a000000, 0xff000000, 0xc0a8fe00, 0xffffff00 }, 4, 2 },
	{ FYKE_IP_SRC_AND_DST_NET, 0, { 0xc0a8fe00, 0xffffff00, 0x0a000000, 0xff000000 }, 4, 0 },
	{ FYKE_PORT_SRC, 0, { 1000 }, 1, 2 },
	{ FYKE_PORT_DST, 0, { 1000 }, 1, 0 },
	{ FYKE_PORT, 0, { 22, 23 }, 2, 2 },
	{ FYKE_PORTS_BOTH, 0, { 1000, 23 }, 2, 2 },
	{ FYKE_PORTS_BOTH, 0, { 23, 1000 }, 2, 0 },
	{ FYKE_PORT_RANGE_SRC, 0, { FYKE_RANGE(1, 9), FYKE_RANGE(999, 1001) }, 2, 2 },
	{ FYKE_PORT_RANGE_DST, 0, { FYKE_RANGE(24, 99) }, 1, 0 },
	{ FYKE_PORT_RANGE, 0, { FYKE_RANGE(20, 30) }, 1, 2 },
	{ FYKE_TCP_PAYLOAD, 0, { 0x47455420 }, 1, 2 },
	{ FYKE_TCP_PAYLOAD, 0, { 0x47455420, 0x2f696e64, 0x65782e68, 0x746d6c20, 0x48545450 }, 5, 2 },
	{ FYKE_TCP_PAYLOAD, 0, { 0x47455420, 0x2f696e64, 0x65782e68, 0x746d6c20, 0x48545451 }, 5, 0 },
	{ FYKE_TCP_PAYLOAD_MASKED, 0, { 0x47455400, 0xffffff00 }, 2, 2 },
};

static void operations(fyke_filter *f, int packets, const struct frame *tcp,
		       const struct frame *ip6)
{
	static const uint32_t from[4] = { 0x20010db8, 0, 0, 0 }, to[4] = { 0xfe800000, 0, 0, 2 };
	int pass = fyke_new_pass(f);

	CHECK(pass > 0);
	CHECK(fyke_select_op(f, pass, 0, FYKE_ETHER_IP, 0) == 0);
	for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
		const struct operation *one = &OPERATIONS[i];
		CHECK(fyke_set_inst(f, pass, 1, one->op, one->arg, one->values, one->count) == 0);
		if (arrives(packets, tcp) != one->tcp) {
			printf("operation %u, row %zu\n", one->op, i);
			exit(1);
		}
		CHECK(fyke_set_inst(f, pass, 1, one->op | FYKE_NOT, one->arg, one->values, one->count) == 0);
		if (arrives(packets, tcp) != 2 - one->tcp) {
			printf("operation not %u, row %zu\n", one->op, i);
			exit(1);
		}
	}
	CHECK(fyke_select_op(f, pass, 0, FYKE_ETHER_IP6, 0) == 0);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_IP6_SRC, 32, from, 4) == 0 && arrives(packets, ip6) == 2);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_IP6_DST, 32, from, 4) == 0 && arrives(packets, ip6) == 0);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_IP6_DST, 128, to, 4) == 0 && arrives(packets, ip6) == 2);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_IP6_HOST, 128, to, 4) == 0 && arrives(packets, ip6) == 2);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_IP6_HOST | FYKE_NOT, 128, to, 4) == 0 &&
	      arrives(packets, ip6) == 0);
	/* what an operation cannot have is refused, and nothing has changed */
	CHECK(fyke_set_inst(f, pass, 1, FYKE_IP6_SRC, 129, from, 4) == -1);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_TCP_PAYLOAD, 0, from, 0) == -1);
	CHECK(fyke_select_op(f, pass, 1, FYKE_PORTS_BOTH, 0) == -1 &&
	      strstr(fyke_error(f), "fyke_set_inst"));
	CHECK(fyke_set_inst(f, pass, 1, FYKE_PORT, 0, NULL, 3) == -1);
	CHECK(fyke_set_inst(f, pass, 1, FYKE_PORT, 0, from, 1000) == -1);
	CHECK(arrives(packets, ip6) == 0);
	CHECK(fyke_del_pass(f, pass) == 0);
}

static void groups(fyke_filter *f, int packets, const struct frame *tcp, const struct frame *ip6)
{
	char text[512];

	/* a pass that begins in a group accepts nothing before the commit */
	CHECK(fyke_begin(f) == 0 && fyke_begin(f) == -1);
	int first = fyke_new_pass(f);
	CHECK(first > 0 && fyke_select_op(f, first, 0, FYKE_ETHER_IP, 0) == 0);
	CHECK(fyke_set_inst(f, first, 1, FYKE_PORT, 0, (uint32_t[]){ 23 }, 1) == 0);
	CHECK(arrives(packets, ip6) == 2); /* no pass is in force */
	CHECK(fyke_commit(f) == 0 && fyke_commit(f) == -1);
	CHECK(arrives(packets, tcp) == 2 && arrives(packets, ip6) == 0);
	CHECK(fyke_begin(f) == 0);
	int second = fyke_new_pass(f);
	CHECK(second > first && arrives(packets, ip6) == 0);
	CHECK(fyke_select_op(f, second, 0, FYKE_ETHER_IP6, 0) == 0 && arrives(packets, ip6) == 0);
	CHECK(fyke_print_pass(f, second, text, sizeof text) > 0);
	CHECK(fyke_commit(f) == 0);
	CHECK(arrives(packets, ip6) == 2 && arrives(packets, tcp) == 2);
	CHECK(fyke_accepted(f, first) == 4 && fyke_accepted(f, second) == 2);
	/* several edits are one; counts stay; an abort changes nothing */
	CHECK(fyke_begin(f) == 0 && fyke_del_pass(f, first) == 0 && fyke_del_pass(f, second) == 0);
	CHECK(fyke_print_pass(f, first, NULL, 0) == -1);
	CHECK(fyke_set_text(f, "arp") == -1 && strstr(fyke_error(f), "group"));
	CHECK(fyke_abort(f) == 0 && fyke_abort(f) == -1 && arrives(packets, tcp) == 2);
	CHECK(fyke_begin(f) == 0);
	int third = fyke_dup_pass(f, first);
	CHECK(third > second && fyke_add_param(f, first, 1, 7) == 0);
	CHECK(fyke_del_param(f, first, 1, 23) == 0);
	CHECK(fyke_poke_inst(f, first, 1, 0, 0x7e) == -1);
	CHECK(arrives(packets, tcp) == 2);
	CHECK(fyke_commit(f) == 0 && arrives(packets, tcp) == 2);
	CHECK(fyke_accepted(f, first) == 8 && fyke_accepted(f, third) == 2);
	CHECK(fyke_print_pass(f, first, text, sizeof text) > 0 && !strstr(text, "23"));
	/* passes of a group and single edits go together, beside texts */
	int arp = fyke_add_text(f, "arp");
	CHECK(arp > 0 && arrives(packets, tcp) == 2);
	CHECK(fyke_del_pass(f, third) == 0 && arrives(packets, tcp) == 0);
	CHECK(fyke_add_param(f, first, 1, 23) == 0 && arrives(packets, tcp) == 2);
	CHECK(fyke_begin(f) == 0 && fyke_del_pass(f, first) == 0 && fyke_del_pass(f, second) == 0);
	CHECK(fyke_commit(f) == 0 && arrives(packets, tcp) == 0 && arrives(packets, ip6) == 0);
	/* groups of texts, with their numbers */
	fyke_change changes[] = {
		{ FYKE_ADD, "tcp port 23", 0 }, { FYKE_ADD, "ip6", 0 }, { FYKE_DELETE, NULL, (uint32_t)arp },
	};
	CHECK(fyke_edit_texts(f, changes, 3) == 0 && changes[1].id > changes[0].id);
	CHECK(arrives(packets, tcp) == 2 && arrives(packets, ip6) == 2);
	CHECK(fyke_text_accepted(f, (int)changes[0].id) == 2);
	fyke_change wrong[] = { { FYKE_ADD, "icmp", 0 }, { FYKE_ADD, "tcp prot 7", 0 } };
	CHECK(fyke_edit_texts(f, wrong, 2) == -1 && strstr(fyke_error(f), "change 1"));
	CHECK(fyke_edit_texts(f, NULL, 2) == -1);
	CHECK(fyke_edit_texts(f, &(fyke_change){ 7, "", 0 }, 1) == -1);
	CHECK(fyke_set_text(f, "") == 0);
}

static void *edits(void *filter)
{
	fyke_filter *f = filter;

	for (int i = 0; i < 200; i++) {
		int pass = fyke_new_pass(f);
		if (pass < 0 || fyke_select_op(f, pass, 0, FYKE_ETHER_IP, 0) || fyke_del_pass(f, pass))
			return f;
	}
	return NULL;
}

static void threads(fyke_filter *f)
{
	pthread_t all[4];
	void *failed = NULL;

	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&all[i], NULL, edits, f) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(all[i], &failed) == 0 && !failed);
}

static void handles(fyke_filter *f)
{
	int status, number = 0;
	pid_t child = fork();

	if (child == 0)
		_exit(fyke_new_pass(f) == -1 && strstr(fyke_error(f), "belongs to process") &&
		      fyke_close(f) == -1 ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(fyke_new_pass((fyke_filter *)&number) == -1);
	CHECK(fyke_new_pass((fyke_filter *)((char *)f + 16)) == -1);
	CHECK(fyke_reader_close((fyke_reader *)f) == -1);
	CHECK(fyke_close(NULL) == 0 && fyke_close(f) == 0);
	CHECK(fyke_close(f) == -1 && strstr(fyke_error(f), "no open filter"));
	CHECK(fyke_count(f).accepted == 0 && fyke_attach(f, 0) == -1 && fyke_begin(f) == -1);
}

/* Arbitrary arguments: errors, but no crash, and every number is checked. */
static void arbitrary(fyke_filter *f)
{
	uint64_t seed = 88172645463325252u;
	uint32_t values[16];
	char text[64];

	for (int i = 0; i < 20000; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		int pass = (int)(seed >> 8 & 15) - 2;
		size_t index = seed >> 12 & 3;
		uint32_t value = (uint32_t)(seed >> 32) >> (seed >> 16 & 31);
		for (int k = 0; k < 16; k++)
			values[k] = value * (uint32_t)k;
		switch (seed >> 20 & 15) {
		case 0: fyke_new_pass(f); break;
		case 1: fyke_del_pass(f, pass); break;
		case 2: fyke_dup_pass(f, pass); break;
		case 3: fyke_select_op(f, pass, index, value & 31, value); break;
		case 4: fyke_add_param(f, pass, index, value); break;
		case 5: fyke_del_param(f, pass, index, value); break;
		case 6: fyke_poke_inst(f, pass, index, seed >> 24 & 15, value); break;
		case 7: fyke_begin(f); break;
		case 8: fyke_commit(f); break;
		case 9: fyke_abort(f); break;
		case 10: fyke_print_pass(f, pass, text, value & 63); break;
		case 11: fyke_accepted(f, pass); break;
		default: fyke_set_inst(f, pass, index, value & 31, (uint32_t)seed & 255, values, seed >> 28 & 15);
		}
		if (i % 500 == 0) {
			fyke_abort(f);
			CHECK(fyke_set_text(f, i % 1000 ? "udp" : "") >= 0);
		}
	}
}

int main(void)
{
	struct frame tcp = tcp_frame(), ip6 = ip6_frame();
	int packets;
	fyke_filter *f;

	own_namespace();
	packets = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	f = fyke_open(packets);
	if (!f) {
		printf("skipped: %s\n", fyke_error(NULL));
		return 77;
	}
	CHECK(!fyke_open(-2) && strstr(fyke_error(NULL), "-2 is no descriptor"));
	CHECK(fyke_delete_text(f, -1) == -1 && strstr(fyke_error(f), "no text -1"));
	CHECK(fyke_del_pass(f, -5) == -1 && strstr(fyke_error(f), "no pass -5"));
	CHECK(fyke_edit_texts(f, NULL, 0) == 0 && fyke_edit_texts(f, NULL, 1) == -1);
	CHECK(arrives(packets, &tcp) == 2);
	operations(f, packets, &tcp, &ip6);
	groups(f, packets, &tcp, &ip6);
	threads(f);
	arbitrary(f);
	handles(f);
	printf("ok\n");
	return 0;
}
