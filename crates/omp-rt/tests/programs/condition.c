// A condition between threads of a region.
// ranks: refused
// expect: refused: pthread_cond_
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER;
static int come;
int main(void) {
#pragma omp parallel
    {
        pthread_mutex_lock(&mutex);
        if (++come == omp_get_num_threads()) pthread_cond_broadcast(&there);
        while (come < omp_get_num_threads()) pthread_cond_wait(&there, &mutex);
        pthread_mutex_unlock(&mutex);
    }
    printf("%d\n", come == omp_get_max_threads());
    return 0;
}
