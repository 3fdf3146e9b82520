// How serial code has threads compute: rounding, and tiny numbers as zeros, in C's types and in long double.
#include <fenv.h>
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
static volatile double one = 1, three = 3, tiny = 1e-308;
static volatile long double whole = 1, parts = 3;
int main(void) {
    double thirds[64], tinies[64];
    long double more[64];
    fesetround(FE_UPWARD);
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
#pragma omp parallel
    {
        int me = omp_get_thread_num();
        thirds[me] = one / three;
        tinies[me] = tiny / 1000;
        more[me] = whole / parts;
    }
    fesetround(FE_TONEAREST);
    for (int i = 0; i < omp_get_max_threads(); i++) printf("%a %g %La\n", thirds[i], tinies[i], more[i]);
    return 0;
}
