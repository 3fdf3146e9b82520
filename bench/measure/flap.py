"""Whether a program's data stay right, and its memory as it is, while one rail after the other goes down and up."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from . import mpi
from .failures import lab
from .figures import Column, Failed, Figure, Table, tell
from .programs import ROOT, Process, provider_missing
from .rails import ours

RAILS, RANKS = 4, 8
SPEC = " ".join(["1000"] * RAILS)
DOWN, UP = 1.0, 0.3
# The program says how it is every ten seconds, and soon after the last time it ends: what is silent for longer hangs.
SILENT = 60.0
GROWTH = 4.0

CUTS, ROUNDS = Figure("cuts", "count", False), Figure("rounds", "count", False)
WRONG, STATUS = Figure("wrong words", "count", True), Figure("exit status", "code", True)
BEFORE, AFTER = (Figure(f"largest rank {when}", "MB", True) for when in ("before the cuts", "at the end"))


def run(column: Column, seconds: int) -> None:
    """Gives the column its values, and what is wrong with them as its failures."""
    program = mpi.build("mpich", ROOT / "bench/flap_check.c")
    process = Process(replace(ours(RAILS), ranks=RANKS).command(program, seconds))
    said, heard, cuts = "", time.monotonic(), 0

    def goes_on(wait: float) -> bool:
        """Waits so many seconds; whether the program still runs, and is heard of."""
        nonlocal said, heard
        until = time.monotonic() + wait
        while process.running():
            if (text := process.so_far()) != said:
                said, heard = text, time.monotonic()
                tell(f"{cuts} cuts; {said.splitlines()[-1]}")
            now = time.monotonic()
            if now > heard + SILENT:
                return False
            if now >= until:
                return True
            time.sleep(0.02)
        return False

    try:
        while not said and goes_on(0.1):
            pass
        while goes_on(0):
            rail = str(cuts % RAILS)
            lab(["rail", rail, "down"])
            cuts += 1
            goes_on(DOWN)
            lab(["rail", rail, "up"])
            goes_on(UP)
        hangs = process.running()
        said = process.so_far()
        output = None if hangs else process.wait(time.monotonic())
    finally:
        process.stop()
        tell("")
    lines = re.findall(r"^\S+ s: (\d+) rounds, (\S+) MB, (\d+) wrong$", said, re.MULTILINE)
    values, failed = {CUTS: float(cuts)}, []
    if lines:
        values |= {ROUNDS: float(lines[-1][0]), WRONG: float(lines[-1][2])}
        values |= {BEFORE: float(lines[0][1]), AFTER: float(lines[-1][1])}
        if values[WRONG]:
            failed.append("data were wrong")
        if values[AFTER] > values[BEFORE] + GROWTH:
            failed.append(f"memory grew by more than {GROWTH:.0f} MB")
    if output is None:
        failed.append(f"hangs: silent for {SILENT:.0f} s after " + (said.strip() or "its start").splitlines()[-1])
    else:
        values[STATUS] = float(output.status)
        if output.status != 0 or not lines:
            failed.append(output.reason())
    column.failures |= {"flap": failed} if failed else {}
    column.values = {(figure, None): [value] for figure, value in values.items()}


def tables(seconds: int) -> list[Table]:
    """Inside scripts/lab with these rails, which are SPEC."""
    column = Column("polyrail", {}, provider_missing(), ours=True)
    try:
        if not column.missing:
            run(column, seconds)
    except Failed as why:
        column.failures["flap"] = [str(why)]
    table = Table(f"{RANKS} ranks over four rails of 1000 Mbit/s, of which one is down at a time, {seconds} s", [column])
    table.show()
    return [table]
