"""The OSU micro-benchmarks over Polyrail, and over what each MPI uses when it is left alone (in the lab, of its rails)."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, Output, Place, alone, provider_missing

OSU = "build the OSU micro-benchmarks with this MPI's mpicc and set {} to the directory that holds pt2pt/osu_latency"
OPEN_MPI_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

# directory, ranks, figures of the columns after the size, and arguments that keep it short.
# -M: no more memory than that for buffers; alltoall needs a message for each rank
BENCHMARKS: dict[str, tuple[str, int, list[Figure], list[str]]] = {
    "osu_latency": ("pt2pt", 2, [Figure("osu_latency", "us", True)], ["-x", "100", "-i", "2000"]),
    "osu_bw": ("pt2pt", 2, [Figure("osu_bw", "MB/s", False)], ["-x", "5", "-i", "40"]),
    "osu_bibw": ("pt2pt", 2, [Figure("osu_bibw", "MB/s", False)], ["-x", "5", "-i", "40"]),
    "osu_mbw_mr": (
        "pt2pt",
        4,
        [Figure("osu_mbw_mr bandwidth", "MB/s", False), Figure("osu_mbw_mr rate", "messages/s", False)],
        ["-x", "5", "-i", "20"],
    ),
    "osu_allreduce": ("collective", 4, [Figure("osu_allreduce", "us", True)], ["-x", "20", "-i", "200"]),
    "osu_alltoall": ("collective", 4, [Figure("osu_alltoall", "us", True)], ["-x", "20", "-i", "200"]),
}


def osu_directory(variable: str) -> Path | None:
    """Where an installation or build tree has the programs, in each of the shapes that it comes in."""
    given = os.environ.get(variable)
    for inside in ("", "mpi", "libexec/osu-micro-benchmarks/mpi", "c/mpi"):
        if given and (Path(given) / inside / "pt2pt/osu_latency").is_file():
            return Path(given) / inside
    return None


@cache
def rails() -> str:
    """The lab's rails, by their names: all that joins its hosts but the network by which programs are started."""
    links = alone(["ip", "-brief", "link"], place=Place("a")).text.split()
    return ",".join(sorted(name for link in links if re.fullmatch(r"r[0-9]+", name := link.split("@")[0])))


def launch(family: str, ranks: int, hosts: str, over: str = "") -> list[str]:
    """mpiexec's own arguments, on one host or on those of the lab, by all of its rails or these. There are as many ranks as one machine can bear:
    none is bound to a core."""
    if hosts == "one":
        return ["-n", str(ranks)] if family == "mpich" else ["-n", str(ranks), "--bind-to", "none", "--map-by", ":oversubscribe"]
    ssh, names = os.environ["POLYRAIL_LAB_SSH"], os.environ["POLYRAIL_LAB_HOSTS"].split()
    each = ranks // len(names)
    if family == "mpich":
        return ["-n", str(ranks), "-hosts", ",".join(names), "-ppn", str(each), "-iface", "ctl", "-launcher", "ssh", "-launcher-exec", ssh, "-genv", "UCX_NET_DEVICES", over or rails()]
    prte = ["--prtemca", "prte_if_include", "ctl", "--prtemca", "plm_ssh_agent", ssh]
    slots = ",".join(f"{name}:{each}" for name in names)
    return ["-n", str(ranks), "--bind-to", "none", "--host", slots, "--map-by", "node", *prte, "--mca", "btl_tcp_if_include", over or rails()]


def mpiexec(program: Path) -> str:
    """The launcher of a program's own MPI, which polyrail run finds."""
    output = alone([POLYRAIL, "run", "--dry-run", "-n", "2", program], OPEN_MPI_ROOT)
    if found := re.search(r"^launcher\s+(\S+),", output.text, re.MULTILINE):
        return found[1]
    raise Failed(f"no launcher in what polyrail run --dry-run says of {program}")


def build(family: str, source: Path) -> Path:
    """An MPI program of one file, by this MPI's own compiler."""
    program = ROOT / "build" / family / source.stem
    compiler = ROOT / ".venv" / family / "bin/mpicc"
    if not compiler.is_file():
        raise Failed(f"{compiler.relative_to(ROOT)} is not there (make setup)")
    if not program.is_file() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        alone([compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-o", program, source])
    return program


def read(output: Output, figures: list[Figure]) -> Sample:
    """Lines that begin with a size."""
    sample: Sample = {}
    for line in output.text.splitlines():
        words = line.split()
        if len(words) > len(figures) and words[0].isdigit():
            for figure, word in zip(figures, words[1:]):
                sample[figure, int(words[0])] = float(word)
    if not sample:
        raise Failed(output.reason())
    return sample


def parts(family: str, directory: Path, hosts: str, ours: bool) -> Parts:
    """The benchmarks."""

    def measure(name: str) -> Sample:
        folder, ranks, figures, brief = BENCHMARKS[name]
        program = directory / folder / name
        words = [*launch(family, ranks, hosts), *(["--"] if ours else []), program, *brief]
        before = [POLYRAIL, "run"] if ours else [mpiexec(program)]
        return read(alone([*before, *words], OPEN_MPI_ROOT), figures)

    return {name: lambda name=name: measure(name) for name in BENCHMARKS}


def tables(rounds: int, hosts: str = "one") -> list[Table]:
    found = []
    for family, name, variable in (("mpich", "MPICH", "OSU_MPICH"), ("openmpi", "Open MPI", "OSU_OMPI")):
        directory = osu_directory(variable)
        no_osu = "" if directory else OSU.format(variable)
        columns = []
        for ours in (True, False):
            missing = no_osu or (provider_missing() if ours else "")
            found_parts = parts(family, directory, hosts, ours) if directory else {}
            columns.append(Column(f"{name} over polyrail" if ours else f"{name} as installed", found_parts, missing, ours))
        alternate(columns, rounds)
        place = "one host" if hosts == "one" else "two hosts (namespaces), TCP"
        found.append(Table(f"OSU micro-benchmarks, {name}, {place}", columns))
        found[-1].show()
    return found
