"""How long `polyrail solve` takes on one processor, by method, and how much memory, beside PETSc's general solver of variational inequalities."""

from __future__ import annotations

import functools
import json
import shlex
import shutil

from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone

POINTS = (127, 255)
PROGRAM = ROOT / "build/petsc"
LIMIT = 1200
# What Newton's residual is to become less by; more of it changes no digit of what the answer is off.
TOLERANCE = "1e-8"
SECONDS = Figure("seconds", "s", True)
OFF = Figure("off by, of the solution between the points", "", True)
MEMORY = Figure("memory", "MB", True)
INSTALL = "install a C compiler, pkg-config and PETSc (Debian: libpetsc-real-dev)"


@functools.cache
def missing() -> str:
    """What is missing to build it, or nothing."""
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


def by_petsc(points: int) -> Sample:
    output = alone([PROGRAM, str(points), TOLERANCE], limit=LIMIT)
    seconds, off = map(float, output.text.split())
    return {(SECONDS, points): seconds, (OFF, points): off, (MEMORY, points): output.memory / 1e6}


def by_polyrail(method: str, points: int) -> Sample:
    words = [POLYRAIL, "solve", "obstacle", "--n", str(points), "-n", "1", "--method", method, "--json"]
    output = alone(words, limit=LIMIT)
    told = json.loads(output.text)
    if told["certificate"]["bound"] > told["wanted"]:
        raise Failed("the answer is not as good as was asked for")
    return {(SECONDS, points): told["seconds"], (OFF, points): told["error"], (MEMORY, points): output.memory / 1e6}


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
