"""Programs of this check, in several languages, that print what they have counted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

from .. import mpi
from ..programs import ROOT, alone
from ..trace import TCP as MPICH_TCP
from .recording import LIMIT, SOURCES, Row, Run, run, whole


def echo(one: Run, program: str) -> list[Row]:
    """Of an echo server and its clients in one process that print what they have counted."""
    recorded = one.recorded
    said = {name: one.number(rf"^{name} (\d+)") for name in ("connections", "server_sent", "server_received", "client_sent", "client_received")}
    found = [
        Row("TCP connections", recorded.connections(), said["connections"], "the program"),
        Row("bytes sent", recorded.sent(program), said["client_sent"] + said["server_sent"], "the program"),
        Row("bytes received", recorded.received(program), said["client_received"] + said["server_received"], "the program"),
    ]
    return found + whole(one)


def asyncio(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    script = f"python3 {SOURCES}/echo.py 40 {50 if quick else 500}"
    yield "", lambda: echo(run(script), "python3")


def java(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    yield "", lambda: echo(run(f"java {SOURCES}/Echo.java 8 {200 if quick else 5000}"), "java")


def go_compiler() -> str | None:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def go(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    program = ROOT / "build/truth_echo"
    program.parent.mkdir(exist_ok=True)
    compiler = go_compiler()
    assert compiler

    def rows() -> list[Row]:
        alone([compiler, "build", "-o", program, SOURCES / "echo.go"], {"CGO_ENABLED": "0", "GO111MODULE": "off"}, limit=LIMIT)
        return echo(run(f"{program} 4 {1 if quick else 2}"), "truth_echo")

    yield "static", rows


def alltoall(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    families = {
        "mpich": {**MPICH_TCP, "FI_TCP_IFACE": "lo"},
        "openmpi": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo", **mpi.OPEN_MPI_ROOT},
    }

    def rows(family: str) -> list[Row]:
        prefix = ROOT / ".venv" / family / "bin"
        env = families[family]
        settings = " ".join(f"{name}={value}" for name, value in env.items())
        words = mpi.launch(family, 4, "one")
        one = run(f"env {settings} {prefix}/mpiexec {' '.join(words)} {prefix}/python {SOURCES}/alltoall.py {50 if quick else 300} 20000")
        calls = [
            Row(name, one.recorded.calls(name), one.number(rf"^{name} (\d+)"), "the program") for name in ("MPI_Alltoall", "MPI_Sendrecv")
        ]
        ranks = one.number(r"^ranks (\d+)")
        bytes_ = one.number(r"^bytes (\d+)")
        sent = sum(one.recorded.processes[n]["bytes_sent"] for n, p in enumerate(one.recorded.page["processes"]) if p["rank"] is not None)
        return [
            *calls,
            Row("ranks", len([p for p in one.recorded.page["processes"] if p["rank"] is not None]), ranks, "the program"),
            Row("bytes of ranks through sockets", sent, bytes_, "the program", 0, bytes_ // 10 + 1_000_000, "the library's own headers and questions"),
            *whole(one),
        ]

    for family in families:
        if (ROOT / ".venv" / family / "bin/mpiexec").is_file():
            yield family, lambda family=family: rows(family)


def threads(quick: bool) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    program = ROOT / "build/truth_calls"
    program.parent.mkdir(exist_ok=True)
    rounds = 100_000 if quick else 500_000

    def rows() -> list[Row]:
        alone(["cc", "-O2", "-Wall", "-pthread", "-o", program, SOURCES / "calls.c"])
        one = run(f"{program} 4 {rounds}")
        recorded = one.recorded
        said = {name: one.number(rf"^{name} (\d+)") for name in ("send", "recv", "empty", "bytes", "tcp", "unix")}
        return [
            Row("calls of send", recorded.calls("send"), said["send"], "the program"),
            Row("calls of recv with success", recorded.calls("recv"), said["recv"], "the program"),
            Row("calls of recv", recorded.calls("recv", good=False), said["recv"] + said["empty"], "the program"),
            Row("bytes sent", recorded.sent() + recorded.sent(kind="unix"), said["bytes"], "the program"),
            Row("bytes received", recorded.received() + recorded.received(kind="unix"), said["bytes"], "the program"),
            Row("Unix connections", recorded.connections("unix"), said["unix"], "the program"),
            *whole(one),
        ]

    yield "", rows
