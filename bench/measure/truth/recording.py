"""A program run in a network namespace of its own under polyrail trace, and what the recording and the kernel say of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..figures import Failed
from ..programs import POLYRAIL, ROOT, Process, alone

SOURCES = ROOT / "bench/truth"
PORT = 5000
# The most that waits to be sent on a connection: net.ipv4.tcp_wmem and what one call adds.
BUFFER = 8 << 20
# How long a program may take, also beside busy loops.
LIMIT = 240.0
# A recording's warnings that say how it went, not that something is wrong: pattern, and what it means.
TOLD = {
    r"in all, for their records to be collected": "threads waited, nothing was lost",
    r"^the kernel lost [\d,]+ events": "of times only: the report's numbers do not come from these events",
    r"its calls were recorded by the kernel": "as it should be of a program without the dynamic loader",
}
# Before each script: `listens PORT` waits for a server.
PRELUDE = """
listens() {
    n=0
    until grep -q ":$(printf %04X "$1") [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6; do
        n=$((n + 1)); [ $n -lt 600 ] || { echo "nothing listens at $1" >&2; exit 1; }; sleep 0.05
    done
}
"""


@dataclass
class Row:
    """A figure of the recording, and the same from elsewhere. `least` to `most` is what they may differ by, for the reason `why`."""

    what: str
    ours: int
    theirs: int
    source: str
    least: int = 0
    most: int = 0
    why: str = ""
    program: str = ""

    def right(self) -> bool:
        return self.ours == self.theirs or bool(self.why) and self.least <= self.ours - self.theirs <= self.most

    def verdict(self) -> str:
        if self.ours == self.theirs:
            return "equal"
        return f"{self.ours - self.theirs:+,}: {self.why if self.right() else 'NO REASON' + (f' (at most {self.least:+,} to {self.most:+,}: {self.why})' if self.why else '')}"


class Host:
    """A network namespace with nothing but its loopback; what was started there ends with it."""

    def __init__(self) -> None:
        root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        # it sleeps no longer than anything may take
        self.holder = Process(["unshare", *root, "--net", "sh", "-c", f"ip link set lo up && echo up && exec sleep {3 * LIMIT:.0f}"])
        until = time.monotonic() + 10
        while self.holder.so_far() != "up\n":
            if not self.holder.running() or time.monotonic() > until:
                raise Failed("no network namespace can be made: " + self.holder.wait(until).reason())
            time.sleep(0.01)
        self.pid = self.holder.process.pid
        self.words = ["nsenter", "--target", str(self.pid), *(["--user", "--preserve-credentials"] if root else []), "--net"]

    def counters(self) -> Counter[str]:
        """The kernel's, by the names that nstat has for them."""
        found: Counter[str] = Counter()
        for name in ("snmp", "netstat"):
            lines = [line.split() for line in Path(f"/proc/{self.pid}/net/{name}").read_text().splitlines()]
            for names, values in zip(lines[::2], lines[1::2]):
                group = names[0].rstrip(":")
                found.update({group + one: int(value) for one, value in zip(names[1:], values[1:])})
        for line in Path(f"/proc/{self.pid}/net/snmp6").read_text().splitlines():
            name, value = line.split()
            found[name] += int(value)
        return found

    def end(self) -> None:
        place = os.stat(f"/proc/{self.pid}/ns/net")
        for _ in range(50):
            left = [pid for pid in self.inside(place) if pid != self.pid]
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not left:
                break
            time.sleep(0.02)
        self.holder.stop()

    @staticmethod
    def inside(place: os.stat_result) -> Iterator[int]:
        for directory in Path("/proc").iterdir():
            if directory.name.isdigit():
                try:
                    if os.path.samestat(os.stat(directory / "ns/net"), place):
                        yield int(directory.name)
                except OSError:
                    continue


@dataclass
class Recording:
    """What the report says: its page, its tables and its text."""

    text: str
    page: dict
    sockets: list[dict]
    processes: list[dict]
    # TCP's own bytes that were sent again, by socket
    again: dict[int, int]

    @staticmethod
    def read(directory: Path) -> Recording:
        from pyarrow import parquet  # only now: readable() may have installed it

        text = alone([POLYRAIL, "report", "--no-perfetto", directory], limit=LIMIT).text
        page = (directory / "report.html").read_text()
        found = re.search(r'id="data">(.*?)</script', page, re.DOTALL)
        assert found
        sockets, processes = (parquet.read_table(directory / f"{name}.parquet").to_pylist() for name in ("sockets", "processes"))
        looks = parquet.read_table(directory / "tcp.parquet", columns=["socket", "bytes_retrans"]).to_pydict()
        again: dict[int, int] = {}
        for socket, count in zip(looks["socket"], looks["bytes_retrans"]):
            again[socket] = max(again.get(socket, 0), count)
        return Recording(text, json.loads(found[1]), sockets, processes, again)

    def by(self, program: str = "", kind: str = "tcp") -> list[dict]:
        """Sockets of this kind, of processes of this program, or of all."""

        def is_his(socket: dict) -> bool:
            words = self.processes[socket["process"]]["command"].split()
            return not program or any(Path(word).name == program for word in words[:2])

        return [socket for socket in self.sockets if socket["kind"] == kind and is_his(socket)]

    def sent(self, program: str = "", kind: str = "tcp") -> int:
        return sum(socket["bytes_sent"] for socket in self.by(program, kind))

    def received(self, program: str = "", kind: str = "tcp") -> int:
        return sum(socket["bytes_received"] for socket in self.by(program, kind))

    def connections(self, kind: str = "tcp") -> int:
        """As the report counts them: a connection of which both ends were traced is one; what was never connected is none."""
        all_of_it = [socket for socket in self.by(kind=kind) if not socket["listening"]]
        if kind == "unix":
            pairs = {min(s["socket"], s["socket"] if s["peer"] is None else s["peer"]) for s in all_of_it if self.said(s)}
            return len(pairs)
        ends = sum(socket["peer"] is not None for socket in all_of_it)
        never = re.search(r"; ([\d,]+) TCP sockets? never connected", self.text)
        return len(all_of_it) - ends // 2 - (int(never[1].replace(",", "")) if never else 0)

    def said(self, socket: dict) -> int:
        other = self.sockets[socket["peer"]] if socket["peer"] is not None else {}
        return socket["bytes_sent"] + socket["bytes_received"] + other.get("bytes_sent", 0)

    def calls(self, *names: str, good: bool = True) -> int:
        """How often these functions were called, with success unless that does not matter."""
        return sum(call["calls"] - call["errors"] * good for call in self.page["calls"] if call["name"] in names)

    def processes_of(self, program: str) -> list[dict]:
        return [one for one in self.page["processes"] if one["name"].split(" (")[0] == program]


@dataclass
class Run:
    """A program that was traced: the recording, what it and what ran beside it printed, and what the kernel counted meanwhile."""

    recorded: Recording
    said: str
    beside: str
    kernel: Counter[str]

    def number(self, pattern: str, text: str | None = None) -> int:
        """The first group of what a program said of itself."""
        text = self.said if text is None else text
        found = re.search(pattern, text, re.MULTILINE)
        if not found:
            raise Failed(f"nothing like {pattern} was said: " + text.strip()[-300:])
        return int(found[1].replace(",", ""))

    def part(self, name: str) -> str:
        """What was printed between a line `== name` and the next such."""
        return f"\n{self.said}".split(f"\n== {name}\n", 1)[-1].split("\n== ", 1)[0]


def run(inside: str, beside: str = "", user: str = "", files: dict[str, str] | None = None) -> Run:
    """Runs a script of the shell under polyrail trace, and if given another beside it that is not traced. They find the port in $PORT and
    the place for files in $PLACE."""
    with tempfile.TemporaryDirectory(prefix="polyrail-truth-", ignore_cleanup_errors=True) as name:
        place, host = Path(name), Host()
        try:
            place.chmod(0o755)
            for file, text in {"inside": PRELUDE + inside, "beside": PRELUDE + beside, **(files or {})}.items():
                (place / file).write_text(text.replace("@PLACE", name).replace("@PORT", str(PORT)))
            # what gets stuck ends by itself, whatever becomes of this program
            words = [*host.words, "timeout", "--kill-after=5", f"{LIMIT:.0f}"]
            if user:
                shutil.chown(place, user)
                words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
            words += ["env", f"PLACE={place}", f"HOME={place}", f"PORT={PORT}"]
            before = host.counters()
            traced = Process([*words, str(POLYRAIL), "trace", "-o", f"{place}/run", "--", "sh", f"{place}/inside"])
            try:
                client = Process([*words, "sh", f"{place}/beside"]) if beside else None
                try:
                    until = time.monotonic() + LIMIT + 10
                    ended = [process.wait(until) for process in (client, traced) if process]
                finally:
                    if client:
                        client.stop()
            finally:
                traced.stop()
            for output in ended:
                if output.status != 0:
                    raise Failed(f"{output.reason()}\n{output.errors[-1000:]}")
            kernel = host.counters()
            kernel.subtract(before)
            return Run(Recording.read(place / "run"), ended[-1].text, ended[0].text if beside else "", kernel)
        finally:
            host.end()


def whole(run: Run) -> list[Row]:
    """What holds of every run whose connections are all of TCP between programs of its namespace."""
    kernel, recorded, both = run.kernel, run.recorded, not run.beside
    made = kernel["TcpActiveOpens"] - kernel["TcpAttemptFails"]
    # each packet has 20 bytes of IP (40 of IPv6) and 32 of TCP with its time stamps; of the handshake's 8 more
    payload = kernel["IpExtOutOctets"] - 52 * kernel["IpOutRequests"] + kernel["Ip6OutOctets"] - 72 * kernel["Ip6OutRequests"]
    payload -= 8 * (kernel["TcpActiveOpens"] + kernel["TcpPassiveOpens"])
    again, resets = kernel["TcpRetransSegs"], kernel["TcpOutRsts"]
    # acknowledgements that tell of ranges: of what came out of order, or twice
    ranges = sum(kernel[f"TcpExtTCP{name}"] for name in ("OFOQueue", "DSACKOldSent", "DSACKOfoSent"))
    # connections that a side left with something unread, so that the other's buffer came to nothing
    cut = sum(kernel[f"TcpExtTCP{name}"] for name in ("AbortOnClose", "AbortOnData"))
    reasons = {"some acknowledgements are longer": ranges, "resets are shorter": resets, "what was left in buffers of connections cut short": cut}
    ours = sum(recorded.again.values()) + recorded.sent() + (0 if both else recorded.received())
    return [
        Row("TCP connections", recorded.connections(), made, "TcpActiveOpens, AttemptFails"),
        Row("TCP connections", recorded.connections(), kernel["TcpPassiveOpens"], "TcpPassiveOpens"),
        Row(
            "bytes, also again" if both else "bytes both ways", ours, payload, "IpExtOutOctets less headers",
            -40 * ranges - (0 if both else 65536 * again), 12 * resets + BUFFER * cut,
            "; ".join(reason for reason, times in reasons.items() if times),
        ),
        *retransmissions(run),
        *losses(run),
    ]  # fmt: skip


def retransmissions(run: Run) -> list[Row]:
    ours, kernel = sum(socket["retransmissions"] for socket in run.recorded.by()), run.kernel["TcpRetransSegs"]
    if all(host["kernel_events"] for host in run.recorded.page["hosts"]):
        return [Row("segments sent again", ours, kernel, "TcpRetransSegs")]
    closed = "the last segments of sockets that were closed: who is not root is not told"
    return [Row("segments sent again", ours, kernel, "TcpRetransSegs", -run.kernel["TcpPassiveOpens"], 0, closed)]


def losses(run: Run) -> list[Row]:
    """Nothing is lost; and every warning is one that is known."""
    rows = [Row("records lost", run.recorded.page["totals"]["lost"], 0, "nothing may be")]
    for warning in run.recorded.page["warnings"]:
        why = next((why for pattern, why in TOLD.items() if re.search(pattern, warning)), "")
        number = re.search(r"([\d,]+) (records are missing|times|events)", warning)
        count = int(number[1].replace(",", "")) if number else 1
        rows.append(Row(warning.split(",")[0] if why else warning, count, 0, "the report's warning", 0, 1 << 60, why))
    return rows


def between(run: Run, server: str, *clients: str, kind: str = "tcp") -> list[Row]:
    """What one program has sent the others have received; of a kind of which the kernel counts no bytes, this is all there is."""
    recorded = run.recorded
    sent, received = (sum(of(client, kind) for client in clients) for of in (recorded.sent, recorded.received))
    return [
        Row(f"{server}: bytes received", recorded.received(server, kind), sent, f"recorded as sent by {clients[0]}"),
        Row(f"{server}: bytes sent", recorded.sent(server, kind), received, f"recorded as received by {clients[0]}"),
    ]
