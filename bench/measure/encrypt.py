"""What encrypted lanes cost, beside the same without: two processes of this host, by TCP over loopback."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .figures import BANDWIDTH, CPU, LATENCY, Column, Failed, Parts, Sample, Table, alternate
from .programs import HOW_TO_BUILD, POLYRAIL, alone

SIZES = [64 << 10, 1 << 20]
# of 50 ms each: what starting and warming up takes is little beside it
REPETITIONS = 60


def run(figure: str, sizes: list[int], repetitions: int, env: dict[str, str]) -> tuple[list[list[str]], float]:
    """The rows of a measurement by polyrail bench, and the processor seconds of both sides together."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        listed = ",".join(map(str, sizes))
        output = alone([POLYRAIL, "bench", figure, "--size", listed, "--repetitions", repetitions, "--csv", file.name], env)
        rows = [line.split(",") for line in Path(file.name).read_text().splitlines()[1:]]
    if [row[1] for row in rows] != ["tcp"] * len(sizes):
        raise Failed(f"not by TCP: {rows}")
    return rows, output.cpu_seconds


def parts(encrypt: str) -> Parts:
    env = {"POLYRAIL_RAILS": "tcp", "POLYRAIL_ENCRYPT": encrypt}

    def latency() -> Sample:
        return {(LATENCY, 8): float(run("latency", [8], 5, env)[0][0][3])}

    def bandwidth() -> Sample:
        return {(BANDWIDTH, int(row[2])): float(row[3]) for row in run("bandwidth", SIZES, 5, env)[0]}

    def cpu() -> Sample:
        found = {}
        for size in SIZES:
            # who waits sleeps: what polling in vain takes says nothing of what bytes cost
            rows, seconds = run("bandwidth", [size], REPETITIONS, {**env, "POLYRAIL_SLEEP_AFTER": "20"})
            found[(CPU, size)] = seconds / (size * int(rows[0][6]) * int(rows[0][7]) / 1e9)
        return found

    return {"latency": latency, "bandwidth": bandwidth, "CPU": cpu}


def tables(rounds: int) -> list[Table]:
    missing = "" if os.access(POLYRAIL, os.X_OK) else f"{POLYRAIL} is not there ({HOW_TO_BUILD})"
    columns = [Column("encrypted", parts("yes"), missing, ours=True), Column("plain", parts("no"), missing)]
    alternate(columns, rounds)
    table = Table("Same host, TCP, encrypted and not", columns)
    table.show()
    return [table]
