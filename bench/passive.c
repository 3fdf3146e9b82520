// What epochs of passive targets cost.
//
//   passive
//
// Rank 0 prints lines "NAME VALUE":
//   epoch, epoch99        lock, put of 8 bytes, unlock, where the target waits in a barrier: us, median and 99th percentile
//   put                   a put of 8 bytes and its flush in a long epoch: one round trip, us
//   computing             the first, where the target computes for half a second at a time: us, median
//   worst                 of these, the longest
//   crowd                 all ranks want the lock of rank 0 all the time: times a second that somebody had it, all together
//   fair                  of all ranks, how often the one that had it least, by how often the one that had it most
//   one, both             4 MiB puts; as many puts and gets at once: MB/s
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 301, LONG = 4 << 20, STREAM = 8, ROUNDS = 5 };
static int rank, size;
static char *memory, *other;
static MPI_Win win;

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compute(double seconds) {
    volatile double value = 1;
    for (const double start = MPI_Wtime(); MPI_Wtime() - start < seconds;)
        for (int i = 0; i < 1000; i++) value = value * 1.0000001;
}

static double epoch(int target) {
    const double start = MPI_Wtime();
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
    MPI_Put(other, 8, MPI_BYTE, target, 0, 8, MPI_BYTE, win);
    MPI_Win_unlock(target, win);
    return (MPI_Wtime() - start) * 1e6;
}

static double put(int target) {
    const double start = MPI_Wtime();
    MPI_Put(other, 8, MPI_BYTE, target, 0, 8, MPI_BYTE, win);
    MPI_Win_flush(target, win);
    return (MPI_Wtime() - start) * 1e6;
}

static double stream(int target, int puts, int gets) {
    const double start = MPI_Wtime();
    for (int i = 0; i < STREAM; i++) {
        if (puts) MPI_Put(other, LONG, MPI_BYTE, target, 0, LONG, MPI_BYTE, win);
        if (gets) MPI_Get(other + LONG, LONG, MPI_BYTE, target, LONG, LONG, MPI_BYTE, win);
    }
    MPI_Win_flush(target, win);
    return (double)STREAM * (puts + gets) * LONG / (MPI_Wtime() - start) / 1e6;
}

int main(int argc, char **argv) {
    double times[MANY];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int target = size - 1;
    MPI_Win_allocate(2 * LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 1, 2 * LONG);
    other = malloc(2 * LONG);
    memset(other, 2, 2 * LONG);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < 20; i++) epoch(target);
        for (int i = 0; i < MANY; i++) times[i] = epoch(target);
        qsort(times, MANY, sizeof *times, by_size);
        printf("epoch %.2f\nepoch99 %.2f\n", times[MANY / 2], times[MANY * 99 / 100]);
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
        for (int i = 0; i < MANY; i++) times[i] = put(target);
        qsort(times, MANY, sizeof *times, by_size);
        printf("put %.2f\n", times[MANY / 2]);
        MPI_Win_unlock(target, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    // the target does not know when it is asked, and asks nobody
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == target) compute(0.5);
        if (rank == 0) {
            compute(0.01);
            times[round] = epoch(target);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        qsort(times, ROUNDS, sizeof *times, by_size);
        printf("computing %.2f\nworst %.2f\n", times[ROUNDS / 2], times[ROUNDS - 1]);
    }
    long had = 0, all = 0, least = 0, most = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (const double start = MPI_Wtime(); MPI_Wtime() - start < 2; had++) epoch(0);
    MPI_Reduce(&had, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&had, &least, 1, MPI_LONG, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&had, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("crowd %.0f\nfair %.3f\n", all / 2.0, (double)least / (double)most);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
        stream(target, 1, 1);
        double one[ROUNDS], both[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            one[round] = stream(target, 1, 0);
            both[round] = stream(target, 1, 1);
        }
        qsort(one, ROUNDS, sizeof *one, by_size);
        qsort(both, ROUNDS, sizeof *both, by_size);
        printf("one %.1f\nboth %.1f\n", one[ROUNDS / 2], both[ROUNDS / 2]);
        MPI_Win_unlock(target, win);
    }
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
