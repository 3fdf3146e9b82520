// reduction(task, ...) of regions and loops, of which explicit tasks take part.
// ranks: refused with gcc
// expect: refused: it keeps the threads' parts in memory of one process
#include <omp.h>
#include <stdio.h>
int main(void) {
    long x = 3, y = 0;
    int n = 1;
#pragma omp parallel reduction(task, + : x)
    {
#pragma omp single nowait
        n = omp_get_num_threads();
        x += 10;
        for (int i = 0; i < 4; i++)
#pragma omp task in_reduction(+ : x)
            x += i;
    }
    printf("%ld\n", (x - 3) / n);
#pragma omp parallel
    {
#pragma omp for reduction(task, + : y)
        for (int i = 0; i < 50; i++) {
            y += 1;
#pragma omp task in_reduction(+ : y)
            y += i;
        }
    }
    printf("%ld\n", y);
    return 0;
}
