"""What polyrail omp costs a region, and the product of two matrices beside the same written by hand for MPI."""

from __future__ import annotations

import re
from pathlib import Path

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone

# Two hosts, as in the experiment of 2015, and a faster network.
RAILS = ("100", "1000")
SIZES = (1000, 2000, 3000)
REGIONS = (
    ("nothing written, 1 MB resident", ["1", "1000"]),
    ("nothing written, 1000 MB resident", ["1000", "1000"]),
    ("a double in 100 of 25600 pages", ["100", "200", "4"]),
    ("a double in 2560 of 25600 pages", ["100", "20", "100"]),
    *((name, ["0", "300", name]) for name in ("reduction", "critical", "atomic", "dynamic", "barrier")),
)
LIBRARY = POLYRAIL.parent / "libpolyrail_omp_rt.so"


def missing() -> str:
    return "" if LIBRARY.is_file() else f"{LIBRARY} is not there (make build)"


def build(source: Path, *flags: str) -> Path:
    program = ROOT / "build" / source.stem
    program.parent.mkdir(exist_ok=True)
    alone(["cc", "-std=c11", "-O3", "-march=native", "-Wall", "-fopenmp", *flags, "-o", program, source])
    return program


def spread(launch: list[str], words: list[str | Path], limit: float = 300):
    """An OpenMP program with one thread on each rank."""
    mpiexec = ROOT / ".venv/mpich/bin/mpiexec"
    return alone([POLYRAIL, "omp", "--mpiexec", mpiexec, "-t", "1", *launch, "--", *words], mpi.OPEN_MPI_ROOT, limit=limit)


def regions(rounds: int) -> list[Table]:
    """Two ranks of one host, and the compiler's own runtime with two threads."""
    program = build(ROOT / "bench/omp_regions.c")

    def read(output) -> float:
        if found := re.search(r": ([\d.]+) us a region", output.text):
            return float(found[1])
        raise Failed(output.reason())

    def parts(run) -> Parts:
        return {name: lambda name=name, words=words: {(Figure(name, "us", True), None): read(run(words))} for name, words in REGIONS}

    columns = [
        Column("polyrail omp, 2 ranks", parts(lambda words: spread(["-n", "2"], [program, *words])), missing(), ours=True),
        Column("libgomp, 2 threads", parts(lambda words: alone([program, *words], {"OMP_NUM_THREADS": "2"}))),
    ]
    alternate(columns, rounds)
    table = Table("What a parallel region costs, the least of 6 rounds", columns)
    table.show()
    return [table]


def product(rounds: int, rail: str) -> list[Table]:
    """Inside scripts/lab: one rank on each of two hosts. Both must find the same bits."""
    openmp, by_hand = build(ROOT / "examples/omp/matmul.c"), mpi.build("mpich", ROOT / "bench/measure/matmul_mpi.c")
    alone([ROOT / ".venv/mpich/bin/mpicc", "-std=c11", "-O3", "-march=native", "-o", by_hand, ROOT / "bench/measure/matmul_mpi.c"])
    launch = mpi.launch("mpich", 2, "two")
    sums: dict[int, set[str]] = {}

    def read(output, size: int) -> Sample:
        found = re.search(r"initialization ([\d.]+) s, product ([\d.]+) s.*checksum (\w+)", output.text)
        if not found:
            raise Failed(output.reason())
        sums.setdefault(size, set()).add(found[3])
        if len(sums[size]) > 1:
            raise Failed(f"products of {size} differ: {sums[size]}")
        sample: Sample = {(Figure("product, exchange included", "s", True), size): float(found[2])}
        if parts := re.search(r"sending ([\d.]+), computing ([\d.]+), collecting ([\d.]+)", output.text):
            sample[Figure("of it: sending", "s", True), size] = float(parts[1])
            sample[Figure("of it: computing", "s", True), size] = float(parts[2])
            sample[Figure("of it: collecting", "s", True), size] = float(parts[3])
        return sample

    def parts(run) -> Parts:
        return {str(size): lambda size=size: read(run(size), size) for size in SIZES}

    def hand(size: int):
        return alone([POLYRAIL, "run", *launch, "--", by_hand, str(size)], limit=300)

    columns = [
        Column("polyrail omp", parts(lambda size: spread(launch, [openmp, str(size)])), missing(), ours=True),
        Column("MPI by hand", parts(hand), missing()),
    ]
    alternate(columns, rounds)
    table = Table(f"The product of two matrices on two hosts, one rank each, rail of {rail} Mb/s", columns)
    table.show()
    return [table]
