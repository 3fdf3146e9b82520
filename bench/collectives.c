// What collective operations take: barrier, and by bytes of each rank bcast, allreduce, reduce, allgather and alltoall.
//
//   collectives MILLISECONDS [BYTES]
//
// With BYTES, of that size only, and only bcast, reduce and allreduce.
// Rank 0 prints "operation bytes us" for each. Buffers change in each round. A broadcast is followed by one of another root, a reduction too:
// nobody is further ahead than a program that uses the results would be.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL, OPERATIONS, BATCHES = 9 };
static const char *const NAMES[] = {"barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"};

static int rank, ranks;
static char *from, *into;

static void once(int operation, int bytes, int round) {
    from[round % bytes] = (char)round;
    switch (operation) {
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case BCAST: MPI_Bcast(from, bytes, MPI_BYTE, round % ranks, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(from, into, bytes / 8, MPI_LONG, MPI_SUM, round % ranks, MPI_COMM_WORLD); break;
    case ALLREDUCE: MPI_Allreduce(from, into, bytes / 8, MPI_LONG, MPI_SUM, MPI_COMM_WORLD); break;
    case ALLGATHER: MPI_Allgather(from, bytes, MPI_BYTE, into, bytes, MPI_BYTE, MPI_COMM_WORLD); break;
    case ALLTOALL: MPI_Alltoall(from, bytes, MPI_BYTE, into, bytes, MPI_BYTE, MPI_COMM_WORLD); break;
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const int only = argc > 2 ? atoi(argv[2]) : 0, most = only > 1 << 20 ? only : 1 << 20;
    const int usual[] = {8, 1024, 8192, 65536, 1 << 20}, *sizes = only ? &only : usual;
    const size_t lengths = only ? 1 : sizeof usual / sizeof *usual;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const double time = (argc > 1 ? atof(argv[1]) : 50) / 1000;
    from = calloc((size_t)ranks, (size_t)most);
    into = calloc((size_t)ranks, (size_t)most);
    for (int operation = only ? BCAST : BARRIER; operation < (only ? ALLGATHER : OPERATIONS); operation++)
        for (size_t size = 0; size < (operation == BARRIER ? 1 : lengths); size++) {
            double times[BATCHES];
            int count = only ? 1 : 4, round = 0;
            // as many that a batch takes its time; all ranks take rank 0's word for it
            for (double took = 0; count < 1 << 20;) {
                MPI_Barrier(MPI_COMM_WORLD);
                const double start = MPI_Wtime();
                for (int i = 0; i < count; i++) once(operation, sizes[size], round++);
                MPI_Barrier(MPI_COMM_WORLD);
                took = MPI_Wtime() - start;
                MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                if (took > time / BATCHES) break;
                count *= 2;
            }
            for (int batch = 0; batch < BATCHES; batch++) {
                MPI_Barrier(MPI_COMM_WORLD);
                const double start = MPI_Wtime();
                for (int i = 0; i < count; i++) once(operation, sizes[size], round++);
                times[batch] = (MPI_Wtime() - start) / count * 1e6;
            }
            qsort(times, BATCHES, sizeof *times, by_size);
            if (rank == 0) printf("%s %d %.3f\n", NAMES[operation], sizes[size], times[BATCHES / 2]);
        }
    MPI_Finalize();
    return 0;
}
