// A program that is wrong: all threads write to the same variable before they flush. One rank does not see it.
// ranks: refused
// expect: refused: A data race of the program
#include <omp.h>
#include <stdio.h>
int main(void) {
    int last = 0, in_range = 1;
#pragma omp parallel
    {
        last = omp_get_thread_num() + 1;
#pragma omp flush
#pragma omp barrier
        if (last < 1 || last > omp_get_num_threads()) in_range = 0;
    }
    printf("%d\n", in_range);
    return 0;
}
