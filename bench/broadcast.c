// What broadcasts take until the last rank has all.
//
//   broadcast ROUNDS BYTES...
//
// Rank 0 prints "bytes us" for each: the median of as many. All ranks begin together, and bytes change in each round.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 };

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, rounds = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rounds < 1 || rounds > MOST) {
        fprintf(stderr, "broadcast ROUNDS BYTES...: 1 to %d rounds\n", MOST);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 2; i < argc; i++) {
        const long bytes = atol(argv[i]);
        char *data = calloc((size_t)bytes, 1);
        double times[MOST];
        // the first ones find out how
        for (int round = -12; round < rounds; round++) {
            memset(data, rank == 0 ? round + 20 : 0, (size_t)bytes);
            MPI_Barrier(MPI_COMM_WORLD);
            const double start = MPI_Wtime();
            MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
            double took = MPI_Wtime() - start, most;
            if (data[0] != (char)(round + 20) || data[bytes - 1] != data[0]) {
                fprintf(stderr, "rank %d has something else\n", rank);
                MPI_Abort(MPI_COMM_WORLD, 3);
            }
            MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (round >= 0) times[round] = most * 1e6;
        }
        free(data);
        qsort(times, (size_t)rounds, sizeof *times, by_size);
        if (rank == 0) printf("%ld %.1f\n", bytes, times[rounds / 2]);
    }
    MPI_Finalize();
    return 0;
}
