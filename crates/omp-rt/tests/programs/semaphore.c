// A semaphore between threads of a region, and a barrier.
// ranks: refused
// expect: refused: sem_
#include <omp.h>
#include <semaphore.h>
#include <stdio.h>
static sem_t turns;
static int sum;
int main(void) {
    sem_init(&turns, 0, 1);
#pragma omp parallel for
    for (int i = 0; i < 100; i++) {
        sem_wait(&turns);
        sum += i;
        sem_post(&turns);
    }
    printf("%d\n", sum);
    return 0;
}
