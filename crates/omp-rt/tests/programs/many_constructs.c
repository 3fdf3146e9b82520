// Hundreds of constructs in one region, of all kinds in turn, with and without barriers between them.
#include <omp.h>
#include <stdio.h>
int main(void) {
    long sum = 0, singles = 0, sections = 0, locked = 0;
    double d = 0;
    int n = 1;
#pragma omp parallel
    {
        for (int k = 0; k < 60; k++) {
#pragma omp for schedule(dynamic) nowait reduction(+ : sum, d)
            for (int i = 0; i < 7; i++) sum += i, d += 1;
#pragma omp single nowait
            {
#pragma omp atomic
                singles++;
            }
#pragma omp for schedule(static, 1)
            for (int i = 0; i < 5; i++) {
#pragma omp critical
                locked++;
            }
#pragma omp sections
            {
#pragma omp section
                sections++;
            }
#pragma omp for schedule(guided) reduction(+ : sum)
            for (long i = 0; i < 9; i++) sum += i;
#pragma omp single
            n = omp_get_num_threads();
#pragma omp barrier
        }
    }
    printf("%d %ld %ld %ld %ld %g\n", n, sum, singles, sections, locked, d);
    return 0;
}
