// schedule(runtime) as the program sets it: kinds of static are told by who does what.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int owner[20];
    int chunks[] = {0, 1, 4};
    for (int c = 0; c < 3; c++) {
        omp_sched_t kind;
        int chunk;
        omp_set_schedule(omp_sched_static, chunks[c]);
        omp_get_schedule(&kind, &chunk);
        printf("%d %d:", kind & 0xff, chunks[c] ? chunk : 0);
#pragma omp parallel for schedule(runtime)
        for (int i = 0; i < 20; i++) owner[i] = omp_get_thread_num();
        for (int i = 0; i < 20; i++) printf(" %d", owner[i]);
        puts("");
    }
    omp_set_schedule(omp_sched_dynamic, 3);
    long sum = 0;
#pragma omp parallel for schedule(runtime) reduction(+ : sum)
    for (long i = 0; i < 12345; i++) sum += i;
    printf("%ld\n", sum);
    omp_set_schedule(omp_sched_guided, 5);
#pragma omp parallel for schedule(runtime) reduction(+ : sum) ordered
    for (int i = 0; i < 50; i++) {
#pragma omp ordered
        printf("%d ", i);
        sum++;
    }
    printf("%ld\n", sum);
    return 0;
}
