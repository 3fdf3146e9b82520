/* How fast two ranks exchange messages: half round trips of short ones, and long ones one way.
 *
 *   mpiexec -n 2 pingpong
 *
 * Rank 0 writes a line for each size: "latency BYTES US" or "bandwidth BYTES MB/S". Each is the median of several
 * short runs, after one that warms up.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TAG = 1, WINDOW = 16, REPETITIONS = 5 };

static char *buffer;

static void ping(int rank, int bytes)
{
    if (rank == 0) {
        MPI_Send(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    }
}

static void stream(int rank, int bytes)
{
    MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++) {
        if (rank == 0)
            MPI_Isend(buffer, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(buffer + (size_t)i * bytes, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    ping(rank, 0);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one call: the median of repetitions of `count` calls. The first repetition only warms up. */
static double median(void (*exchange)(int, int), int rank, int bytes, int count)
{
    double each[REPETITIONS];
    for (int repetition = -1; repetition < REPETITIONS; repetition++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        for (int i = 0; i < count; i++)
            exchange(rank, bytes);
        if (repetition >= 0)
            each[repetition] = (MPI_Wtime() - begun) / count;
    }
    qsort(each, REPETITIONS, sizeof *each, ascending);
    return each[REPETITIONS / 2];
}

int main(int argc, char **argv)
{
    static const int short_sizes[] = {8, 1 << 10}, long_sizes[] = {64 << 10, 1 << 20, 4 << 20};
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        if (rank == 0)
            fprintf(stderr, "pingpong: wants 2 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    buffer = calloc(WINDOW, long_sizes[2]);
    if (!buffer)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < 2; i++) {
        double seconds = median(ping, rank, short_sizes[i], 1000);
        if (rank == 0)
            printf("latency %d %.3f\n", short_sizes[i], seconds / 2 * 1e6);
    }
    for (int i = 0; i < 3; i++) {
        double seconds = median(stream, rank, long_sizes[i], 1 + (2 << 20) / long_sizes[i]);
        if (rank == 0)
            printf("bandwidth %d %.1f\n", long_sizes[i], (double)WINDOW * long_sizes[i] / seconds / 1e6);
    }
    free(buffer);
    MPI_Finalize();
    return 0;
}
