"""The check: which programs, what they need, and what is said of each."""

from __future__ import annotations

import csv
import importlib.util
import os
import shutil
import site
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .. import figures
from ..figures import Failed, tell
from ..programs import ROOT, Process, alone
from ..trace import missing as recorder_missing
from .programs import alltoall, asyncio, go, go_compiler, java, threads
from .recording import LIMIT, Row
from .servers import ab, postgres, postgres_programs, redis, sendfile, wrk
from .transfers import iperf_tcp, iperf_udp


@dataclass(frozen=True)
class Case:
    """A program, the ways in which it is run, and what it needs: commands and the packages of Debian that have them."""

    title: str
    modes: Callable[[bool], Iterator[tuple[str, Callable[[], list[Row]]]]]
    needs: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    other: Callable[[], str] = lambda: ""

    def missing(self) -> list[str]:
        """Packages."""
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        known = {"postgres": postgres_programs, "go": go_compiler}
        return [package for name, package in self.needs.items() if not (known[name]() if name in known else shutil.which(name, path=path))]


CASES = {
    "ab": Case("nginx, ab", ab, {"nginx": "nginx-light", "ab": "apache2-utils"}),
    "wrk": Case("nginx, wrk", wrk, {"nginx": "nginx-light", "wrk": "wrk"}),
    "redis": Case("redis-benchmark", redis, {"redis-server": "redis-server", "redis-benchmark": "redis-tools"}),
    "postgres": Case("pgbench", postgres, {"postgres": "postgresql", "pgbench": "postgresql-client-common", "setpriv": "util-linux"}),
    "iperf3-tcp": Case("iperf3, TCP", iperf_tcp, {"iperf3": "iperf3"}, quick=True),
    "iperf3-udp": Case("iperf3, UDP", iperf_udp, {"iperf3": "iperf3"}, quick=True),
    "java": Case("Java", java, {"javac": "default-jdk-headless"}),
    "go": Case("Go", go, {"go": "golang-go"}),
    "asyncio": Case("Python, asyncio", asyncio, quick=True),
    "mpi": Case("MPI, alltoall", alltoall),
    "threads": Case("C, 4 threads", threads, {"cc": "gcc"}, quick=True),
    "sendfile": Case("nginx, curl, wget", sendfile, {"nginx": "nginx-light", "curl": "curl", "wget": "wget"}),
}


@contextmanager
def packages_start_nothing() -> Iterator[None]:
    """Servers that are installed are not started: Debian asks this file."""
    policy = Path("/usr/sbin/policy-rc.d")
    made = not policy.exists()
    if made:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if made:
            policy.unlink()


def install(cases: list[Case]) -> None:
    """What of Debian's packages is missing, where this may be done."""
    packages = sorted({package for case in cases for package in case.missing()})
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    tell("installing " + " ".join(packages))
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    with packages_start_nothing():
        try:
            alone(["apt-get", "update", "-qq"], env, limit=300)
            alone(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *packages], env, limit=900)
        except Failed as why:
            print(f"apt-get: {why}")
    tell("")


def readable() -> None:
    """Has pyarrow importable, which reads the tables as everybody else would."""
    if not importlib.util.find_spec("pyarrow"):
        complete = ROOT / ".venv/truth/.complete"
        if not complete.is_file():
            alone(["make", "--no-print-directory", "-C", ROOT, complete.relative_to(ROOT)], limit=600)
        site.addsitedir(str(next(ROOT.glob(".venv/truth/lib/python*/site-packages"))))


@contextmanager
def load(loops: int) -> Iterator[None]:
    """So many busy loops meanwhile, which end by themselves whatever becomes of this program."""
    busy = [Process(["timeout", f"{LIMIT + 30:.0f}", "sh", "-c", "while :; do :; done"]) for _ in range(loops)]
    try:
        yield
    finally:
        for loop in busy:
            loop.stop()


COLUMNS = ["program", "what", "recorded", "counted", "source", "verdict"]


def show(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    for row in rows:
        mark = " " if row.right() else "!"
        print(f"{mark} {row.what:<42.120} {row.ours:>16,} {row.theirs:>16,}  {row.source:<40} {row.verdict()}", flush=True)


def check(only: list[str], quick: bool, loops: int) -> bool:
    """Runs what is asked for; whether all was as it was recorded."""
    if why := recorder_missing():
        raise Failed(why)
    readable()
    chosen = {name: CASES[name] for name in CASES if (name in only if only else not quick or CASES[name].quick)}
    if not quick:
        install(list(chosen.values()))
    wrong: list[str] = []
    left_out: list[str] = []
    written: list[list[object]] = []
    if loops:
        print(f"Beside {loops} busy loops")
    print(f"{'':44} {'recorded':>16} {'counted':>16}  {'by':<40} difference")
    for case in chosen.values():
        if packages := case.missing():
            left_out.append(f"{case.title}: install {' '.join(packages)}")
            continue
        modes = list(case.modes(quick))
        if not modes:
            left_out.append(f"{case.title}: make setup")
        for label, measure in modes:
            title = f"{case.title}, {label}" if label else case.title
            tell(title)
            begun = time.monotonic()
            try:
                with load(loops):
                    rows = measure()
            except Failed as why:
                tell("")
                print(f"\n{title}\n! {why}", flush=True)
                wrong.append(f"{title}: {str(why).splitlines()[0]}")
                continue
            tell("")
            show(f"{title} ({time.monotonic() - begun:.1f} s)", rows)
            wrong += [f"{title}: {row.what}, {row.ours:,} of {row.theirs:,} ({row.source})" for row in rows if not row.right()]
            written += [[title, row.what, row.ours, row.theirs, row.source, row.verdict()] for row in rows]
    for why in left_out:
        print(f"\nleft out: {why}")
    if written:
        figures.RESULTS.mkdir(exist_ok=True)
        file = figures.RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-truth.csv"
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([COLUMNS, *written])
        print(f"\n{os.path.relpath(file)}")
    equal = sum(row[2] == row[3] for row in written)
    print(f"\n{len(written)} figures, {equal} equal, {len(written) - equal - len(wrong)} different for a reason, {len(wrong)} wrong")
    for text in wrong:
        print(f"  wrong: {text}")
    return not wrong
