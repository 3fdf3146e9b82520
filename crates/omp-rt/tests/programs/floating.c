// How serial code has threads compute: rounding, and tiny numbers as zeros, in C's types and in long double.
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
static volatile double one = 1, three = 3, tiny = 1e-308;
static volatile long double whole = 1, parts = 3;
// What fesetround does, for which programs would have to be linked with the library of mathematics.
static void rounding(unsigned mode) {
    unsigned short x87;
    _MM_SET_ROUNDING_MODE(mode << 13);
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    x87 = (x87 & ~0xc00) | mode << 10;
    __asm__ volatile("fldcw %0" : : "m"(x87));
}
int main(void) {
    double thirds[64], tinies[64];
    long double more[64];
    rounding(2);
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
#pragma omp parallel
    {
        int me = omp_get_thread_num();
        thirds[me] = one / three;
        tinies[me] = tiny / 1000;
        more[me] = whole / parts;
    }
    rounding(0);
    for (int i = 0; i < omp_get_max_threads(); i++) printf("%a %g %La\n", thirds[i], tinies[i], more[i]);
    return 0;
}
