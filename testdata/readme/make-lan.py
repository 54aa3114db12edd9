"""Writes lan.pcap, the capture of the cookbook: python3 make-lan.py. It needs no packages."""

import struct

START = 1_772_366_400  # 2026-03-01 12:00:00 UTC
FRAMES = []


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def address(text):
    return bytes(int(part) for part in text.split("."))


def mac(text):
    return b"\x02\0" + address(text)


def at(milliseconds, frame):
    FRAMES.append((milliseconds, frame))


def ether(source, target, payload, kind=0x0800, vlan=None):
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return mac(target) + mac(source) + tag + struct.pack("!H", kind) + payload


def ip(source, target, protocol, payload, ident=1, fragment=0):
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), ident, fragment, 64, protocol, 0)
    head += address(source) + address(target)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def with_checksum(source, target, protocol, segment, place):
    pseudo = address(source) + address(target) + struct.pack("!BBH", 0, protocol, len(segment))
    return segment[:place] + struct.pack("!H", checksum(pseudo + segment)) + segment[place + 2 :]


def udp(source, sport, target, dport, payload):
    segment = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    return with_checksum(source, target, 17, segment, 6)


def tcp(source, sport, target, dport, flags, seq=0, ack=0, payload=b""):
    segment = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 0x50, flags, 64240, 0, 0) + payload
    return ip(source, target, 6, with_checksum(source, target, 6, segment, 16))


def datagram(time, source, sport, target, dport, payload):
    at(time, ether(source, target, ip(source, target, 17, udp(source, sport, target, dport, payload))))


def conversation(time, client, cport, server, sport, request, answer):
    syn, ack, push, fin = 2, 16, 24, 17
    up = lambda flags, seq, number, data=b"": ether(
        client, server, tcp(client, cport, server, sport, flags, seq, number, data))
    down = lambda flags, seq, number, data=b"": ether(
        server, client, tcp(server, sport, client, cport, flags, seq, number, data))
    mine, yours = 1000, 5000
    frames = [up(syn, mine, 0), down(syn | ack, yours, mine + 1), up(ack, mine + 1, yours + 1)]
    # The request in two segments: what is searched may lie across the border.
    half = len(request) // 2
    frames += [up(push, mine + 1, yours + 1, request[:half])]
    frames += [up(push, mine + 1 + half, yours + 1, request[half:])]
    mine, yours = mine + 1 + len(request), yours + 1
    frames += [down(push, yours, mine, answer)]
    yours += len(answer)
    frames += [up(fin, mine, yours), down(fin, yours, mine + 1), up(ack, mine + 1, yours + 1)]
    for number, frame in enumerate(frames):
        at(time + number, frame)


def name(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"


def sip(first, port, body_address):
    body = (f"v=0\r\no=- 1 1 IN IP4 {body_address}\r\ns=-\r\nc=IN IP4 {body_address}\r\nt=0 0\r\n"
            f"m=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n")
    return (f"{first}\r\nVia: SIP/2.0/UDP 10.0.0.7:5060;branch=z9hG4bK1\r\nFrom: <sip:ann@10.0.0.7>;tag=1\r\n"
            f"To: <sip:bob@10.0.0.8>;tag=2\r\nCall-ID: call-1\r\nCSeq: 1 INVITE\r\n"
            f"Contact: <sip:ann@10.0.0.7>\r\nContent-Type: application/sdp\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def main():
    arp = lambda kind, source, target: struct.pack("!HHBBH", 1, 0x0800, 6, 4, kind) + (
        mac(source) + address(source) + (mac(target) if kind == 2 else b"\0" * 6) + address(target))
    at(0, ether("10.0.0.2", "255.255.255.255", arp(1, "10.0.0.2", "10.0.0.1"), 0x0806))
    at(1, ether("10.0.0.1", "10.0.0.2", arp(2, "10.0.0.1", "10.0.0.2"), 0x0806))
    question = name("example.org") + struct.pack("!HH", 1, 1)
    datagram(10, "10.0.0.2", 33000, "10.0.0.53", 53,
             struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question)
    datagram(12, "10.0.0.53", 53, "10.0.0.2", 33000,
             struct.pack("!HHHHHH", 7, 0x8180, 1, 1, 0, 0) + question
             + struct.pack("!HHHIH", 0xC00C, 1, 1, 300, 4) + address("192.0.2.80"))
    conversation(20, "10.0.0.2", 40000, "192.0.2.80", 80,
                 b"GET /login?user=ann&password=secret HTTP/1.1\r\nHost: example.org\r\n\r\n",
                 b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    conversation(40, "10.0.0.3", 40001, "192.0.2.80", 80,
                 b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\n",
                 b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    for number in range(2):
        echo = struct.pack("!BBHHH", 8 if number == 0 else 0, 0, 0, 1, 1) + b"abcdefgh"
        echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
        ends = ("10.0.0.2", "10.0.0.1") if number == 0 else ("10.0.0.1", "10.0.0.2")
        at(60 + number, ether(*ends, ip(*ends, 1, echo)))
    # A call: its messages name the ports of the audio.
    datagram(100, "10.0.0.7", 5060, "10.0.0.8", 5060, sip("INVITE sip:bob@10.0.0.8 SIP/2.0", 40100, "10.0.0.7"))
    datagram(120, "10.0.0.8", 5060, "10.0.0.7", 5060, sip("SIP/2.0 200 OK", 50100, "10.0.0.8"))
    for number in range(10):
        head = struct.pack("!BBHII", 0x80, 0, number, 160 * number, 77)
        datagram(140 + 20 * number, "10.0.0.7", 40100, "10.0.0.8", 50100, head + b"\xff" * 160)
        datagram(145 + 20 * number, "10.0.0.8", 50100, "10.0.0.7", 40100, head + b"\x7f" * 160)
    # A message in two fragments: only the first one has ports.
    long = udp("10.0.0.7", 5060, "10.0.0.8", 5060, b"MESSAGE sip:bob@10.0.0.8 SIP/2.0\r\n" + b"x" * 1900)
    at(400, ether("10.0.0.7", "10.0.0.8", ip("10.0.0.7", "10.0.0.8", 17, long[:1480], 9, 0x2000)))
    at(401, ether("10.0.0.7", "10.0.0.8", ip("10.0.0.7", "10.0.0.8", 17, long[1480:], 9, 185)))
    # In VLAN 100, and in a tunnel.
    at(500, ether("10.0.0.2", "10.0.0.9", tcp("10.0.0.2", 40100, "10.0.0.9", 443, 2), vlan=100))
    at(501, ether("10.0.0.9", "10.0.0.2", tcp("10.0.0.9", 443, "10.0.0.2", 40100, 18, 1, 1), vlan=100))
    inner = ether("172.16.0.1", "172.16.0.2", tcp("172.16.0.1", 50000, "172.16.0.2", 80, 2))
    datagram(510, "10.1.0.1", 44444, "10.1.0.2", 4789, struct.pack("!II", 0x08000000, 42 << 8) + inner)
    # A scan.
    for number in range(20):
        port = 20 + number
        at(600 + 2 * number, ether("10.0.0.66", "10.0.0.2", tcp("10.0.0.66", 55555, "10.0.0.2", port, 2)))
        at(601 + 2 * number, ether("10.0.0.2", "10.0.0.66", tcp("10.0.0.2", port, "10.0.0.66", 55555, 20, 0, 1)))
    with open("lan.pcap", "wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for milliseconds, frame in FRAMES:
            time = (START + milliseconds // 1000, milliseconds % 1000 * 1000)
            file.write(struct.pack("<IIII", *time, len(frame), len(frame)) + frame)


main()
