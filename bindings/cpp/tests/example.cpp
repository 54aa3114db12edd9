/* Table 3 of the Swift paper: ip src net 192.168.254.0/24 and tcp dst port 23, as three instructions. */
#include <iostream>
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

int main()
{
	if (read_nothing())
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
		paper.del();
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
		filter.del_text(second); /* the pass stays */
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
