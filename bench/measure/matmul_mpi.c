// The product of examples/omp/matmul.c, written by hand for MPI: rank 0 has the matrices, all ranks have the product in the end.
//   matmul_mpi [N]      prints times of its phases in seconds, and the same checksum
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../examples/omp/multiply.h"

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 500;
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = malloc(n * n * sizeof *c);
    int *counts = malloc(size * sizeof *counts), *starts = malloc(size * sizeof *starts);
    MPI_Datatype row;
    MPI_Type_contiguous((int)n, MPI_DOUBLE, &row);
    MPI_Type_commit(&row);
    for (int r = 0; r < size; r++) {
        starts[r] = (int)(n * r / size);
        counts[r] = (int)(n * (r + 1) / size) - starts[r];
    }
    MPI_Barrier(MPI_COMM_WORLD);

    double start = MPI_Wtime();
    if (rank == 0)
        for (size_t i = 0; i < n * n; i++) {
            a[i] = (double)(i % 17) / 16;
            b[i] = (double)(i % 23) / 32;
        }
    double initialized = MPI_Wtime();
    size_t first = starts[rank], last = first + counts[rank];
    MPI_Scatterv(a, counts, starts, row, rank ? a + first * n : MPI_IN_PLACE, counts[rank], row, 0, MPI_COMM_WORLD);
    MPI_Bcast(b, (int)n, row, 0, MPI_COMM_WORLD);
    double sent = MPI_Wtime();
    for (size_t i = first; i < last; i++)
        multiply(n, a + i * n, b, c + i * n);
    double computed = MPI_Wtime();
    MPI_Allgatherv(MPI_IN_PLACE, 0, row, c, counts, starts, row, MPI_COMM_WORLD);
    double multiplied = MPI_Wtime();

    if (rank == 0) {
        uint64_t sum = 0xcbf29ce484222325;
        for (size_t i = 0; i < n * n; i++) {
            union { double value; uint64_t bits; } one = {c[i]};
            sum = (sum ^ one.bits) * 0x100000001b3;
        }
        printf("matmul %zu: %d ranks, initialization %.3f s, product %.3f s (sending %.3f, computing %.3f, collecting %.3f), checksum %016lx\n", n, size,
               initialized - start, multiplied - initialized, sent - initialized, computed - sent, multiplied - computed, (unsigned long)sum);
    }
    MPI_Finalize();
    return 0;
}
