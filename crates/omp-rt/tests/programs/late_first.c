// Others are through constructs that thread 0 has yet to come to, and do atomic updates there, also while they hold what it waits for.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    long sum = 0, n = 0, twice = 0, own = 0, before = 0;
    for (int k = 0; k < 3; k++) {
#pragma omp parallel
        {
            if (omp_get_thread_num() == 0) usleep(3000);
#pragma omp critical
            {
                n++;
                printf("in\n");
                usleep(1000);
            }
#pragma omp for schedule(dynamic) reduction(+ : sum)
            for (int i = 0; i < 100; i++) sum += i;
        }
#pragma omp parallel
        {
            if (omp_get_thread_num() == 0) usleep(3000);
#pragma omp critical
            n++;
#pragma omp for schedule(dynamic) nowait
            for (int i = 0; i < 8; i++) {
#pragma omp atomic
                twice += i;
            }
#pragma omp single nowait
            usleep(100);
#pragma omp critical
            {
#pragma omp atomic
                own++;
            }
        }
#pragma omp parallel
        {
            // what thread 0 stores comes first
#pragma omp single nowait
            {
                usleep(1000);
                before = 100;
            }
            usleep(50000);
#pragma omp atomic
            before++;
        }
    }
    int threads = omp_get_max_threads();
    printf("%ld %d %ld %d %d\n", sum, n == 6 * threads, twice, own == 3 * threads, before == 100 + threads);
    return 0;
}
