// Atomics: update of all operators and types, capture, read, write, compare.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int i = 0, x = 0, o = 0, a = -1, m = 1, n = 1, flag = 0, ticket = 0, seen[64] = {0};
    long l = 0;
    unsigned char b = 0;
    short s = 0;
    float f = 0;
    double d = 0, p = 1, q = 0;
    long double ld = 0;
    unsigned u = ~0u;
#pragma omp parallel
    {
#pragma omp single
        n = omp_get_num_threads();
        for (int k = 1; k <= 5; k++) {
#pragma omp atomic
            i++;
#pragma omp atomic
            l += k;
#pragma omp atomic
            d += .5 * k;
#pragma omp atomic
            f -= .25f;
#pragma omp atomic
            ld += k;
#pragma omp atomic
            b += 3;
#pragma omp atomic
            s -= 2;
        }
#pragma omp atomic
        x ^= 1 << omp_get_thread_num();
#pragma omp atomic
        o |= 1 << omp_get_thread_num();
#pragma omp atomic
        a &= ~(1 << omp_get_thread_num());
#pragma omp atomic
        m *= 2;
#pragma omp atomic
        p = p * 2;
#pragma omp atomic
        q = 1 - q;
#pragma omp atomic
        u >>= 1;
        int mine;
#pragma omp atomic capture
        mine = ticket++;
        seen[mine] = 1;
#pragma omp atomic write
        flag = 5;
        int got;
#pragma omp atomic read
        got = flag;
        if (got != 5) seen[mine] = 100;
    }
    int all = 0;
    for (int k = 0; k < 64; k++) all += seen[k];
    int full = (1 << n) - 1;
    printf("%d %ld %g %g %g\n", i / n, l / n, d / n, (double)f / n, (double)ld / n);
    printf("%d %d %d %d\n", b == (unsigned char)(15 * n), s / n, x == full, o == full);
    printf("%d %d %g %d %d %d\n", a == ~full, m == 1 << n, p / (1 << n), q == n % 2, u == ~0u >> n, all / n);
    return 0;
}
