"""Messages of vectors by MPI, beside the same bytes packed by the program and in one piece."""

from __future__ import annotations

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

# KiB of a message
MESSAGES = (64, 256, 1024)
WAYS = ("as a vector", "packed", "in one piece")


def parts(family: str, ours: bool, hosts: str) -> Parts:
    def measure(kib: int) -> Sample:
        program = mpi.build(family, ROOT / "bench/vectors.c")
        words = [*mpi.launch(family, 2, hosts), *(["--"] if ours else []), program, kib << 10]
        before = [POLYRAIL, "run"] if ours else [mpi.mpiexec(program)]
        output = alone([*before, *words], mpi.OPEN_MPI_ROOT)
        sample: Sample = {}
        for line in output.text.splitlines():
            words = line.split()
            if len(words) == 2 + len(WAYS) and words[0].isdigit():
                for way, time in zip(WAYS, words[2:]):
                    sample[Figure(f"{kib} KiB {way}, by segment", "us", True), int(words[1])] = float(time)
        if not sample:
            raise Failed(output.reason())
        return sample

    return {f"{kib} KiB": lambda kib=kib: measure(kib) for kib in MESSAGES}


def tables(rounds: int, hosts: str = "one") -> list[Table]:
    found = []
    place = "one host" if hosts == "one" else "two hosts (namespaces), TCP"
    for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
        columns = [
            Column(f"{name} {'over polyrail' if ours else 'as installed'}", parts(family, ours, hosts), provider_missing() if ours else "", ours)
            for ours in (True, False)
        ]
        alternate(columns, rounds)
        found.append(Table(f"vectors there and back, {name}, {place}", columns))
        found[-1].show()
    return found
