"""Long messages between two hosts far apart, over a path that loses packets, beside the kernel's TCP and peers; messages there and back, one at a
time, after rests or where packets are lost; a link that changes how it is reliable ten times a second meanwhile; one to whose end others send
what they please; and several that share a path."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import mpi
from .failures import lab
from .figures import CPU, Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import ROOT, Process, alone, fresh_port
from .rails import HOSTS, Contender, iperf, iperf_missing, ours, ucx

# Long messages, and as many under way as have 64 MiB; on slow paths shorter ones, of which some come in time even where little does.
LONG, SHORTER = (4 << 20, 16), (1 << 20, 64)
# What a path turns out to be like is found out in the first of these; what is told is what gets through from then on, in all of the rest.
FINDS, SECONDS = 6, 12
RATES, DELAYS, LOSSES = (1000, 100), (0, 10, 50), ("0", "0.01%", "0.1%", "1%")
SPEC = "relay:1000,delay=10ms"
HANDOVER = "relay:1000,delay=10ms,queue=2500000,loss=1%"
RESTS = "relay:1000,delay=10ms,queue=2500000"
# Messages there and a word back: how many, of how many bytes, milliseconds of rest before each, and what is lost.
SINGLE = ((20, 64 << 10, 1000, "0"), (20, 256 << 10, 1000, "0"), (20, 1 << 20, 1000, "0"), (1500, 1 << 10, 0, "1%"))
# The queue holds as much as the path.
SHARED = "relay:100,delay=10ms,queue=250000"
# What is shared between these seconds counts; who is there first has the path alone for so long before.
SHARES, FIRST = (8, 28), 5
FLOOD = "0"
# Datagrams that nobody should heed, a second, and for how long.
NOISE, NOISY = 100_000, 30
MEMORY, SENT = Figure("memory of the receiver", "MB", True), Figure("datagrams sent beside it", "1/s", False)
WRONG, GAP = Figure("messages with wrong data", "count", True), Figure("longest time without a message", "s", True)


@dataclass(frozen=True)
class Path:
    """A path: Mbit/s, milliseconds one way, and how many packets are lost each way."""

    rate: int
    delay: int
    loss: str

    def figure(self) -> Figure:
        there = 2 * self.delay or 0.1
        return Figure(f"{self.rate} Mbit/s {there:g} ms loss {self.loss}", "MB/s", False)

    def cpu(self, seconds: float, count: float) -> Sample:
        """Processor time of both sides, where that is compared: on a path that is like others, and loses nothing."""
        if (self.rate, self.delay, self.loss) != (1000, 10, "0"):
            return {}
        return {(Figure(f"{self.figure().name}: processor time", "s/GB", True), None): seconds / count * 1e9}

    def set(self) -> None:
        # what is under way in a round trip may wait
        queue = max(256_000, self.rate * 2 * self.delay * 125)
        lab(["relay", "0", f"rate={self.rate}", f"delay={self.delay}ms", f"loss={self.loss}", f"queue={queue}"])


def paths(only: list[str]) -> list[Path]:
    found = [Path(rate, delay, loss) for rate in RATES for delay in DELAYS for loss in LOSSES]
    return [path for path in found if not only or any(part in path.figure().name for part in only)]


def stream(contender: Contender, seconds: float, message: int, window: int = 4) -> tuple[list[tuple[float, float]], re.Match[str]]:
    """What arrives in each tenth of a second, and the last line."""
    return slices_of(streamed(contender, seconds, message, window))


def streamed(contender: Contender, seconds: float, message: int, window: int = 4) -> str:
    program = mpi.build(contender.family, ROOT / "bench/stream_check.c")
    return contender.run(program, seconds, message, "check", window, limit=2 * seconds + 20).text


BEGIN, SLICE = re.compile(r"^begin (\S+)$", re.MULTILINE), re.compile(r"^slice (\S+) (\S+)$", re.MULTILINE)
END = re.compile(r"^end (\S+) (\d+) (\S+)(?: (\S+) (\S+))?$", re.MULTILINE)


def slices_of(text: str) -> tuple[list[tuple[float, float]], re.Match[str]]:
    begun, ended = BEGIN.search(text), END.search(text)
    if not begun or not ended:
        raise Failed("it did not come to its end")
    return [(float(at) - float(begun[1]), float(rate)) for at, rate in SLICE.findall(text)], ended


def goodput(contender: Contender, path: Path) -> Sample:
    path.set()
    program = mpi.build(contender.family, ROOT / "bench/stream_check.c")
    size, window = LONG if path.rate > 100 else SHORTER
    text = begun_for(Process(contender.command(program, SECONDS, size, "check", window)), SECONDS + 1)
    if re.search(r"^wrong ", text, re.MULTILINE):
        raise Failed("other data came than were sent")
    used, rate = END.search(text), late_rate(text)
    if rate == 0:
        raise Failed(f"nothing came after {FINDS} s")
    return {(path.figure(), None): rate} | (path.cpu(float(used[5]), float(used[2])) if used else {})


def begun_for(process: Process, seconds: float) -> str:
    """What a program says until it ends, or so long after it began: what is still under way then may take minutes."""
    deadline, begun = time.monotonic() + seconds + 10, False
    try:
        while process.running() and time.monotonic() < deadline:
            if not begun and (begun := "begin" in process.so_far()):
                deadline = time.monotonic() + seconds
            time.sleep(0.05)
        if process.running():
            return process.so_far()
        output = process.wait(deadline + 1)
        if output.status != 0:
            raise Failed(output.reason())
        return output.text
    finally:
        process.stop()


def late_rate(text: str) -> float:
    """What came once the path was known, in MB/s, by slices of 100 ms."""
    begun = BEGIN.search(text)
    if not begun:
        raise Failed("nothing came")
    slices = [(float(at) - float(begun[1]), float(rate)) for at, rate in SLICE.findall(text)]
    return sum(rate for at, rate in slices if FINDS <= at < SECONDS) / 10 / (SECONDS - FINDS)


def kernel(path: Path, control: str) -> Sample:
    path.set()
    return {(path.figure(), None): iperf(0, "-C", control, "-O", str(FINDS), "-t", str(SECONDS - FINDS)) / 1e6}


def quic(path: Path, control: str) -> Sample:
    path.set()
    crate = ROOT / "bench/quic"
    alone([str(ROOT / "scripts/cargo"), "build", "--quiet", "--release", "--manifest-path", str(crate / "Cargo.toml"), "--target-dir", str(crate / "target")], limit=600)
    program, at = str(crate / "target/release/polyrail-bench-quic"), f"10.77.0.2:{fresh_port()}"
    deadline = time.monotonic() + SECONDS + 30
    sender, receiver = None, Process(HOSTS[1].command([program, "receive", at, str(SECONDS)], {}))
    try:
        while "listens" not in receiver.so_far():
            if not receiver.running() or time.monotonic() > deadline:
                raise Failed(receiver.wait(deadline).reason())
            time.sleep(0.02)
        sender = Process(HOSTS[0].command([program, "send", at, control], {}))
        text = receiver.wait(deadline).text
        sent = sender.wait(deadline).text
    finally:
        receiver.stop()
        if sender:
            sender.stop()
    ended, used = END.search(text), re.search(r"^cpu (\S+)$", sent, re.MULTILINE)
    if not ended or not used:
        raise Failed("it did not come to its end")
    return {(path.figure(), None): late_rate(text)} | path.cpu(float(ended[3]) + float(used[1]), float(ended[2]))


def pinned(name: str, rails: str, **more: str) -> Contender:
    return Contender(name, "mpich", {"POLYRAIL_INTERFACES": "r0", "POLYRAIL_RAILS": rails, **more}, ours=True)


def tables(rounds: int, only: list[str]) -> list[Table]:
    """Inside scripts/lab with SPEC."""
    found = paths(only)
    udp = Contender("MPICH, udp;ofi_rxd", "mpich", {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "udp;ofi_rxd", "FI_UDP_IFACE": "r0"})
    contenders = [ours(1), pinned("by TCP", "tcp"), pinned("by UDP", "udp"), ucx(1), udp]
    columns = []
    for each in contenders:
        does: Parts = {path.figure().name: lambda each=each, path=path: goodput(each, path) for path in found}
        columns.append(Column(each.name, does, each.missing_itself(), each.ours))
    for control in ("cubic", "bbr"):
        does = {path.figure().name: lambda control=control, path=path: kernel(path, control) for path in found}
        columns.append(Column(f"kernel, {control}", does, iperf_missing()))
        does = {path.figure().name: lambda control=control, path=path: quic(path, control) for path in found}
        columns.append(Column(f"quinn, {control}", does))
    alternate(columns, rounds)
    table = Table("Long messages over one path, 64 MiB under way", columns)
    table.show()
    return [table]


def rests(rounds: int) -> list[Table]:
    """Inside scripts/lab with RESTS."""

    def measure(contender: Contender, count: int, size: int, rest: int, loss: str) -> Sample:
        lab(["relay", "0", f"loss={loss}"])
        program = mpi.build(contender.family, ROOT / "bench/rests.c")
        text = contender.run(program, count, size, rest, limit=count * (rest / 1000 + 1) + 20).text
        found = re.search(r"^time (\S+) (\S+) (\S+)$", text, re.MULTILINE)
        if not found:
            raise Failed("it did not come to its end")
        name = f"{size >> 10} KiB there and a word back, " + (f"after {rest / 1000:g} s of rest" if rest else f"loss {loss}")
        return {(Figure(f"{name}: {what}", "ms", True), None): float(at) / 1000 for what, at in zip(("median", "99 %"), found.groups(), strict=False)}

    columns = []
    for each in (ours(1), pinned("by TCP", "tcp"), pinned("by UDP", "udp"), ucx(1)):
        does: Parts = {str(one): lambda each=each, one=one: measure(each, *one) for one in SINGLE}
        columns.append(Column(each.name, does, each.missing_itself(), each.ours))
    alternate(columns, rounds)
    table = Table("Messages there and back, one at a time, over 1000 Mbit/s and 20 ms", columns)
    table.show()
    return [table]


def handover(rounds: int, seconds: int) -> list[Table]:
    """Inside scripts/lab with HANDOVER."""

    def measure(contender: Contender) -> Sample:
        # as many bytes as wait at the receiver where something is to come again must not hold the sender back
        slices, ended = stream(contender, seconds, 4 << 20, 16)
        late = [rate for at, rate in slices if at >= FINDS]
        rate = sum(late) / max(len(late), 1)
        cpu = float(ended[5]) / float(ended[2]) * 1e9
        return {(Figure("bandwidth", "MB/s", False), None): rate, (WRONG, None): float(ended[3]), (GAP, None): float(ended[4]), (CPU, None): cpu}

    columns = []
    bbr = {"POLYRAIL_COMPOSITION": "sync-bbr"}
    anew, another = {"POLYRAIL_FAULTS": "1:renew"}, {"POLYRAIL_FAULTS": "1:change"}
    for name, more in (("anew every 100 ms", bbr | anew), ("another every 100 ms", another), ("no changes", bbr)):
        each = pinned(name, "udp", **more)
        columns.append(Column(name, {"stream": lambda each=each: measure(each)}, each.missing_itself(), True))
    alternate(columns, rounds)
    table = Table(f"4 MiB messages, 16 at a time, over 1000 Mbit/s, 20 ms, loss 1 %, for {seconds} s", columns)
    table.show()
    return [table]


def flood(rounds: int) -> list[Table]:
    """Inside scripts/lab with FLOOD. Datagrams are recorded in the last of the first seconds."""

    def measure(noise: bool) -> Sample:
        program = mpi.build("mpich", ROOT / "bench/flood.c")
        words = [os.environ["POLYRAIL_LAB_SSH"], "a", str(program), "r0", str(FINDS), str(NOISY), str(NOISE)]
        flood = subprocess.Popen(words, stdout=subprocess.PIPE, text=True) if noise else None
        text = streamed(pinned("", "udp"), FINDS + NOISY, 4 << 20)
        said = flood.communicate(timeout=30)[0] if flood else ""
        slices, ended = slices_of(text)
        late = [rate for at, rate in slices if at >= FINDS + 1]
        memory = re.search(r"^memory (\d+)$", text, re.MULTILINE)
        found = {(Figure("bandwidth", "MB/s", False), None): sum(late) / max(len(late), 1), (WRONG, None): float(ended[3]), (GAP, None): float(ended[4])}
        found[MEMORY, None] = float(memory[1]) / 1000 if memory else 0
        if flood:
            sent = re.search(r"^flood (\d+) \d+ (\S+)$", said, re.MULTILINE)
            if not sent:
                raise Failed("nothing was sent beside it")
            found[SENT, None] = float(sent[1]) / float(sent[2])
        return found

    missing = pinned("", "udp").missing_itself() or ("" if os.geteuid() == 0 else "sending in the names of others needs root")
    columns = [
        Column("beside a flood", {"stream": lambda: measure(True)}, missing, True),
        Column("alone", {"stream": lambda: measure(False)}, missing),
    ]
    alternate(columns, rounds)
    table = Table(f"4 MiB messages by UDP alone, beside {NOISE} datagrams a second of others for {NOISY} s, on two hosts of one machine", columns)
    table.show()
    return [table]


# A stream over the path: from so many seconds on, what of it arrives between two moments, in bytes per second.
Flow = Callable[[float, float, float], float]


def polyrail_flow(composition: str) -> Flow:
    each = pinned("", "udp", POLYRAIL_COMPOSITION=composition)

    def flow(begins: float, start: float, end: float) -> float:
        time.sleep(max(0.0, begins - time.monotonic()))
        slices = re.findall(r"^slice (\S+) (\S+)$", streamed(each, end - begins + 1, 1 << 20), re.MULTILINE)
        rates = [float(rate) * 1e6 for at, rate in slices if start <= float(at) < end]
        # what did not arrive in time is told by nobody
        return sum(rates) / (10 * (end - start))

    return flow


def kernel_flow(control: str) -> Flow:
    def flow(begins: float, start: float, end: float) -> float:
        time.sleep(max(0.0, begins - time.monotonic()))
        return iperf(0, "-C", control, "-O", str(round(start - begins)), "-t", str(round(end - start)))

    return flow


def shares(flows: list[tuple[Flow, float]]) -> list[float]:
    """What each gets where all are there; each begins so many seconds after the first."""
    begun = time.monotonic() + 0.5
    start, end = (begun + at for at in SHARES)
    with ThreadPoolExecutor(len(flows)) as pool:
        return list(pool.map(lambda one: one[0](begun + one[1], start, end), flows))


def fairness(rounds: int) -> list[Table]:
    """Inside scripts/lab with SHARED."""

    def together(flow: Flow, count: int) -> Sample:
        rates = shares([(flow, 0)] * count)
        jain = sum(rates) ** 2 / (count * sum(rate * rate for rate in rates) or 1)
        return {(Figure(f"Jain's index of {count}", "1", False), None): jain, (Figure(f"{count} together", "MB/s", False), None): sum(rates) / 1e6}

    def beside(flow: Flow, ours: float, cubic: float, name: str) -> Sample:
        mine, other = shares([(flow, ours), (kernel_flow("cubic"), cubic)])
        return {(Figure(f"part of one beside a CUBIC that {name}", "1", False), None): mine / (mine + other or 1)}

    columns = []
    kinds = [("by UDP, sync-bbr", polyrail_flow("sync-bbr"), True), ("by UDP, sync-cubic", polyrail_flow("sync-cubic"), True)]
    kinds += [("kernel, bbr", kernel_flow("bbr"), False), ("kernel, cubic", kernel_flow("cubic"), False)]
    for name, flow, ours_ in kinds:
        does: Parts = {str(count): lambda flow=flow, count=count: together(flow, count) for count in (2, 8)}
        does["first"] = lambda flow=flow: beside(flow, 0, FIRST, "comes after it")
        does["after"] = lambda flow=flow: beside(flow, FIRST, 0, "was there before")
        missing = pinned("", "udp").missing_itself() if ours_ else ""
        columns.append(Column(name, does, missing or iperf_missing(), ours_))
    alternate(columns, rounds)
    table = Table("Streams that share 100 Mbit/s and 20 ms, with a queue of as much as is under way", columns)
    table.show()
    return [table]
