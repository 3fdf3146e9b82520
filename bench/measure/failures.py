"""What becomes of a stream of messages over four rails when one of them fails, beside peers."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import mpi
from .figures import RESULTS, Column, Failed, Figure, Sample, Table, alternate
from .programs import BEFORE, OURS, ROOT, Process
from .rails import Contender, contenders, open_mpi, ours, ucx

RAILS, RAIL, LINE_RATE = 4, 1, 118.6e6
SPEC = " ".join(["1000"] * RAILS)
# Five seconds lie well between two retransmissions of TCP (3.0 and 6.2 s after the first), so that chance has no part in it.
FAILS_AFTER, MENDED_AFTER, SECONDS, LIMIT = 3.0, 8.0, 15, 60
MESSAGE = 4 << 20
SAMPLE_EACH = 0.05
# A rail that is asked now and then whether it works again is not in use; one that carries a quarter of its rate is.
IN_USE = LINE_RATE / 4

STALL, AGAIN = Figure("longest stall", "s", True), Figure(f"r{RAIL} in use again after", "s", True)
WRONG = Figure("messages with wrong data", "count", True)
BEFORE, MEANWHILE, AFTER = (Figure(f"bandwidth {when}", "MB/s", False) for when in ("before", "meanwhile", "in the end"))


@dataclass(frozen=True)
class Scenario:
    title: str
    # words for scripts/lab, at FAILS_AFTER and at MENDED_AFTER
    fails: list[str]
    mended: list[str]
    for_good: bool = False


def scenarios() -> list[Scenario]:
    rail = str(RAIL)
    cut, joined = ["rail", rail, "down"], ["rail", rail, "up"]
    return [
        Scenario("one is cut for 5 s", cut, joined),
        Scenario("one swallows everything for 5 s", ["blackhole", rail, "on"], ["blackhole", rail, "off"]),
        Scenario("one is ten times slower for 5 s", ["rate", rail, "100"], ["rate", rail, "1000"]),
        Scenario("one is cut for good", cut, joined, for_good=True),
    ]


def lab(words: list[str]) -> None:
    outcome = subprocess.run([ROOT / "scripts/lab", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if outcome.returncode != 0:
        said = [line for line in outcome.stderr.splitlines() if line.startswith("lab: ")]
        raise Failed(f"scripts/lab refuses {' '.join(words)}" + "".join(f" ({line})" for line in said))


@dataclass
class Series:
    """What r0, r1, ... brought to host b until each moment, in bytes."""

    times: list[float] = field(default_factory=list)
    received: list[list[int]] = field(default_factory=list)

    def take(self) -> None:
        process = (Path(os.environ["POLYRAIL_LAB"]) / "b/pid").read_text().strip()
        counts = dict(re.findall(r"^\s*r(\d+):\s*(\d+)", Path(f"/proc/{process}/net/dev").read_text(), re.MULTILINE))
        self.times.append(time.monotonic())
        self.received.append([int(counts[str(rail)]) for rail in range(RAILS)])

    def rates(self, rail: int) -> list[tuple[float, float]]:
        """The end of each interval, and bytes per second in it."""
        return [
            (self.times[n], (self.received[n][rail] - self.received[n - 1][rail]) / (self.times[n] - self.times[n - 1]))
            for n in range(1, len(self.times))
        ]


# Every series, for plots: scenario, contender, seconds since the first message, what is counted, MB/s.
PLOT: list[tuple[str, str, str, str, str]] = []


def stream(contender: Contender, scenario: Scenario) -> Sample:
    program = mpi.build(contender.family, ROOT / "bench/stream_check.c")
    process = Process(contender.command(program, SECONDS, MESSAGE, "check"))
    to_do = [(FAILS_AFTER, scenario.fails)] + ([] if scenario.for_good else [(MENDED_AFTER, scenario.mended)])
    deadline, begun, series = time.monotonic() + LIMIT, None, Series()
    mended = float("inf")
    try:
        while process.running() and time.monotonic() < deadline:
            time.sleep(SAMPLE_EACH)
            if begun is None:
                if not (found := re.search(r"^begin (\S+)$", process.so_far(), re.MULTILINE)):
                    continue
                begun = float(found[1])
            series.take()
            if to_do and time.monotonic() >= begun + to_do[0][0]:
                words = to_do.pop(0)[1]
                lab(words)
                mended = time.monotonic() if words == scenario.mended else mended
        text = process.so_far()
        ended = re.search(r"^end (\S+) \d+ (\d+) (\S+)", text, re.MULTILINE)
        slices = [(float(at), float(rate)) for at, rate in re.findall(r"^slice (\S+) (\S+)$", text, re.MULTILINE)]
        if begun is not None:
            plot(contender, scenario, begun, series, slices)
        if process.running():
            last = f", the last message came {slices[-1][0] - begun:.1f} s after the first" if begun and slices else ""
            raise Failed(f"hangs: not at its end {LIMIT} s after its start{last}")
        output = process.wait(deadline)
    finally:
        process.stop()
        lab(scenario.mended)
    if not ended or begun is None or output.status not in (0, 1):
        raise Failed(output.reason())

    def bandwidth(start: float, end: float) -> float:
        rates = [rate for at, rate in slices if begun + start <= at < begun + end]
        return sum(rates) / max(len(rates), 1)

    until = SECONDS if scenario.for_good else MENDED_AFTER
    sample: Sample = {
        (WRONG, None): float(ended[2]),
        (STALL, None): float(ended[3]),
        (BEFORE, None): bandwidth(1, FAILS_AFTER),
        (MEANWHILE, None): bandwidth(FAILS_AFTER, until),
    }
    if not scenario.for_good:
        sample[AFTER, None] = bandwidth(SECONDS - 2, SECONDS)
        again = next((at for at, rate in series.rates(RAIL) if at > mended + SAMPLE_EACH and rate > IN_USE), None)
        if again is not None:
            sample[AGAIN, None] = again - mended
    return sample


def plot(contender: Contender, scenario: Scenario, begun: float, series: Series, slices: list[tuple[float, float]]) -> None:
    def row(at: float, what: str, rate: float) -> None:
        PLOT.append((scenario.title, contender.name, f"{at - begun:.3f}", what, f"{rate:.2f}"))

    for at, rate in slices:
        row(at, "messages", rate)
    for rail in range(RAILS):
        for at, rate in series.rates(rail):
            row(at, f"r{rail}", rate / 1e6)


def save_plot() -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-failures-series.csv"
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["scenario", "contender", "seconds", "series", "MB_per_s"])
        writer.writerows(PLOT)
    print(f"\n{os.path.relpath(file)}")


def tables(rounds: int, rails: str) -> list[Table]:
    """Inside scripts/lab with these rails, which are SPEC."""
    found = []
    for scenario in scenarios():
        try:
            lab(scenario.mended)
        except Failed as why:
            print(f"\nNot measured: {scenario.title}: {why}")
            continue
        columns = []
        for each in contenders(RAILS) if BEFORE else (ours(RAILS), ucx(RAILS), open_mpi(RAILS)):
            does: dict[str, Callable[[], Sample]] = {"stream": lambda each=each, scenario=scenario: stream(each, scenario)}
            columns.append(Column(each.name, does, each.missing(), each.ours and each.build is OURS))
        alternate(columns, rounds)
        found.append(Table(f"Four rails of 1000 Mbit/s, {scenario.title}", columns))
        found[-1].show()
    save_plot()
    return found
