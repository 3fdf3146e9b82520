"""Messages between two processes: through libfabric's own benchmarks, and UCX's beside them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from .figures import BANDWIDTH, CPU, LATENCY, RATE, Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import BEFORE, HERE, OURS, Build, Place, alone, find, fresh_port, pair, provider_missing

SIZES = [1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
LATENCY_SIZES = [8, 1 << 10, 64 << 10, 1 << 20]
CPU_SIZE, CPU_COUNT = 1 << 20, 2000
# with the tenth that warms up
CPU_GB = 1.1 * CPU_COUNT * CPU_SIZE / 1e9
Places = tuple[Place, Place]

HERE_BOTH: Places = (HERE, HERE)

FABTESTS = "build libfabric's fabtests and set FABTESTS_BIN to the directory of its programs"
UCX = "install UCX with ucx_perftest (Debian: ucx-utils) or build it, and set UCX_BIN to its directory"


def groups(sizes: list[int], most: int) -> list[tuple[list[int], int]]:
    """Sizes that take the same number of messages: a list, and the number. Windows want more messages than they hold."""
    found: dict[int, list[int]] = {}
    for size in sizes:
        count = next(count for limit, count in ((8 << 10, most), (256 << 10, 2000), (4 << 20, 200), (1 << 40, 20)) if size <= limit)
        found.setdefault(min(count, most), []).append(size)
    return [(sizes, count) for count, sizes in found.items()]


class Fabtests:
    """libfabric's benchmarks over one provider."""

    def __init__(self, provider: str, env: dict[str, str], places: Places = HERE_BOTH, address: str = "127.0.0.1"):
        self.provider, self.env, self.places, self.address = provider, env, places, address

    def run(self, program: str, sizes: list[int], count: int) -> tuple[dict[int, float], float]:
        """Seconds per message of each size; processor seconds of both sides."""
        file = find(program, "FABTESTS_BIN")
        port = fresh_port()
        listed = "l:" + ",".join(map(str, sizes))
        window = ["-W", "64" if max(sizes) <= 1 << 20 else "4"] if program.endswith("_bw") else []
        words = [file, "-p", self.provider, "-S", listed, "-I", count, "-w", max(count // 10, 4), "-m", f"-E={port}", *window]
        outputs = pair(words, [*words, self.address], port, self.env, self.places)
        seconds = {}
        for line in outputs[1].text.splitlines():
            if found := re.search(r"xfer_size: (\d+), iterations: (\d+), .*time: ([\d.]+), .*usec/xfer: ([\d.]+)", line):
                seconds[int(found[1])] = float(found[4]) / 1e6
        if set(seconds) != set(sizes):
            raise Failed(outputs[1].reason())
        return seconds, sum(output.cpu_seconds for output in outputs)

    def parts(self) -> Parts:
        return {"latency": self.latency, "rate": self.rate, "bandwidth": self.bandwidth}

    def latency(self) -> Sample:
        runs = (self.run("fi_rdm_tagged_pingpong", *group)[0] for group in groups(LATENCY_SIZES, 10_000))
        return {(LATENCY, size): seconds * 1e6 for run in runs for size, seconds in run.items()}

    def rate(self) -> Sample:
        return {(RATE, 8): 1 / self.run("fi_rdm_tagged_bw", [8], 100_000)[0][8]}

    def bandwidth(self) -> Sample:
        runs = (self.run("fi_rdm_tagged_bw", *group)[0] for group in groups(SIZES, 20_000))
        return {(BANDWIDTH, size): size / seconds / 1e6 for run in runs for size, seconds in run.items()}

    def cpu(self) -> Sample:
        return {(CPU, CPU_SIZE): self.run("fi_rdm_tagged_bw", [CPU_SIZE], CPU_COUNT)[1] / CPU_GB}


class Ucx:
    """UCX's benchmark. It takes a list of tests, and writes CSV."""

    def __init__(self, env: dict[str, str], places: Places = HERE_BOTH, address: str = "127.0.0.1"):
        self.env, self.places, self.address = env, places, address

    def run(self, tests: dict[str, list]) -> tuple[dict[str, list[float]], float]:
        with tempfile.NamedTemporaryFile("w", suffix=".ucx") as batch:
            for name, words in tests.items():
                print(name, *words, file=batch)
            batch.flush()
            port = fresh_port()
            words = [find("ucx_perftest", "UCX_BIN"), "-b", batch.name, "-p", port]
            outputs = pair(words, [*words[:1], self.address, *words[1:], "-v"], port, self.env, self.places)
        # long tests tell how they are getting on, by thread; the last line of each is the result
        lines = (line for line in outputs[1].text.splitlines() if "[thread" not in line)
        rows = (line.replace(" ", "").split(",") for line in lines)
        found = {row[0]: [float(word) for word in row[1:]] for row in rows if row[0] in tests}
        if set(found) != set(tests):
            raise Failed(outputs[1].reason())
        return found, sum(output.cpu_seconds for output in outputs)

    def parts(self) -> Parts:
        return {"latency": self.latency, "rate": self.rate, "bandwidth": self.bandwidth}

    @staticmethod
    def test(kind: str, size: int, count: int) -> list:
        return ["-t", kind, "-s", size, "-n", count, "-w", max(count // 10, 4)]

    # a row has the iterations; the time of a message at 50 %, on average, over all; the bandwidth on average, over all; the
    # rate on average, over all
    def latency(self) -> Sample:
        counts = {size: count for sizes, count in groups(LATENCY_SIZES, 10_000) for size in sizes}
        rows = self.run({str(size): self.test("tag_lat", size, count) for size, count in counts.items()})[0]
        return {(LATENCY, size): rows[str(size)][3] for size in counts}

    def rate(self) -> Sample:
        return {(RATE, 8): self.run({"8": self.test("tag_bw", 8, 100_000)})[0]["8"][7]}

    def bandwidth(self) -> Sample:
        counts = {size: count for sizes, count in groups(SIZES, 20_000) for size in sizes}
        rows = self.run({str(size): self.test("tag_bw", size, count) for size, count in counts.items()})[0]
        # from the rate: its megabytes are not ours
        return {(BANDWIDTH, size): rows[str(size)][7] * size / 1e6 for size in counts}

    def cpu(self) -> Sample:
        return {(CPU, CPU_SIZE): self.run({"cpu": self.test("tag_bw", CPU_SIZE, CPU_COUNT)})[1] / CPU_GB}


def api(env: dict[str, str]) -> Parts:
    """Ours without libfabric: polyrail bench."""

    def measure(name: str, figure: Figure, sizes: list[int]) -> Sample:
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            listed = ",".join(map(str, sizes))
            alone([OURS.command, "bench", name, "--size", listed, "--repetitions", 1, "--csv", file.name], env)
            rows = [line.split(",") for line in Path(file.name).read_text().splitlines()[1:]]
        return {(figure, int(row[2])): float(row[3]) for row in rows}

    return {
        "latency": lambda: measure("latency", LATENCY, LATENCY_SIZES),
        "rate": lambda: measure("rate", RATE, [8]),
        "bandwidth": lambda: measure("bandwidth", BANDWIDTH, SIZES),
    }


def fabtests_missing() -> str:
    return "" if find("fi_rdm_tagged_bw", "FABTESTS_BIN") else FABTESTS


def ucx_missing() -> str:
    return "" if find("ucx_perftest", "UCX_BIN") else UCX


def ours_env(build: Build = OURS, **more: str) -> dict[str, str]:
    return {"FI_PROVIDER_PATH": str(build.provider), **more}


def same_host(rounds: int) -> list[Table]:
    """Two processes of this host, by shared memory and by TCP."""
    ours_missing = fabtests_missing() or provider_missing()
    api_missing = "" if os.access(OURS.command, os.X_OK) else f"{OURS.command} is not there (make build)"
    ucx = {"shm": {"UCX_TLS": "sm,self", "UCX_NET_DEVICES": "lo"}, "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}}
    tables = []
    for path, title in (("shm", "Same host, shared memory"), ("tcp", "Same host, TCP")):
        own = {} if path == "shm" else {"FI_TCP_IFACE": "lo"}
        rails = {"POLYRAIL_RAILS": path}
        columns = [
            Column("polyrail", Fabtests("polyrail", ours_env(**rails)).parts(), ours_missing, ours=True),
            Column("polyrail bench", api(rails), api_missing, ours=True),
            Column(f"libfabric {path}", Fabtests(path, own).parts(), fabtests_missing()),
            Column("UCX", Ucx(ucx[path]).parts(), ucx_missing()),
        ]
        if BEFORE:
            columns[1:] = [Column("before", Fabtests("polyrail", ours_env(BEFORE, **rails)).parts(), ours_missing)]
        alternate(columns, rounds)
        tables.append(Table(title, columns))
        tables[-1].show()
    return tables


def two_hosts(rounds: int) -> list[Table]:
    """Two hosts of scripts/lab, joined by rail r0, by TCP."""
    places, address = (Place("a"), Place("b")), "10.77.0.1"
    ours_missing = fabtests_missing() or provider_missing()
    sides = {
        "polyrail": Fabtests("polyrail", ours_env(POLYRAIL_INTERFACES="r0"), places, address),
        "libfabric tcp": Fabtests("tcp", {"FI_TCP_IFACE": "r0"}, places, address),
        "libfabric tcp;ofi_rxm": Fabtests("tcp;ofi_rxm", {"FI_TCP_IFACE": "r0"}, places, address),
        "UCX tcp": Ucx({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "r0"}, places, address),
    }
    if BEFORE:
        env = ours_env(BEFORE, POLYRAIL_INTERFACES="r0")
        sides = {"polyrail": sides["polyrail"], "before": Fabtests("polyrail", env, places, address)}
    missing = {"polyrail": ours_missing, "UCX tcp": ucx_missing()}
    columns = [
        Column(name, {**side.parts(), "CPU": side.cpu}, missing.get(name, fabtests_missing()), name == "polyrail")
        for name, side in sides.items()
    ]
    alternate(columns, rounds)
    tables = [Table("Two hosts (namespaces), TCP", columns)]
    tables[0].show()
    return tables
