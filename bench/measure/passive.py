"""One-sided operations: epochs of passive targets, locks that all want, puts beside gets."""

from __future__ import annotations

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

# by the names that the program gives them
FIGURES = {
    "epoch": Figure("lock, put 8 bytes, unlock: median", "us", True),
    "epoch99": Figure("lock, put 8 bytes, unlock: 99 of 100 within", "us", True),
    "put": Figure("put 8 bytes and flush", "us", True),
    "computing": Figure("lock, put, unlock while the target computes 0.5 s: median", "us", True),
    "worst": Figure("the same, longest of 5", "us", True),
    "crowd": Figure("one lock that all ranks want", "times a second", False),
    "fair": Figure("who had it least, by who had it most", "of it", False),
    "one": Figure("puts of 4 MiB", "MB/s", False),
    "both": Figure("puts and gets of 4 MiB at once", "MB/s", False),
}


def parts(family: str, companion: bool | None, ranks: int, hosts: str) -> Parts:
    """By polyrail run, with the companion or without; None: by the MPI as it is installed."""

    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/passive.c")
        before = [mpi.mpiexec(program)] if companion is None else [POLYRAIL, "run", *([] if companion else ["--no-companion"])]
        words = [*mpi.launch(family, ranks, hosts), *([] if companion is None else ["--"]), program]
        sample: Sample = {}
        output = alone([*before, *words], mpi.OPEN_MPI_ROOT)
        for line in output.text.splitlines():
            name, _, value = line.partition(" ")
            if name in FIGURES:
                sample[FIGURES[name], None] = float(value)
        if not sample:
            raise Failed(output.reason())
        return sample

    return {"passive": measure}


def tables(rounds: int, hosts: str = "one", rails: str = "0") -> list[Table]:
    place = "one host" if hosts == "one" else f"two hosts (namespaces), one rail of {rails} Mb/s"
    found = []
    for ranks in (2, 4) if hosts == "one" else (2, 8):
        columns = []
        for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
            for how, companion in (("over polyrail", True), ("over polyrail, --no-companion", False), ("as installed", None)):
                if family == "openmpi" and companion is False:
                    continue  # its locks are its own either way
                missing = provider_missing() if companion is not None else ""
                columns.append(Column(f"{name} {how}", parts(family, companion, ranks, hosts), missing, companion is True))
        alternate(columns, rounds)
        found.append(Table(f"one-sided operations, {place}, {ranks} ranks", columns))
        found[-1].show()
    return found
