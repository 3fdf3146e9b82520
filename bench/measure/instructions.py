"""What a message costs in instructions: the same on a busy machine as on an idle one."""

from __future__ import annotations

import os
import re
import shutil

from .figures import Column, Failed, Figure, Sample, Table
from .msg import ours_env
from .programs import ROOT, alone, libfabric_program, provider_missing

SEND, INJECT, POLL, RAILS = (
    Figure(name, "instructions", True)
    for name in ("send, receive", "inject, receive", "empty read", "without libfabric")
)
# The two counts whose difference is divided by that of what they do: what opening and closing cost does not count.
COUNTS = {SEND: ("send", 16_000, 48_000, 1), INJECT: ("inject", 16_000, 48_000, 1), POLL: ("poll", 20, 120, 200)}
FEW, MANY = 1000, 11000
# What each may cost: raise one only for a reason that the commit gives. A few above what was counted, since compilers differ.
BUDGET = {SEND: 695, INJECT: 640, POLL: 115, RAILS: 783}


def count(words: list, env: dict[str, str]) -> int:
    output = alone(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *words], env, limit=300)
    if found := re.search(r"Collected : (\d+)", output.errors):
        return int(found[1])
    raise Failed(output.reason())


def by_calls(program: str, provider: str, env: dict[str, str]) -> Sample:
    """Of libfabric's calls, both sides in one process."""
    found: Sample = {}
    for figure, (mode, few, many, each) in COUNTS.items():
        difference = count([program, provider, mode, many], env) - count([program, provider, mode, few], env)
        found[figure, None if figure == POLL else 8] = difference / (each * (many - few))
    return found


def by_rails() -> Sample:
    """Of the rails' own interface."""
    alone([ROOT / "scripts/cargo", "build", "--release", "--quiet", "-p", "polyrail-rails", "--example", "instructions"], limit=900)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    program = f"{target}/release/examples/instructions"
    return {(RAILS, 8): (count([program, MANY], {}) - count([program, FEW], {})) / (MANY - FEW)}


def tables() -> list[Table]:
    missing = "" if shutil.which("valgrind") else "install valgrind"
    program, no_fi = ("", missing) if missing else libfabric_program("fi_instructions")
    env = ours_env(POLYRAIL_RAILS="shm")
    ours = Column("polyrail shm", {"calls": lambda: by_calls(program, "polyrail", env)}, no_fi or provider_missing(), ours=True)
    rails = Column("polyrail, rails' API", {"rails": by_rails}, missing, ours=True)
    theirs = Column("libfabric shm", {"calls": lambda: by_calls(program, "shm", {})}, no_fi)
    for column in (ours, rails, theirs):
        for part in column.parts:
            column.run(part)
    table = Table("Instructions per message of 8 bytes, both sides together", [ours, rails, theirs])
    table.show()
    return [table]


def over_budget(tables: list[Table]) -> list[str]:
    """What costs more than it may, and what could not be counted though it can be here."""
    ours = [column for table in tables for column in table.columns if column.ours and not column.missing]
    failed = [f"{column.name}: {reasons[0]}" for column in ours for reasons in column.failures.values()]
    counted = {figure: values[0] for column in ours for (figure, _), values in column.values.items()}
    return failed + [
        f"{figure.name}: {value:.0f} instructions, where {BUDGET[figure]} are allowed (bench/measure/instructions.py)"
        for figure, value in counted.items()
        if value > BUDGET[figure]
    ]
