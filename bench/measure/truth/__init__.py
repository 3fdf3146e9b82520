"""Whether a recording says what was: real programs under polyrail trace, beside what the kernel and the programs count themselves.

Each program runs in a network namespace of its own, so that the kernel's counters there are its alone."""

from .check import CASES, check

__all__ = ["CASES", "check"]
