// A mutex that serial code has locked while a region wants it.
// ranks: refused
// expect: refused: pthread_mutex_trylock: in a parallel region, of a mutex that serial code
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
int main(void) {
    int got = 0;
    pthread_mutex_lock(&mutex);
#pragma omp parallel reduction(+ : got)
    got += pthread_mutex_trylock(&mutex) == 0;
    pthread_mutex_unlock(&mutex);
    printf("%d\n", got);
    return 0;
}
