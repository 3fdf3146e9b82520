"""Block matrix product over mpi4py, checked against numpy: mpiexec -n N python matmul.py [SIZE].

Rank 0 holds A and B. Every other rank asks it for work by a pickled message; rank 0 serves whoever asks (probe, any
source, any tag) with a block of A's rows, megabytes each. The product is put straight into a window on rank 0, which
counts finished rows by an accumulate. In the end each rank gets a slice of the product back and checks it by itself.
The entries are small integers, so that the product is exact and must be equal, not merely close.
"""

import sys

import numpy as np
from mpi4py import MPI

BLOCK = 160
TAG_ASK, TAG_ROWS, TAG_DONE, TAG_LOG = 1, 2, 3, 4


def serve(comm, a):
    """Hands out blocks of A until none is left, then tells every worker; returns what the workers logged."""
    status = MPI.Status()
    todo = list(range(0, a.shape[0], BLOCK))
    logs, working = [], comm.size - 1
    while working:
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker, tag = status.source, status.tag
        message = comm.recv(source=worker, tag=tag)
        if tag == TAG_LOG:
            logs.append(message)
            working -= 1
        elif todo:
            first = todo.pop()
            rows = a[first : first + BLOCK]
            comm.send({"first": first, "rows": rows.shape[0], "asked": message}, worker, TAG_ASK)
            comm.Send(rows, worker, TAG_ROWS)
        else:
            comm.send(None, worker, TAG_DONE)
    return logs


def work(comm, n, b, product, finished):
    """Asks for blocks until there are none, and puts each product where it belongs."""
    status = MPI.Status()
    log = {"rank": comm.rank, "host": MPI.Get_processor_name(), "blocks": []}
    while True:
        comm.send(("more, please", comm.rank), 0, TAG_ASK)
        task = comm.recv(source=0, tag=MPI.ANY_TAG, status=status)
        if status.tag == TAG_DONE:
            break
        assert task["asked"] == ("more, please", comm.rank), task
        rows = np.empty((task["rows"], n))
        comm.Recv(rows, 0, TAG_ROWS, status)
        assert status.Get_count(MPI.DOUBLE) == rows.size
        result = rows @ b
        product.Lock(0, MPI.LOCK_SHARED)
        product.Put(result, 0, target=task["first"] * n)
        product.Unlock(0)
        finished.Lock(0, MPI.LOCK_SHARED)
        finished.Accumulate(np.array([task["rows"]], dtype=np.int64), 0, op=MPI.SUM)
        finished.Unlock(0)
        log["blocks"].append(task["first"])
    comm.send(log, 0, TAG_LOG)


def main():
    comm = MPI.COMM_WORLD
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    if comm.size < 2:
        sys.exit("matmul.py needs at least 2 ranks")

    # A known seed lets every rank know what must come out; B still travels, as it would with real data.
    random = np.random.default_rng(2026)
    a = random.integers(-9, 10, (n, n)).astype(float)
    b = random.integers(-9, 10, (n, n)).astype(float)
    expected = a @ b
    if comm.rank:
        a, b = None, np.zeros((n, n))
    comm.Bcast(b, 0)

    product = MPI.Win.Allocate(8 * n * n if comm.rank == 0 else 0, 8, comm=comm)
    finished = MPI.Win.Allocate(8 if comm.rank == 0 else 0, 8, comm=comm)
    if comm.rank == 0:
        np.frombuffer(product.tomemory(), dtype=float)[:] = np.nan
        np.frombuffer(finished.tomemory(), dtype=np.int64)[:] = 0
    comm.Barrier()

    logs = serve(comm, a) if comm.rank == 0 else work(comm, n, b, product, finished)
    comm.Barrier()

    # Every rank reads back its share of the product, as one large get, and the count of finished rows.
    first, end = comm.rank * n // comm.size, (comm.rank + 1) * n // comm.size
    mine, count = np.empty((end - first, n)), np.zeros(1, dtype=np.int64)
    for window, buffer, offset in ((product, mine, first * n), (finished, count, 0)):
        window.Lock(0, MPI.LOCK_SHARED)
        window.Get(buffer, 0, target=offset)
        window.Unlock(0)

    errors = []
    if not np.array_equal(mine, expected[first:end]):
        wrong = np.argwhere(~(mine == expected[first:end]))
        errors.append(f"{len(wrong)} wrong cells, the first at {wrong[0] + [first, 0]}")
    if count[0] != n:
        errors.append(f"{count[0]} rows finished, not {n}")
    trace = comm.allreduce(float(sum(mine[i, first + i] for i in range(end - first))))
    if trace != np.trace(expected):
        errors.append(f"trace {trace}, not {np.trace(expected)}")

    everyone = comm.gather((comm.rank, errors), 0)
    failed = 0
    if comm.rank == 0:
        failed = sum(bool(errors) for _, errors in everyone)
        for rank, errors in everyone:
            for error in errors:
                print(f"rank {rank}: {error}", file=sys.stderr)
        shares = ", ".join(f"{log['rank']}@{log['host']}: {len(log['blocks'])}" for log in sorted(logs, key=lambda l: l["rank"]))
        print(f"{n} x {n} product on {comm.size} ranks {'is wrong' if failed else 'equals numpy'}; blocks by rank {shares}")
    failed = comm.bcast(failed, 0)
    product.Free()
    finished.Free()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
