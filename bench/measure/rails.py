"""Several rails between two hosts of scripts/lab used as one, beside what peers make of them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path

from . import mpi
from .figures import CPU, Column, Failed, Figure, Parts, Sample, Table, alternate, size_name
from .programs import BEFORE, OURS, ROOT, Build, Output, Place, alone, fresh_port, pair, provider_missing

ONE_WAY, BOTH_WAYS, PUT, GET = (Figure(f"osu_{name}", "MB/s", False) for name in ("bw", "bibw", "put_bw", "get_bw"))
LATENCY, STREAM = Figure("osu_latency", "us", True), Figure("a stream", "MB/s", False)
# Of 8 bytes there and back, alone and beside long messages; what those get meanwhile.
TAILS = [Figure(f"8 B {where}, {part}", "us", True) for where in ("alone", "beside") for part in ("median", "99 %", "99.9 %")]
BESIDE = Figure("long messages beside", "MB/s", False)
HOSTS = (Place("a"), Place("b"))

K, M = 1 << 10, 1 << 20
# A window holds enough to keep the wires busy between two windows; at 256 MB one message must do that by itself.
WINDOWS = {64 * K: 64, M: 16, 4 * M: 8, 16 * M: 4, 64 * M: 2, 256 * M: 1}
ALL, LARGE, HUGE = list(WINDOWS), [16 * M, 64 * M, 256 * M], [64 * M, 256 * M]
TO_64M = ALL[:-1]
# So long does a cell take that gets all of the wires, apart from its start and its one window to warm up.
CELL_SECONDS = 1.5
CPU_SIZE, CPU_SECONDS = 16 * M, 3
STREAM_SECONDS = 2
TAILS_SECONDS, TAILS_SIZE = 5, 4 * M


@dataclass(frozen=True)
class Setting:
    """Rails as scripts/lab has them, one word each, and what is measured over them."""

    rails: str
    one_way: list[int] = field(default_factory=list)
    both_ways: list[int] = field(default_factory=list)
    put: list[int] = field(default_factory=list)
    get: list[int] = field(default_factory=list)
    # least and most bytes
    latency: tuple[int, int] | None = None
    # latency and CPU of all rails against those of one, too
    against_one: bool = False
    # short messages while long ones fill all rails
    tails: bool = False

    def only(self, parts: list[str]) -> Setting:
        """The same rails with these PARTS alone, as they are measured anywhere."""
        return Setting(self.rails, **{part: getattr(self, part) or getattr(ANY, part) for part in parts}) if parts else self

    def count(self) -> int:
        return len(self.rails.split())

    def bytes_per_second(self) -> float:
        return sum(int(rate) for rate in re.findall(r"(?:^|[ :])(\d+)", self.rails)) * 1e6 / 8

    def sizes(self) -> list[tuple[Figure, list[int]]]:
        """Of every figure that is a bandwidth."""
        return [(ONE_WAY, self.one_way), (BOTH_WAYS, self.both_ways), (PUT, self.put), (GET, self.get)]

    def title(self) -> str:
        return f"Rails of {' + '.join(self.rails.split())} Mbit/s"


# What is measured of a part over rails that are in no setting with it.
ANY = Setting("", LARGE, LARGE, LARGE, LARGE, (8, 8 * K), True, True)
PARTS = [part.name for part in fields(Setting) if part.name != "rails"]
SETTINGS = [
    *(Setting(" ".join(["1000"] * count), ALL, ALL, tails=count == 1) for count in (1, 2, 3)),
    Setting("1000 1000 1000 1000", ALL, ALL, TO_64M, TO_64M, against_one=True, tails=True),
    *(Setting(rails, LARGE) for rails in ("1000 250", "1000 100", "1000 500 250 125")),
    Setting("1000 relay:1000,delay=10ms", HUGE, latency=(8, 8)),
    # unshaped: processors that have nothing to wait for show what each byte costs them
    Setting("0 0 0 0", against_one=True),
]


@dataclass(frozen=True)
class Contender:
    """An MPI over some way to use rails: how a program is started, half of its ranks on each host."""

    name: str
    family: str
    env: dict[str, str]
    arguments: list[str] = field(default_factory=list)
    ours: bool = False
    ranks: int = 2
    build: Build = OURS
    # its rails, by their names; empty: all
    over: str = ""

    def command(self, program: Path, *words: object) -> list[str]:
        launch = [*mpi.launch(self.family, self.ranks, "two", self.over), *self.arguments]
        before = [str(self.build.command), "run", *launch, "--"] if self.ours else [mpi.mpiexec(program), *launch]
        environment = (f"{name}={value}" for name, value in {**mpi.OPEN_MPI_ROOT, **self.env}.items())
        return ["env", *environment, *before, str(program), *map(str, words)]

    def run(self, program: Path, *words: object, limit: float = 120) -> Output:
        return alone(self.command(program, *words), limit=limit)

    def osu(self, figure: Figure) -> Path:
        """The program that measures it."""
        variable = "OSU_MPICH" if self.family == "mpich" else "OSU_OMPI"
        if directory := mpi.osu_directory(variable):
            return directory / ("one-sided" if figure in (PUT, GET) else "pt2pt") / figure.name
        raise Failed(mpi.OSU.format(variable))

    def missing(self) -> str:
        try:
            self.osu(ONE_WAY)
        except Failed as why:
            return str(why)
        return self.missing_itself()

    def missing_itself(self) -> str:
        """The same where no program of OSU's is needed."""
        return provider_missing() if self.ours else ""


def names(rails: int) -> str:
    return ",".join(f"r{rail}" for rail in range(rails))


def ours(rails: int, name: str = "polyrail", build: Build = OURS) -> Contender:
    return Contender(name, "mpich", {"POLYRAIL_INTERFACES": names(rails)}, ours=True, build=build)


def ucx(rails: int, told: bool = True, name: str = "MPICH, UCX") -> Contender:
    """MPICH over UCX, which uses two rails unless it is told to use more."""
    env = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self"}
    if told:
        env |= {f"UCX_MAX_{kind}_RAILS": str(rails) for kind in ("RNDV", "EAGER", "RMA")}
    return Contender(name, "mpich", env, over=names(rails))


def open_mpi(rails: int, name: str = "Open MPI, tcp") -> Contender:
    return Contender(name, "openmpi", {}, ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"], over=names(rails))


def libfabric(name: str = "MPICH, libfabric tcp") -> Contender:
    return Contender(name, "mpich", {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "r0"})


def contenders(rails: int) -> list[Contender]:
    if BEFORE:
        return [ours(rails), ours(rails, "before", BEFORE)]
    found = [ours(rails), ucx(rails), open_mpi(rails)]
    if rails == 1:
        found.append(libfabric())
    if rails == 4:
        found.append(ucx(rails, told=False, name="as installed, UCX"))
    return found


def parts(contender: Contender, setting: Setting) -> Parts:
    """The benchmarks, a size each: what is measured at the same time should be as close together as can be."""

    def bandwidth(figure: Figure, size: int) -> Sample:
        window = WINDOWS[size]
        count = max(2, round(CELL_SECONDS * setting.bytes_per_second() / (size * window)))
        words = ["-m", f"{size}:{size}", "-W", window, "-x", 1, "-i", count]
        return mpi.read(contender.run(contender.osu(figure), *words), [figure])

    found: Parts = {}
    for figure, sizes in setting.sizes():
        for size in sizes:
            found[f"{figure.name} {size_name(size)}"] = lambda figure=figure, size=size: bandwidth(figure, size)
    if setting.latency:
        found[LATENCY.name] = lambda: latency(contender, *setting.latency)
    return found


def latency(contender: Contender, least: int, most: int) -> Sample:
    return mpi.read(contender.run(contender.osu(LATENCY), "-m", f"{least}:{most}", "-x", 200, "-i", 2000), [LATENCY])


def processors(contender: Contender) -> Sample:
    """What both ranks use of processors, without the starting, for a stream of large messages."""
    program = mpi.build(contender.family, ROOT / "bench/stream_check.c")
    output = contender.run(program, CPU_SECONDS, CPU_SIZE, "nocheck")
    if found := re.search(r"^end \S+ (\d+) 0 \S+ (\S+)", output.text, re.MULTILINE):
        return {(CPU, CPU_SIZE): float(found[2]) / float(found[1]) * 1e9}
    raise Failed(output.reason())


def tails(contender: Contender) -> Sample:
    """How long short messages take at worst, alone and while long ones fill all rails."""
    program = mpi.build(contender.family, ROOT / "bench/tails.c")
    output = contender.run(program, TAILS_SECONDS, TAILS_SIZE)
    lines = re.findall(r"^(?:alone|beside) (\S+) (\S+) (\S+) \S+ \d+ (\S+)$", output.text, re.MULTILINE)
    if len(lines) != 2:
        raise Failed(output.reason())
    times = [float(time) for line in lines for time in line[:3]]
    return {(figure, None): time for figure, time in zip(TAILS, times, strict=True)} | {(BESIDE, TAILS_SIZE): float(lines[1][3])}


def iperf(rail: int, *words: str, before: tuple[str, ...] = (), server: tuple[str, ...] = ()) -> float:
    """Bytes per second that arrive from one TCP stream over a rail, or from two, one each way."""
    port = fresh_port()
    serve = [*before, "iperf3", "-s", "-1", "-p", str(port), *server]
    # the first second, in which a stream speeds up, does not count
    send = [*before, "iperf3", "-J", "-p", str(port), "-O", "1", "-t", str(STREAM_SECONDS)]
    send += ["-c", f"10.77.{rail}.2", "-B", f"10.77.{rail}.1"]
    output = pair(serve, [*send, *words], port, places=(HOSTS[1], HOSTS[0]))[1]
    ends = json.loads(output.text)["end"]
    return sum(ends[name]["bits_per_second"] for name in ("sum_received", "sum_received_bidir_reverse") if name in ends) / 8


def line_rate(setting: Setting) -> Parts:
    """What TCP carries by as many streams as there are rails, all at once: no stack can do more."""

    def measure(keys: list[tuple[Figure, int | None]], *words: str) -> Sample:
        with ThreadPoolExecutor(setting.count()) as pool:
            rates = pool.map(lambda rail: iperf(rail, *words, server=("-B", f"10.77.{rail}.2")), range(setting.count()))
            return dict.fromkeys(keys, sum(rates) / 1e6)

    keys = [(figure, size) for figure, sizes in setting.sizes() for size in sizes]
    both_ways = [key for key in keys if key[0] == BOTH_WAYS]
    found: Parts = {"a stream": lambda: measure([*(key for key in keys if key not in both_ways), (STREAM, None)])}
    if both_ways:
        found["streams both ways"] = lambda: measure(both_ways, "--bidir")
    return found


def mptcp(setting: Setting) -> Callable[[], Sample]:
    """The kernel's own way to use several rails, by one stream."""

    def measure() -> Sample:
        rails = setting.count()
        for place in HOSTS:
            alone(["ip", "mptcp", "limits", "set", "subflow", str(rails), "add_addr_accepted", str(rails)], place=place)
        alone(["ip", "mptcp", "endpoint", "flush"], place=HOSTS[1])
        for rail in range(1, rails):
            alone(["ip", "mptcp", "endpoint", "add", f"10.77.{rail}.2", "dev", f"r{rail}", "signal"], place=HOSTS[1])
        # the server takes further streams at its other addresses: it is bound to none
        return {(STREAM, None): iperf(0, before=("mptcpize", "run")) / 1e6}

    return measure


def iperf_missing() -> str:
    return "" if shutil.which("iperf3") else "install iperf3 (Debian: iperf3)"


def mptcp_missing() -> str:
    if not os.path.exists("/proc/sys/net/mptcp/enabled"):
        return "this kernel has no MPTCP"
    return iperf_missing() or ("" if shutil.which("mptcpize") else "install mptcpize (Debian: mptcpize)")


def chosen(parts: list[str]) -> list[str]:
    """The rails of the settings that have any of these PARTS; all of them if there are none."""
    return [setting.rails for setting in SETTINGS if not parts or any(getattr(setting, part) for part in parts)]


def tables(rounds: int, rails: str, only: list[str]) -> list[Table]:
    """Inside scripts/lab with these rails."""
    setting = next((known for known in SETTINGS if known.rails == rails), Setting(rails, LARGE)).only(only)
    found = []
    if setting.latency or any(sizes for _, sizes in setting.sizes()):
        columns = [Column("line rate", line_rate(setting), iperf_missing(), limit=True)]
        for each in contenders(setting.count()):
            columns.append(Column(each.name, parts(each, setting), each.missing(), each.ours and each.build is OURS))
        if setting.count() > 1 and not BEFORE:
            columns.append(Column("kernel MPTCP", {"a stream": mptcp(setting)}, mptcp_missing()))
        found.append(measured(setting.title(), columns, rounds))
    if setting.against_one:
        columns = []
        for each in against_one(setting.count()):
            does: Parts = {"osu_latency": lambda each=each: latency(each, 8, 8 * K), "CPU": lambda each=each: processors(each)}
            columns.append(Column(each.name, does, each.missing(), each.ours and each.build is OURS))
        found.append(measured(f"{setting.title()}, all against r0 alone", columns, rounds))
    if setting.tails:
        columns = []
        for each in contenders(setting.count()):
            does = {"tails": lambda each=each: tails(each)}
            columns.append(Column(each.name, does, each.missing_itself(), each.ours and each.build is OURS))
        found.append(measured(f"{setting.title()}, 8 B beside messages of {size_name(TAILS_SIZE)}", columns, rounds))
    return found


def against_one(rails: int) -> list[Contender]:
    if BEFORE:
        return contenders(rails)
    return [
        ours(rails, f"polyrail, {rails}"),
        ours(1, "polyrail, 1"),
        ucx(rails, name=f"UCX, {rails}"),
        ucx(1, name="UCX, 1"),
        open_mpi(rails, f"Open MPI, {rails}"),
        open_mpi(1, "Open MPI, 1"),
        libfabric("libfabric, 1"),
    ]


def measured(title: str, columns: list[Column], rounds: int) -> Table:
    alternate(columns, rounds)
    table = Table(title, columns)
    table.show()
    return table
