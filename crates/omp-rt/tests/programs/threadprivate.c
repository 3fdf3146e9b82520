// threadprivate: values that stay between regions, copyin, the main thread's own.
#include <omp.h>
#include <stdio.h>
static int counter = 5, table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static double factor = 1.5;
#pragma omp threadprivate(counter, table, factor)
int main(void) {
    int wrong = 0, n = 1;
#pragma omp parallel reduction(+ : wrong)
    {
#pragma omp master
        n = omp_get_num_threads();
        wrong += counter != 5 || table[7] != 8;
        counter += omp_get_thread_num();
        table[0] = 100 + omp_get_thread_num();
    }
#pragma omp parallel reduction(+ : wrong)
    wrong += counter != 5 + omp_get_thread_num() || table[0] != 100 + omp_get_thread_num();
    printf("n %d wrong %d main %d %d\n", n, wrong, counter, table[0]);
    counter = 77, table[3] = 33, factor = 2.5;
#pragma omp parallel copyin(counter, table, factor) reduction(+ : wrong)
    {
        wrong += counter != 77 || table[3] != 33 || factor != 2.5 || table[0] != 100;
        counter = omp_get_thread_num();
    }
    printf("wrong %d main %d\n", wrong, counter);
    return 0;
}
