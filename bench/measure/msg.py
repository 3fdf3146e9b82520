"""Messages between two processes: through libfabric's own benchmarks, and UCX's beside them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from .figures import BANDWIDTH, CPU, LATENCY, RATE, Column, Failed, Sample, Table, alternate
from .programs import HERE, POLYRAIL, PROVIDER_DIR, Place, alone, find, fresh_port, pair, provider_missing

SIZES = [1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
LATENCY_SIZES = [8, 1 << 10, 64 << 10]
CPU_SIZE = 1 << 20
Places = tuple[Place, Place]

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

    def __init__(self, provider: str, env: dict[str, str], places: Places = (HERE, HERE), address: str = "127.0.0.1"):
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

    def sample(self) -> Sample:
        sample: Sample = {}
        for sizes, count in groups(LATENCY_SIZES, 10_000):
            for size, seconds in self.run("fi_rdm_tagged_pingpong", sizes, count)[0].items():
                sample[LATENCY, size] = seconds * 1e6
        rate = self.run("fi_rdm_tagged_bw", [8], 100_000)[0]
        sample[RATE, 8] = 1 / rate[8]
        for sizes, count in groups(SIZES, 20_000):
            for size, seconds in self.run("fi_rdm_tagged_bw", sizes, count)[0].items():
                sample[BANDWIDTH, size] = size / seconds / 1e6
        return sample

    def cpu(self) -> Sample:
        count = 2000
        cpu = self.run("fi_rdm_tagged_bw", [CPU_SIZE], count)[1]
        return {(CPU, CPU_SIZE): cpu / (1.1 * count * CPU_SIZE / 1e9)}


class Ucx:
    """UCX's benchmark. It takes a list of tests, and writes CSV."""

    def __init__(self, env: dict[str, str], places: Places = (HERE, HERE), address: str = "127.0.0.1"):
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

    def sample(self) -> Sample:
        # a row has iterations; latency at 50 %, on average, over all; bandwidth twice; rate on average, over all
        def test(kind: str, size: int, count: int) -> list:
            return ["-t", kind, "-s", size, "-n", count, "-w", max(count // 10, 4)]

        tests = {f"l{size}": test("tag_lat", size, count) for sizes, count in groups(LATENCY_SIZES, 10_000) for size in sizes}
        tests["r8"] = test("tag_bw", 8, 100_000)
        tests |= {f"b{size}": test("tag_bw", size, count) for sizes, count in groups(SIZES, 20_000) for size in sizes}
        rows = self.run(tests)[0]
        sample: Sample = {(LATENCY, size): rows[f"l{size}"][3] for size in LATENCY_SIZES}
        sample[RATE, 8] = rows["r8"][7]
        return sample | {(BANDWIDTH, size): rows[f"b{size}"][7] * size / 1e6 for size in SIZES}

    def cpu(self) -> Sample:
        count = 2000
        cpu = self.run({"b": ["-t", "tag_bw", "-s", CPU_SIZE, "-n", count, "-w", count // 10]})[1]
        return {(CPU, CPU_SIZE): cpu / (1.1 * count * CPU_SIZE / 1e9)}


def api(env: dict[str, str]) -> Sample:
    """Ours without libfabric: polyrail bench."""
    sample: Sample = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, figure, sizes in (("latency", LATENCY, LATENCY_SIZES), ("rate", RATE, [8]), ("bandwidth", BANDWIDTH, SIZES)):
            file = Path(directory) / name
            listed = ",".join(map(str, sizes))
            alone([POLYRAIL, "bench", name, "--size", listed, "--repetitions", 1, "--csv", file], env)
            for line in file.read_text().splitlines()[1:]:
                row = line.split(",")
                sample[figure, int(row[2])] = float(row[3])
    return sample


def column(name: str, measure: Callable[[], Sample], missing: str = "", ours: bool = False) -> Column:
    return Column(name, None if missing else measure, missing, ours)


def fabtests_missing() -> str:
    return "" if find("fi_rdm_tagged_bw", "FABTESTS_BIN") else FABTESTS


def ucx_missing() -> str:
    return "" if find("ucx_perftest", "UCX_BIN") else UCX


def ours_env(**more: str) -> dict[str, str]:
    return {"FI_PROVIDER_PATH": str(PROVIDER_DIR), **more}


def same_host(rounds: int) -> list[Table]:
    """Two processes of this host, by shared memory and by TCP."""
    ours_missing = fabtests_missing() or provider_missing()
    api_missing = "" if os.access(POLYRAIL, os.X_OK) else f"{POLYRAIL} is not there (make build)"
    ucx = {"shm": {"UCX_TLS": "sm,self", "UCX_NET_DEVICES": "lo"}, "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}}
    tables = []
    for path, title in (("shm", "Same host, shared memory"), ("tcp", "Same host, TCP")):
        own = {} if path == "shm" else {"FI_TCP_IFACE": "lo"}
        rails = {"POLYRAIL_RAILS": path}
        columns = [
            column("polyrail", Fabtests("polyrail", ours_env(**rails)).sample, ours_missing, ours=True),
            column("polyrail bench", lambda rails=rails: api(rails), api_missing, ours=True),
            column(f"libfabric {path}", Fabtests(path, own).sample, fabtests_missing()),
            column("UCX", Ucx(ucx[path]).sample, ucx_missing()),
        ]
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
    missing = {"polyrail": ours_missing, "UCX tcp": ucx_missing()}
    columns = [
        column(name, lambda side=side: side.sample() | side.cpu(), missing.get(name, fabtests_missing()), name == "polyrail")
        for name, side in sides.items()
    ]
    alternate(columns, rounds)
    tables = [Table("Two hosts (namespaces), TCP", columns)]
    tables[0].show()
    return tables
