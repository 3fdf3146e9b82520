// Cancellation where OMP_CANCELLATION is false: nothing is cancelled.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int n = 0, tasks = 0, regions = 0, threads = 1;
#pragma omp parallel
    {
#pragma omp for reduction(+ : n)
        for (int i = 0; i < 100; i++) {
            n++;
            if (i == 3) {
#pragma omp cancel for
            }
#pragma omp cancellation point for
        }
#pragma omp sections
        {
#pragma omp section
            {
#pragma omp cancel sections
            }
#pragma omp section
            {
#pragma omp cancellation point sections
            }
        }
#pragma omp single
        {
            threads = omp_get_num_threads();
#pragma omp taskgroup
            for (int i = 0; i < 5; i++)
#pragma omp task
            {
#pragma omp cancel taskgroup
#pragma omp atomic
                tasks++;
            }
        }
#pragma omp cancel parallel
#pragma omp barrier
#pragma omp atomic
        regions++;
    }
    printf("%d %d %d %d\n", omp_get_cancellation(), n, tasks, regions / threads);
    return 0;
}
