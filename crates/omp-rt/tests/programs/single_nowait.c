// What one thread stores in a `single` that nobody waits for, long before all add to it, as in NAS CG: with several threads on rank 0, the first of them does it.
// Thread 0 comes when the others have long added; what is long, is so by sleep, for a machine that is busy.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
static double sum;
int main(void) {
    int wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    for (int round = 0; round < 2; round++) {
        if (omp_get_thread_num() == 0) usleep(250000);
#pragma omp single nowait
        sum = 0;
        usleep(150000);
#pragma omp for reduction(+ : sum)
        for (int i = 0; i < 64; i++) sum += 1;
        wrong += sum != 64;
#pragma omp barrier
    }
    printf("wrong %d\n", wrong);
    return 0;
}
