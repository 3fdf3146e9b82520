// OMP_DISPLAY_ENV, and the same by call: on standard error, between two lines.
// env: OMP_DISPLAY_ENV=true
#include <omp.h>
#include <stdio.h>
int main(void) {
#if _OPENMP >= 202011
    omp_display_env(0);
#endif
#pragma omp parallel
#pragma omp master
    puts("done");
    return 0;
}
