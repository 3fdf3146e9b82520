// How long one collective operation takes from the moment at which all ranks begin it until the last of them goes on: barrier, and by bytes of each
// rank bcast, reduce, allreduce and allgather.
//
//   sites ROUNDS [BYTES ...]
//
// For ranks whose hosts share a clock, as those of the lab do: all sleep until the same moment, and begin then. Roots change from round to round.
// Rank 0 prints "operation bytes us" for each, medians over the rounds.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, OPERATIONS, MOST = 1000 };
static const char *const NAMES[] = {"barrier", "bcast", "reduce", "allreduce", "allgather"};

static int rank, ranks;
static char *from, *into;

static void once(int operation, int bytes, int root) {
    switch (operation) {
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case BCAST: MPI_Bcast(from, bytes, MPI_BYTE, root, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(from, into, bytes / 8, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD); break;
    case ALLREDUCE: MPI_Allreduce(from, into, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    case ALLGATHER: MPI_Allgather(from, bytes, MPI_BYTE, into, bytes, MPI_BYTE, MPI_COMM_WORLD); break;
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Sleeps until the same moment on all ranks, which is when they know of it; that moment.
static double together(void) {
    double mine = now(), last;
    MPI_Allreduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    last += 0.05;
    const struct timespec until = {(time_t)last, (long)((last - (double)(time_t)last) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {}
    return last;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int sizes[16] = {8, 1024, 8192, 65536, 1 << 20}, lengths = 5, most = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    if (rounds > MOST) rounds = MOST;
    if (argc > 2) lengths = 0;
    for (int word = 2; word < argc && lengths < 16; word++) sizes[lengths++] = atoi(argv[word]);
    for (int size = 0; size < lengths; size++)
        if (sizes[size] > most) most = sizes[size];
    from = calloc(1, (size_t)most + 8);
    into = calloc((size_t)ranks, (size_t)most + 8);
    for (int operation = BARRIER; operation < OPERATIONS; operation++)
        for (int size = 0; size < (operation == BARRIER ? 1 : lengths); size++) {
            static double times[MOST];
            const int bytes = operation == BARRIER ? 0 : sizes[size];
            // communicators' first operations are the MPI's, and paths are unknown
            for (int round = 0; round < 6; round++) once(operation, bytes, round % ranks);
            for (int round = 0; round < rounds; round++) {
                memset(from, round, (size_t)most);
                const double start = together();
                once(operation, bytes, round % ranks);
                double took = now() - start, longest;
                MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
                times[round] = longest * 1e6;
            }
            qsort(times, (size_t)rounds, sizeof *times, by_size);
            if (rank == 0) {
                printf("%s %d %.1f\n", NAMES[operation], bytes, times[rounds / 2]);
                fflush(stdout);
            }
        }
    MPI_Finalize();
    return 0;
}
