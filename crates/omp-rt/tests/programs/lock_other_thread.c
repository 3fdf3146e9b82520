// A lock that another thread unsets than set it, which OpenMP does not allow.
// ranks: refused
// expect: refused: a lock that is unset
#include <omp.h>
#include <stdio.h>
int main(void) {
    omp_lock_t lock;
    int n = 0;
    omp_init_lock(&lock);
#pragma omp parallel
    {
        if (omp_get_thread_num() == omp_get_num_threads() - 1) omp_set_lock(&lock);
#pragma omp barrier
        if (omp_get_thread_num() == 0) omp_unset_lock(&lock);
#pragma omp barrier
        omp_set_lock(&lock);
        n++;
        omp_unset_lock(&lock);
    }
    printf("%d\n", n == omp_get_max_threads());
    return 0;
}
