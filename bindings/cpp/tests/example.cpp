/* Table 3 of the Swift paper: ip src net 192.168.254.0/24 and tcp dst port 23, as three instructions. */
#include <functional>
#include <iostream>
#include <set>
#include "fyke.hpp"

static int read_nothing()
{
	try {
		fyke::Reader reader("serve:none-such", "tcp");
		return 1;
	} catch (const fyke::Error &error) {
		return std::string(error.what()).find("none-such") == std::string::npos;
	}
}

/* Texts in user space, edited in groups. */
static bool judges_own_frames()
{
	std::vector<uint8_t> frame = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28,
				      0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0, 0, 53, 0, 8, 0, 0};
	fyke::Reader reader = fyke::Reader::of("EN10MB", "tcp");
	if (reader.match(frame.data(), frame.size()))
		return false;
	std::vector<uint32_t> numbers = reader.edit(
		{fyke::Change::add("udp port 53"), fyke::Change::del(1), fyke::Change::add("arp")});
	if (numbers.size() != 3 || numbers[0] != 2 || numbers[1] != 0 || numbers[2] != 3)
		return false;
	try {
		reader.edit({fyke::Change::del(2), fyke::Change::add("not (")});
		return false;
	} catch (const fyke::Error &) {
		/* nothing has changed */
	}
	if (!reader.edit({}).empty())
		return false;
	if (!reader.match(frame.data(), frame.size()) || reader.match(frame.data(), 20))
		return false;
	fyke::Reader other = std::move(reader);
	try {
		reader.counts();
		return false;
	} catch (const fyke::Error &) {
		return other.counts().seen == 3;
	}
}

/* Every operation in the papers' manner makes an instruction of its own, and so does its negation. */
static bool has_all_operations(fyke::Filter &filter)
{
	using fyke::Instruction;
	const std::vector<std::function<void(Instruction)>> all = {
		[](Instruction i) { i.never(); },
		[](Instruction i) { i->EtherIP(); },
		[](Instruction i) { i->EtherIP6(); },
		[](Instruction i) { i->EtherARP(); },
		[](Instruction i) { i->EtherType(0x88cc); },
		[](Instruction i) { i->EtherIP_TCP_NonFrag(); },
		[](Instruction i) { i->EtherIP_UDP_NonFrag(); },
		[](Instruction i) { i->EtherIP_Proto_NonFrag(47); },
		[](Instruction i) { i->Ether_IPSrc(0xffffff00, 0x0a000000); },
		[](Instruction i) { i->Ether_IPDst(0xffffff00, 0x0a000000); },
		[](Instruction i) { i->Ether_IPHost(0xffffff00, 0x0a000000); },
		[](Instruction i) { i->Ether_IPSrcDst(0xff000000, 0x0a000000, 0xffff0000, 0x0b000000); },
		[](Instruction i) { i.ether_ip_src_host(0x0a000001); },
		[](Instruction i) { i.ether_ip_dst_host(0x0a000001); },
		[](Instruction i) { i.ether_ip6_src({0x20010db8, 0, 0, 0}, 32); },
		[](Instruction i) { i.ether_ip6_dst({0x20010db8, 0, 0, 0}, 32); },
		[](Instruction i) { i.ether_ip6_host({0x20010db8, 0, 0, 0}, 32); },
		[](Instruction i) { i->EtherIP_TCUDPSrc(23); },
		[](Instruction i) { i->EtherIP_TCUDPDst(23); },
		[](Instruction i) { i->EtherIP_TCUDPPort(23); },
		[](Instruction i) { i->EtherIP_TCUDPSrcDst(23, 24); },
		[](Instruction i) { i->EtherIP_TCUDPSrcRange(23, 30); },
		[](Instruction i) { i->EtherIP_TCUDPDstRange(23, 30); },
		[](Instruction i) { i->EtherIP_TCUDPPortRange(23, 30); },
		[](Instruction i) { i->EtherIP_TCPPayload({1, 2, 3, 4, 5}); },
		[](Instruction i) { i.tcp_payload_masked({1, 0xffff, 2, 0xffffffff}); },
	};
	std::set<std::string> texts;
	for (const auto &one : all) {
		fyke::Pass pass = filter.NewPass();
		one(pass.Inst(0));
		texts.insert(pass.text());
		one(pass.Inst(0)->Not());
		texts.insert(pass.text());
		pass.Del();
	}
	return texts.size() == 2 * all.size();
}

int main()
{
	if (read_nothing() || !judges_own_frames())
		return 1;
	try {
		fyke::Filter filter;
		fyke::Pass pass = filter.new_pass();
		pass.inst(0).ether_ip_tcp_nonfrag();
		pass.inst(1).ether_ip_src(0xffffff00, 0xc0a8fe00);
		pass.inst(2).ether_ip_tcudp_dst(23);
		std::cout << pass;
		fyke::Pass copy = pass.dup();
		copy.inst(2).del(23).add(22);
		std::cout << copy;
		std::string text = copy.text();
		if (text.find("22") == std::string::npos || text.find("192.168.254.0") == std::string::npos)
			return 1;
		fyke::Pass paper = filter.new_pass(); /* in the paper's names */
		paper.Inst(0)->EtherIP_TCP_NonFrag();
		paper.Inst(1)->Ether_IPSrc(0xffffff00, 0xc0a8fe00);
		paper.Inst(2)->EtherIP_TCUDPDst(23);
		if (paper.text() != pass.text())
			return 1;
		paper.Inst(2)->AddParam(24).DelParam(23);
		if (paper.text().find("24") == std::string::npos)
			return 1;
		paper.del();
		if (!has_all_operations(filter))
			return 1;
		filter.begin();
		fyke::Pass payload = filter.new_pass();
		payload.inst(0).ether_ip_tcp_nonfrag();
		payload.inst(1).tcp_payload({0x47455420});
		filter.commit();
		payload.del();
		pass.del();
		try {
			pass.inst(0).ether_ip();
			return 1;
		} catch (const fyke::Error &error) {
			std::cout << "refused: " << error.what() << '\n';
		}
		int first = filter.add_text("udp port 53");
		int second = filter.add_text("");
		if (first < 1 || second <= first || filter.text_accepted(first) != 0)
			return 1;
		filter.del_text(first);
		std::vector<uint32_t> numbers = filter.edit_texts(
			{fyke::Change::del(static_cast<uint32_t>(second)), fyke::Change::add("arp")});
		if (numbers.size() != 2 || numbers[0] != 0 || numbers[1] <= static_cast<uint32_t>(second))
			return 1;
		filter.del_text(static_cast<int>(numbers[1])); /* the pass stays */
		try {
			filter.del_text(first);
			return 1;
		} catch (const fyke::Error &error) {
			std::cout << "refused: " << error.what() << '\n';
		}
		return filter.set_text("") == 0 ? 0 : 1;
	} catch (const fyke::Error &error) {
		std::cout << "skipped: " << error.what() << '\n';
		return 77;
	}
}
