"""What part of many processors a solver's peers use, by scheme and network, from 4 to 4096 of them, on simulated networks, where every member runs its own code and time is counted."""

from __future__ import annotations

import json

from .figures import Column, Failed, Figure, Parts, Sample, Table, alternate
from .programs import POLYRAIL, alone

PEERS = (4, 16, 64, 256)
# These take minutes, and much longer.
MANY = (1024, 4096)
# Points in each direction that are computed, and those that they stand for: so many peers have equal shares of them.
POINTS, STAND_FOR = 32, 256
NETWORKS = ("infiniband-2013", "ethernet-2013", "10g", "100g")
FAR = ("1ms", "10ms", "50ms")
LIMIT = 3600
USED = Figure("used of the processors", "%", False)
SWEEPS = Figure("most sweeps of any, beside one alone", "times", True)


def run(network: str, scheme: str, peers: int) -> Sample:
    words = [POLYRAIL, "solve", "obstacle", "--n", POINTS, "--as", STAND_FOR, "-n", peers, "--simulate", network, "--scheme", scheme, "--json"]
    told = json.loads(alone(words, limit=LIMIT).text)
    if told["certificate"]["bound"] > told["wanted"]:
        raise Failed("the answer is not as good as was asked for")
    return {(USED, peers): 100 * told["efficiency"], (SWEEPS, peers): told["iterations"][1] / told["iterations_alone"]}


def column(name: str, network: str, scheme: str, of: tuple[int, ...] = PEERS) -> Column:
    parts: Parts = {str(peers): (lambda peers=peers: run(network, scheme, peers)) for peers in of}
    return Column(name, parts)


TITLE = f"{STAND_FOR}^3 points, of which {POINTS}^3 are computed, projected Richardson"
SCHEMES = (("in step", "sync"), ("out of step", "async"))


def measured(title: str, columns: list[Column]) -> Table:
    """One of each is enough: the same command gives the same."""
    alternate(columns, 1)
    table = Table(f"{TITLE}: {title}", columns, sizes="peers")
    table.show()
    return table


def many() -> list[Table]:
    network = "10g"
    return [measured(network, [column(name, network, scheme, MANY) for name, scheme in SCHEMES])]


def tables() -> list[Table]:
    slow = "10g,slow=1:0.5"
    found = [measured(network, [column(name, network, scheme) for name, scheme in SCHEMES]) for network in NETWORKS]
    found.append(measured(f"{slow}: one at half the speed", [column(name, slow, scheme) for name, scheme in SCHEMES]))
    for delay in FAR:
        network = f"10g,sites=2,delay={delay}"
        columns = [column(name, network, scheme) for name, scheme in (*SCHEMES, ("in step within a site", "hybrid"))]
        found.append(measured(f"{network}: two sites", columns))
    return found
