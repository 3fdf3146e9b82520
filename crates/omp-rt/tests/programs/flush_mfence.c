// The last thread to arrive sees what all others wrote before they did: by flush, which GCC makes a fence of another kind where it optimizes for size.
// flags: -Os
// each: one
#include <omp.h>
#include <stdio.h>
int main(void) {
    static double data[64], out = -1;
    static int count;
#pragma omp parallel
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads(), arrived;
        data[thread] = thread + 1;
#pragma omp flush
#pragma omp atomic capture
        arrived = ++count;
#pragma omp flush
        if (arrived == threads) {
            double sum = 0;
            for (int i = 0; i < threads; i++) sum += data[i];
            out = sum;
        }
    }
    printf("%g\n", out);
    return 0;
}
