/* Passes as objects, in C++11: the papers' `ooswift` under fyke's names.
 *
 *     fyke::Filter filter(socket);
 *     fyke::Pass pass = filter.new_pass();
 *     pass.inst(0).ether_ip_tcp_nonfrag();
 *     pass.inst(1).ether_ip_src(0xffffff00, 0xc0a8fe00);
 *     pass.inst(2).ether_ip_tcudp_dst(23);
 *     std::cout << pass;
 *
 * A call that fails throws fyke::Error and has changed nothing. Source: Swift, section 4.2, table 3.
 */
#ifndef FYKE_HPP
#define FYKE_HPP

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>
#include "fyke.h"

namespace fyke {

struct Error : std::runtime_error {
	explicit Error(fyke_filter *filter) : std::runtime_error(fyke_error(filter)) {}
};

/* One instruction of a pass; a call on one that does not exist yet appends it. */
class Instruction {
public:
	Instruction(fyke_filter *filter, int pass, size_t index)
		: filter_(filter), pass_(pass), index_(index)
	{
	}

	Instruction &op(uint32_t op, uint32_t arg = 0)
	{
		return check(fyke_select_op(filter_, pass_, index_, op, arg));
	}
	/* With all parameters at once. */
	Instruction &op(uint32_t op, uint32_t arg, const std::vector<uint32_t> &values)
	{
		return check(
			fyke_set_inst(filter_, pass_, index_, op, arg, values.data(), values.size()));
	}
	Instruction &add(uint32_t value) { return check(fyke_add_param(filter_, pass_, index_, value)); }
	Instruction &del(uint32_t value) { return check(fyke_del_param(filter_, pass_, index_, value)); }
	Instruction &poke(size_t word, uint32_t value)
	{
		return check(fyke_poke_inst(filter_, pass_, index_, word, value));
	}

	Instruction &ether_ip() { return op(FYKE_ETHER_IP); }
	Instruction &ether_ip6() { return op(FYKE_ETHER_IP6); }
	Instruction &ether_arp() { return op(FYKE_ETHER_ARP); }
	Instruction &ether_ip_tcp_nonfrag() { return op(FYKE_ETHER_IP_TCP_NONFRAG); }
	Instruction &ether_ip_udp_nonfrag() { return op(FYKE_ETHER_IP_UDP_NONFRAG); }
	Instruction &ether_ip_src(uint32_t mask, uint32_t address)
	{
		return op(FYKE_IP_SRC, mask).add(address);
	}
	Instruction &ether_ip_dst(uint32_t mask, uint32_t address)
	{
		return op(FYKE_IP_DST, mask).add(address);
	}
	Instruction &ether_ip_host(uint32_t mask, uint32_t address)
	{
		return op(FYKE_IP_HOST, mask).add(address);
	}
	Instruction &ether_ip_tcudp_src(uint16_t port) { return op(FYKE_PORT_SRC).add(port); }
	Instruction &ether_ip_tcudp_dst(uint16_t port) { return op(FYKE_PORT_DST).add(port); }
	Instruction &ether_ip_tcudp_port(uint16_t port) { return op(FYKE_PORT).add(port); }
	Instruction &tcp_payload(const std::vector<uint32_t> &words)
	{
		return op(FYKE_TCP_PAYLOAD, 0, words);
	}

	/* The papers' names: pass.Inst(0)->EtherIP_TCP_NonFrag(). */
	Instruction *operator->() { return this; }
	Instruction &EtherIP() { return ether_ip(); }
	Instruction &EtherIP_TCP_NonFrag() { return ether_ip_tcp_nonfrag(); }
	Instruction &EtherIP_UDP_NonFrag() { return ether_ip_udp_nonfrag(); }
	Instruction &Ether_IPSrc(uint32_t mask, uint32_t address) { return ether_ip_src(mask, address); }
	Instruction &Ether_IPDst(uint32_t mask, uint32_t address) { return ether_ip_dst(mask, address); }
	Instruction &EtherIP_TCUDPSrc(uint16_t port) { return ether_ip_tcudp_src(port); }
	Instruction &EtherIP_TCUDPDst(uint16_t port) { return ether_ip_tcudp_dst(port); }

private:
	Instruction &check(int status)
	{
		if (status < 0)
			throw Error(filter_);
		return *this;
	}
	fyke_filter *filter_;
	int pass_;
	size_t index_;
};

/* One pass; a handle that may be copied. */
class Pass {
public:
	Pass(fyke_filter *filter, int number) : filter_(filter), number_(number) {}

	Instruction inst(size_t index) { return Instruction(filter_, number_, index); }
	Instruction Inst(size_t index) { return inst(index); }
	int number() const { return number_; }
	uint64_t accepted() const { return fyke_accepted(filter_, number_); }
	Pass dup() const { return checked(filter_, fyke_dup_pass(filter_, number_)); }
	void del() { checked(filter_, fyke_del_pass(filter_, number_)); }

	/* Returns the instructions, one per line, for debugging. */
	std::string text() const
	{
		int length = fyke_print_pass(filter_, number_, nullptr, 0);
		if (length < 0)
			return "no such pass";
		std::vector<char> buffer(static_cast<size_t>(length) + 1);
		fyke_print_pass(filter_, number_, buffer.data(), buffer.size());
		return std::string(buffer.data());
	}

	static Pass checked(fyke_filter *filter, int number)
	{
		if (number < 0)
			throw Error(filter);
		return Pass(filter, number);
	}

private:
	fyke_filter *filter_;
	int number_;
};

inline std::ostream &operator<<(std::ostream &out, const Pass &pass)
{
	return out << "pass " << pass.number() << " (" << pass.accepted() << " frames)\n"
		   << pass.text() << '\n';
}

/* A filter; its sockets keep it after this object is destroyed. */
class Filter {
public:
	explicit Filter(int socket = -1) : filter_(fyke_open(socket))
	{
		if (!filter_)
			throw Error(nullptr);
	}
	~Filter() { fyke_close(filter_); }
	Filter(const Filter &) = delete;
	Filter &operator=(const Filter &) = delete;

	void attach(int socket) { Pass::checked(filter_, fyke_attach(filter_, socket)); }
	Pass new_pass() { return Pass::checked(filter_, fyke_new_pass(filter_)); }
	/* The number of the text, for del_text; 0 for an empty one, which accepts every frame. */
	int set_text(const std::string &text)
	{
		return Pass::checked(filter_, fyke_set_text(filter_, text.c_str())).number();
	}
	int add_text(const std::string &text)
	{
		return Pass::checked(filter_, fyke_add_text(filter_, text.c_str())).number();
	}
	void del_text(int number) { Pass::checked(filter_, fyke_delete_text(filter_, number)); }
	uint64_t text_accepted(int number) const { return fyke_text_accepted(filter_, number); }
	fyke_counts counts() const { return fyke_count(filter_); }

	/* A group: edits of passes between begin and commit take effect in one step. */
	void begin() { Pass::checked(filter_, fyke_begin(filter_)); }
	void commit() { Pass::checked(filter_, fyke_commit(filter_)); }
	void abort() { Pass::checked(filter_, fyke_abort(filter_)); }

private:
	fyke_filter *filter_;
};

/* Texts in user space, and the frames of a file, an interface or a service that they accept. */
class Reader {
public:
	Reader(const std::string &source, const std::string &text)
		: reader_(fyke_reader_open(source.c_str(), text.c_str()))
	{
		if (!reader_)
			throw Error(nullptr);
	}
	~Reader() { fyke_reader_close(reader_); }
	Reader(const Reader &) = delete;
	Reader &operator=(const Reader &) = delete;

	/* Replaces `frames` by the next ones, none if none came in time; false at the end. Their bytes are valid until
	 * the next call. */
	bool next(std::vector<fyke_frame> &frames, int timeout_ms = -1, size_t most = 256)
	{
		frames.resize(most);
		int count = fyke_next(reader_, frames.data(), most, timeout_ms);
		frames.resize(count > 0 ? static_cast<size_t>(count) : 0);
		if (count == -1)
			throw Error(nullptr);
		return count != FYKE_END;
	}
	uint32_t set_text(const std::string &text) { return change(FYKE_SET, text.c_str(), 0); }
	uint32_t add_text(const std::string &text) { return change(FYKE_ADD, text.c_str(), 0); }
	void del_text(uint32_t number) { change(FYKE_DELETE, nullptr, number); }
	fyke_reader_counts counts() const { return fyke_reader_count(reader_); }

private:
	uint32_t change(uint32_t kind, const char *text, uint32_t number)
	{
		fyke_change one = {kind, text, number};
		if (fyke_reader_edit(reader_, &one, 1) < 0)
			throw Error(nullptr);
		return one.id;
	}
	fyke_reader *reader_;
};

} /* namespace fyke */

#endif
