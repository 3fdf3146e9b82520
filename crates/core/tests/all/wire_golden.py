#!/usr/bin/env python3
"""Computes the examples of docs/wire.md and docs/wire-datagrams.md from their tables alone, not from the crate that they test.

With --seeds it writes the fuzz targets' seeds instead of printing.
"""
import base64
import hashlib
import hmac
import ipaddress
import pathlib
import struct
import sys


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def identity(key):
    return mac(key, b"polyrail id")[:16]


def field(kind, value):
    return struct.pack("<HH", kind, len(value)) + value


def hello(to, connection=0, lane=0, session=0, transport=2):
    fields = struct.pack("<BBHHHB3xQQ", 1, connection, 1, 3, lane, transport, 0b1011, session)
    return b"PLYR" + fields + b"\x11" * 16 + identity(CLIENT) + identity(to)


def sealed(kind, code, label, said, offer):
    head = struct.pack("<4sBBH", b"PLYR", kind, code, len(offer))
    return head + mac(SERVER, label, *said, head, offer)


def header(kind, generation, epoch, connection, number):
    return struct.pack("<BBBxII", 1 << 4 | kind, generation, epoch, connection, number)


def ack(largest, below, *ranges):
    head = struct.pack("<BBHIHH", 1, len(ranges), 2000 // 8, largest, below, 5)
    return head + b"".join(struct.pack("<HH", gap, length) for gap, length in ranges)


def stream(pos, data, kind=2):
    return struct.pack("<BxHQ", kind, len(data), pos) + data


def datagram_hello(connection, salt):
    return struct.pack("<BI16sI", 9, connection, salt, 32 << 20)


def tagged(label, *parts):
    return parts[-1] + mac(SERVER, label, *parts)[:16]


SHM, TCP, UDP = 1, 2, 3
PLAIN, SEALED, OPEN, ANSWER = range(4)
SERVER, CLIENT = bytes(range(16)), bytes(range(16, 32))
LINK_LOCAL = ipaddress.ip_address("fe80::1").packed
HOST = 0x0123456789ABCDEF

ips = bytes([192, 0, 2, 1]) + LINK_LOCAL + struct.pack("<I", 2) + bytes([192, 0, 2, 2])
address = b"PR\x01\x01" + struct.pack("<HHQ", 4711, 1 | 3 << 2 | 1 << 4, HOST) + SERVER + ips.ljust(32, b"\0")
text = "polyrail:" + base64.b32encode(address).decode().lower().rstrip("=")

first = hello(SERVER)
lane = hello(SERVER, 1, 2, 0x1122334455667788)
head = b"PLYR\x02\0" + struct.pack("<HQ", 2, 0b1001) + b"\x22" * 16
challenge = head + mac(SERVER, b"polyrail server", first, head)

interface = struct.pack("<IIHB", 2, 10000, 0, 4) + b"eth0" + bytes([4, 24, 192, 0, 2, 1, 6, 64]) + LINK_LOCAL
offer = b"".join(
    [
        field(1, struct.pack("<IIQ", 4242, 1000, HOST)),
        field(2, struct.pack("<QQ", 0x7FFF12345678, 0xA1A2A3A4A5A6A7A8)),
        field(4, struct.pack("<II", 65536, 1 << 20)),
        field(5, interface),
        field(6, struct.pack("<BH", SHM, 1)),
        field(6, struct.pack("<B", TCP)),
        field(7, b"\x77" * 32),
    ]
)
proof = sealed(3, 0, b"polyrail client", (first, challenge), offer)
said = (first, challenge, proof)
accept = sealed(4, 0, b"polyrail verdict", said, offer)
# who must know the user's secret, too
secret_address = address[:3] + b"\x11" + address[4:]
proves = mac(b"secret of this user", b"polyrail user", SERVER)[:16]
secret_challenge = head + mac(proves, b"polyrail server", first, head)
derived = mac(b"secret of this user", b"polyrail key", b"node1:render")[:16]

# datagrams: numbers of the connection, salts, and the first two of it
AT_SERVER, AT_CLIENT, NUMBER = 0x00100002, 0x00300007, 0x04030201
CLIENT_SALT, SERVER_SALT = b"\x11" * 16, b"\x22" * 16
by_udp = hello(SERVER, transport=UDP)
udp_challenge = head + mac(SERVER, b"polyrail server", by_udp, head)
hellos = datagram_hello(AT_CLIENT, CLIENT_SALT), datagram_hello(AT_SERVER, SERVER_SALT)
opening = tagged(b"polyrail udp open", header(OPEN, 0, 0, 0, 0) + hellos[0] + stream(0, by_udp))
had = struct.pack("<BBHIHH", 1, 0, 0, 0, 0, 0)
said_back = header(ANSWER, 0, 0, AT_CLIENT, 0) + hellos[1] + had + stream(0, udp_challenge)
answer = tagged(b"polyrail udp answer", CLIENT_SALT, said_back)

examples = {
    "address": address,
    "identity of the server": identity(SERVER),
    "identity of the client": identity(CLIENT),
    "identity of node1:render": identity(derived),
    "HELLO": first,
    "HELLO of a lane": lane,
    "CHALLENGE": challenge,
    "PROOF": proof,
    "VERDICT accept": accept,
    "VERDICT simultaneous": sealed(4, 1, b"polyrail verdict", said, b""),
    "session": mac(SERVER, b"polyrail session", first, challenge)[:8][::-1],
    "secret": mac(SERVER, b"polyrail seal", *said, accept),
    "DENIED": b"PLYR\x05\0\0\0",
    "VERSIONS": b"PLYR\x06\0" + struct.pack("<HHH", 2, 5, 0),
    "offer": offer,
    "address that needs the secret": secret_address,
    "key by which it is proved": proves,
    "CHALLENGE by that key": secret_challenge,
    "header, plain": header(PLAIN, 3, 2, AT_SERVER, NUMBER),
    "header, sealed": header(SEALED, 3, 2, AT_CLIENT, NUMBER),
    "header, OPEN": header(OPEN, 0, 0, 0, NUMBER),
    "header, ANSWER": header(ANSWER, 0, 0, AT_CLIENT, NUMBER),
    "PAD": bytes([0]),
    "ACK": ack(NUMBER, 0),
    "ACK with ranges": ack(NUMBER, 256, (1, 2), (513, 1)),
    "STREAM": stream(0x4000000100, b"hello"),
    "PING": bytes([3]),
    "CLOSE": bytes([4, 0]) + bytes([4, 1]) + bytes([4, 2]),
    "WORD": struct.pack("<BBH", 5, 4, 0x0102) + b"word",
    "WORDS_HAD": struct.pack("<BH", 6, 0x0103),
    "CHALLENGE of a path": bytes([7]) + bytes(range(0xA1, 0xA9)),
    "RESPONSE": bytes([8]) + bytes(range(0xA1, 0xA9)),
    "HELLO of the client": hellos[0],
    "HELLO of the server": hellos[1],
    "RESCUED": stream(0x4000000100, b"hello", 10),
    "PREPARE": bytes([1, 2, 1, 0, 17]),
    "PREPARED": bytes([2, 2, 0, 0]),
    "NACK": b"".join(bytes([3, 2, reason, 0]) for reason in (1, 2, 3)),
    "SWITCH": struct.pack("<BBBxQ", 4, 2, 0, 0x4000000100),
    "DRAINED": bytes([5, 0, 0, 0]),
    "ABORT": bytes([6, 2, 0, 0]),
    "OPEN, whole": opening,
    "ANSWER, whole": answer,
    "first chain of the client": mac(SERVER, b"polyrail udp from client", CLIENT_SALT, SERVER_SALT),
    "first chain of the server": mac(SERVER, b"polyrail udp from server", CLIENT_SALT, SERVER_SALT),
}

# What the fuzz targets expect is in fuzz/src/bin: a byte of mode and one of piece size before the handshakes.
to_target = hello(bytes([1] * 16))
seeds = {
    "address/bytes": address,
    "address/secret": secret_address,
    "address/base32": text.encode(),
    "address/hex": b"polyrail:" + address.hex().encode(),
    "offer/golden": offer,
    "handshake_responder/accepted": b"\x03\xff" + to_target + offer,
    "handshake_responder/rejected": b"\x01\x03" + lane + offer,
    "handshake_responder/stranger": b"\x00\x09" + to_target,
    "handshake_initiator/accepted": b"\x03\xff\x02\x01" + bytes(23) + offer,
    "handshake_initiator/rejected": b"\x01\x09\x01" + bytes(24),
    "datagram/open": opening,
    "datagram/answer": answer,
    "datagram/acks": header(PLAIN, 3, 2, AT_SERVER, NUMBER) + ack(NUMBER, 0) + ack(NUMBER, 256, (1, 2), (513, 1)),
    "datagram/streams": header(SEALED, 3, 2, AT_CLIENT, NUMBER) + stream(7, b"hello") + bytes(3) + stream(7, b"hello", 10),
    "datagram/words": header(PLAIN, 0, 0, AT_SERVER, NUMBER)
    + b"\x05\x04\x02\x01word\x06\x03\x01\x03\x04\x01\x07challenge"[:-1]
    + b"\x08response",
    # one of each role: what is given leaves, time passes, an answer comes, parts of a stream, acknowledgements, the end
    "connection/opens": b"\x04\x0a\x00\x20\x08\x0c\x01\x01\x00\x00\x10\x00\x08"
    b"\x02\x01\x01\x00\x00\x04\x00\x10\x01\x01\x02\x40\x00\x50\x90\x00\x50\x04\x20\x08\x06\x08\x03\x01",
    "connection/answers": b"\xe3\x00\x02\x00\x00" + struct.pack("<H", 37) + hellos[0] + stream(0, b"")
    + b"\x0a\x00\x10\x08\x06\x08\x00\x00\x01\x00\x01\x00\x03\x08\x06\x08\x0b\x08\x0d\x02\x08",
    "connection/gaps": b"\xe9\x0a\x00\x40\x01\x01\x04\x40\x00\x09\x80\x00\x09\x60\x00\x09\x70\x00\x09\x08"
    b"\x01\x03\x01\x49\x00\x20\x08\x05\x0a\x08\x02\x80\x02\x00\x00\x02\x00\x06\x08\x03\x02",
    # PREPARE, something in the new epoch, SWITCH, DRAINED
    "connection/changes": b"\xe5\x0a\x00\x10\x0f\x01\x00\x05\x01\x02\x01\x00\x10\x08\x0f\x01\x00\x0c\x04\x02" + bytes(10) + b"\x08"
    b"\x00\x00\x00\x02\x00\x00\x06\x08\x0f\x01\x00\x04\x05" + bytes(3) + b"\x08\x06\x08",
    "connection/proposes": b"\x64\x0c\x01\x01\x00\x00\x01\x00\x0a\x00\x20\x08\x0e\x02\x08\x06\x08\x0f\x01\x00\x04\x02\x02\x00\x00\x08\x06",
    "handshake_initiator/versions": b"\x00\x09PLYR\x06\0" + struct.pack("<HHH", 4, 5, 0),
}

if sys.argv[1:] == ["--seeds"]:
    root = pathlib.Path(__file__).parents[4] / "fuzz/seeds"
    for name, data in seeds.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
else:
    print("address as text:", text)
    for name, data in examples.items():
        print(f"{name}: {data.hex()}")
