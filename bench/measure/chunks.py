"""Messages between two processes of this host, timed in short chunks: what they take when nothing else wants the processors."""

from __future__ import annotations

from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .msg import Ucx, ours_env, ucx_missing
from .programs import BEFORE, alone, libfabric_program, provider_missing

LATENCY = Figure("latency, median chunk", "us", True)
STREAM = Figure("message of a stream, median chunk", "us", True)
LATENCIES = [8, 64, 1 << 10, 4 << 10, 64 << 10]
STREAMS = [8, 64, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10]
# chunks of each size: a second of them, about
CHUNKS = {"latency": lambda size: 2000 if size <= 4 << 10 else 200, "stream": lambda size: 1000 if size <= 4 << 10 else 100}


def parts(program: str, provider: str, env: dict[str, str]) -> Parts:
    def measure(mode: str, figure: Figure, sizes: list[int]) -> Sample:
        found: Sample = {}
        for size in sizes:
            output = alone([program, provider, mode, size, CHUNKS[mode](size)], env)
            try:
                found[figure, size] = float(output.text.split()[0]) / 1e3
            except (IndexError, ValueError):
                raise Failed(output.reason()) from None
        return found

    return {
        "latency": lambda: measure("latency", LATENCY, LATENCIES),
        "stream": lambda: measure("stream", STREAM, STREAMS),
    }


def ucx_latency() -> Sample:
    """UCX says what half of all messages took; of streams it has no such figure."""
    ucx = Ucx({"UCX_TLS": "posix,self,tcp", "UCX_NET_DEVICES": "lo"})
    rows = ucx.run({str(size): Ucx.test("tag_lat", size, 200_000 if size <= 4 << 10 else 10_000) for size in LATENCIES})[0]
    return {(LATENCY, size): rows[str(size)][1] for size in LATENCIES}


def tables(rounds: int) -> list[Table]:
    program, missing = libfabric_program("fi_chunks")
    made = []
    for path, title in (("shm", "shared memory"), ("tcp", "TCP over loopback")):
        rails = {"POLYRAIL_RAILS": path}
        columns = [Column("polyrail", parts(program, "polyrail", ours_env(**rails)), missing or provider_missing(), ours=True)]
        if BEFORE:
            columns.append(Column("before", parts(program, "polyrail", ours_env(BEFORE, **rails)), missing))
        columns.append(Column(f"libfabric {path}", parts(program, path, {"FI_TCP_IFACE": "lo"}), missing))
        if path == "shm":
            columns.append(Column("UCX", {"latency": ucx_latency}, ucx_missing()))
        alternate(columns, rounds)
        made.append(Table(f"Two processes of one host, {title}", columns))
        made[-1].show()
    return made
