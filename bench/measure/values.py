"""How old the values are that a program holds in the asynchronous scheme, over a path that loses datagrams, and where who reads them is slow."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .failures import lab
from .figures import Column, Failed, Figure, Sample, Table, alternate, size_name
from .programs import ROOT, Process, alone
from .rails import HOSTS

SPEC = "relay:100,delay=10ms"
ROUND_TRIP = 20
# Bytes of a value, and milliseconds from one to the next.
VALUES = ((8, 10), (8 << 10, 100), (64 << 10, 100))
# Who looks all the time does so after so many milliseconds.
PAUSE = 2
# A slow reader looks so seldom, in intervals of the sender; not a whole number, so that looks are not all as long after a value.
SLOW = 10.3
# The first two seconds do not count. Who looks seldom looks for longer, or has seen next to nothing.
SECONDS, SLOW_SECONDS = 8, {10: 8, 100: 17}
LOSS_OF_SLOW = "10%"
OLDEST = "oldest"


@dataclass(frozen=True)
class Reader:
    """How much is lost each way, and how who reads looks."""

    name: str
    loss: str
    slow: bool = False
    computes: bool = False

    def measure(self, size: int, interval: int) -> Sample:
        lab(["relay", "0", f"loss={self.loss}"])
        limit = interval + 2 * ROUND_TRIP
        pause, seconds = (SLOW * interval, SLOW_SECONDS[interval]) if self.slow else (PAUSE, SECONDS)
        before = sent()
        read, put = run([pause, limit, *(["computes"] if self.computes else [])], [size, interval, seconds])
        after = sent()
        name = f"{size_name(size)} B / {interval} ms"
        figures = [
            ("median", "ms", read["p50"]),
            ("99 %", "ms", read["p99"]),
            (OLDEST, "ms", read["max"]),
            ("goal", "ms", limit),
            ("older", "%", 100 * read["older"] / read["looks"]),
            ("read", "1/s", read["values"] / (seconds - 2)),
            ("datagrams", "1/value", (after - before) / put["values"]),
            ("memory grown", "KiB", read["grown"] + put["grown"]),
            ("in sockets", "KiB", read["waited"]),
        ]
        return {(Figure(f"{name}: {what}", unit, unit != "1/s"), None): value for what, unit, value in figures}


def sent() -> int:
    """Packets that host a has sent over the rail, lost ones too."""
    text = subprocess.run([ROOT / "scripts/lab", "stats", "0"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    found = re.search(r"^a>b .*\n +packets (\d+) .* lost (\d+) overflowed (\d+)", text, re.MULTILINE)
    if not found:
        raise Failed("scripts/lab does not say what became of packets")
    return sum(map(int, found.groups()))


def run(reads: list[object], puts: list[object]) -> tuple[dict[str, float], dict[str, float]]:
    """What the reader and the sender say at their ends."""
    program, env = str(example()), {"POLYRAIL_RAILS": "udp", "POLYRAIL_INTERFACES": "r0"}
    deadline = time.monotonic() + 90
    sender, reader = None, Process(HOSTS[1].command([program, "read", *map(str, reads)], env))
    try:
        while "\n" not in reader.so_far():
            if not reader.running() or time.monotonic() > deadline:
                raise Failed(reader.wait(deadline).reason())
            time.sleep(0.02)
        sender = Process(HOSTS[0].command([program, "put", reader.so_far().split()[0], *map(str, puts)], env))
        outputs = [process.wait(deadline) for process in (reader, sender)]
    finally:
        reader.stop()
        if sender:
            sender.stop()
    for output in outputs:
        if output.status != 0:
            # its address, with the key, is among its last words
            words = output.errors.split()
            raise Failed(f"status {output.status}: {' '.join(words[:30])}")
    return said("read", outputs[0].text), said("put", outputs[1].text)


def said(what: str, text: str) -> dict[str, float]:
    found = re.search(rf"^{what} (.*)$", text, re.MULTILINE)
    if not found:
        raise Failed("it did not come to its end")
    words = found[1].split()
    return {name: float(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def example() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release/examples/ages"


def build() -> str:
    """Builds the example; why it is not there, if so."""
    try:
        alone([str(ROOT / "scripts/cargo"), "build", "--release", "--quiet", "-p", "polyrail-rails", "--example", "ages"], limit=900)
    except Failed as why:
        return str(why)
    return ""


def tables(rounds: int) -> list[Table]:
    """Inside scripts/lab with SPEC."""
    missing = build()
    readers = [Reader("no loss" if loss == "0" else f"loss {loss}", loss) for loss in ("0", "10%", "30%", "50%")]
    readers.append(Reader("10%, looks seldom", LOSS_OF_SLOW, slow=True))
    readers.append(Reader("10%, computes", LOSS_OF_SLOW, slow=True, computes=True))
    columns = []
    for each in readers:
        does = {f"{size_name(size)} B": lambda each=each, size=size, interval=interval: each.measure(size, interval) for size, interval in VALUES}
        columns.append(Column(each.name, does, missing))
    alternate(columns, rounds)
    for column in columns:
        for (figure, _), values in column.values.items():
            # the goal is of every look: a median of rounds would hide the one that misses it
            if figure.name.endswith(OLDEST):
                values[:] = [max(values)] * len(values)
    table = Table(f"Ages of values over 100 Mbit/s and {ROUND_TRIP} ms, loss each way", columns)
    table.show()
    return [table]
