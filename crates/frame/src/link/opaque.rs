//! Link types with headers that fyke does not decode. Their names are known, so that filters over
//! bytes and lengths can be compiled for them as in libpcap, and other filters can be refused with
//! the name.
//!
//! Source: the link-type registry; names and titles of libpcap 1.10.3.

use super::{Link, LinkType};

/// Makes a description of each row.
macro_rules! opaque {
    ($($number:literal $name:literal $title:literal;)+) => {
        pub(super) static LINKS: &[&Link] = &[$(&Link {
            numbers: &[LinkType($number)],
            name: $name,
            title: $title,
            header_len: None,
            ethertype_offset: None,
            next: |_| None,
        },)+];
    };
}

#[rustfmt::skip]
opaque! {
    114 "LTALK" "Localtalk";
    130 "JUNIPER_MLPPP" "Juniper Multi-Link PPP";
    131 "JUNIPER_MLFR" "Juniper Multi-Link Frame Relay";
    132 "JUNIPER_ES" "Juniper Encryption Services PIC";
    133 "JUNIPER_GGSN" "Juniper GGSN PIC";
    134 "JUNIPER_MFR" "Juniper FRF.16 Frame Relay";
    135 "JUNIPER_ATM2" "Juniper ATM2 PIC";
    136 "JUNIPER_SERVICES" "Juniper Advanced Services PIC";
    137 "JUNIPER_ATM1" "Juniper ATM1 PIC";
    139 "MTP2_WITH_PHDR" "SS7 MTP2 with Pseudo-header";
    140 "MTP2" "SS7 MTP2";
    141 "MTP3" "SS7 MTP3";
    142 "SCCP" "SS7 SCCP";
    143 "DOCSIS" "DOCSIS";
    144 "LINUX_IRDA" "Linux IrDA";
    164 "JUNIPER_MONITOR" "Juniper Passive Monitor PIC";
    165 "BACNET_MS_TP" "BACnet MS/TP";
    167 "JUNIPER_PPPOE" "Juniper PPPoE";
    168 "JUNIPER_PPPOE_ATM" "Juniper PPPoE/ATM";
    169 "GPRS_LLC" "GPRS LLC";
    170 "GPF_T" "GPF-T";
    171 "GPF_F" "GPF-F";
    174 "JUNIPER_PIC_PEER" "Juniper PIC Peer";
    175 "ERF_ETH" "Ethernet with Endace ERF header";
    176 "ERF_POS" "Packet-over-SONET with Endace ERF header";
    177 "LINUX_LAPD" "Linux vISDN LAPD";
    178 "JUNIPER_ETHER" "Juniper Ethernet";
    179 "JUNIPER_PPP" "Juniper PPP";
    180 "JUNIPER_FRELAY" "Juniper Frame Relay";
    181 "JUNIPER_CHDLC" "Juniper C-HDLC";
    182 "MFR" "FRF.16 Frame Relay";
    183 "JUNIPER_VP" "Juniper Voice PIC";
    184 "A429" "Arinc 429";
    185 "A653_ICM" "Arinc 653 Interpartition Communication";
    186 "USB_FREEBSD" "USB with FreeBSD header";
    187 "BLUETOOTH_HCI_H4" "Bluetooth HCI UART transport layer";
    188 "IEEE802_16_MAC_CPS" "IEEE 802.16 MAC Common Part Sublayer";
    189 "USB_LINUX" "USB with Linux header";
    190 "CAN20B" "Controller Area Network (CAN) v. 2.0B";
    191 "IEEE802_15_4_LINUX" "IEEE 802.15.4 with Linux padding";
    193 "IEEE802_16_MAC_CPS_RADIO" "IEEE 802.16 MAC Common Part Sublayer plus radiotap header";
    194 "JUNIPER_ISM" "Juniper Integrated Service Module";
    195 "IEEE802_15_4" "IEEE 802.15.4 with FCS";
    196 "SITA" "SITA pseudo-header";
    197 "ERF" "Endace ERF header";
    198 "RAIF1" "Ethernet with u10 Networks pseudo-header";
    199 "IPMB_KONTRON" "IPMB with Kontron pseudo-header";
    200 "JUNIPER_ST" "Juniper Secure Tunnel";
    201 "BLUETOOTH_HCI_H4_WITH_PHDR" "Bluetooth HCI UART transport layer plus pseudo-header";
    202 "AX25_KISS" "AX.25 with KISS header";
    209 "IPMB_LINUX" "IPMB with Linux/Pigeon Point pseudo-header";
    215 "IEEE802_15_4_NONASK_PHY" "IEEE 802.15.4 with non-ASK PHY data";
    216 "LINUX_EVDEV" "Linux evdev events";
    219 "MPLS" "MPLS with label as link-layer header";
    220 "USB_LINUX_MMAPPED" "USB with padded Linux header";
    221 "DECT" "DECT";
    222 "AOS" "AOS Space Data Link protocol";
    223 "WIHART" "Wireless HART";
    224 "FC_2" "Fibre Channel FC-2";
    225 "FC_2_WITH_FRAME_DELIMS" "Fibre Channel FC-2 with frame delimiters";
    227 "CAN_SOCKETCAN" "CAN-bus with SocketCAN headers";
    230 "IEEE802_15_4_NOFCS" "IEEE 802.15.4 without FCS";
    231 "DBUS" "D-Bus";
    232 "JUNIPER_VS" "Juniper Virtual Server";
    233 "JUNIPER_SRX_E2E" "Juniper SRX E2E";
    234 "JUNIPER_FIBRECHANNEL" "Juniper Fibre Channel";
    235 "DVB_CI" "DVB-CI";
    236 "MUX27010" "MUX27010";
    237 "STANAG_5066_D_PDU" "STANAG 5066 D_PDUs";
    238 "JUNIPER_ATM_CEMIC" "Juniper ATM CEMIC";
    239 "NFLOG" "Linux netfilter log messages";
    242 "IPOIB" "RFC 4391 IP-over-Infiniband";
    243 "MPEG_2_TS" "MPEG-2 transport stream";
    244 "NG40" "ng40 protocol tester Iub/Iur";
    245 "NFC_LLCP" "NFC LLCP PDUs with pseudo-header";
    246 "PFSYNC" "Packet filter state syncing";
    247 "INFINIBAND" "InfiniBand";
    248 "SCTP" "SCTP";
    249 "USBPCAP" "USB with USBPcap header";
    250 "RTAC_SERIAL" "Schweitzer Engineering Laboratories RTAC packets";
    251 "BLUETOOTH_LE_LL" "Bluetooth Low Energy air interface";
    253 "NETLINK" "Linux netlink";
    254 "BLUETOOTH_LINUX_MONITOR" "Bluetooth Linux Monitor";
    255 "BLUETOOTH_BREDR_BB" "Bluetooth Basic Rate/Enhanced Data Rate baseband packets";
    256 "BLUETOOTH_LE_LL_WITH_PHDR" "Bluetooth Low Energy air interface with pseudo-header";
    257 "PROFIBUS_DL" "PROFIBUS data link layer";
    258 "PKTAP" "Apple DLT_PKTAP";
    259 "EPON" "Ethernet with 802.3 Clause 65 EPON preamble";
    260 "IPMI_HPM_2" "IPMI trace packets";
    261 "ZWAVE_R1_R2" "Z-Wave RF profile R1 and R2 packets";
    262 "ZWAVE_R3" "Z-Wave RF profile R3 packets";
    263 "WATTSTOPPER_DLM" "WattStopper Digital Lighting Management (DLM) and Legrand Nitoo Open protocol";
    264 "ISO_14443" "ISO 14443 messages";
    265 "RDS" "IEC 62106 Radio Data System groups";
    266 "USB_DARWIN" "USB with Darwin header";
    267 "OPENFLOW" "OpenBSD DLT_OPENFLOW";
    268 "SDLC" "IBM SDLC frames";
    269 "TI_LLN_SNIFFER" "TI LLN sniffer frames";
    271 "VSOCK" "Linux vsock";
    272 "NORDIC_BLE" "Nordic Semiconductor Bluetooth LE sniffer frames";
    273 "DOCSIS31_XRA31" "Excentis XRA-31 DOCSIS 3.1 RF sniffer frames";
    274 "ETHERNET_MPACKET" "802.3br mPackets";
    275 "DISPLAYPORT_AUX" "DisplayPort AUX channel monitoring data";
    278 "OPENVIZSLA" "OpenVizsla USB";
    279 "EBHSCR" "Elektrobit High Speed Capture and Replay (EBHSCR)";
    280 "VPP_DISPATCH" "VPP graph dispatch tracer";
    281 "DSA_TAG_BRCM" "Broadcom tag";
    282 "DSA_TAG_BRCM_PREPEND" "Broadcom tag (prepended)";
    283 "IEEE802_15_4_TAP" "IEEE 802.15.4 with pseudo-header";
    284 "DSA_TAG_DSA" "Marvell DSA";
    285 "DSA_TAG_EDSA" "Marvell EDSA";
    286 "ELEE" "ELEE lawful intercept packets";
    287 "Z_WAVE_SERIAL" "Z-Wave serial frames between host and chip";
    288 "USB_2_0" "USB 2.0/1.1/1.0 as transmitted over the cable";
    289 "ATSC_ALP" "ATSC Link-Layer Protocol packets";
}
