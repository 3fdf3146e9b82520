// single, master, masked, barriers between them.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int n = 0, singles = 0, masters = 0, waits = 0, value = 0, right = 0;
#pragma omp parallel shared(n)
    {
        for (int k = 0; k < 50; k++) {
#pragma omp single nowait
            {
#pragma omp atomic
                singles++;
            }
        }
#pragma omp barrier
        for (int k = 0; k < 10; k++) {
#pragma omp single
            value = k;
#pragma omp critical
            right += value == k;
#pragma omp barrier
        }
#pragma omp master
        {
            masters++;
            n = omp_get_num_threads();
        }
#pragma omp barrier
#pragma omp critical
        waits += n;
    }
    printf("n %d singles %d masters %d right %d waits %d\n", n, singles, masters, right / n, waits / n);
    return 0;
}
