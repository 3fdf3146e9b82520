// A program that is wrong: all threads write different values to the same variable. One rank does not see it.
// ranks: refused
// expect: refused: A data race of the program
#include <omp.h>
#include <stdio.h>
static int who[1000];
int main(void) {
    int n = 1;
#pragma omp parallel
    {
#pragma omp single
        n = omp_get_num_threads();
        for (int i = 0; i < 1000; i++) who[i] = omp_get_thread_num() + 1;
    }
    printf("%d\n", who[999] >= 1 && who[999] <= n);
    return 0;
}
