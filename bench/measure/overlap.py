"""Whether long messages travel while both sides compute."""

from __future__ import annotations

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

SIZES = (256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
HIDDEN = Figure("hidden behind computing", "of it", False)


def parts(family: str, background: str | None, hosts: str) -> Parts:
    """By polyrail run with this setting; None: by the MPI as it is installed."""

    def measure() -> Sample:
        program = mpi.build(family, ROOT / "bench/overlap.c")
        before = [mpi.mpiexec(program)] if background is None else [POLYRAIL, "run"]
        words = [*mpi.launch(family, 2, hosts), *([] if background is None else ["--"]), program, *SIZES]
        env = mpi.OPEN_MPI_ROOT | ({} if background is None else {"POLYRAIL_BACKGROUND": background})
        sample: Sample = {}
        for line in alone([*before, *words], env).text.splitlines():
            words = line.split()
            if len(words) == 4 and words[0].isdigit():
                sample[HIDDEN, int(words[0])] = float(words[3])
        if not sample:
            raise Failed("it said nothing")
        return sample

    return {"overlap": measure}


def tables(rounds: int, hosts: str = "one", rails: str = "0") -> list[Table]:
    place = "one host" if hosts == "one" else f"two hosts (namespaces), one rail of {rails} Mb/s"
    columns = []
    for family, name in (("mpich", "MPICH"), ("openmpi", "Open MPI")):
        for how, background in (("over polyrail", "1"), ("over polyrail, POLYRAIL_BACKGROUND=0", "0"), ("as installed", None)):
            missing = provider_missing() if background is not None else ""
            columns.append(Column(f"{name} {how}", parts(family, background, hosts), missing, background == "1"))
    alternate(columns, rounds)
    found = Table(f"messages while both sides compute, {place}", columns)
    found.show()
    return [found]
