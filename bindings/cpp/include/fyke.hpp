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

	/* The same instruction, for the negation of the operation that is called on the result. */
	Instruction negated() const
	{
		Instruction other(*this);
		other.negation_ ^= FYKE_NOT;
		return other;
	}

	Instruction &op(uint32_t op, uint32_t arg = 0)
	{
		return check(fyke_select_op(filter_, pass_, index_, op ^ negation_, arg));
	}
	/* With all parameters at once. */
	Instruction &op(uint32_t op, uint32_t arg, const std::vector<uint32_t> &values)
	{
		return check(fyke_set_inst(filter_, pass_, index_, op ^ negation_, arg, values.data(),
					   values.size()));
	}
	Instruction &add(uint32_t value) { return check(fyke_add_param(filter_, pass_, index_, value)); }
	Instruction &del(uint32_t value) { return check(fyke_del_param(filter_, pass_, index_, value)); }
	Instruction &poke(size_t word, uint32_t value)
	{
		return check(fyke_poke_inst(filter_, pass_, index_, word, value));
	}

	Instruction &always() { return op(FYKE_TRUE); }
	Instruction &never() { return op(FYKE_NEVER); }
	Instruction &ether_ip() { return op(FYKE_ETHER_IP); }
	Instruction &ether_ip6() { return op(FYKE_ETHER_IP6); }
	Instruction &ether_arp() { return op(FYKE_ETHER_ARP); }
	Instruction &ether_type(uint16_t type) { return op(FYKE_ETHER_TYPE, 0, {type}); }
	Instruction &ether_ip_tcp_nonfrag() { return op(FYKE_ETHER_IP_TCP_NONFRAG); }
	Instruction &ether_ip_udp_nonfrag() { return op(FYKE_ETHER_IP_UDP_NONFRAG); }
	Instruction &ether_ip_proto_nonfrag(uint8_t protocol)
	{
		return op(FYKE_ETHER_IP_PROTO_NONFRAG, protocol);
	}
	Instruction &ether_ip_src(uint32_t mask, uint32_t address)
	{
		return op(FYKE_IP_SRC, mask, {address});
	}
	Instruction &ether_ip_dst(uint32_t mask, uint32_t address)
	{
		return op(FYKE_IP_DST, mask, {address});
	}
	Instruction &ether_ip_host(uint32_t mask, uint32_t address)
	{
		return op(FYKE_IP_HOST, mask, {address});
	}
	Instruction &ether_ip_src_host(uint32_t address) { return op(FYKE_IP_SRC_HOST, 0, {address}); }
	Instruction &ether_ip_dst_host(uint32_t address) { return op(FYKE_IP_DST_HOST, 0, {address}); }
	Instruction &ether_ip_src_and_dst(uint32_t source_mask, uint32_t source, uint32_t destination_mask,
					  uint32_t destination)
	{
		return op(FYKE_IP_SRC_AND_DST_NET, 0, {source, source_mask, destination, destination_mask});
	}
	/* An address of IPv6 as four numbers, and the length of its prefix. */
	Instruction &ether_ip6_src(const std::vector<uint32_t> &address, uint32_t prefix)
	{
		return op(FYKE_IP6_SRC, prefix, address);
	}
	Instruction &ether_ip6_dst(const std::vector<uint32_t> &address, uint32_t prefix)
	{
		return op(FYKE_IP6_DST, prefix, address);
	}
	Instruction &ether_ip6_host(const std::vector<uint32_t> &address, uint32_t prefix)
	{
		return op(FYKE_IP6_HOST, prefix, address);
	}
	Instruction &ether_ip_tcudp_src(uint16_t port) { return op(FYKE_PORT_SRC, 0, {port}); }
	Instruction &ether_ip_tcudp_dst(uint16_t port) { return op(FYKE_PORT_DST, 0, {port}); }
	Instruction &ether_ip_tcudp_port(uint16_t port) { return op(FYKE_PORT, 0, {port}); }
	Instruction &ether_ip_tcudp_src_and_dst(uint16_t source, uint16_t destination)
	{
		return op(FYKE_PORTS_BOTH, 0, {source, destination});
	}
	Instruction &ether_ip_tcudp_src_range(uint16_t low, uint16_t high)
	{
		return op(FYKE_PORT_RANGE_SRC, 0, {range(low, high)});
	}
	Instruction &ether_ip_tcudp_dst_range(uint16_t low, uint16_t high)
	{
		return op(FYKE_PORT_RANGE_DST, 0, {range(low, high)});
	}
	Instruction &ether_ip_tcudp_port_range(uint16_t low, uint16_t high)
	{
		return op(FYKE_PORT_RANGE, 0, {range(low, high)});
	}
	/* The first one to five words of the payload. */
	Instruction &tcp_payload(const std::vector<uint32_t> &words)
	{
		return op(FYKE_TCP_PAYLOAD, 0, words);
	}
	/* One or two words, each with its mask after it. */
	Instruction &tcp_payload_masked(const std::vector<uint32_t> &words_and_masks)
	{
		return op(FYKE_TCP_PAYLOAD_MASKED, 0, words_and_masks);
	}

	/* In the manner of the papers: pass.Inst(0)->EtherIP_TCP_NonFrag(). They name this one, Ether_IPSrc and
	 * EtherIP_TCUDPDst; the others are named alike. */
	Instruction *operator->() { return this; }
	Instruction Not() const { return negated(); }
	Instruction &AddParam(uint32_t value) { return add(value); }
	Instruction &DelParam(uint32_t value) { return del(value); }
	Instruction &Poke(size_t word, uint32_t value) { return poke(word, value); }
	Instruction &EtherIP() { return ether_ip(); }
	Instruction &EtherIP6() { return ether_ip6(); }
	Instruction &EtherARP() { return ether_arp(); }
	Instruction &EtherType(uint16_t type) { return ether_type(type); }
	Instruction &EtherIP_TCP_NonFrag() { return ether_ip_tcp_nonfrag(); }
	Instruction &EtherIP_UDP_NonFrag() { return ether_ip_udp_nonfrag(); }
	Instruction &EtherIP_Proto_NonFrag(uint8_t protocol) { return ether_ip_proto_nonfrag(protocol); }
	Instruction &Ether_IPSrc(uint32_t mask, uint32_t address) { return ether_ip_src(mask, address); }
	Instruction &Ether_IPDst(uint32_t mask, uint32_t address) { return ether_ip_dst(mask, address); }
	Instruction &Ether_IPHost(uint32_t mask, uint32_t address) { return ether_ip_host(mask, address); }
	Instruction &Ether_IPSrcDst(uint32_t source_mask, uint32_t source, uint32_t destination_mask,
				    uint32_t destination)
	{
		return ether_ip_src_and_dst(source_mask, source, destination_mask, destination);
	}
	Instruction &EtherIP_TCUDPSrc(uint16_t port) { return ether_ip_tcudp_src(port); }
	Instruction &EtherIP_TCUDPDst(uint16_t port) { return ether_ip_tcudp_dst(port); }
	Instruction &EtherIP_TCUDPPort(uint16_t port) { return ether_ip_tcudp_port(port); }
	Instruction &EtherIP_TCUDPSrcDst(uint16_t source, uint16_t destination)
	{
		return ether_ip_tcudp_src_and_dst(source, destination);
	}
	Instruction &EtherIP_TCUDPSrcRange(uint16_t low, uint16_t high)
	{
		return ether_ip_tcudp_src_range(low, high);
	}
	Instruction &EtherIP_TCUDPDstRange(uint16_t low, uint16_t high)
	{
		return ether_ip_tcudp_dst_range(low, high);
	}
	Instruction &EtherIP_TCUDPPortRange(uint16_t low, uint16_t high)
	{
		return ether_ip_tcudp_port_range(low, high);
	}
	Instruction &EtherIP_TCPPayload(const std::vector<uint32_t> &words) { return tcp_payload(words); }

private:
	static uint32_t range(uint16_t low, uint16_t high)
	{
		return low | static_cast<uint32_t>(high) << 16;
	}
	Instruction &check(int status)
	{
		if (status < 0)
			throw Error(filter_);
		return *this;
	}
	fyke_filter *filter_;
	int pass_;
	size_t index_;
	uint32_t negation_ = 0;
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
	Pass Dup() const { return dup(); }
	void Del() { del(); }

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

/* A change of the texts of a filter or reader. */
class Change {
public:
	static Change add(const std::string &text) { return Change(FYKE_ADD, text, 0); }
	static Change set(const std::string &text) { return Change(FYKE_SET, text, 0); }
	static Change del(uint32_t number) { return Change(FYKE_DELETE, std::string(), number); }

	/* Calls `edit` with changes for C; returns the numbers of texts that were added or set, 0 for the other changes. */
	template <typename Edit>
	static std::vector<uint32_t> make(const std::vector<Change> &changes, Edit edit)
	{
		std::vector<fyke_change> list;
		for (const Change &one : changes)
			list.push_back({one.kind_, one.text_.c_str(), one.number_});
		if (edit(list.data(), list.size()) < 0)
			throw Error(nullptr);
		std::vector<uint32_t> numbers;
		for (size_t i = 0; i < list.size(); i++)
			numbers.push_back(changes[i].kind_ == FYKE_DELETE ? 0 : list[i].id);
		return numbers;
	}

private:
	Change(uint32_t kind, const std::string &text, uint32_t number)
		: kind_(kind), text_(text), number_(number)
	{
	}
	uint32_t kind_;
	std::string text_;
	uint32_t number_;
};

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
	Pass NewPass() { return new_pass(); }
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
	/* All changes, or none, as one edit. */
	std::vector<uint32_t> edit_texts(const std::vector<Change> &changes)
	{
		fyke_filter *filter = filter_;
		return Change::make(changes, [filter](fyke_change *list, size_t count) {
			return fyke_edit_texts(filter, list, count);
		});
	}
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
	/* Without a source, for frames that the program has; `link` is libpcap's name of their link type. */
	static Reader of(const std::string &link, const std::string &text)
	{
		return Reader(fyke_reader_of(link.c_str(), text.c_str()));
	}
	~Reader() { fyke_reader_close(reader_); }
	Reader(const Reader &) = delete;
	Reader &operator=(const Reader &) = delete;
	Reader(Reader &&other) : reader_(other.reader_) { other.reader_ = nullptr; }

	/* True if a text accepts this frame; `length` is that on the wire, if bytes are missing. */
	bool match(const uint8_t *data, size_t captured, uint32_t length = 0)
	{
		int verdict = fyke_match(reader_, data, captured, length);
		if (verdict < 0)
			throw Error(nullptr);
		return verdict == 1;
	}

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
	uint32_t set_text(const std::string &text) { return edit({Change::set(text)})[0]; }
	uint32_t add_text(const std::string &text) { return edit({Change::add(text)})[0]; }
	void del_text(uint32_t number) { edit({Change::del(number)}); }
	/* All changes, or none, as one edit. */
	std::vector<uint32_t> edit(const std::vector<Change> &changes)
	{
		fyke_reader *reader = reader_;
		return Change::make(changes, [reader](fyke_change *list, size_t count) {
			return fyke_reader_edit(reader, list, count);
		});
	}
	uint64_t text_accepted(uint32_t number) const
	{
		uint64_t accepted = fyke_reader_text_accepted(reader_, number);
		if (!reader_)
			throw Error(nullptr);
		return accepted;
	}
	fyke_reader_counts counts() const
	{
		fyke_reader_counts counts = fyke_reader_count(reader_);
		if (!reader_) /* it was moved from; the call has failed */
			throw Error(nullptr);
		return counts;
	}

private:
	explicit Reader(fyke_reader *reader) : reader_(reader)
	{
		if (!reader_)
			throw Error(nullptr);
	}
	fyke_reader *reader_;
};

} /* namespace fyke */

#endif
