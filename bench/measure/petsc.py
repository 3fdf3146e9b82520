"""How long `polyrail solve` takes on one processor, by method, and how much memory, beside PETSc's general solver of variational inequalities."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import time
from contextlib import suppress
from pathlib import Path

from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, Output, Process, alone
from .solve import children

POINTS = (127, 255)
PROGRAM = ROOT / "build/petsc"
LIMIT = 1200
# What Newton's residual is to become less by; more of it changes no digit of what the answer is off.
TOLERANCE = "1e-8"
SECONDS = Figure("seconds", "s", True)
OFF = Figure("off by, of the solution between the points", "", True)
MEMORY = Figure("memory", "MB", True)
INSTALL = "install a C compiler, pkg-config and PETSc (Debian: libpetsc-real-dev)"


# PETSc's of 255 points, in kilobytes, with something to spare
NEEDED = 16_000_000


@functools.cache
def missing() -> str:
    """What is missing to build it, or nothing."""
    free = next((int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")), 0)
    if free < NEEDED:
        return "it needs 16 GB of free memory"
    compiler = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
    if not compiler or not shutil.which("pkg-config"):
        return INSTALL
    try:
        where = alone(["pkg-config", "--cflags", "--libs", "PETSc"]).text
    except Failed:
        return INSTALL
    PROGRAM.parent.mkdir(exist_ok=True)
    try:
        alone([compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", PROGRAM, ROOT / "bench/petsc.c", *shlex.split(where), "-lm"])
    except Failed as why:
        return f"bench/petsc.c cannot be built: {why}"
    return ""


def most(pid: int) -> int:
    """What a process has had at most, in kilobytes; 0: it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def watched(words: list[str]) -> tuple[Output, float]:
    """Runs a program to its end; what it and those that it started had at most, together, in MB."""
    process = Process(words)
    had: dict[int, int] = {}
    try:
        deadline = time.monotonic() + LIMIT
        while process.running() and time.monotonic() < deadline:
            for pid in [process.process.pid, *children(process.process.pid)]:
                had[pid] = max(had.get(pid, 0), most(pid))
            time.sleep(0.01)
        output = process.wait(deadline)
    finally:
        process.stop()
    if output.status != 0:
        raise Failed(output.reason())
    return output, sum(had.values()) * 1024 / 1e6


def by_petsc(points: int) -> Sample:
    output, memory = watched([str(PROGRAM), str(points), TOLERANCE])
    seconds, off = map(float, output.text.split())
    return {(SECONDS, points): seconds, (OFF, points): off, (MEMORY, points): memory}


def by_polyrail(method: str, points: int) -> Sample:
    words = [str(POLYRAIL), "solve", "obstacle", "--n", str(points), "-n", "1", "--method", method, "--json"]
    output, memory = watched(words)
    told = json.loads(output.text)
    if told["certificate"]["bound"] > told["wanted"]:
        raise Failed("the answer is not as good as was asked for")
    return {(SECONDS, points): told["seconds"], (OFF, points): told["error"], (MEMORY, points): memory}


def parts(measure) -> Parts:
    return {str(points): (lambda points=points: measure(points)) for points in POINTS}


def tables(rounds: int) -> list[Table]:
    columns = [
        *(Column(f"polyrail solve, {method}", parts(functools.partial(by_polyrail, method)), ours=True) for method in ("multigrid", "psor")),
        Column("PETSc, SNESVI with multigrid", parts(by_petsc), missing()),
    ]
    alternate(columns, rounds)
    table = Table("the obstacle problem A, one processor", columns, sizes="points")
    table.show()
    return [table]
