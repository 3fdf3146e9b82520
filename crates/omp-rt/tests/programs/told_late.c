// The environment is changed in a region.
// ranks: refused
// expect: refused: setenv: in a parallel region
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    int there = 0;
#pragma omp parallel reduction(+ : there)
    {
#pragma omp single
        setenv("TOLD_LATE", "1", 1);
        there += getenv("TOLD_LATE") != NULL;
    }
    printf("%d\n", there == omp_get_max_threads());
    return 0;
}
