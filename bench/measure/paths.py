"""Several ways of equal cost between two interfaces of two hosts of scripts/lab, of which routers choose one for each connection; and what
looking for them costs where there is one."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from . import mpi
from .figures import Column, Failed, Figure, Sample, Table, alternate
from .programs import ROOT
from .rails import Contender

FABRIC, SINGLE = "paths:nic=1000,250,250,250,25", "1000"
# What TCP carries of a wire's rate: 1448 of each 1514 bytes; the good ways of each network, in Mbit/s.
PAYLOAD = 1448 / 1514
GOOD = {FABRIC: 750, SINGLE: 1000}
SECONDS, MESSAGE, LAST = {FABRIC: 20, SINGLE: 10}, 4 << 20, 5
# Who gets so much of the good ways in a second has found them.
FOUND = 0.9

ALL, END = Figure("bandwidth", "MB/s", False), Figure(f"bandwidth in the last {LAST} s", "MB/s", False)
AFTER = Figure(f"{FOUND} of the good ways after", "s", True)
OPENED, LEFT = Figure("connections opened", "count", True), Figure("connections in the end", "count", True)


def lanes(log: Path) -> tuple[int, int]:
    """How many lanes have come up on host a, and how many of those have not ended."""
    kinds = [json.loads(line)["event"] for line in log.read_text().splitlines()] if log.exists() else []
    up = kinds.count("lane_up")
    return up, up - kinds.count("lane_down")


def stream(connections: int, network: str) -> Sample:
    program = mpi.build("mpich", ROOT / "bench/stream_check.c")
    with tempfile.TemporaryDirectory() as directory:
        env = {
            "POLYRAIL_INTERFACES": "r0",
            "POLYRAIL_CONNECTIONS": str(connections),
            "POLYRAIL_LOG": f"{directory}/%h",
        }
        output = Contender("", "mpich", env, ours=True).run(program, SECONDS[network], MESSAGE, "nocheck")
        opened, left = lanes(Path(directory) / "a")
    slices = [(float(at), float(rate)) for at, rate in re.findall(r"^slice (\S+) (\S+)$", output.text, re.MULTILINE)]
    if output.status or len(slices) < 10 * LAST:
        raise Failed(output.reason())
    rates = [rate for _, rate in slices]
    found = {(ALL, None): mean(rates), (END, None): mean(rates[-10 * LAST :]), (OPENED, None): float(opened), (LEFT, None): float(left)}
    wire = GOOD[network] / 8 * PAYLOAD
    after = [n for n in range(len(rates) - 9) if mean(rates[n : n + 10]) >= FOUND * wire]
    if after:
        found[AFTER, None] = slices[after[0]][0] - slices[0][0]
    return found


def mean(rates: list[float]) -> float:
    return sum(rates) / len(rates)


def tables(rounds: int, network: str) -> list[Table]:
    """Inside scripts/lab with this network."""
    wire = {(figure, None): GOOD[network] / 8 * PAYLOAD for figure in (ALL, END)}
    columns = [
        Column("good ways' wires", {"a stream": lambda: wire}, limit=True),
        Column("polyrail", {"a stream": lambda: stream(16, network)}, ours=True),
        Column("one connection", {"a stream": lambda: stream(1, network)}),
    ]
    alternate(columns, rounds)
    title = {FABRIC: "Four ways of equal cost, 3 x 250 Mbit/s and 25 Mbit/s", SINGLE: "One way of 1000 Mbit/s"}
    table = Table(title[network], columns)
    table.show()
    return [table]
