// Constructs of regions of one thread are none of the team's: others' atomic updates neither wait for them nor overtake because of them.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    long sum = 0, first = 0;
#pragma omp parallel
    {
#pragma omp single
        usleep(100);
#pragma omp single
        usleep(100);
#pragma omp single nowait
        usleep(100);
        long own = 0;
#pragma omp parallel num_threads(1)
        {
#pragma omp single
            own++;
#pragma omp for schedule(dynamic)
            for (int i = 0; i < 4; i++) own++;
        }
        if (omp_get_thread_num() > 0) usleep(20000);
#pragma omp atomic
        sum += own;
        if (omp_get_thread_num() == 0) usleep(50000);
    }
#pragma omp parallel
    {
        long own = 0;
        for (int k = 0; k < 5; k++) {
#pragma omp parallel num_threads(1)
            {
#pragma omp single
                own++;
            }
        }
#pragma omp single nowait
        {
            usleep(20000);
            first = 1000;
        }
        usleep(60000);
#pragma omp parallel num_threads(1)
        {
#pragma omp atomic
            first += own;
        }
    }
    int n = omp_get_max_threads();
    printf("%d %d\n", sum == 5 * n, first == 1000 + 5 * n);
    return 0;
}
