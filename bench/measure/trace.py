"""What recording costs a program, beside strace and ltrace, and whether what is recorded is what the kernel counts."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from . import mpi
from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, Output, Place, alone

LIBRARY = POLYRAIL.parent / "libpolyrail_preload.so"
# One rail as fast as the machine, and one of 20 ms there and back; the latter loses packets where that is measured.
FAST, FAR, LOSSY = "0", "relay:1000,delay=10ms", "relay:1000,delay=10ms,loss=1%"
TCP = {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "r0"}
LATENCY, BANDWIDTH = Figure("osu_latency", "us", True), Figure("osu_bw", "MB/s", False)
CALLS = 10_000_000
PARTS = ("calls", "million", "crowded", "osu", "loss", "idle")


def missing() -> str:
    return "" if LIBRARY.is_file() else f"{LIBRARY} is not there (make build)"


def traced(words: list[str | Path], options: list[str], env: dict[str, str], limit: float = 120) -> Output:
    """Runs words under polyrail trace and forgets the recording."""
    with tempfile.TemporaryDirectory() as run:
        return alone([POLYRAIL, "trace", *options, "-o", run, "--", *words], env, limit=limit)


def calls(rounds: int) -> list[Table]:
    """What a call costs: bench/trace_calls.c by itself and under tracers."""
    program = ROOT / "build/trace_calls"
    source = ROOT / "bench/trace_calls.c"
    program.parent.mkdir(exist_ok=True)
    alone(["cc", "-O2", "-Wall", "-o", program, source])

    def read(output: Output) -> Sample:
        found = re.findall(r"^(.+?)\s+([\d.]+) ns$", output.text, re.MULTILINE)
        if not found:
            raise Failed(output.reason())
        return {(Figure(name, "ns", True), None): float(value) for name, value in found}

    def under(name: str, words: list[str]) -> Column:
        gone = "" if shutil.which(name) else f"install Debian's {name}"
        return Column(name, {"calls": lambda: read(alone([*words, program, "2"]))}, gone)

    columns = [
        Column("alone", {"calls": lambda: read(alone([program]))}),
        Column("polyrail trace", {"calls": lambda: read(traced([program], [], {}))}, missing(), ours=True),
        under("strace", ["strace", "-f", "-o", "/dev/null"]),
        under("ltrace", ["ltrace", "-f", "-o", "/dev/null", "-e", "send+recv+read+epoll_wait"]),
    ]
    alternate(columns, rounds)
    table = Table("One call, the least of many rounds", columns)
    table.show()
    compare(table, "alone")
    return [table]


def ratio(ours: list[float], plain: list[float]) -> str:
    """How much more one median is than another, and between what the same would be found nine times of ten, by drawing rounds again."""
    rounds = min(len(ours), len(plain))
    draw = random.Random(1)

    def more(chosen: list[int]) -> float:
        return (statistics.median(ours[i] for i in chosen) / statistics.median(plain[i] for i in chosen) - 1) * 100

    drawn = sorted(more([draw.randrange(rounds) for _ in range(rounds)]) for _ in range(1000))
    return f"{more(list(range(rounds))):+.1f} % ({drawn[50]:+.1f} to {drawn[949]:+.1f})"


def compare(table: Table, with_what: str) -> None:
    """Says what each column adds to one of them."""
    base = next(column for column in table.columns if column.name == with_what)
    for column in table.columns:
        cells = []
        for key in table.rows():
            if column is not base and key in column.values and key in base.values:
                figure, size = key
                ours, plain = column.values[key], base.values[key]
                added = statistics.median(ours) - statistics.median(plain)
                change = f"{added:+.0f} ns" if figure.unit == "ns" else ratio(ours, plain)
                cells.append(f"{figure.name}{f' {size}' if size else ''} {change}")
        if cells:
            print(f"  {column.name} against {with_what}: " + ", ".join(cells))


def osu(rounds: int) -> list[Table]:
    """Inside scripts/lab: osu_latency and osu_bw between two hosts over MPICH's TCP, by themselves and under tracers."""
    directory = mpi.osu_directory("OSU_MPICH")
    no_osu = "" if directory else mpi.OSU.format("OSU_MPICH")

    def parts(before: list[str] | None) -> Parts:
        def run(name: str, figure: Figure, brief: list[str]) -> Sample:
            assert directory
            program = directory / "pt2pt" / name
            words = [mpi.mpiexec(program), *mpi.launch("mpich", 2, "two"), program, *brief]
            if before is None:
                return mpi.read(alone(words, TCP), [figure])
            if before[:1] == ["strace"]:
                return mpi.read(alone([*before, *words], TCP, limit=300), [figure])
            return mpi.read(traced(words, before, TCP), [figure])

        return {
            "latency": lambda: run("osu_latency", LATENCY, ["-m", "8:8", "-x", "1000", "-i", "200000"]),
            "bandwidth": lambda: run("osu_bw", BANDWIDTH, ["-m", "65536:1048576", "-x", "5", "-i", "100"]),
        }

    columns = [
        Column("alone", parts(None), no_osu),
        Column("traced", parts([]), no_osu or missing(), ours=True),
        Column("no kernel events", parts(["--no-kernel"]), no_osu or missing()),
        Column("sockets only", parts(["--no-kernel", "--no-mpi"]), no_osu or missing()),
    ]
    if shutil.which("strace"):
        brief = {"latency": lambda: strace(directory, "osu_latency", LATENCY, ["-m", "8:8", "-x", "10", "-i", "200"])}
        columns.append(Column("strace", brief, no_osu))
    alternate(columns, rounds)
    table = Table("Two hosts, MPICH over libfabric's tcp", columns)
    table.show()
    compare(table, "alone")
    return [table]


def strace(directory: Path | None, name: str, figure: Figure, brief: list[str]) -> Sample:
    assert directory
    program = directory / "pt2pt" / name
    words = ["strace", "-f", "-o", "/dev/null", mpi.mpiexec(program), *mpi.launch("mpich", 2, "two"), program, *brief]
    return mpi.read(alone(words, TCP, limit=300), [figure])


def transfer(run: str, *words: str) -> str:
    """Inside scripts/lab, under polyrail trace: bench/trace_transfer.py on host a, and its server on host b. What it prints."""
    python, script, port = shutil.which("python3", path="/usr/bin:/bin") or "python3", ROOT / "bench/trace_transfer.py", "5000"
    ssh = os.environ["POLYRAIL_LAB_SSH"]
    server = f"{ssh} b {python} {script} serve {port}"
    client = f"{ssh} a {python} {script} {words[0]} 10.77.0.2 {port} {' '.join(words[1:])}"
    shell = ["sh", "-c", f"{server} & {client}; wait"]
    return alone([POLYRAIL, "trace", "-o", run, "--", *shell]).text


def report(run: str) -> str:
    return alone([POLYRAIL, "report", "--no-parquet", "--no-perfetto", run]).text


def loss() -> list[Table]:
    """Inside scripts/lab with a rail that loses packets: retransmissions as the tool, ss and nstat count them."""
    with tempfile.TemporaryDirectory() as run:
        said = transfer(run, "bulk", "-", "20000000")
        counted = re.search(r"([\d,]+) again", report(run))
    tool = int(counted[1].replace(",", "")) if counted else 0
    kernel = {name: int(value) for name, value in re.findall(r"^(ss|nstat) (\d+)$", said, re.MULTILINE)}
    print(f"\n20 MB over a path of 20 ms that loses 1 %: segments sent again: polyrail {tool}, ss {kernel['ss']}, nstat {kernel['nstat']}")
    if not tool == kernel["ss"] == kernel["nstat"]:
        raise Failed("retransmissions differ")
    return []


def idle() -> list[Table]:
    """Inside scripts/lab with a rail of 20 ms: windows that collapse after a second of rest, and such that do not."""
    for setting in ("1", "0"):
        alone(["sysctl", "-qw", f"net.ipv4.tcp_slow_start_after_idle={setting}"], place=Place("a"))
        with tempfile.TemporaryDirectory() as run:
            said = transfer(run, "idle", "cubic")
            found = re.findall(r"^\* (.*idle.*)\n\s+(.*)$", report(run), re.MULTILINE)
        print(f"\nTransfers on a path of 20 ms, tcp_slow_start_after_idle {setting}\n{said.rstrip()}")
        print(f"  the report: {found[0][0]}: {found[0][1]}" if found else "  the report: nothing about windows after a pause")
    return []


def million() -> None:
    """Ten million calls recorded one by one, and the report of them."""
    with tempfile.TemporaryDirectory() as run:
        program = ROOT / "build/trace_calls"
        alone([POLYRAIL, "trace", "--every-call", "--no-kernel", "-o", run, "--", program, str(CALLS // 8000)], limit=300)
        recorded = sum(file.stat().st_size for file in Path(run).glob("*.trace"))
        begin = time.monotonic()
        output = subprocess.run([POLYRAIL, "report", run], capture_output=True, text=True, check=True)
        seconds = time.monotonic() - begin
        count = int(re.search(r"([\d,]+) socket calls", output.stdout)[1].replace(",", ""))
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        page = (Path(run) / "report.html").stat().st_size
    print(
        f"\n{count:,} calls: {recorded / count:.1f} bytes each on disk; report in {seconds:.1f} s, at most {memory:.0f} MB of memory "
        f"(of all programs of this benchmark), page of {page / 1e6:.1f} MB"
    )


def crowded(rounds: int) -> list[Table]:
    """Four threads that make calls and nothing else, beside four busy loops: what a call takes, and that none is lost."""
    program = ROOT / "build/trace_threads"
    alone(["cc", "-O2", "-Wall", "-pthread", "-o", program, ROOT / "bench/trace_threads.c"])
    wall, processor = (Figure(f"a call, by the {name}", "ns", True) for name in ("clock", "processor"))

    def read(output: Output) -> Sample:
        found = dict(re.findall(r"^(wall|processor) ([\d.]+) ns$", output.text, re.MULTILINE))
        if len(found) != 2:
            raise Failed(output.reason())
        return {(wall, None): float(found["wall"]), (processor, None): float(found["processor"])}

    def whole() -> Sample:
        with tempfile.TemporaryDirectory() as run:
            output = alone([POLYRAIL, "trace", "--no-kernel", "-o", run, "--", program, "4", CALLS], limit=600)
            told = report(run)
        made = re.search(r"([\d,]+) socket calls", told)
        count = int(made[1].replace(",", "")) if made else 0
        # four pairs of sockets are made
        if "were lost" in told or count < CALLS:
            raise Failed(f"{count:,} of {CALLS:,} calls recorded")
        return read(output)

    brief = [program, "4", "40000"]
    gone = "" if shutil.which("strace") else "install Debian's strace"
    columns = [
        Column("alone", {"calls": lambda: read(alone([program, "4", CALLS]))}),
        Column("polyrail trace", {"calls": whole}, missing(), ours=True),
        Column("strace", {"calls": lambda: read(alone(["strace", "-f", "-o", "/dev/null", *brief], limit=300))}, gone),
    ]
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(4)]
    try:
        alternate(columns, rounds)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    table = Table(f"{CALLS:,} calls of four threads beside four busy loops (under strace 40,000): none lost", columns)
    table.show()
    compare(table, "alone")
    return [table]


def here(rounds: int, only: list[str]) -> list[Table]:
    """On this host: those of the parts calls, million and crowded that are asked for; all if none is."""
    wanted = [part for part in PARTS[:3] if not only or part in only]
    tables = calls(rounds) if "calls" in wanted else []
    if "million" in wanted:
        million()
    return tables + (crowded(min(rounds, 5)) if "crowded" in wanted else [])
