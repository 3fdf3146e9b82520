"""An allreduce among more ranks than processors, with the processors to themselves and beside programs that compute."""

from __future__ import annotations

import os
import re

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

SECONDS = 3
MEDIAN, MEAN = (Figure(f"allreduce, {what}", "us", True) for what in ("median", "mean"))

# Programs that compute, as many as $1 says, in the session of the command after it: Linux shares processors out to sessions first
# (sched(7), autogroups), so that those of another disturb less. Whatever becomes of that session, they end after two minutes.
BESIDE = """
loops=$1; shift
for _ in $(seq $loops); do while [ $SECONDS -lt 120 ]; do :; done & done
"$@"; status=$?
[ $loops = 0 ] || kill $(jobs -p)
exit $status
"""


def parts(family: str, ours: bool, ranks: int, loops: int, env: dict[str, str]) -> Parts:
    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/allreduce.c")
        words = [*mpi.launch(family, ranks, "one"), *(["--"] if ours else []), program, SECONDS]
        words = [*([POLYRAIL, "run"] if ours else [mpi.mpiexec(program)]), *words]
        output = alone(["bash", "-c", BESIDE, "bash", loops, *words], mpi.OPEN_MPI_ROOT | env)
        if not (found := re.search(r"median (\S+) mean (\S+)", output.text)):
            raise Failed(output.reason())
        return {(MEDIAN, 8): float(found[1]), (MEAN, 8): float(found[2])}

    return {"allreduce": measure}


def tables(rounds: int) -> list[Table]:
    found = []
    processors = len(os.sched_getaffinity(0))
    ranks = 2 * processors
    contenders = {
        "MPICH over polyrail": ("mpich", True, {}),
        "MPICH over UCX": ("mpich", False, {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}),
        "Open MPI over polyrail": ("openmpi", True, {}),
        "Open MPI, its sm": ("openmpi", False, {}),
    }
    for loops in (0, 2 * processors):
        columns = [
            Column(name, parts(family, ours, ranks, loops, env), provider_missing() if ours else "", ours)
            for name, (family, ours, env) in contenders.items()
        ]
        alternate(columns, rounds)
        quiet = f"beside {loops} busy loops" if loops else "nothing else running"
        for family in ("MPICH", "Open MPI"):
            of_family = [column for column in columns if column.name.startswith(family)]
            found.append(Table(f"{family}, {ranks} ranks on {processors} processors, {quiet}", of_family))
            found[-1].show()
    return found
