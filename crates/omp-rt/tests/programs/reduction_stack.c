// Threads whose stacks are of different depth where they come to a reduction.
#include <alloca.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    long sum = 0, other = 0;
    double d = 0;
#pragma omp parallel
    {
        int me = omp_get_thread_num();
        for (int k = 0; k < 2; k++) {
            size_t bytes = (size_t)(k ? me : omp_get_num_threads() - me) * 200000 + 1;
            char *room = alloca(bytes);
            memset(room, me, bytes);
#pragma omp for reduction(+ : sum, d)
            for (int i = 0; i < 100; i++) {
                sum += i;
                d += .5;
            }
#pragma omp atomic
            other += room[bytes - 1] == me;
        }
    }
    printf("%ld %g %ld\n", sum, d, other / omp_get_max_threads());
    return 0;
}
