"""Short messages of a rank that does nothing but send."""

from __future__ import annotations

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

RAILS = ("1000", "relay:1000,delay=10ms")
# microseconds of work after each message, and how many there are
WORK = {0: 1_000_000, 2: 500_000, 20: 100_000}
TIME = Figure("each message, by microseconds of work after it", "us", True)


def parts(family: str, ours: bool) -> Parts:
    """By polyrail run, or by the MPI as it is installed."""

    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/oneway.c")
        before = [POLYRAIL, "run"] if ours else [mpi.mpiexec(program)]
        words = [*before, *mpi.launch(family, 2, "lab"), *(["--"] if ours else []), program]
        sample: Sample = {}
        for work, count in WORK.items():
            output = alone([*words, str(count), str(work)], mpi.OPEN_MPI_ROOT)
            found = [line.split() for line in output.text.splitlines()]
            numbers = [float(line[1]) for line in found if len(line) == 2 and line[0] == str(work)]
            if not numbers:
                raise Failed(output.reason())
            sample[TIME, work] = numbers[0]
        return sample

    return {"oneway": measure}


def tables(rounds: int, rails: str) -> list[Table]:
    """Two hosts of the lab."""
    columns = []
    for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
        columns.append(Column(f"{name} over polyrail", parts(family, True), provider_missing(), True))
        columns.append(Column(f"{name} as installed", parts(family, False)))
    alternate(columns, rounds)
    found = Table(f"a rank that only sends 8 bytes at a time, two hosts (namespaces), one rail: {rails}", columns)
    found.show()
    return [found]
