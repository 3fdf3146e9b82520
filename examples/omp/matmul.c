// The product of two dense matrices of N x N doubles, an ordinary OpenMP program: the experiment of Tran, Renault and Ha (MSPN 2015).
//   matmul [N]      prints times of its phases in seconds, and a checksum of all bits of the product
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "multiply.h"

int main(int argc, char **argv) {
    const size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 500;
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = malloc(n * n * sizeof *c);
    if (n == 0 || !a || !b || !c) {
        fprintf(stderr, "matmul: no memory for three matrices of %zu x %zu\n", n, n);
        return 1;
    }

    double start = omp_get_wtime();
    for (size_t i = 0; i < n * n; i++) {
        a[i] = (double)(i % 17) / 16;
        b[i] = (double)(i % 23) / 32;
    }
    double initialized = omp_get_wtime();

    int threads = 1;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
#pragma omp for
        for (size_t i = 0; i < n; i++)
            multiply(n, a + i * n, b, c + i * n);
    }
    double multiplied = omp_get_wtime();

    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < n * n; i++) {
        union { double value; uint64_t bits; } one = {c[i]};
        sum = (sum ^ one.bits) * 0x100000001b3;
    }
    printf("matmul %zu: %d threads, initialization %.3f s, product %.3f s, checksum %016lx\n", n, threads, initialized - start,
           multiplied - initialized, (unsigned long)sum);
    return 0;
}
