"""One process and many peers, and messages that nobody has asked for."""

from __future__ import annotations

import os
import resource

from .figures import Column, Failed, Figure, Sample, Table, alternate
from .msg import ours_env
from .programs import BEFORE, ROOT, alone, libfabric_program, provider_missing

PEERS, PROCESSES, UNEXPECTED = 1000, 4, 10_000

# The names that both programs print.
FIGURES = {
    name: Figure(title, unit, True)
    for name, title, unit in (
        ("first_message_to_all_s", "first message to all and back", "s"),
        ("memory_per_known_peer_bytes", "memory per known peer", "bytes"),
        ("memory_per_connected_peer_bytes", "memory per connected peer", "bytes"),
        ("round_trip_with_all_us", "round trip, all at once", "us/peer"),
        ("progress_without_work_cpu_us", "CPU of idle progress", "us"),
        ("round_trip_alone_us", "round trip with the only peer", "us"),
        ("round_trip_with_one_us", "round trip with one of them, the others silent", "us"),
        ("memory_per_unexpected_message_bytes", "memory per unexpected 8 B", "bytes"),
        ("receive_unexpected_as_sent_us", "receive them as sent", "us"),
        ("receive_unexpected_last_first_us", "receive them last first", "us"),
    )
}


def sample(words: list, env: dict[str, str]) -> Sample:
    output = alone(words, env, limit=300)
    lines = (line.split() for line in output.text.splitlines())
    return {(FIGURES[line[0]], None): float(line[1]) for line in lines if line[0] in FIGURES}


def ours(rail: str) -> Sample:
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    return sample([f"{target}/release/examples/peers", PEERS, PROCESSES, UNEXPECTED], {"POLYRAIL_RAILS": rail})


def build_ours() -> str:
    """Builds the example; why it is not there, if so."""
    if (ROOT / "scripts/cargo").is_file():
        words = [ROOT / "scripts/cargo", "build", "--release", "--quiet", "-p", "polyrail-rails", "--example", "peers"]
        try:
            alone(words, limit=900)
        except Failed as why:
            return str(why)
    return ""


def tables(rounds: int) -> list[Table]:
    # a connection takes a descriptor or more at both ends
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    fi_peers, no_fi = libfabric_program("fi_peers")
    no_ours = build_ours()

    def libfabric(provider: str, env: dict[str, str]) -> Sample:
        return sample([fi_peers, provider, PEERS, PROCESSES, UNEXPECTED], env)

    found = []
    for rail in ("tcp", "shm"):
        env = ours_env(POLYRAIL_RAILS=rail)
        no_provider = no_fi or provider_missing()
        theirs = {"FI_TCP_IFACE": "lo"}
        columns = [
            Column("polyrail", {"peers": lambda env=env: libfabric("polyrail", env)}, no_provider, True),
            Column("polyrail, rails' API", {"peers": lambda rail=rail: ours(rail)}, no_ours, True),
            Column(f"libfabric {rail}", {"peers": lambda rail=rail: libfabric(rail, theirs)}, no_fi),
        ]
        if BEFORE:
            env = ours_env(BEFORE, POLYRAIL_RAILS=rail)
            columns[1:] = [Column("before", {"peers": lambda env=env: libfabric("polyrail", env)}, no_provider)]
        alternate(columns, rounds)
        path = "TCP" if rail == "tcp" else "shared memory"
        found.append(Table(f"One process, {PEERS} peers of this host, {path}; {UNEXPECTED} unexpected messages", columns))
        found[-1].show()
    return found
