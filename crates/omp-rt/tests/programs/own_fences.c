// A thread of the program's own has fences while a region is run.
// each: one with gcc
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
static atomic_int stop;
static atomic_long fences;
static void *work(void *arg) {
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        atomic_thread_fence(memory_order_seq_cst);
        atomic_store_explicit(&fences, 1, memory_order_relaxed);
    }
    return arg;
}
int main(void) {
    pthread_t thread;
    long n = 0;
    pthread_create(&thread, NULL, work, NULL);
    while (!atomic_load(&fences)) usleep(100);
    for (int k = 0; k < 5; k++) {
#pragma omp parallel
        for (int i = 0; i < 40; i++) {
#pragma omp critical
            n++;
        }
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    printf("%ld\n", n / omp_get_max_threads());
    return 0;
}
