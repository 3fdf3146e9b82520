"""iperf3."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from .recording import BUFFER, PORT, Row, Run, losses, run, whole


def iperf(words: str) -> Run:
    script = f"""
iperf3 -s -1 -p $PORT -J >$PLACE/server & listens $PORT
iperf3 -c 127.0.0.1 -p $PORT -J {words} >$PLACE/client || {{ cat $PLACE/client; exit 1; }}
wait; echo == client; cat $PLACE/client; echo; echo == server; cat $PLACE/server
"""
    return run(script)


def iperf_tcp(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    # each stream begins with 37 bytes that name it
    cookie = 37

    def rows(streams: int, reverse: bool) -> list[Row]:
        one = iperf(f"-t {1 if quick else 3} -P {streams} {'-R' * reverse}")
        client, server = (json.loads(one.part(side)) for side in ("client", "server"))
        sender, receiver = (server, client) if reverse else (client, server)
        ports = {stream["local_port"] for stream in client["start"]["connected"]}
        data = [s for s in one.recorded.by() if any(re.search(rf":{port}$", s[end] or "") for port in ports for end in ("local", "remote"))]
        served = [s for s in data if s["local"].endswith(f":{PORT}")]
        asked = [s for s in data if s not in served]
        into, out = (asked, served) if reverse else (served, asked)
        sent, received = sum(s["bytes_sent"] for s in out), sum(s["bytes_received"] for s in into)
        said_sent = sum(stream["sender"]["bytes"] for stream in sender["end"]["streams"])
        said_received = sum(stream["receiver"]["bytes"] for stream in receiver["end"]["streams"])
        again = sum(stream["sender"]["retransmits"] for stream in sender["end"]["streams"])
        unread = BUFFER * streams
        return [
            Row("TCP connections", one.recorded.connections(), streams + 1, "iperf3 -P, and one to steer"),
            Row("streams: bytes sent", sent - (0 if reverse else cookie * streams), said_sent, "iperf3: sender"),
            Row(
                "streams: bytes received", received - (0 if reverse else cookie * streams), said_received, "iperf3: receiver",
                0, unread, "iperf3 reads on without counting when its time is over",
            ),
            Row(
                "segments sent again", sum(s["retransmissions"] for s in out), again, "iperf3: retransmits",
                0, one.kernel["TcpRetransSegs"], "after iperf3 has looked for the last time",
            ),
            *whole(one),
        ]

    yield "4 streams", lambda: rows(4, False)
    yield "4 streams back", lambda: rows(4, True)


def iperf_udp(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    def rows(rate: str) -> list[Row]:
        one = iperf(f"-u -b {rate} -l 1400 -t {1 if quick else 2}")
        client, server = (json.loads(one.part(side)) for side in ("client", "server"))
        udp, kernel = one.recorded.by(kind="udp"), one.kernel
        sends = sum(socket["sends"] for socket in udp)
        unheard = sum(row["sent"] - row["received"] for row in one.recorded.page["unheard"])
        packets = sum(stream["udp"]["packets"] for stream in client["end"]["streams"])
        lost = sum(stream["udp"]["lost_packets"] for stream in server["end"]["streams"])
        return [
            Row("datagrams sent", sends, kernel["UdpOutDatagrams"], "UdpOutDatagrams"),
            Row("datagrams sent", sends, packets, "iperf3: packets", 2, 2, "a greeting each way"),
            Row("datagrams received", sends - unheard, kernel["UdpInDatagrams"], "UdpInDatagrams"),
            Row("datagrams not received", unheard, kernel["UdpOutDatagrams"] - kernel["UdpInDatagrams"], "UdpOutDatagrams, InDatagrams"),
            Row("datagrams not received", unheard, kernel["UdpRcvbufErrors"], "UdpRcvbufErrors", 0, 10000, "not read before the end"),
            Row("datagrams not received", unheard, lost, "iperf3: lost", 0, 10000, "not read before the end"),
            Row("bytes sent", one.recorded.sent(kind="udp"), 1400 * packets, "iperf3: packets", 8, 8, "a greeting each way"),
            *losses(one),
        ]

    yield "200 Mbit/s", lambda: rows("200M")
    yield "as fast as it can", lambda: rows("0")
