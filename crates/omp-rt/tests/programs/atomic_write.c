// A thread's stores to what it has changed by atomic operations.
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
int main(void) {
    static int x, y, z, lock;
    static long wide;
    static atomic_int a;
    int last = omp_get_max_threads() - 1, got = 0, seen = 0;
#pragma omp parallel
    {
        if (omp_get_thread_num() == last) {
#pragma omp atomic
            x += 1;
#pragma omp atomic write
            x = 10;
#pragma omp atomic
            y += 1;
#pragma omp atomic write
            y = 10;
#pragma omp atomic capture
            got = y += 5;
            atomic_fetch_add(&a, 1);
            atomic_store_explicit(&a, 7, memory_order_release);
            while (__sync_lock_test_and_set(&lock, 1)) {}
            z++;
            __sync_lock_release(&lock);
            while (__sync_lock_test_and_set(&lock, 1)) {}
            z++;
            __sync_lock_release(&lock);
            // parts of a word, and all of it
            __atomic_fetch_add((int *)&wide, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&wide, 1L << 32, __ATOMIC_RELAXED);
            __atomic_store_n((int *)&wide, 5, __ATOMIC_RELAXED);
            __atomic_fetch_add(&wide, 1L << 32, __ATOMIC_RELAXED);
        }
        // others tell what they have changed meanwhile
        if (omp_get_thread_num() < (last + 1) / 2 || omp_get_thread_num() == last) {
#pragma omp critical
            seen++;
        }
#pragma omp barrier
        if (omp_get_thread_num() == 0) printf("%d %d %d %d\n", x, lock, z, (int)a);
    }
    printf("%d %d %d %d %d %d %lx %d\n", x, y, got, (int)a, lock, z, wide, seen == (last + 1) / 2 + 1);
    return 0;
}
