// OMP_THREAD_LIMIT, and bindings that are accepted and need not mean anything.
// env: OMP_THREAD_LIMIT=2
// env: OMP_PROC_BIND=close
#include <omp.h>
#include <stdio.h>
int main(void) {
    int n = 0, m = 0;
#pragma omp parallel proc_bind(spread)
#pragma omp single
    n = omp_get_num_threads();
#pragma omp parallel num_threads(2) proc_bind(close)
#pragma omp single
    m = omp_get_num_threads();
    printf("%d %d %d\n", n, m, omp_get_thread_limit());
    return 0;
}
