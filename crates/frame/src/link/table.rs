//! The table of link types: one row for each, with its name (a constant of [`LinkType`], and
//! libpcap's name without `DLT_`), its numbers, its name for users and its header.
//!
//! The first number is the `LINKTYPE_` number, which files have and which is written. The others
//! are numbers that some systems' programming interfaces have for it (`DLT_…`), or that old files
//! have; they are read, never written. The filter language has its own offsets of each row, with
//! the reasons of libpcap, in the layout table of the crate `filter`.
//!
//! Source: the registry of link types for pcap files; names and titles of libpcap 1.10.3.

use super::{Header, Link, LinkType};
use super::{ethernet, ieee802, linux_sll, null, other, ppp, raw, wlan};

/// A header that fyke does not decode: filters over bytes and lengths can be compiled for it, as in
/// libpcap, and others can be refused with its name.
const OPAQUE: Header = Header::of(|_| None);

/// Makes a constant and a description of each row, in the named list.
macro_rules! link_types {
    ($list:ident: $(
        $name:ident $number:literal $(or $other:literal)* $title:literal $header:expr;
    )+) => {
        impl LinkType {
            $(
                #[doc = concat!($title, ".")]
                pub const $name: LinkType = LinkType($number);
            )+
        }

        pub(super) static $list: &[Link] = &[$(Link {
            numbers: &[LinkType($number) $(, LinkType($other))*],
            name: stringify!($name),
            title: $title,
            header_len: $header.len,
            ethertype_offset: $header.ethertype_offset,
            next: $header.next,
        }),+];
    };
}

// The most common ones come first.
#[rustfmt::skip]
link_types! {
    DECODED:
    EN10MB 1 "Ethernet" ethernet::ETHERNET;
    RAW 101 or 12 or 14 "raw IP" raw::BY_VERSION;
    IPV4 228 "raw IPv4" raw::IPV4;
    IPV6 229 "raw IPv6" raw::IPV6;
    LINUX_SLL 113 "Linux cooked v1" linux_sll::SLL;
    LINUX_SLL2 276 "Linux cooked v2" linux_sll::SLL2;
    NULL 0 "BSD loopback" null::HOST_ORDER;
    LOOP 108 "OpenBSD loopback" null::NETWORK_ORDER;
    IEEE802_11 105 "802.11" wlan::BARE;
    IEEE802_11_RADIO 127 "802.11 plus radiotap header" wlan::RADIOTAP;
    IEEE802_11_RADIO_AVS 163 "802.11 plus AVS radio information header" wlan::AVS;
    PRISM_HEADER 119 "802.11 plus Prism header" wlan::PRISM;
    PPI 192 "Per-Packet Information" wlan::PPI;
    PPP 9 "PPP" ppp::protocol_at::<2, 4>();
    PPP_SERIAL 50 "PPP over serial" ppp::protocol_at::<2, 4>();
    PPP_ETHER 51 "PPPoE" ppp::protocol_at::<6, 8>();
    PPP_BSDOS 103 or 16 "BSD/OS PPP" ppp::protocol_at::<5, 24>();
    PPP_PPPD 166 "PPP for pppd, with direction flag" ppp::protocol_at::<2, 4>();
    C_HDLC 104 "Cisco HDLC" ppp::C_HDLC;
    FRELAY 107 "Frame Relay" ppp::FRAME_RELAY;
    IEEE802 6 "Token ring" ieee802::llc_after::<14>();
    FDDI 10 "FDDI" ieee802::llc_after::<13>();
    ATM_RFC1483 100 or 11 "RFC 1483 LLC-encapsulated ATM" ieee802::llc_after::<0>();
    ATM_CLIP 106 or 19 "Linux Classical IP over ATM" ieee802::llc_after::<0>();
    IP_OVER_FC 122 "RFC 2625 IP-over-Fibre Channel" ieee802::llc_after::<16>();
    SLIP 8 "SLIP" other::version_after::<16>();
    SLIP_BSDOS 102 or 15 "BSD/OS SLIP" other::version_after::<24>();
    ENC 109 "OpenBSD encapsulated IP" other::version_after::<12>();
    SYMANTEC_FIREWALL 99 "Symantec Firewall" other::SYMANTEC_FIREWALL;
    APPLE_IP_OVER_IEEE1394 138 "Apple IP-over-IEEE 1394" other::IEEE1394;
    PFLOG 117 "OpenBSD pflog file" other::PFLOG;
    IPNET 226 "Solaris ipnet" other::version_after::<24>();
    ARCNET 7 "BSD ARCNET" other::ARCNET;
    ARCNET_LINUX 129 "Linux ARCNET" other::ARCNET_LINUX;
    SUNATM 123 "Sun raw ATM" other::SUNATM;
    NETANALYZER 240 "Ethernet with Hilscher netANALYZER pseudo-header" other::NETANALYZER;
    NETANALYZER_TRANSPARENT 241
        "Ethernet with Hilscher netANALYZER pseudo-header and with preamble and SFD"
        other::NETANALYZER_TRANSPARENT;
}

#[rustfmt::skip]
link_types! {
    UNDECODED:
    LTALK 114 "Localtalk" OPAQUE;
    JUNIPER_MLPPP 130 "Juniper Multi-Link PPP" OPAQUE;
    JUNIPER_MLFR 131 "Juniper Multi-Link Frame Relay" OPAQUE;
    JUNIPER_ES 132 "Juniper Encryption Services PIC" OPAQUE;
    JUNIPER_GGSN 133 "Juniper GGSN PIC" OPAQUE;
    JUNIPER_MFR 134 "Juniper FRF.16 Frame Relay" OPAQUE;
    JUNIPER_ATM2 135 "Juniper ATM2 PIC" OPAQUE;
    JUNIPER_SERVICES 136 "Juniper Advanced Services PIC" OPAQUE;
    JUNIPER_ATM1 137 "Juniper ATM1 PIC" OPAQUE;
    MTP2_WITH_PHDR 139 "SS7 MTP2 with Pseudo-header" OPAQUE;
    MTP2 140 "SS7 MTP2" OPAQUE;
    MTP3 141 "SS7 MTP3" OPAQUE;
    SCCP 142 "SS7 SCCP" OPAQUE;
    DOCSIS 143 "DOCSIS" OPAQUE;
    LINUX_IRDA 144 "Linux IrDA" OPAQUE;
    JUNIPER_MONITOR 164 "Juniper Passive Monitor PIC" OPAQUE;
    BACNET_MS_TP 165 "BACnet MS/TP" OPAQUE;
    JUNIPER_PPPOE 167 "Juniper PPPoE" OPAQUE;
    JUNIPER_PPPOE_ATM 168 "Juniper PPPoE/ATM" OPAQUE;
    GPRS_LLC 169 "GPRS LLC" OPAQUE;
    GPF_T 170 "GPF-T" OPAQUE;
    GPF_F 171 "GPF-F" OPAQUE;
    JUNIPER_PIC_PEER 174 "Juniper PIC Peer" OPAQUE;
    ERF_ETH 175 "Ethernet with Endace ERF header" OPAQUE;
    ERF_POS 176 "Packet-over-SONET with Endace ERF header" OPAQUE;
    LINUX_LAPD 177 "Linux vISDN LAPD" OPAQUE;
    JUNIPER_ETHER 178 "Juniper Ethernet" OPAQUE;
    JUNIPER_PPP 179 "Juniper PPP" OPAQUE;
    JUNIPER_FRELAY 180 "Juniper Frame Relay" OPAQUE;
    JUNIPER_CHDLC 181 "Juniper C-HDLC" OPAQUE;
    MFR 182 "FRF.16 Frame Relay" OPAQUE;
    JUNIPER_VP 183 "Juniper Voice PIC" OPAQUE;
    A429 184 "Arinc 429" OPAQUE;
    A653_ICM 185 "Arinc 653 Interpartition Communication" OPAQUE;
    USB_FREEBSD 186 "USB with FreeBSD header" OPAQUE;
    BLUETOOTH_HCI_H4 187 "Bluetooth HCI UART transport layer" OPAQUE;
    IEEE802_16_MAC_CPS 188 "IEEE 802.16 MAC Common Part Sublayer" OPAQUE;
    USB_LINUX 189 "USB with Linux header" OPAQUE;
    CAN20B 190 "Controller Area Network (CAN) v. 2.0B" OPAQUE;
    IEEE802_15_4_LINUX 191 "IEEE 802.15.4 with Linux padding" OPAQUE;
    IEEE802_16_MAC_CPS_RADIO 193 "IEEE 802.16 MAC Common Part Sublayer plus radiotap header" OPAQUE;
    JUNIPER_ISM 194 "Juniper Integrated Service Module" OPAQUE;
    IEEE802_15_4 195 "IEEE 802.15.4 with FCS" OPAQUE;
    SITA 196 "SITA pseudo-header" OPAQUE;
    ERF 197 "Endace ERF header" OPAQUE;
    RAIF1 198 "Ethernet with u10 Networks pseudo-header" OPAQUE;
    IPMB_KONTRON 199 "IPMB with Kontron pseudo-header" OPAQUE;
    JUNIPER_ST 200 "Juniper Secure Tunnel" OPAQUE;
    BLUETOOTH_HCI_H4_WITH_PHDR 201 "Bluetooth HCI UART transport layer plus pseudo-header" OPAQUE;
    AX25_KISS 202 "AX.25 with KISS header" OPAQUE;
    IPMB_LINUX 209 "IPMB with Linux/Pigeon Point pseudo-header" OPAQUE;
    IEEE802_15_4_NONASK_PHY 215 "IEEE 802.15.4 with non-ASK PHY data" OPAQUE;
    LINUX_EVDEV 216 "Linux evdev events" OPAQUE;
    MPLS 219 "MPLS with label as link-layer header" OPAQUE;
    USB_LINUX_MMAPPED 220 "USB with padded Linux header" OPAQUE;
    DECT 221 "DECT" OPAQUE;
    AOS 222 "AOS Space Data Link protocol" OPAQUE;
    WIHART 223 "Wireless HART" OPAQUE;
    FC_2 224 "Fibre Channel FC-2" OPAQUE;
    FC_2_WITH_FRAME_DELIMS 225 "Fibre Channel FC-2 with frame delimiters" OPAQUE;
    CAN_SOCKETCAN 227 "CAN-bus with SocketCAN headers" OPAQUE;
    IEEE802_15_4_NOFCS 230 "IEEE 802.15.4 without FCS" OPAQUE;
    DBUS 231 "D-Bus" OPAQUE;
    JUNIPER_VS 232 "Juniper Virtual Server" OPAQUE;
    JUNIPER_SRX_E2E 233 "Juniper SRX E2E" OPAQUE;
    JUNIPER_FIBRECHANNEL 234 "Juniper Fibre Channel" OPAQUE;
    DVB_CI 235 "DVB-CI" OPAQUE;
    MUX27010 236 "MUX27010" OPAQUE;
    STANAG_5066_D_PDU 237 "STANAG 5066 D_PDUs" OPAQUE;
    JUNIPER_ATM_CEMIC 238 "Juniper ATM CEMIC" OPAQUE;
    NFLOG 239 "Linux netfilter log messages" OPAQUE;
    IPOIB 242 "RFC 4391 IP-over-Infiniband" OPAQUE;
    MPEG_2_TS 243 "MPEG-2 transport stream" OPAQUE;
    NG40 244 "ng40 protocol tester Iub/Iur" OPAQUE;
    NFC_LLCP 245 "NFC LLCP PDUs with pseudo-header" OPAQUE;
    PFSYNC 246 "Packet filter state syncing" OPAQUE;
    INFINIBAND 247 "InfiniBand" OPAQUE;
    SCTP 248 "SCTP" OPAQUE;
    USBPCAP 249 "USB with USBPcap header" OPAQUE;
    RTAC_SERIAL 250 "Schweitzer Engineering Laboratories RTAC packets" OPAQUE;
    BLUETOOTH_LE_LL 251 "Bluetooth Low Energy air interface" OPAQUE;
    NETLINK 253 "Linux netlink" OPAQUE;
    BLUETOOTH_LINUX_MONITOR 254 "Bluetooth Linux Monitor" OPAQUE;
    BLUETOOTH_BREDR_BB 255 "Bluetooth Basic Rate/Enhanced Data Rate baseband packets" OPAQUE;
    BLUETOOTH_LE_LL_WITH_PHDR 256 "Bluetooth Low Energy air interface with pseudo-header" OPAQUE;
    PROFIBUS_DL 257 "PROFIBUS data link layer" OPAQUE;
    PKTAP 258 "Apple DLT_PKTAP" OPAQUE;
    EPON 259 "Ethernet with 802.3 Clause 65 EPON preamble" OPAQUE;
    IPMI_HPM_2 260 "IPMI trace packets" OPAQUE;
    ZWAVE_R1_R2 261 "Z-Wave RF profile R1 and R2 packets" OPAQUE;
    ZWAVE_R3 262 "Z-Wave RF profile R3 packets" OPAQUE;
    WATTSTOPPER_DLM 263
        "WattStopper Digital Lighting Management (DLM) and Legrand Nitoo Open protocol"
        OPAQUE;
    ISO_14443 264 "ISO 14443 messages" OPAQUE;
    RDS 265 "IEC 62106 Radio Data System groups" OPAQUE;
    USB_DARWIN 266 "USB with Darwin header" OPAQUE;
    OPENFLOW 267 "OpenBSD DLT_OPENFLOW" OPAQUE;
    SDLC 268 "IBM SDLC frames" OPAQUE;
    TI_LLN_SNIFFER 269 "TI LLN sniffer frames" OPAQUE;
    VSOCK 271 "Linux vsock" OPAQUE;
    NORDIC_BLE 272 "Nordic Semiconductor Bluetooth LE sniffer frames" OPAQUE;
    DOCSIS31_XRA31 273 "Excentis XRA-31 DOCSIS 3.1 RF sniffer frames" OPAQUE;
    ETHERNET_MPACKET 274 "802.3br mPackets" OPAQUE;
    DISPLAYPORT_AUX 275 "DisplayPort AUX channel monitoring data" OPAQUE;
    OPENVIZSLA 278 "OpenVizsla USB" OPAQUE;
    EBHSCR 279 "Elektrobit High Speed Capture and Replay (EBHSCR)" OPAQUE;
    VPP_DISPATCH 280 "VPP graph dispatch tracer" OPAQUE;
    DSA_TAG_BRCM 281 "Broadcom tag" OPAQUE;
    DSA_TAG_BRCM_PREPEND 282 "Broadcom tag (prepended)" OPAQUE;
    IEEE802_15_4_TAP 283 "IEEE 802.15.4 with pseudo-header" OPAQUE;
    DSA_TAG_DSA 284 "Marvell DSA" OPAQUE;
    DSA_TAG_EDSA 285 "Marvell EDSA" OPAQUE;
    ELEE 286 "ELEE lawful intercept packets" OPAQUE;
    Z_WAVE_SERIAL 287 "Z-Wave serial frames between host and chip" OPAQUE;
    USB_2_0 288 "USB 2.0/1.1/1.0 as transmitted over the cable" OPAQUE;
    ATSC_ALP 289 "ATSC Link-Layer Protocol packets" OPAQUE;
}
