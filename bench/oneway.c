// A rank that does nothing but send short messages, and one that takes them, and works for a while after each.
//
//   mpiexec -n 2 oneway COUNT MICROSECONDS
//
// Prints: MICROSECONDS TIME, microseconds for each message until the last is received. Ends the job where one is not what it should be.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TAG = 3 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const long count = argc > 1 ? atol(argv[1]) : 100000;
    const double work = argc > 2 ? atof(argv[2]) : 0;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    // they know each other
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (long i = 0; i < count; i++) {
        long word = i;
        if (rank == 0) {
            MPI_Send(&word, 1, MPI_LONG, 1, TAG, MPI_COMM_WORLD);
            continue;
        }
        MPI_Recv(&word, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (word != i) {
            fprintf(stderr, "message %ld is %ld\n", i, word);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        for (const double end = MPI_Wtime() + work * 1e-6; work > 0 && MPI_Wtime() < end;) {
        }
    }
    if (rank == 1) {
        printf("%g %.3f\n", work, (MPI_Wtime() - begin) * 1e6 / (double)count);
    }
    MPI_Finalize();
    return 0;
}
