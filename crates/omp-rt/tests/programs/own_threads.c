// Threads that the program makes itself use OpenMP at the same time.
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
static long total;
static void *work(void *arg) {
    long s = 0, n = (long)arg;
    for (int k = 0; k < 20; k++) {
#pragma omp parallel for reduction(+ : s) schedule(dynamic)
        for (long i = 0; i < n; i++) s += i;
    }
#pragma omp critical
    total += s;
    return NULL;
}
int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(100 * (i + 1)));
    work((void *)50);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", total);
    return 0;
}
