// Halo exchange and allreduce, of which every word is checked, for so many seconds: what a program does while rails come and go.
//
//   flap_check SECONDS
//
// Rank 0 prints the rounds done, the largest resident memory of all ranks in MB, and the words that were wrong: after one
// second, every ten seconds from then on, and at the end.
// Exit status 1 if anything was wrong.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HALO = 16384, SUMS = 1024, EVERY = 10 };

static double resident(void) {
    long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &size, &pages) != 2) pages = 0;
    if (f != NULL) fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static uint64_t word(int rank, uint64_t round, int i) {
    return ((uint64_t)rank << 56) ^ (round * 0x9e3779b97f4a7c15u) ^ (uint64_t)i;
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double seconds = argc > 1 ? atof(argv[1]) : 10, begin = MPI_Wtime(), told = begin - EVERY + 1;
    static uint64_t out[2][HALO], in[2][HALO];
    static int64_t mine[SUMS], all[SUMS];
    int side[2] = {(rank + ranks - 1) % ranks, (rank + 1) % ranks};
    int64_t wrong = 0, goes_on = 1;
    uint64_t round = 0;
    for (; goes_on; round++) {
        // halos of a few bytes up to 128 KiB
        int len = HALO >> (round % 12);
        MPI_Request requests[4];
        for (int s = 0; s < 2; s++) {
            for (int i = 0; i < len; i++) out[s][i] = word(rank, round, i + s * HALO);
            MPI_Irecv(in[s], len, MPI_UINT64_T, side[s], 1 - s, MPI_COMM_WORLD, &requests[s]);
        }
        for (int s = 0; s < 2; s++)
            MPI_Isend(out[s], len, MPI_UINT64_T, side[s], s, MPI_COMM_WORLD, &requests[2 + s]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < len; i++) wrong += in[s][i] != word(side[s], round, i + (1 - s) * HALO);
        int sums = 1 + (int)(round * 37 % (SUMS - 1));
        for (int i = 0; i < sums; i++) mine[i] = (int64_t)(round + (uint64_t)i) * (rank + 1);
        // the last says whether time is up, so that all stop in the same round
        mine[sums - 1] = MPI_Wtime() - begin < seconds;
        MPI_Allreduce(mine, all, sums, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < sums - 1; i++)
            wrong += all[i] != (int64_t)(round + (uint64_t)i) * ranks * (ranks + 1) / 2;
        goes_on = all[sums - 1] == ranks;
        int64_t tells = rank == 0 && (MPI_Wtime() - told > EVERY || !goes_on);
        MPI_Bcast(&tells, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
        if (tells) {
            double memory = resident(), most = 0;
            int64_t sum = 0;
            MPI_Reduce(&memory, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            MPI_Allreduce(&wrong, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0) printf("%.1f s: %lu rounds, %.1f MB, %ld wrong\n", MPI_Wtime() - begin, round, most, sum), fflush(stdout);
            told = MPI_Wtime();
            wrong = sum;
        }
    }
    MPI_Finalize();
    return wrong != 0;
}
