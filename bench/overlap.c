// Whether a message travels while both of its sides compute.
//
//   overlap BYTES...
//
// Rank 0 sends to rank 1 without blocking, both compute for twice as long as the message takes, and then wait for it. For each size rank 0 prints
// "bytes us us share": what the message takes alone, what all takes, and which share of the message was hidden: 1 is all of it.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9 };
static int rank;
static char *buffer;

static void compute(double seconds) {
    volatile double value = 1;
    for (const double start = MPI_Wtime(); MPI_Wtime() - start < seconds;)
        for (int i = 0; i < 1000; i++) value = value * 1.0000001;
}

static double once(int bytes, double seconds) {
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    if (rank == 0) MPI_Isend(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    else MPI_Irecv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
    if (seconds > 0) compute(seconds);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    // both have it
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(int bytes, double seconds) {
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) times[i] = once(bytes, seconds);
    qsort(times, ROUNDS, sizeof *times, by_size);
    return times[ROUNDS / 2];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++) {
        const int bytes = atoi(argv[i]);
        buffer = calloc(1, (size_t)bytes);
        once(bytes, 0);
        double alone = median(bytes, 0);
        MPI_Bcast(&alone, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        const double all = median(bytes, 2 * alone);
        if (rank == 0) printf("%d %.1f %.1f %.3f\n", bytes, alone * 1e6, all * 1e6, (3 * alone - all) / alone);
        free(buffer);
    }
    MPI_Finalize();
    return 0;
}
