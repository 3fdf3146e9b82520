"""What a message costs in instructions: the same on a busy machine as on an idle one."""

from __future__ import annotations

import os
import re
import shutil

from .figures import Column, Failed, Figure, Table
from .programs import ROOT, alone

INSTRUCTIONS = Figure("tagged send and receive", "instructions", True)
FEW, MANY = 1000, 11000


def count(program: str, messages: int) -> int:
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, messages]
    output = alone(words, limit=300)
    if found := re.search(r"Collected : (\d+)", output.errors):
        return int(found[1])
    raise Failed(output.reason())


def per_message() -> float:
    """From the difference of two runs, so that what opening and closing cost does not count."""
    alone([ROOT / "scripts/cargo", "build", "--release", "--quiet", "-p", "polyrail-rails", "--example", "instructions"], limit=900)
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    program = f"{target}/release/examples/instructions"
    return (count(program, MANY) - count(program, FEW)) / (MANY - FEW)


def tables() -> list[Table]:
    missing = "" if shutil.which("valgrind") else "install valgrind"
    column = Column("polyrail shm", {"8 B": lambda: {(INSTRUCTIONS, 8): per_message()}}, missing, ours=True)
    column.run("8 B")
    table = Table("Instructions per message, both sides together", [column])
    table.show()
    return [table]
