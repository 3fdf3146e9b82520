// Atomic updates right behind a barrier, of what others have just written.
#include <omp.h>
#include <stdio.h>
enum { N = 200000 };
static int a[N];
int main(void) {
    long wrong = 0;
    for (int k = 1; k <= 20; k++) {
#pragma omp parallel
        {
            if (omp_get_thread_num() == omp_get_num_threads() - 1)
                for (int i = 0; i < N; i++) a[i] = 1000 * k + i;
#pragma omp barrier
            if (omp_get_thread_num() > 0)
                for (int i = N - 20; i < N; i++) {
#pragma omp atomic
                    a[i]++;
                }
        }
        int n = omp_get_max_threads();
        for (int i = N - 20; i < N; i++) wrong += a[i] != 1000 * k + i + n - 1;
    }
    printf("%ld\n", wrong);
    return 0;
}
