// Many small regions and barriers, with teams of changing sizes.
#include <omp.h>
#include <stdio.h>
int main(void) {
    long count = 0, threads = 0;
    for (int k = 0; k < 300; k++) {
        int n = 1 + k % 3;
        long here = 0;
#pragma omp parallel num_threads(n) reduction(+ : here)
        {
            here++;
#pragma omp barrier
#pragma omp barrier
        }
        threads += here, count++;
    }
    int level = 0;
    for (int k = 0; k < 100; k++) {
#pragma omp parallel
#pragma omp master
        level += omp_get_level();
    }
    printf("%ld %ld %d\n", count, threads, level);
    return 0;
}
