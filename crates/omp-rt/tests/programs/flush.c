// A flag and flush: what one thread wrote before it is seen by the other.
// each: one
#include <omp.h>
#include <stdio.h>
#include <sched.h>
int main(void) {
    int data = 0, flag = 0, got = 42;
#pragma omp parallel
    {
        if (omp_get_num_threads() > 1) {
            if (omp_get_thread_num() == 0) {
                data = 42;
#pragma omp flush
#pragma omp atomic write
                flag = 1;
#pragma omp flush
            } else if (omp_get_thread_num() == 1) {
                int f = 0;
                while (!f) {
#pragma omp flush
#pragma omp atomic read
                    f = flag;
                    sched_yield();
                }
#pragma omp flush
                got = data;
            }
        }
    }
    printf("%d\n", got);
    return 0;
}
