// Random numbers' state is chosen by a thread of a rank that draws none.
// ranks: refused
// expect: refused: initstate: in a parallel region on another rank than 0
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    static char state[128];
#pragma omp parallel
    if (omp_get_thread_num() == omp_get_num_threads() - 1) initstate(9, state, sizeof state);
    printf("%ld\n", random());
    return 0;
}
