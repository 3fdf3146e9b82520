"""A check: random runs of `polyrail solve` whose peers are killed, stopped and joined by others. What each proves of its answer is held against the answer."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import struct
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .figures import Failed
from .programs import POLYRAIL, Process, alone
from .solve import begun, children

RUNS, QUICK = 200, 12
LIMIT = 600
# What a reference is proven to, and what runs are asked for at most; of the quick ones less, as a busy machine takes long for it.
REFERENCE, FINEST, QUICK_FINEST = 1e-9, 1e-7, 1e-5
# Between two things that happen to peers: so that the first is noticed, and more than half always go on.
APART = 0.5
# How much processor time each has used when a run counts as begun, in ticks: before that, the loss of a process ends it.
BEGUN = 3


@dataclass(frozen=True)
class Problem:
    instance: str
    points: int
    steps: int

    def words(self) -> list[str]:
        steps = ["--steps", str(self.steps), "--dt", "0.003"] if self.steps else []
        return [str(POLYRAIL), "solve", "obstacle", "--instance", self.instance, "--n", str(self.points), *steps]


@dataclass(frozen=True)
class Run:
    """One run: the program's words, and what happens to its peers, by seconds after it began."""

    problem: Problem
    words: tuple[str, ...]
    events: tuple[tuple[float, str], ...]

    def told(self) -> str:
        return " ".join((*self.problem.words()[3:], *self.words, *(f"[{what} at {when:.1f} s]" for when, what in self.events)))


def drawn(chance: random.Random, finest: float) -> Run:
    disturbed = chance.random() < 0.5
    instance = chance.choice("abcd")
    steps = chance.randint(2, 12) if instance == "d" or chance.random() < 0.15 else 0
    scheme = chance.choice(("sync", "async", "hybrid", f"bounded:{chance.randint(1, 12)}"))
    method = chance.choice(("richardson", "psor", "multigrid") if scheme == "sync" and not steps else ("richardson", "psor"))
    # what takes long enough to be disturbed
    is_fast = method == "multigrid" or (method == "psor" and scheme == "sync" and not steps)
    if disturbed:
        points = 127 if method == "multigrid" else 95 if is_fast else 31 if steps else 47
    else:
        points = chance.choice((31, 63)) if method == "multigrid" else chance.randint(5, 40)
    peers = chance.randint(3, 5) if disturbed else chance.randint(1, 5)
    # a slab for each part at least
    parts = min(peers * chance.randint(1, 3), points)
    words = ["--scheme", scheme, "--method", method, "-n", str(peers), "--parts", str(parts)]
    if method == "richardson":
        words += ["--inner", str(chance.randint(1, 4))]
    words += ["--slabs"] if chance.random() < 0.3 else []
    words += ["--keep", str(chance.choice((5, 20, 100)) if is_fast or steps else chance.choice((20, 100, 400)))] if disturbed else []
    words += ["--bound", f"{finest * 10 ** chance.uniform(0, 1 if disturbed else 4):.1e}"]
    events, when = [], 0.0
    for _ in range(chance.randint(1, 3) if disturbed else 0):
        when += chance.uniform(0, 0.4)
        events.append((when, chance.choice(("kill", "kill", "stop", "join"))))
        when += APART
    return Run(Problem(instance, points, steps), tuple(words), tuple(events))


def values(directory: str) -> tuple[float, ...]:
    """All values of a solution's file, of which the first array is u."""
    raw = Path(directory, "solution.vti").read_bytes()
    begin = raw.index(b'<AppendedData encoding="raw">\n_') + 31
    (length,) = struct.unpack_from("<Q", raw, begin)
    return struct.unpack_from(f"<{length // 8}d", raw, begin + 8)


REFERENCES: dict[Problem, tuple[float, ...]] = {}


def reference(problem: Problem) -> tuple[float, ...]:
    if problem not in REFERENCES:
        with tempfile.TemporaryDirectory() as directory:
            alone([*problem.words(), "-n", "1", "--method", "psor", "--bound", str(REFERENCE), "-o", directory], limit=LIMIT)
            REFERENCES[problem] = values(directory)
    return REFERENCES[problem]


def used(pid: int) -> int:
    """Processor time of a process, in ticks."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def until_all_compute(first: Process, run: Run) -> None:
    count = int(run.words[run.words.index("-n") + 1])
    deadline = time.monotonic() + LIMIT
    while first.running() and time.monotonic() < deadline and sum(used(pid) >= BEGUN for pid in children(first.process.pid)) < count:
        time.sleep(0.002)


def disturb(what: str, address: str, first: Process, joined: list[Process], stopped: dict[int, float], chance: random.Random) -> None:
    # who joins alone computes itself
    peers = children(first.process.pid) + [one.process.pid for one in joined if one.running()]
    # for the one that is killed another comes
    if what in ("kill", "join"):
        joined.append(Process([str(POLYRAIL), "solve", "obstacle", "--join", address, "-n", "1"]))
    if what == "join" or len(peers) < 3 or stopped:
        return
    with suppress(ProcessLookupError):
        victim = chance.choice(peers)
        os.kill(victim, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        if what == "stop":
            stopped[victim] = time.monotonic() + chance.choice((0.3, 1.0, 7.0))


def awakened(stopped: dict[int, float], now: float) -> None:
    for pid in [pid for pid, until in stopped.items() if until <= now]:
        del stopped[pid]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def carried_out(run: Run, chance: random.Random) -> tuple[float, int]:
    """Carries it out: how much of what it proves the answer is really off, and how often who takes part has changed. Failed: it proves what is not so, or ends without an answer."""
    with tempfile.TemporaryDirectory() as directory:
        opened = ["--open"] if run.events else []
        first = Process([*run.problem.words(), *run.words, *opened, "--json", "-o", directory])
        joined: list[Process] = []
        stopped: dict[int, float] = {}
        try:
            address = begun(first) if run.events else ""
            if run.events:
                until_all_compute(first, run)
            start, events = time.monotonic(), list(run.events)
            while first.running() and (now := time.monotonic()) < start + LIMIT:
                awakened(stopped, now)
                if events and events[0][0] < now - start:
                    disturb(events.pop(0)[1], address, first, joined, stopped, chance)
                time.sleep(0.005)
            output = first.wait(start + LIMIT)
        finally:
            awakened(stopped, float("inf"))
            for one in (first, *joined):
                one.stop()
        # the end of a run is told to one that joins late as an error, and no more
        for one in joined:
            if one.process.returncode not in (0, 1, -signal.SIGKILL):
                raise Failed(f"one that joined ended with {one.process.returncode}")
        if output.status != 0:
            raise Failed(output.reason())
        return judged(run, json.loads(output.text), values(directory))


def judged(run: Run, told: dict, found: tuple[float, ...]) -> tuple[float, int]:
    bounds = [told["certificate"]["bound"]] + ([] if run.problem.steps else [told["certificate_of_the_whole"]["bound"]])
    if not max(bounds) <= told["wanted"]:
        raise Failed(f"it proves {max(bounds):.3e}, where {told['wanted']:.3e} were asked for")
    if not all(map(math.isfinite, found)):
        raise Failed("WRONG: there are values that are no numbers")
    off = max(abs(one - other) for one, other in zip(found, reference(run.problem), strict=True))
    if not off <= min(bounds) + REFERENCE:
        raise Failed(f"WRONG: it proves {min(bounds):.3e}, and is off by {off:.3e}")
    changes = max(member["progress"]["changes"] for member in told["members"])
    return off / (min(bounds) + REFERENCE), changes


def check(quick: bool, seed: int = 0) -> bool:
    """Whether no run said anything that is not so."""
    seed = seed or random.SystemRandom().randrange(1, 1 << 32)
    count = QUICK if quick else RUNS
    print(f"seed {seed}", flush=True)
    failed, disturbed, shares = 0, 0, []
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        run = drawn(chance, QUICK_FINEST if quick else FINEST)
        try:
            share, changes = carried_out(run, chance)
            shares.append(share)
            disturbed += changes > 0
        except (Failed, ValueError, TypeError, KeyError, OSError, struct.error) as why:
            failed += 1
            print(f"run {number}: {run.told()}\n  {why!r}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{number + 1} of {count} ", end="", file=sys.stderr, flush=True)
    most = max(shares, default=0.0)
    print(f"{count - failed} of {count} runs proved what is so, and were off by {100 * most:.0f} % of that at most; in {disturbed} of them peers were lost, or joined")
    return failed == 0
