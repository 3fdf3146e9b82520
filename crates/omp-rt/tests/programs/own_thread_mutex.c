// A mutex that a thread of the program's own uses while a region's thread on another rank does: neither would see what the other has written.
// ranks: refused
// expect: refused: a mutex: that threads of a parallel region and a thread of the program's own use
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipes[2];
static long count;
static void *own(void *unused) {
    char byte;
    if (read(pipes[0], &byte, 1) != 1) return NULL;
    for (int is_over = 0; !is_over; usleep(100)) {
        pthread_mutex_lock(&mutex);
        is_over = ++count >= 1000000;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
int main(void) {
    pthread_t thread;
    if (pipe(pipes)) return 1;
    pthread_create(&thread, NULL, own, NULL);
#pragma omp parallel
    {
        if (omp_get_thread_num() == 0 && write(pipes[1], "", 1) != 1) count = -1;
        if (omp_get_thread_num() == omp_get_num_threads() - 1)
            // until the other has come as far
            for (int i = 0, is_over = 0; i < 20000 && !is_over; i++, usleep(500)) {
                pthread_mutex_lock(&mutex);
                is_over = count >= 10;
                pthread_mutex_unlock(&mutex);
            }
    }
    pthread_mutex_lock(&mutex);
    count = 1000000;
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
    printf("%d\n", count >= 1000000);
    return 0;
}
