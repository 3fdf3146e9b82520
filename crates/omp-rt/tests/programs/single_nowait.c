// What one thread stores in a `single` that nobody waits for, before all add to it, as in NAS CG: with several threads on rank 0, the first of them does it.
#include <omp.h>
#include <stdio.h>
static double sum;
static double work(int i) {
    volatile double x = 0;
    for (int k = 0; k < 2000; k++) x += 1.0 / (k + i + 1);
    return x > 0;
}
int main(void) {
    int wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    for (int round = 0; round < 40; round++) {
#pragma omp single nowait
        sum = 0;
#pragma omp for reduction(+ : sum)
        for (int i = 0; i < 64; i++) sum += work(i);
        wrong += sum != 64;
#pragma omp barrier
    }
    printf("wrong %d\n", wrong);
    return 0;
}
