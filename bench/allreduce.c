// An allreduce of 8 bytes, again and again: how long one takes where ranks outnumber processors, or share them with other programs.
//
//   allreduce SECONDS
//
// Rank 0 prints the median and the mean of what one takes, in us, over batches of 64, and how many there were.
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 20, BATCH = 64 };

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static double times[MOST];
    int rank, ranks, count = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const double seconds = argc > 1 ? atof(argv[1]) : 1, begun = MPI_Wtime();
    // the sum of the first says to all whether time is up: no other message is measured, and none is needed
    for (double goes = 1; goes > 0 && count < MOST; count++) {
        const double start = MPI_Wtime();
        const double mine = rank == 0 && start - begun < seconds;
        MPI_Allreduce(&mine, &goes, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 1; i < BATCH; i++) {
            double sum, part = rank + i;
            MPI_Allreduce(&part, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            if (sum != ranks * (ranks - 1) / 2.0 + (double)ranks * i) {
                fprintf(stderr, "rank %d: a sum of %g is wrong\n", rank, sum);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        times[count] = (MPI_Wtime() - start) / BATCH * 1e6;
    }
    double sum = 0;
    for (int i = 0; i < count; i++) sum += times[i];
    qsort(times, count, sizeof *times, by_size);
    if (rank == 0) printf("median %.2f mean %.2f of %d\n", times[count / 2], sum / count, count * BATCH);
    MPI_Finalize();
    return 0;
}
