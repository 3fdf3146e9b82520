"""Collective operations among hosts of two sites, whose ranks are placed one site after the other or in turn."""

from __future__ import annotations

import os

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

HOSTS, RAIL, LINE = 8, "1000", "relay:1000,delay=10ms"
# How often each operation is timed, of how many bytes
TIMES, SIZES = 7, (8, 8 << 10, 64 << 10, 1 << 20)


def parts(family: str, options: list[str] | None, hosts: list[str]) -> Parts:
    """By polyrail run with these options; None: by the MPI as it is installed."""

    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/sites.c")
        ssh = os.environ["POLYRAIL_LAB_SSH"]
        if family == "mpich":
            launch = ["-n", str(len(hosts)), "-hosts", ",".join(hosts), "-ppn", "1", "-launcher", "ssh", "-launcher-exec", ssh]
        else:
            slots = ",".join(f"{host}:1" for host in hosts)
            launch = ["-n", str(len(hosts)), "--bind-to", "none", "--host", slots, "--prtemca", "plm_ssh_agent", ssh]
        before = [mpi.mpiexec(program)] if options is None else [POLYRAIL, "run", *options]
        words = [*launch, *([] if options is None else ["--"]), program, TIMES, *SIZES]
        output = alone([*before, *words], mpi.OPEN_MPI_ROOT)
        sample: Sample = {}
        for line in output.text.splitlines():
            words = line.split()
            if len(words) == 3 and words[1].isdigit():
                sample[Figure(words[0], "ms", True), int(words[1])] = float(words[2]) / 1000
        if not sample:
            raise Failed(output.reason())
        return sample

    return {"sites": measure}


def tables(rounds: int) -> list[Table]:
    found = []
    names = os.environ["POLYRAIL_LAB_HOSTS"].split()
    half = len(names) // 2
    turn = [name for pair in zip(names[:half], names[half:]) for name in pair]
    for how, hosts in (("one site after the other", names), ("in turn", turn)):
        columns = []
        for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
            kinds = [("over polyrail", []), ("without the companion", ["--no-companion"]), ("as installed", None)]
            for kind, options in kinds:
                missing = provider_missing() if options is not None else ""
                columns.append(Column(f"{name} {kind}", parts(family, options, hosts), missing, options == []))
        alternate(columns, rounds)
        found.append(Table(f"collective operations, two sites of {half} hosts, 10 ms one way, ranks {how}", columns))
        found[-1].show()
    return found
