// Processes that a job starts while it runs: messages, collectives and a window of all of them together, and of those who were there before.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHILDREN = 2, ROUNDS = 200, BYTES = 1 << 20 };

static void fail(const char *what) {
    fprintf(stderr, "wrong: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void together(MPI_Comm all) {
    int rank, size, one, sum = 0;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    one = rank + 1;
    char *bytes = malloc(BYTES);
    memset(bytes, rank == 0 ? 7 : 0, BYTES);
    MPI_Bcast(bytes, BYTES, MPI_CHAR, 0, all);
    for (int i = 0; i < BYTES; i++)
        if (bytes[i] != 7) fail("a long broadcast");
    free(bytes);
    for (int round = 0; round < ROUNDS; round++) {
        int from = -1, to = (rank + 1) % size;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
        if (sum != size * (size + 1) / 2) fail("a sum");
        MPI_Sendrecv(&rank, 1, MPI_INT, to, round, &from, 1, MPI_INT, (rank + size - 1) % size, round, all, MPI_STATUS_IGNORE);
        if (from != (rank + size - 1) % size) fail("a message");
        MPI_Barrier(all);
    }
    int *memory;
    MPI_Win window;
    MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, all, &memory, &window);
    *memory = 0;
    MPI_Win_fence(0, window);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    if (rank == 0 && *memory != sum) fail("a window");
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm parent, between, all;
    MPI_Comm_get_parent(&parent);
    int child = parent != MPI_COMM_NULL, errors[CHILDREN];
    if (child)
        between = parent;
    else
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, errors);
    MPI_Intercomm_merge(between, child, &all);
    together(all);
    together(MPI_COMM_WORLD);
    int rank, size;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
    together(MPI_COMM_WORLD);
    if (rank == 0) printf("right, %d together\n", size);
    MPI_Finalize();
    return 0;
}
