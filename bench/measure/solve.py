"""How long peers on two hosts take until their answer is proven, by scheme: over slow and lossy networks, with one of them slowed down, and far from each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .failures import lab
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, Output, Place, Process

# a rail whose rate can be chosen, and one that loses and delays
SPEC = "1000 relay:1000"
FIRST, SECOND = Place("a"), Place("b")
POINTS = 63
LIMIT = 300
GROUPS = Path("/sys/fs/cgroup/cpu")


@dataclass(frozen=True)
class Case:
    """What joins the hosts, and what share of a processor the second one has."""

    name: str
    rail: int
    change: list[str]
    share: float = 1.0


CASES = (
    Case("100 Mb/s", 0, ["rate", "0", "100"]),
    Case("1 Gb/s", 0, ["rate", "0", "1000"]),
    Case("unlimited", 0, ["rate", "0", "0"]),
    Case("one at 1/2 speed", 0, ["rate", "0", "0"], 0.5),
    Case("one at 1/4 speed", 0, ["rate", "0", "0"], 0.25),
    Case("10 % lost", 1, ["relay", "1", "loss=10%", "delay=0ms"]),
    Case("30 % lost", 1, ["relay", "1", "loss=30%", "delay=0ms"]),
    Case("20 ms and back", 1, ["relay", "1", "loss=0", "delay=10ms"]),
    Case("100 ms and back", 1, ["relay", "1", "loss=0", "delay=50ms"]),
)


@dataclass
class Slowed:
    """A group of processes that has so much of one processor, in turns of five milliseconds."""

    share: float
    group: Path = field(default_factory=lambda: GROUPS / f"polyrail-bench-{os.getpid()}")

    def __enter__(self) -> Slowed:
        if self.share < 1:
            if not GROUPS.is_dir() or os.geteuid() != 0:
                raise Failed("control groups (version 1, cpu) and root are needed")
            self.group.mkdir(exist_ok=True)
            (self.group / "cpu.cfs_period_us").write_text("5000")
            (self.group / "cpu.cfs_quota_us").write_text(str(int(5000 * self.share)))
        return self

    def command(self, words: list[str]) -> list[str]:
        if self.share == 1:
            return words
        return ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh", *words]

    def __exit__(self, *_: object) -> None:
        if self.share < 1:
            for _ in range(100):
                try:
                    self.group.rmdir()
                    return
                except OSError:
                    time.sleep(0.05)


def run(case: Case, words: list[str], rounds_of: int) -> Sample:
    lab(case.change)
    env = {"POLYRAIL_INTERFACES": f"r{case.rail}"}
    with Slowed(case.share) as slowed:
        begun = [POLYRAIL, "solve", "obstacle", "--n", str(POINTS), "-n", "1", "--wait-for", "1", "--keep", "0", "--json", *words]
        first = Process(FIRST.command(begun, env))
        deadline = time.monotonic() + LIMIT
        while not (address := re.search(r"--join (\S+)\n", first.errors_so_far())):
            if time.monotonic() > deadline - LIMIT + 20 or first.process.poll() is not None:
                first.stop()
                raise Failed("the first peer does not begin")
            time.sleep(0.05)
        second = Process(SECOND.command(slowed.command([str(POLYRAIL), "solve", "obstacle", "--join", address[1]]), env))
        try:
            ended: Output | None = None
            while first.running() and time.monotonic() < deadline:
                # it ends with the first, or soon after
                if ended is None and not second.running():
                    ended = second.wait(deadline)
                    if ended.status != 0:
                        first.stop()
                        raise Failed(f"the second peer: {ended.reason()}")
                time.sleep(0.01)
            output: Output = first.wait(deadline)
        finally:
            second.stop()
    if output.status != 0:
        raise Failed(output.reason())
    told = json.loads(output.text)
    if told["certificate"]["bound"] > told["wanted"]:
        raise Failed("the answer is not as good as was asked for")
    progress = [member["progress"] for member in told["members"]]
    # from when both compute
    seconds = max(one["seconds"] for one in progress)
    sweeps = min(one["iterations"] for one in progress) * rounds_of
    return {(Figure(f"{case.name}: seconds until proven", "s", True), None): seconds, (Figure(f"{case.name}: sweeps of the slower", "sweeps", True), None): sweeps}


def column(name: str, words: list[str], inner: int, ours: bool = False) -> Column:
    words = [*words, "--inner", str(inner)]
    parts: Parts = {case.name: (lambda case=case: run(case, words, inner)) for case in CASES}
    return Column(name, parts, ours=ours)


def tables(rounds: int, only: list[str]) -> list[Table]:
    columns = [
        column("async", ["--scheme", "async"], 1, ours=True),
        column("async, 4 sweeps", ["--scheme", "async"], 4),
        column("sync", ["--scheme", "sync"], 1),
        column("sync, 4 sweeps", ["--scheme", "sync"], 4),
        column("sync, 8 sweeps", ["--scheme", "sync"], 8),
    ]
    for one in columns:
        one.parts = {name: part for name, part in one.parts.items() if not only or any(word in name for word in only)}
    alternate(columns, rounds)
    table = Table(f"projected Richardson on {POINTS}^3 points, two hosts with a peer each", columns)
    table.show()
    return [table]
