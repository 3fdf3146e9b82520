// Reductions of one and of several scalars, all operators, with and without nowait, in loops, sections and regions.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int n = 1, plus = 5, minus = 0, times = 1, and = ~0, or = 0, xor = 0, land = 1, lor = 0, most = -1000, least = 1000;
    double dsum = .5, dmax = -1e300, dprod = 1;
    float fsum = 0;
    long lsum = 0;
    char csum = 0;
    short ssum = 0;
    unsigned long usum = 0;
#pragma omp parallel for reduction(+ : plus)
    for (int i = 0; i < 1000; i++) plus += i;
#pragma omp parallel for reduction(- : minus) reduction(+ : lsum, csum, ssum, usum)
    for (int i = 0; i < 100; i++) minus -= i, lsum += i, csum += 1, ssum += i, usum += 1ul << 33;
#pragma omp parallel reduction(* : times) reduction(& : and) reduction(| : or) reduction(^ : xor)
    {
        int t = omp_get_thread_num();
        times *= 2, and &= ~(1 << t), or |= 1 << t, xor ^= 3 << t;
#pragma omp single
        n = omp_get_num_threads();
    }
#pragma omp parallel for reduction(&& : land) reduction(|| : lor) reduction(max : most, dmax) reduction(min : least) schedule(dynamic)
    for (int i = 0; i < 500; i++) {
        land = land && i >= 0;
        lor = lor || i == 321;
        int v = (i * 37) % 501;
        if (v > most) most = v;
        if (v < least) least = v;
        if (v * .5 > dmax) dmax = v * .5;
    }
#pragma omp parallel reduction(+ : dsum)
    {
#pragma omp for nowait reduction(+ : fsum)
        for (int i = 0; i < 256; i++) fsum += .5f;
#pragma omp for reduction(* : dprod)
        for (int i = 0; i < 20; i++) dprod *= 2;
        // the result is there behind the loop's barrier
        if (dprod != 1048576) dsum = 1e9;
#pragma omp for
        for (int i = 0; i < 64; i++) dsum += .25;
#pragma omp sections reduction(+ : plus)
        {
            plus += 1000000;
#pragma omp section
            plus += 2000000;
        }
    }
    printf("%d %d %ld %d %d %lu\n", plus, minus, lsum, csum, ssum, usum);
    int full = (1 << n) - 1;
    printf("%d %d %d %d\n", times == 1 << n, and == ~full, or == full, xor == (full ^ (full << 1)));
    printf("%d %d %d %d %g\n", land, lor, most, least, dmax);
    printf("%g %g %g\n", dsum, fsum, dprod);
    return 0;
}
