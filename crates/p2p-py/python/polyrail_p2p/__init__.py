"""Peers that compute together, in step or not: the four calls of Polyrail, for NumPy's arrays.

A program is divided into parts, iterates, and says what it has of its edges: ``send``, ``receive``, ``wait``, ``converged``. One process
founds a run (``found``), the others join it by its address (``join``); those that a
launcher started together meet by ``start``.
"""

from ._errors import Breach, Changed, Error, Gone, Out, Rails, Refused, Silent, Use
from ._native import Change, Founding, Job, Peers, Received, Verdict, found, join, start

__all__ = [
    "Breach",
    "Change",
    "Changed",
    "Error",
    "Founding",
    "Gone",
    "Job",
    "Out",
    "Peers",
    "Rails",
    "Received",
    "Refused",
    "Silent",
    "Use",
    "Verdict",
    "bounded",
    "found",
    "join",
    "start",
]


def bounded(most: int) -> tuple[str, int]:
    """The scheme in which nobody waits, but for values that are more than so many iterations behind: at least 1."""
    return ("bounded", most)
