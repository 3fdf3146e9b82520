"""What polyrail omp costs a region, and the product of two matrices beside the same written by hand for MPI."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone, provider_missing

# The network of the experiment of 2015, and a faster one; hosts.
RAILS = ("100", "1000")
HOSTS = (2, 3)
SIZES = [1000, 2000, 3000]
# Seconds for one run.
LIMIT = 900
# What exchanges are measured with.
KILOBYTES = (0, 64, 1024, 16 << 10, 64 << 10)
REGIONS = (
    ("nothing written, 1 MB resident", ["1", "1000"]),
    ("nothing written, 1000 MB resident", ["1000", "1000"]),
    ("a double in 100 of 25600 pages", ["100", "200", "4"]),
    ("a double in 2560 of 25600 pages", ["100", "20", "100"]),
    *((name, ["0", "300", name]) for name in ("reduction", "critical", "atomic", "dynamic", "barrier")),
)
TASKS = (
    ("a tree of 10,000 tasks of 1 ms", ["tree", "10000", "1000"]),
    ("2000 tasks of 1 ms by one thread", ["flat", "2000", "1000"]),
    ("a task loop, 64 iterations of 10 ms", ["loop", "64", "10000"]),
    ("fib(32), 7 million tasks", ["fib", "32"]),
    ("Cholesky, 3072 x 3072 in blocks of 256", ["blocks", "3072", "256"]),
)
# the control network of scripts/lab has no limit
RAIL_ONLY = {**mpi.OPEN_MPI_ROOT, **({"POLYRAIL_INTERFACES": "r0"} if "POLYRAIL_LAB" in os.environ else {})}
LIBRARY = POLYRAIL.parent / "libpolyrail_omp_rt.so"


def missing() -> str:
    return "" if LIBRARY.is_file() else f"{LIBRARY} is not there (make build)"


def build(source: Path, *flags: str) -> Path:
    program = ROOT / "build" / source.stem
    program.parent.mkdir(exist_ok=True)
    alone(["cc", "-std=c11", "-O3", "-march=native", "-Wall", "-fopenmp", "-o", program, source, *flags])
    return program


def spread(launch: list[str], words: list[str | Path], threads: int = 1, options: list[str] = []):
    """An OpenMP program."""
    mpiexec = ROOT / ".venv/mpich/bin/mpiexec"
    before = [POLYRAIL, "omp", "--mpiexec", mpiexec, "-t", str(threads), *options]
    return alone([*before, *launch, "--", *words], RAIL_ONLY, limit=LIMIT)


def regions(rounds: int) -> list[Table]:
    """Two threads of one host: ranks, of one rank, of the compiler's own runtime."""
    program = build(ROOT / "bench/omp_regions.c")

    def read(output) -> float:
        if found := re.search(r": ([\d.]+) us a region", output.text):
            return float(found[1])
        raise Failed(output.reason())

    def parts(run) -> Parts:
        return {name: lambda name=name, words=words: {(Figure(name, "us", True), None): read(run(words))} for name, words in REGIONS}

    columns = [
        Column("polyrail omp, 2 ranks", parts(lambda words: spread(["-n", "2"], [program, *words])), missing(), ours=True),
        Column("1 rank, 2 threads", parts(lambda words: spread(["-n", "1"], [program, *words], 2)), missing()),
        Column("libgomp, 2 threads", parts(lambda words: alone([program, *words], {"OMP_NUM_THREADS": "2"}))),
    ]
    alternate(columns, rounds)
    table = Table("What a parallel region costs, the least of 6 rounds", columns)
    table.show()
    return [table]


def tasks(rounds: int, launch: list[str] | None = None) -> list[Table]:
    """Tasks on two ranks of one thread each, of this host or of as many hosts, on one rank, and by the compiler's own runtime."""
    program = build(ROOT / "bench/omp_tasks.c", "-lm")

    def read(output) -> float:
        if found := re.search(r": ([\d.]+) s, .* right", output.text):
            return float(found[1])
        raise Failed(output.reason())

    def parts(run) -> Parts:
        return {name: lambda name=name, words=words: {(Figure(name, "s", True), None): read(run(words))} for name, words in TASKS}

    def native(threads: int):
        return lambda words: alone([program, *words], {"OMP_NUM_THREADS": str(threads)}, limit=LIMIT)

    where = "2 hosts" if launch else "2 ranks"
    columns = [
        Column(f"polyrail omp, {where}", parts(lambda words: spread(launch or ["-n", "2"], [program, *words])), missing(), ours=True),
        Column("libgomp, 1 thread", parts(native(1))),
        Column("libgomp, 2 threads", parts(native(2))),
    ]
    if not launch:
        columns[1:1] = [
            Column("1 rank", parts(lambda words: spread(["-n", "1"], [program, *words])), missing()),
            Column("1 rank, 2 threads", parts(lambda words: spread(["-n", "1"], [program, *words], 2)), missing()),
        ]
    alternate(columns, rounds)
    table = Table(f"Tasks, {where} of one thread each", columns)
    table.show()
    return [table]


def checkpoints(rounds: int) -> list[Table]:
    """How long a program waits for a checkpoint, and what is written, by how much of 1 GB has changed since the last."""
    program = build(ROOT / "bench/omp_checkpoints.c")
    pause, size = Figure("the program waits", "ms", True), Figure("written", "MB", True)

    def of(region: dict) -> tuple[float, float]:
        counted = region["ranks"][0]
        number = counted["checkpoints"]
        if number == 0:
            raise Failed("no checkpoint was taken")
        return counted["checkpoint_ns"] / 1e6 / number, counted["checkpoint_bytes"] / 1e6 / number

    def run(permille: int) -> Sample:
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as directory:
            told = Path(directory) / "told.json"
            options = ["--checkpoint", f"{directory}/kept", "--every", "0.001", "--json", str(told)]
            output = spread(["-n", "2"], [program, "1000", str(permille), "10"], 1, options)
            if "sum" not in output.text:
                raise Failed(output.reason())
            # by their functions' names, which compilers number: the one that fills memory, the first changes, what is measured
            first, _, last = sorted(json.loads(told.read_text())["regions"], key=lambda region: region["region"])
        sample: Sample = {(Figure("the first: the program waits", "ms", True), None): of(first)[0]} if permille == 10 else {}
        of_last = of(last)
        name = f"{permille / 10:g} % of 1 GB changed"
        return {**sample, (Figure(f"{name}: {pause.name}", pause.unit, True), None): of_last[0], (Figure(f"{name}: {size.name}", size.unit, True), None): of_last[1]}

    parts: Parts = {f"{permille}": lambda permille=permille: run(permille) for permille in (1, 10, 100)}
    columns = [Column("polyrail omp, 2 ranks", parts, missing(), ours=True)]
    alternate(columns, rounds)
    table = Table("Checkpoints of a program of 1 GB", columns)
    table.show()
    return [table]


def over(hosts: int, each: int = 1) -> list[str]:
    """mpiexec's words for so many ranks on each host of scripts/lab."""
    names, ssh = os.environ["POLYRAIL_LAB_HOSTS"].replace(" ", ","), os.environ["POLYRAIL_LAB_SSH"]
    return ["-n", str(hosts * each), "-hosts", names, "-ppn", str(each), "-iface", "ctl", "-launcher", "ssh", "-launcher-exec", ssh]


PRODUCT = Figure("product, all of it", "s", True)
PHASES = [Figure(f"of it: {name}", "s", True) for name in ("initialisation (sending)", "computing", "update (collecting)")]


def phases(file: Path) -> list[float]:
    """What rank 0 says of all regions: their begin, the program's own work, the rest."""
    spent = [0.0, 0.0, 0.0]
    for region in json.loads(file.read_text())["regions"]:
        of = {name: value / 1e9 for name, value in region["ranks"][0].items()}
        told = of["finding_ns"] + of["encoding_ns"] + of["exchanging_ns"] + of["applying_ns"] - of["beginning_ns"]
        for i, part in enumerate((of["beginning_ns"], of["whole_ns"] - told, told)):
            spent[i] += part
    return spent


def product(rounds: int, rail: str, sizes: list[int]) -> list[Table]:
    """Inside scripts/lab: one rank on each host. All must find the same bits."""
    openmp, by_hand = build(ROOT / "examples/omp/matmul.c"), mpi.build("mpich", ROOT / "bench/measure/matmul_mpi.c")
    alone([ROOT / ".venv/mpich/bin/mpicc", "-std=c11", "-O3", "-march=native", "-o", by_hand, ROOT / "bench/measure/matmul_mpi.c"])
    hosts = len(os.environ["POLYRAIL_LAB_HOSTS"].split())
    launch = over(hosts)
    sums: dict[int, set[str]] = {}

    def read(output, size: int, spent: list[float]) -> Sample:
        found = re.search(r"product ([\d.]+) s.*checksum (\w+)", output.text)
        if not found:
            raise Failed(output.reason())
        sums.setdefault(size, set()).add(found[2])
        if len(sums[size]) > 1:
            raise Failed(f"products of {size} differ: {sums[size]}")
        if parts := re.search(r"sending ([\d.]+), computing ([\d.]+), collecting ([\d.]+)", output.text):
            spent = [float(part) for part in parts.groups()]
        return {(PRODUCT, size): float(found[1]), **{(figure, size): value for figure, value in zip(PHASES, spent)}}

    def ours(size: int, *options: str) -> Sample:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            output = spread(launch, [openmp, str(size)], options=["--json", file.name, *options])
            return read(output, size, phases(Path(file.name)))

    def hand(size: int, **environment: str) -> Sample:
        return read(alone([POLYRAIL, "run", *launch, "--", by_hand, str(size)], {**RAIL_ONLY, **environment}, limit=LIMIT), size, [])

    def here(size: int) -> Sample:
        return read(alone([openmp, str(size)], {"OMP_NUM_THREADS": str(hosts)}, limit=LIMIT), size, [])

    def parts(run) -> Parts:
        return {str(size): lambda size=size: run(size) for size in sizes}

    columns = [
        # the matrices repeat, as those of 2015 did: what others would send is told beside it
        Column("uncompressed", parts(lambda size: ours(size, "--no-compression")), missing(), ours=True),
        Column("polyrail omp", parts(ours), missing(), ours=True),
        Column("--serial replicated", parts(lambda size: ours(size, "--serial", "replicated")), missing(), ours=True),
        Column("MPI by hand", parts(hand), provider_missing()),
        # polyrail omp's memory stands in huge pages by itself
        Column("by hand, huge pages", parts(lambda size: hand(size, GLIBC_TUNABLES="glibc.malloc.hugetlb=1")), provider_missing()),
        Column(f"libgomp, {hosts} threads", parts(here)),
    ]
    alternate(columns, rounds)
    title = f"The product of two matrices on {hosts} hosts, one rank each, rail of {rail} Mb/s"
    tables = [Table(title, columns[:5], means=True, sizes="N"), Table("The same by the compiler's own runtime on one host", columns[5:], means=True, sizes="N")]
    for table in tables:
        table.show()
    return tables


def exchanges(rounds: int, launches: list[tuple[str, int, list[str]]]) -> list[Table]:
    """What an exchange costs by ranks and bytes, and the line through it: seconds = latency + bytes / bandwidth."""
    program = build(ROOT / "bench/omp_exchange.c")
    tables = []
    for what, words in (("all ranks write", []), ("rank 0 alone writes, serially", ["serial"])):
        figure = Figure(what, "s", True)

        def measure(launch: list[str], kilobytes: int) -> Sample:
            repetitions = max(3, min(200, 100_000 // (kilobytes + 1)))
            output = spread(launch, [program, str(kilobytes), str(repetitions), *words])
            if found := re.search(r"median ([\d.]+) s", output.text):
                return {(figure, kilobytes << 10): float(found[1])}
            raise Failed(output.reason())

        columns = [
            Column(name, {str(size): lambda launch=launch, size=size: measure(launch, size) for size in KILOBYTES}, missing())
            for name, _, launch in launches
        ]
        alternate(columns, rounds)
        tables.append(Table(f"An exchange, {what}", columns))
        tables[-1].show()
        for column in columns:
            latency, bandwidth = line({size: min(values) for (_, size), values in column.values.items()})
            print(f"  {column.name}: {latency * 1e6:.0f} us + bytes / {bandwidth / 1e6:.0f} MB/s")
    return tables


def line(seconds: dict[int, float]) -> tuple[float, float]:
    """Latency and bandwidth: the least exchange, and what the two largest differ by."""
    if len(seconds) < 3:
        return float("nan"), float("nan")
    *_, small, large = sorted(seconds)
    return seconds[min(seconds)], (large - small) / max(seconds[large] - seconds[small], 1e-9)


def one_host(rounds: int) -> list[Table]:
    return exchanges(rounds, [(f"{n} ranks", n, ["-n", str(n)]) for n in (2, 4, 8)])


def several_hosts(rounds: int) -> list[Table]:
    hosts = len(os.environ["POLYRAIL_LAB_HOSTS"].split())
    several = [(f"{hosts} hosts of {each} ranks", hosts * each, over(hosts, each)) for each in (2,) if hosts == 2]
    return exchanges(rounds, [(f"{hosts} hosts", hosts, over(hosts)), *several])


# Bytes a second of one processor, by the test that docs/omp-model.md names; bytes of a round and of a ring's segment.
ENCODE, APPLY, COPY, ROUND, SEGMENT = 4.0e9, 6.2e9, 10e9, 4 << 20, 256 << 10
MESSAGE = 1.4e-6


def predicted(ranks: int, written: float, link: float, latency: float) -> float:
    """Seconds of an exchange in which all ranks, each on a host of its own, write as much: the model of docs/omp-model.md."""
    each, doublings = written / ranks, (ranks - 1).bit_length()
    hop = latency + MESSAGE
    ring = (ranks - 1) * (hop + min(each, SEGMENT) / link) + MESSAGE * written / SEGMENT
    pattern = min(latency + MESSAGE * (ranks - 1), ring, doublings * hop + 2 * written / COPY)
    wire = written * (ranks - 1) / ranks / link
    first, last = min(each, ROUND) / ENCODE, min(each, ROUND) * ranks / APPLY
    return doublings * hop + max(wire + pattern, written / APPLY + each / ENCODE) + first + last


def model() -> None:
    links = (("1 Gb/s", 119e6, 20e-6), ("10 Gb/s", 1.19e9, 20e-6), ("100 Gb/s", 11.9e9, 5e-6))
    print("\nPredicted seconds of an exchange\n")
    print("| all ranks write, in all | network |" + "".join(f" {n} nodes |" for n in (16, 64, 256, 1024)))
    print("|---|---|" + "---|" * 4)
    for name, written in (("1 MB", 1e6), ("100 MB", 1e8), ("1 GB", 1e9)):
        for network, link, latency in links:
            cells = "".join(f" {predicted(n, written, link, latency):.2g} |" for n in (16, 64, 256, 1024))
            print(f"| {name} | {network} |{cells}")
