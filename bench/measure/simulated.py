"""What part of many processors a solver's peers use, by scheme and network, from 4 to 4096 of them, on simulated networks, where every member runs its own code and time is counted."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, ROOT, alone

PEERS = (4, 16, 64, 256)
# These take minutes, and much longer.
MANY = (1024, 4096)
# Points in each direction that are computed, and those that they stand for: so many peers have equal shares of them.
POINTS, STAND_FOR = 32, 256
NETWORKS = ("infiniband-2013", "ethernet-2013", "10g", "100g")
FAR = ("1ms", "10ms", "50ms")
LIMIT = 3600
PROGRAM = ROOT / "build/simgrid"
USED = Figure("used of the processors", "%", False)
SWEEPS = Figure("most sweeps of any, beside one alone", "times", True)


@functools.cache
def told(network: str, scheme: str, peers: int) -> dict:
    words = [POLYRAIL, "solve", "obstacle", "--n", POINTS, "--as", STAND_FOR, "-n", peers, "--simulate", network, "--scheme", scheme, "--json"]
    told = json.loads(alone(words, limit=LIMIT).text)
    if told["certificate"]["bound"] > told["wanted"]:
        raise Failed("the answer is not as good as was asked for")
    return told


def run(network: str, scheme: str, peers: int) -> Sample:
    found = told(network, scheme, peers)
    return {(USED, peers): 100 * found["efficiency"], (SWEEPS, peers): found["iterations"][1] / found["iterations_alone"]}


@functools.cache
def simgrid() -> str:
    """What is missing to build it, or nothing."""
    if not (shutil.which("c++") and Path("/usr/include/simgrid/s4u.hpp").exists()):
        return "install a C++ compiler and SimGrid (Debian: libsimgrid-dev)"
    PROGRAM.parent.mkdir(exist_ok=True)
    try:
        alone(["c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-o", PROGRAM, ROOT / "bench/simgrid.cpp", "-lsimgrid"])
    except Failed as why:
        return f"bench/simgrid.cpp cannot be built: {why}"
    return ""


def by_simgrid(network: str, peers: int) -> Sample:
    """As long as SimGrid says of the same exchange that so many iterations take."""
    found = told(network, "sync", peers)
    model, length = found["model"], POINTS * (STAND_FOR + 1) / (POINTS + 1)
    line = [model[name] for name in ("rate", "latency", "overhead", "sites", "far_rate", "far_latency")]
    words = [PROGRAM, *model["pieces"], length, model["unit"], found["iterations"][0], *line, *model["slow"]]
    return {(USED, peers): 100 * found["alone"] / float(alone(words, limit=LIMIT).text) / peers}


def column(name: str, network: str, scheme: str, of: tuple[int, ...] = PEERS) -> Column:
    parts: Parts = {str(peers): (lambda peers=peers: run(network, scheme, peers)) for peers in of}
    return Column(name, parts)


def in_simgrid(network: str) -> Column:
    parts: Parts = {str(peers): (lambda peers=peers: by_simgrid(network, peers)) for peers in PEERS}
    return Column("in step, as SimGrid has it", parts, simgrid())


TITLE = f"{STAND_FOR}^3 points, of which {POINTS}^3 are computed, projected Richardson"
SCHEMES = (("in step", "sync"), ("out of step", "async"))


def measured(title: str, columns: list[Column]) -> Table:
    """One of each is enough: the same command gives the same."""
    alternate(columns, 1)
    table = Table(f"{TITLE}: {title}", columns, sizes="peers")
    table.show()
    return table


def of(network: str, schemes: tuple[tuple[str, str], ...]) -> list[Column]:
    return [*(column(name, network, scheme) for name, scheme in schemes), in_simgrid(network)]


def many() -> list[Table]:
    network = "10g"
    return [measured(network, [column(name, network, scheme, MANY) for name, scheme in SCHEMES])]


def tables() -> list[Table]:
    slow = "10g,slow=1:0.5"
    found = [measured(network, of(network, SCHEMES)) for network in NETWORKS]
    found.append(measured(f"{slow}: one at half the speed", of(slow, SCHEMES)))
    for delay in FAR:
        network = f"10g,sites=2,delay={delay}"
        found.append(measured(f"{network}: two sites", of(network, (*SCHEMES, ("in step within a site", "hybrid")))))
    return found
