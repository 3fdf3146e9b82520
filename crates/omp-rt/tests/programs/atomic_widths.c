// Atomic operations on a word and on a part of it, beside what others tell under a lock, and stores over both.
#include <omp.h>
#include <stdio.h>
static struct {
    long wide;
    int others;
} shared;
static int told(void) {
    int others;
#pragma omp critical
    others = shared.others;
    return others;
}
int main(void) {
    int last = omp_get_max_threads() - 1;
#pragma omp parallel
    {
        int me = omp_get_thread_num();
        if (me == last) {
            __atomic_fetch_add((int *)&shared.wide, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&shared.wide, 1L << 32, __ATOMIC_RELAXED);
        } else {
#pragma omp critical
            shared.others++;
        }
        // what is beside it was told; it was not
        while (me == last && told() < last) {}
#pragma omp barrier
#pragma omp single
        printf("%lx %d\n", shared.wide, shared.others);
        __atomic_fetch_add((int *)&shared.wide, 1, __ATOMIC_RELAXED);
        if (me == last) __atomic_fetch_add(&shared.wide, 1L << 32, __ATOMIC_RELAXED);
#pragma omp critical
        shared.others++;
        // it was told, too, by rank 0
        while (me == last && told() < 2 * last + 1) {}
#pragma omp barrier
#pragma omp single
        printf("%lx %d\n", shared.wide - last, shared.others - 2 * last);
        if (me == last) {
            __atomic_fetch_add((int *)&shared.wide, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(1 + (int *)&shared.wide, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&shared.wide, 1L << 32, __ATOMIC_RELAXED);
            __atomic_store_n(&shared.wide, 0x500000006, __ATOMIC_RELAXED);
        }
#pragma omp critical
        shared.others++;
#pragma omp barrier
#pragma omp single
        printf("%lx\n", shared.wide);
        if (me == last) __atomic_store_n((int *)&shared.wide, 7, __ATOMIC_RELAXED);
    }
    printf("%lx %d\n", shared.wide, shared.others - 3 * last);
    return 0;
}
