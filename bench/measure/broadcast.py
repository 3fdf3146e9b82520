"""Broadcasts to many hosts: by multicast, by a line of hosts, and by each MPI's own algorithms."""

from __future__ import annotations

import os

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

TIME = Figure("broadcast", "us", True)
SIZES = [64 << 10, 1 << 20, 4 << 20, 16 << 20]
ROUNDS = "15"


def parts(family: str, ranks: int, options: list[str], multicast: str) -> Parts:
    """By polyrail run with such options."""

    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/broadcast.c")
        words = [*mpi.launch(family, ranks, "lab"), "--", program, ROUNDS, *map(str, SIZES)]
        output = alone([POLYRAIL, "run", *options, *words], mpi.OPEN_MPI_ROOT | {"POLYRAIL_MULTICAST": multicast})
        sample: Sample = {}
        for line in output.text.splitlines():
            numbers = line.split()
            if len(numbers) == 2 and numbers[0].isdigit():
                sample[TIME, int(numbers[0])] = float(numbers[1])
        if not sample:
            raise Failed(output.reason())
        return sample

    return {"broadcast": measure}


def tables(rounds: int, rails: str) -> list[Table]:
    """Two ranks on each host of the lab."""
    hosts = len(os.environ["POLYRAIL_LAB_HOSTS"].split())
    columns = []
    for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
        ways = [("over polyrail", [], "1"), ("over polyrail, POLYRAIL_MULTICAST=0", [], "0"), ("over polyrail, --no-companion", ["--no-companion"], "0")]
        # as they are installed both take minutes: their ranks do not give way to each other, several of a processor
        for how, options, multicast in ways:
            columns.append(Column(f"{name} {how}", parts(family, 2 * hosts, options, multicast), provider_missing(), multicast == "1"))
    alternate(columns, rounds)
    found = Table(f"broadcasts to {hosts} hosts (namespaces) of 2 ranks on {len(os.sched_getaffinity(0))} processors, a switch of {rails} Mb/s", columns)
    found.show()
    return [found]
