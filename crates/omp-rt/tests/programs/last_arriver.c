// The last thread to arrive sees what all others wrote before they did: by an atomic operation alone, and by C's fences around a relaxed one.
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
static double data[64], out = -1;
static int count;
static atomic_int other;
static double sum(int threads) {
    double sum = 0;
    for (int i = 0; i < threads; i++) sum += data[i];
    return sum;
}
int main(void) {
    long wrong = 0;
    for (int k = 1; k <= 20; k++) {
        int threads = omp_get_max_threads();
        count = 0;
        atomic_store(&other, 0);
        out = -1;
#pragma omp parallel
        {
            int arrived;
            data[omp_get_thread_num()] = k;
#pragma omp atomic capture acq_rel
            arrived = ++count;
            if (arrived == threads) out = sum(threads);
        }
        wrong += out != k * threads;
        out = -1;
#pragma omp parallel
        {
            data[omp_get_thread_num()] = k + 1;
            atomic_thread_fence(memory_order_release);
            int arrived = atomic_fetch_add_explicit(&other, 1, memory_order_relaxed) + 1;
            atomic_thread_fence(memory_order_acquire);
            if (arrived == threads) out = sum(threads);
        }
        wrong += out != (k + 1) * threads;
    }
    printf("%ld\n", wrong);
    return 0;
}
