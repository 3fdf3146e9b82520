/* Half round trip of 8 bytes and bandwidth of 1 MiB messages between ranks 0 and 1, as one line: microseconds, MB/s.
   The median of nine rounds each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9, PINGS = 2000, WINDOW = 16, SMALL = 8, LARGE = 1 << 20 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof *values, ascending);
    return values[ROUNDS / 2];
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *buffer = malloc((size_t)WINDOW * LARGE);
    if (!buffer) MPI_Abort(MPI_COMM_WORLD, 1);
    double latency[ROUNDS], bandwidth[ROUNDS];
    for (int i = 0; i < WINDOW * LARGE; i++) buffer[i] = (char)i;

    for (int round = -1; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        for (int i = 0; i < PINGS; i++) {
            if (rank == 0) MPI_Send(buffer, SMALL, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            if (rank < 2) MPI_Recv(buffer, SMALL, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(buffer, SMALL, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
        if (round >= 0) latency[round] = (MPI_Wtime() - begun) / PINGS / 2 * 1e6;

        MPI_Barrier(MPI_COMM_WORLD);
        begun = MPI_Wtime();
        MPI_Request requests[WINDOW];
        for (int i = 0; i < WINDOW && rank < 2; i++) {
            char *at = buffer + (size_t)i * LARGE;
            if (rank == 0) MPI_Isend(at, LARGE, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &requests[i]);
            else MPI_Irecv(at, LARGE, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &requests[i]);
        }
        if (rank < 2) MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 1) MPI_Send(buffer, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(buffer, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (round >= 0) bandwidth[round] = (double)WINDOW * LARGE / (MPI_Wtime() - begun) / 1e6;
    }
    if (rank == 0) printf("%.2f %.0f\n", median(latency), median(bandwidth));
    free(buffer);
    MPI_Finalize();
    return 0;
}
