"""How long peers take until their answer is proven, by scheme: over slow and lossy networks, with one of them slowed down, at two sites, and while some are killed and others join."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .failures import lab
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, Output, Place, Process

# a rail whose rate can be chosen, and one that loses and delays
SPEC = "1000 relay:1000"
FIRST, SECOND = Place("a"), Place("b")
LIMIT = 300
GROUPS = Path("/sys/fs/cgroup/cpu")


@dataclass(frozen=True)
class Case:
    """What joins the hosts, and what share of a processor the second one has."""

    name: str
    rail: int
    change: list[str]
    share: float = 1.0
    points: int = 63
    sites: int = 2


CASES = (
    Case("100 Mb/s", 0, ["rate", "0", "100"]),
    Case("1 Gb/s", 0, ["rate", "0", "1000"]),
    Case("unlimited", 0, ["rate", "0", "0"]),
    Case("one at 1/2 speed", 0, ["rate", "0", "0"], 0.5),
    Case("one at 1/4 speed", 0, ["rate", "0", "0"], 0.25),
    Case("10 % lost", 1, ["relay", "1", "loss=10%", "delay=0ms"], points=31),
    Case("30 % lost", 1, ["relay", "1", "loss=30%", "delay=0ms"], points=31),
    Case("20 ms there and back", 1, ["relay", "1", "loss=0", "delay=10ms"], points=31),
    Case("100 ms there and back", 1, ["relay", "1", "loss=0", "delay=50ms"], points=31),
)

# two sites of two peers each, beside one
SITES = (
    Case("one site", 0, ["rate", "0", "1000"], points=31, sites=1),
    Case("two, 20 ms there and back", 1, ["relay", "1", "loss=0", "delay=10ms"], points=31),
    Case("two, 100 ms there and back", 1, ["relay", "1", "loss=0", "delay=50ms"], points=31),
)

# seconds between two kills
KILLS = {"undisturbed": float("inf"), "a kill a second": 1.0}
NAMES = [case.name for case in (*CASES, *SITES)] + list(KILLS)


@dataclass
class Slowed:
    """A group of processes that has so much of one processor, in turns of five milliseconds."""

    share: float
    group: Path = field(default_factory=lambda: GROUPS / f"polyrail-bench-{os.getpid()}")

    def __enter__(self) -> Slowed:
        if self.share < 1:
            if not GROUPS.is_dir() or os.geteuid() != 0:
                raise Failed("control groups (version 1, cpu) and root are needed")
            # of one that was killed
            for other in GROUPS.glob("polyrail-bench-*"):
                if not Path(f"/proc/{other.name.rsplit('-', 1)[1]}").exists():
                    with suppress(OSError):
                        other.rmdir()
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


def begun(first: Process) -> str:
    """The address at which others join."""
    deadline = time.monotonic() + 20
    while not (address := re.search(r"--join (\S+)\n", first.errors_so_far())):
        if time.monotonic() > deadline or not first.running():
            raise Failed("the first peer does not begin")
        time.sleep(0.05)
    return address[1]


def proven(output: Output) -> list[dict]:
    """What its peers say that they did, if the answer is as good as was asked for."""
    if output.status != 0:
        raise Failed(output.reason())
    told = json.loads(output.text)
    if told["certificate"]["bound"] > told["wanted"]:
        raise Failed("the answer is not as good as was asked for")
    return [member["progress"] for member in told["members"]]


def run(case: Case, words: list[str], sweeps_of_each: int, peers: int) -> Sample:
    """So many peers on each of two hosts."""
    lab(case.change)
    env = {"POLYRAIL_INTERFACES": f"r{case.rail}"}
    deadline = time.monotonic() + LIMIT
    own = ["-n", str(peers)]
    with Slowed(case.share) as slowed:
        words = [POLYRAIL, "solve", "obstacle", "--n", str(case.points), *own, "--wait-for", str(peers), "--site", "1", "--keep", "0", "--json", *words]
        first = Process(FIRST.command(words, env))
        second = None
        try:
            address = begun(first)
            join = [str(POLYRAIL), "solve", "obstacle", "--join", address, *own, "--site", str(case.sites)]
            second = Process(SECOND.command(slowed.command(join), env))
            while first.running() and second.running() and time.monotonic() < deadline:
                time.sleep(0.05)
            # they end together; one that fails does not leave the other waiting for long
            if not second.running() and (last := second.wait(deadline)).status != 0:
                raise Failed(f"the second: {last.reason()}")
            progress = proven(first.wait(min(deadline, time.monotonic() + 30)))
        finally:
            first.stop()
            if second is not None:
                second.stop()
    # from when both compute
    seconds = max(one["seconds"] for one in progress)
    sweeps = min(one["iterations"] for one in progress) * sweeps_of_each
    return {(Figure(f"{case.name}: seconds until proven", "s", True), None): seconds, (Figure(f"{case.name}: sweeps of the slowest", "sweeps", True), None): sweeps}


def children(pid: int) -> list[int]:
    """The processes that one has started, and that live."""
    found: list[int] = []
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if "\nState:\tZ" not in Path(f"/proc/{one}/status").read_text():
                found.append(int(one))
    return found


def run_killed(name: str, every: float, words: list[str]) -> Sample:
    """Four peers on this host, of which one is killed after each `every` seconds, and another joins."""
    chance = random.Random(1)
    words = [str(POLYRAIL), "solve", "obstacle", "--n", "63", "-n", "4", "--parts", "12", "--keep", "100", "--bound", "1e-6", "--open", "--json", *words]
    first = Process(words)
    joined: list[Process] = []
    kills, deadline = 0, time.monotonic() + LIMIT
    try:
        address = begun(first)
        start = time.monotonic()
        while first.running() and time.monotonic() < deadline:
            time.sleep(0.02)
            if time.monotonic() < start + every * (kills + 1):
                continue
            # who joins alone computes itself
            peers = children(first.process.pid) + [one.process.pid for one in joined if one.running()]
            with suppress(IndexError, ProcessLookupError):
                os.kill(chance.choice(peers), signal.SIGKILL)
                kills += 1
                joined.append(Process([str(POLYRAIL), "solve", "obstacle", "--join", address, "-n", "1"]))
        output = first.wait(deadline)
        seconds = time.monotonic() - start
        proven(output)
    finally:
        for one in [first, *joined]:
            one.stop()
    sample: Sample = {(Figure(f"{name}: seconds until proven", "s", True), None): seconds}
    if every < LIMIT:
        sample[Figure(f"{name}: peers killed", "peers", True), None] = kills
    return sample


def tables(rounds: int, only: list[str]) -> list[Table]:
    def column(name: str, cases: tuple[Case, ...], peers: int, inner: int, scheme: str, ours: bool = False) -> Column:
        words = ["--scheme", scheme, "--inner", str(inner)]
        parts: Parts = {case.name: (lambda case=case: run(case, words, inner, peers)) for case in cases}
        return Column(name, parts, ours=ours)

    def of_sweeps(scheme: str, inner: int) -> str:
        return scheme if inner == 1 else f"{scheme}, {inner} sweeps"

    near = [column(of_sweeps(scheme, inner), CASES, 1, inner, scheme, (scheme, inner) == ("async", 1)) for scheme, inner in (("async", 1), ("async", 4), ("sync", 1), ("sync", 4), ("sync", 8))]
    sites = [column(of_sweeps(scheme, inner), SITES, 2, inner, scheme, scheme == "hybrid") for scheme, inner in (("hybrid", 1), ("async", 1), ("sync", 1), ("sync", 8))]
    killed = [
        Column(scheme, {name: (lambda name=name, every=every, scheme=scheme: run_killed(name, every, ["--scheme", scheme])) for name, every in KILLS.items()}, ours=scheme == "async")
        for scheme in ("async", "bounded:8", "sync")
    ]
    made = []
    for title, columns in (
        ("projected Richardson, 63^3 points (lossy and far: 31^3), two hosts with a peer each", near),
        ("the same, two sites of two peers each, 31^3 points", sites),
        ("the same, four peers of one host, of which some are killed and others join, 63^3 points", killed),
    ):
        for one in columns:
            one.parts = {name: part for name, part in one.parts.items() if not only or any(word in name for word in only)}
        alternate(columns, rounds)
        if any(one.parts for one in columns):
            made.append(Table(title, columns))
            made[-1].show()
    return made
