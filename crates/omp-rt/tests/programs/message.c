// A message: the flag is set by an operation whose outcome nobody looks at, and observed by others. By a variable of its own, and by pointer. clang makes a plain load of adding 0.
// only: gcc
#include <omp.h>
#include <stdio.h>
static int data[8], flag;
static void run(int *flag, int backwards, int *got) {
    *got = 42;
#pragma omp parallel
    {
        int threads = omp_get_num_threads(), thread = omp_get_thread_num();
        int from = backwards ? threads - 1 : 0, to = threads - 1 - from;
        if (threads > 1 && thread == from) {
            data[7] = 42;
            __atomic_fetch_add(flag, 1, __ATOMIC_RELEASE);
        } else if (threads > 1 && thread == to) {
            while (__atomic_fetch_add(flag, 0, __ATOMIC_ACQUIRE) == 0) {}
            *got = data[7];
        }
    }
    data[7] = 0;
}
int main(void) {
    int got[4], here = 0, there = 0;
    run(&here, 0, &got[0]);
    run(&there, 1, &got[1]);
    got[2] = got[3] = 42;
#pragma omp parallel
    if (omp_get_num_threads() > 1) {
        if (omp_get_thread_num() == omp_get_num_threads() - 1) {
            data[0] = 42;
            __atomic_fetch_add(&flag, 1, __ATOMIC_RELEASE);
        } else if (omp_get_thread_num() == 0) {
            while (__atomic_fetch_add(&flag, 0, __ATOMIC_ACQUIRE) == 0) {}
            got[2] = data[0];
        }
    }
    printf("%d %d %d %d\n", got[0], got[1], got[2], got[3]);
    return 0;
}
