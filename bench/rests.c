// How long messages take from rank 0 to rank 1 and a word back, one at a time, each after a rest.
//
//   rests COUNT BYTES MILLISECONDS
//
// The ranks compute in the rest, outside of MPI. Prints, in microseconds: time MEDIAN P99 LONGEST
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int less(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int count = argc == 4 ? atoi(argv[1]) : 0, bytes = argc == 4 ? atoi(argv[2]) : 0;
    const useconds_t rest = argc == 4 ? (useconds_t)atoi(argv[3]) * 1000 : 0;
    double *times = calloc((size_t)count + 1, sizeof *times);
    char *buffer = calloc((size_t)bytes + 1, 1);
    if (count < 1 || bytes < 0 || size != 2 || !times || !buffer) {
        if (rank == 0) fprintf(stderr, "rests COUNT BYTES MILLISECONDS, by two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int n = 0; n < count; n++) {
        if (rest) usleep(rest);
        const double begun = now();
        if (rank == 0) {
            MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        times[n] = (now() - begun) * 1e6;
    }
    if (rank == 0) {
        // what adapts has a tenth of them for that
        const int skip = count / 10, left = count - skip;
        qsort(times + skip, (size_t)left, sizeof *times, less);
        printf("time %.1f %.1f %.1f\n", times[skip + left / 2], times[skip + left * 99 / 100], times[count - 1]);
    }
    free(times);
    free(buffer);
    MPI_Finalize();
}
