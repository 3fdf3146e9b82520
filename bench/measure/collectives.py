"""Collective operations among the ranks of a host, and of two."""

from __future__ import annotations

import os

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

MILLISECONDS = 60
# of operations that are to fill several rails
LONG = 64 << 20


def parts(family: str, options: list[str] | None, ranks: int, hosts: str, sizes: list[int]) -> Parts:
    """By polyrail run with these options; None: by the MPI as it is installed. Of these sizes only, if there are any."""

    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/collectives.c")
        before = [mpi.mpiexec(program)] if options is None else [POLYRAIL, "run", *options]
        words = [*mpi.launch(family, ranks, hosts), *([] if options is None else ["--"]), program, MILLISECONDS, *sizes]
        output = alone([*before, *words], mpi.OPEN_MPI_ROOT)
        sample: Sample = {}
        for line in output.text.splitlines():
            words = line.split()
            if len(words) == 3 and words[1].isdigit():
                sample[Figure(words[0], "us", True), int(words[1])] = float(words[2])
        if not sample:
            raise Failed(output.reason())
        return sample

    return {"collectives": measure}


def tables(rounds: int, hosts: str = "one", rails: str = "0") -> list[Table]:
    """Within a host, or between two with such rails: those that are used as one carry what is long only."""
    found = []
    processors = len(os.sched_getaffinity(0))
    several = " " in rails
    network = {"0": "two hosts (namespaces), TCP"}.get(rails, f"two hosts (namespaces), TCP, rails of {rails.replace(' ', ', ')} Mb/s")
    place = "one host" if hosts == "one" else network
    for ranks in (processors, 2 * processors) if hosts == "one" else (2 * processors,):
        columns = []
        for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
            # MPICH's ranks do not give way to each other: where they outnumber processors it takes milliseconds, and hundreds between hosts
            slow = family == "mpich" and ranks > processors and (hosts == "one" or rails != "0")
            installed = [] if slow or several else [("as installed", None)]
            for how, options in [("over polyrail", []), ("without the companion", ["--no-companion"]), *installed]:
                missing = provider_missing() if options is not None else ""
                measured = parts(family, options, ranks, hosts, [LONG] if several else [])
                columns.append(Column(f"{name} {how}", measured, missing, options == []))
        alternate(columns, rounds)
        found.append(Table(f"collective operations, {ranks} ranks on {processors} processors, {place}", columns))
        found[-1].show()
    return found
