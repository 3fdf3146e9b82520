"""An MPI program that knows what it calls and sends: alltoall.py ROUNDS BYTES, each round a halo to the next rank and an alltoall."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

rounds, size = map(int, sys.argv[1:])
world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
out, into = np.full(ranks * size, rank, dtype=np.uint8), np.empty(ranks * size, dtype=np.uint8)
halo = np.empty(size, dtype=np.uint8)
for _ in range(rounds):
    world.Alltoall([out, MPI.BYTE], [into, MPI.BYTE])
    world.Sendrecv([out[:size], MPI.BYTE], (rank + 1) % ranks, 1, [halo, MPI.BYTE], (rank - 1) % ranks, 1)
assert all(into[peer * size] == peer for peer in range(ranks)) and halo[0] == (rank - 1) % ranks
if rank == 0:
    print(f"ranks {ranks}\nMPI_Alltoall {ranks * rounds}\nMPI_Sendrecv {ranks * rounds}")
    # an alltoall gives each other rank its piece, a Sendrecv one
    print(f"bytes {rounds * ranks * (ranks - 1) * size + rounds * ranks * size}")
