// Teams: numbers, shared and private variables, if, num_threads, default team after omp_set_num_threads.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int n = 0, seen[64] = {0}, in = -1, first = 7;
    printf("serial %d %d %d\n", omp_get_num_threads(), omp_get_thread_num(), omp_in_parallel());
#pragma omp parallel firstprivate(first)
    {
        seen[omp_get_thread_num()] = omp_get_thread_num() + first;
        first = -1;
        if (omp_get_thread_num() == 0) n = omp_get_num_threads(), in = omp_in_parallel();
    }
    printf("team %d in %d first %d\n", n, n > 1 ? in : 1, first);
    for (int i = 0; i < n; i++) printf(" %d", seen[i]);
    puts("");
    int one = 0;
#pragma omp parallel if (n < 0)
    one += omp_get_num_threads();
#pragma omp parallel num_threads(1)
    one += omp_get_num_threads();
    printf("ones %d\n", one);
    for (int want = 1; want <= 6; want++) {
        int got = 0, last = 0;
#pragma omp parallel num_threads(want)
        {
#pragma omp critical
            last += omp_get_thread_num();
#pragma omp master
            got = omp_get_num_threads();
        }
        printf("asked %d got %d sum %d\n", want, got, last);
    }
    omp_set_num_threads(n + 1);
    int more = 0;
#pragma omp parallel
#pragma omp single
    more = omp_get_num_threads();
    printf("more by %d max %d\n", more - n, omp_get_max_threads() - n);
    return 0;
}
