"""Jacobi's method for -Lap u = 1 in a square, in slabs of rows: what a program of one's own needs of polyrail_p2p, whole.

python poisson.py [sync|async|hybrid]. Four members, each a process, which could as well be on other machines. All four calls are in `solve`;
the scheme is chosen in `main`, and nothing else changes.
"""

import multiprocessing
import sys

import numpy as np

import polyrail_p2p as p2p

POINTS = 64
MEMBERS = 4
Answer = tuple[int, float]


def solve(peers: p2p.Peers) -> Answer:
    """One slab: its rows, with a row of each neighbour's around them."""
    (part,) = peers.parts
    rows = POINTS // MEMBERS
    u = np.zeros((rows + 2, POINTS + 2))
    h2 = 1.0 / (POINTS + 1) ** 2
    # the part beyond, our row next to it, and where its row belongs
    sides = [(part - 1, 1, 0), (part + 1, rows, rows + 1)]
    sides = [side for side in sides if 0 <= side[0] < peers.job.parts]
    with peers:
        while True:
            for other, row, _ in sides:
                peers.send((part, other), u[row])
            for other, _, row in sides:
                # out of step there need not be anything new, and then the row is that of before
                peers.receive((other, part), u[row])
            before = u.copy()
            u[1:-1, 1:-1] = (before[1:-1, :-2] + before[1:-1, 2:] + before[:-2, 1:-1] + before[2:, 1:-1] + h2) / 4
            verdict = peers.converged(float(np.abs(u - before).max()))
            if verdict:
                return verdict.iteration, float(before.max())


def member(address: str) -> Answer:
    """What a process does that joins."""
    return solve(p2p.join(address))


def main(scheme: str) -> None:
    """Founds the run, has three others join it, and judges the answer."""
    # a child of fork would have its parent's connections
    processes = multiprocessing.get_context("spawn").Pool(MEMBERS - 1)
    founding = p2p.found()
    others = processes.map_async(member, [founding.address] * (MEMBERS - 1), chunksize=1)
    first = solve(founding.gather(others=MEMBERS - 1, parts=MEMBERS, scheme=scheme, tolerance=1e-8))
    answers = [first, *others.get()]
    processes.terminate()
    most = max(most for _, most in answers)
    print(f"the largest value is {most:.4f}, after {[iterations for iterations, _ in answers]} iterations")
    # of the solution between the points it is 0.07367
    assert abs(most - 0.07367) < 1e-3, "it is another solution"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sync")
