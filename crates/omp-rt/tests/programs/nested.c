// Regions inside regions have one thread; levels and ancestors say so.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int wrong = 0, inner = 0, n = 1, total = 0;
#pragma omp parallel reduction(+ : wrong, inner, total)
    {
        int me = omp_get_thread_num(), all = omp_get_num_threads();
#pragma omp master
        n = all;
#pragma omp parallel num_threads(4) reduction(+ : wrong, inner, total)
        {
            total++;
            inner += omp_get_num_threads();
            wrong += omp_get_level() != 2 || omp_get_thread_num() != 0;
            wrong += omp_get_ancestor_thread_num(1) != me || omp_get_team_size(1) != all;
            wrong += omp_get_ancestor_thread_num(0) != 0 || omp_get_ancestor_thread_num(2) != 0;
            wrong += omp_get_ancestor_thread_num(3) != -1 || omp_get_team_size(2) != 1;
            wrong += omp_get_active_level() != (all > 1);
            int sum = 0;
#pragma omp for schedule(dynamic, 3)
            for (int i = 0; i < 10; i++) sum += i;
#pragma omp single
            sum++;
#pragma omp sections
            {
                sum++;
#pragma omp section
                sum++;
            }
#pragma omp for ordered
            for (int i = 0; i < 3; i++)
#pragma omp ordered
                sum += i;
#pragma omp barrier
            wrong += sum != 51;
#pragma omp parallel
            wrong += omp_get_level() != 3;
        }
        wrong += omp_get_level() != 1 || omp_get_thread_num() != me;
    }
    printf("n %d wrong %d inner %d total %d\n", n, wrong, n > 1 ? inner / n : 1, n > 1 ? total / n : 1);
    return 0;
}
