// What the programs of cases have in common: a rank's number, what must hold, and the case that the first argument names.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;
// which threads the program says that it has
static int level = MPI_THREAD_MULTIPLE;

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

struct run {
    const char *name;
    void (*run)(void);
};

static int run_case(int argc, char **argv, const struct run *all, size_t cases) {
    int provided;
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < cases; i++)
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            if (rank == 0) printf("%s is well\n", argv[1]);
        }
    MPI_Finalize();
    return 0;
}
