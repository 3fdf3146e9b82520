#!/usr/bin/env python3
"""Computes the examples of docs/wire.md, *Sealed connections*, of docs/wire-datagrams.md, *Tags and keys*, and of docs/wire-multicast.md,
from those pages alone, not from the crate that they test."""
import hashlib
import hmac
import struct

P = 2**255 - 19


def x25519(scalar, point):
    """RFC 7748."""
    k = int.from_bytes(scalar, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(point, "little") & ~(1 << 255)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a, c * b
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        aa, bb = a * a, b * b
        e = aa - bb
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def expand(key, label):
    """The first block of HKDF-Expand (RFC 5869)."""
    return mac(key, label + b"\1")


def xtime(a):
    return (a << 1 ^ (0x11B if a & 0x80 else 0)) & 0xFF


def times(a, b):
    r = 0
    while b:
        r, a, b = r ^ (a if b & 1 else 0), xtime(a), b >> 1
    return r


def sbox(a):
    i = next((x for x in range(256) if times(a, x) == 1), 0)
    rotated = [(i << n | i >> (8 - n)) & 0xFF for n in range(5)]
    return 0x63 ^ rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4]


SBOX = [sbox(a) for a in range(256)]


def aes256(key, block):
    """FIPS 197."""
    words = [key[4 * n : 4 * n + 4] for n in range(8)]
    rcon = 1
    for n in range(8, 60):
        t = words[n - 1]
        if n % 8 == 0:
            t = bytes(SBOX[x] for x in t[1:] + t[:1])
            t, rcon = bytes([t[0] ^ rcon]) + t[1:], xtime(rcon)
        elif n % 8 == 4:
            t = bytes(SBOX[x] for x in t)
        words.append(bytes(x ^ y for x, y in zip(words[n - 8], t)))
    state = block
    for round in range(15):
        if round:
            state = [SBOX[x] for x in state]
            state = [state[(4 * (c + r) + r) % 16] for c in range(4) for r in range(4)]
            if round < 14:
                mixed = []
                for c in range(4):
                    s = state[4 * c : 4 * c + 4]
                    mixed += [times(s[r], 2) ^ times(s[(r + 1) % 4], 3) ^ s[(r + 2) % 4] ^ s[(r + 3) % 4] for r in range(4)]
                state = mixed
        state = bytes(x ^ y for x, y in zip(state, b"".join(words[4 * round : 4 * round + 4])))
    return state


def gcm(key, nonce, plain, beside=b""):
    """NIST SP 800-38D, with additional data: the encrypted bytes and the tag."""
    h = int.from_bytes(aes256(key, bytes(16)), "big")

    def ghash(blocks):
        y = 0
        for block in blocks:
            y ^= int.from_bytes(block, "big")
            z, v = 0, h
            for bit in range(127, -1, -1):
                if y >> bit & 1:
                    z ^= v
                v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
            y = z
        return y.to_bytes(16, "big")

    def counter(n):
        return aes256(key, nonce + struct.pack(">I", n))

    blocks = [plain[n : n + 16] for n in range(0, len(plain), 16)]
    sealed = [bytes(x ^ y for x, y in zip(block, counter(n + 2))) for n, block in enumerate(blocks)]
    lengths = struct.pack(">QQ", 8 * len(beside), 8 * len(plain))
    besides = [beside[n : n + 16].ljust(16, b"\0") for n in range(0, len(beside), 16)]
    tag = ghash(besides + [block.ljust(16, b"\0") for block in sealed] + [lengths])
    return b"".join(sealed) + bytes(x ^ y for x, y in zip(tag, counter(1)))


assert gcm(bytes(32), bytes(12), bytes(16)).hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"


def record(chain, count, plain):
    key, mask = expand(chain, b"key"), expand(chain, b"iv")[:12]
    nonce = bytes(x ^ y for x, y in zip(mask, struct.pack("<QI", count, 0)))
    sealed = gcm(key, nonce, plain)
    return struct.pack("<H", len(sealed)) + sealed


base = b"\x09".ljust(32, b"\0")
private = {"client": bytes(range(32)), "server": bytes(range(32, 64))}
public = {side: x25519(key, base) for side, key in private.items()}
secret = bytes(range(64, 96))
root = mac(secret, x25519(private["client"], public["server"]))
assert root == mac(secret, x25519(private["server"], public["client"]))
client, server = expand(root, b"polyrail from client"), expand(root, b"polyrail from server")

for name, data in {
    "client's public key": public["client"],
    "server's public key": public["server"],
    "chain from client": client,
    "chain from server": server,
    "record 0 of the client, hello": record(client, 0, b"hello"),
    "record 1 of the client, again": record(client, 1, b"again"),
    "chain from client, second": expand(client, b"next"),
    "record 0 of the client's second chain, hello": record(expand(client, b"next"), 0, b"hello"),
}.items():
    print(f"{name}: {data.hex()}")


def datagram(chain, header, number, changes, content, sealed):
    """`changes`: how many changes of composition there were, and the epoch."""
    key, mask = expand(chain, b"key"), expand(chain, b"iv")[:12]
    nonce = bytes(x ^ y for x, y in zip(mask, struct.pack("<QI", number, changes[0] << 8 | changes[1])))
    if sealed:
        return header + gcm(key, nonce, content, header)
    return header + content + gcm(key, nonce, b"", header + content)


key, salts = bytes(range(16)), (b"\x11" * 16, b"\x22" * 16)
client, server = (mac(key, b"polyrail udp from " + side + salts[0] + salts[1]) for side in (b"client", b"server"))
plain, sealed = bytes.fromhex("100000000200100001000000"), bytes.fromhex("110102000700300001020304")
after = bytes.fromhex("100100000200100002000000")
hello = bytes.fromhex("020005000000000040000000") + b"hello"
for name, data in {
    "chain of what the client sends": client,
    "chain of what the server sends": server,
    "the client's plain datagram 1 of generation 0, PING": datagram(client, plain, 1, (0, 0), b"\3", False),
    "its datagram 2 of generation 1, PING": datagram(expand(client, b"next"), after, 2, (0, 0), b"\3", False),
    "sealed by the server's chain, number 0x04030201 after one change, STREAM": datagram(server, sealed, 0x04030201, (1, 2), hello, True),
}.items():
    print(f"{name}: {data.hex()}")

# docs/wire-multicast.md
chain = expand(bytes(range(32)), b"polyrail multicast" + struct.pack("<I", 7))
key, mask = expand(chain, b"key"), expand(chain, b"iv")[:12]
header = struct.pack("<B3xIII", 1, 7, 0x203, 5)
nonce = bytes(x ^ y for x, y in zip(mask, header[4:]))
print(f"chunk 515 of broadcast 7 from rank 5, hello: {(header + gcm(key, nonce, b'hello', header)).hex()}")
