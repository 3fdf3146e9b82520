#include <stddef.h>

// A row of the product. A function of its own, so that compilers make the same of it in the OpenMP program and in the one by hand for MPI.
__attribute__((noinline)) static void multiply(size_t n, const double *restrict a, const double *restrict b, double *restrict c) {
    for (size_t j = 0; j < n; j++)
        c[j] = 0;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n; j++)
            c[j] += a[k] * b[k * n + j];
}
