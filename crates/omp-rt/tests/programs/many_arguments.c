// More variables than registers: shared ones by address, others by value, of all sizes.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int a1 = 1, a2 = 2, a3 = 3, a4 = 4, a5 = 5, a6 = 6, a7 = 7, a8 = 8;
    double d1 = .5, d2 = 1.5, d3 = 2.5, d4 = 3.5;
    float f1 = .25f, f2 = 1.25f;
    char c1 = 'a', c2 = 'b';
    short s1 = 11, s2 = 12;
    long l1 = 1l << 40, l2 = 1l << 41;
    int r1 = 0, r2 = 0, r3 = 0, r4 = 0, r5 = 0, r6 = 0, r7 = 0;
    double t = 0;
#pragma omp parallel firstprivate(a1, a2, a3, a4, a5, a6, a7, a8, d1, d2, d3, d4, f1, f2, c1, c2, s1, s2, l1, l2)
    {
#pragma omp critical
        {
            r1 += a1 + a2, r2 += a3 + a4, r3 += a5 + a6, r4 += a7 + a8, r5 += c1 + c2, r6 += s1 + s2;
            r7 += (int)(l1 >> 38) + (int)(l2 >> 38);
            t += d1 + d2 + d3 + d4 + f1 + f2;
        }
    }
    printf("%d %d %d %d %d %d %d %g\n", r1, r2, r3, r4, r5, r6, r7, t);
#define X(n) int v##n = n;
#define ALL                                                                                                            \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20)     \
    X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32) X(33) X(34) X(35) X(36) X(37) X(38) X(39)
    ALL
#undef X
#pragma omp parallel
#pragma omp critical
    {
#define X(n) v##n += n;
        ALL
#undef X
    }
    int sum = 0;
#define X(n) sum = sum * 3 + v##n;
    ALL
    printf("%d\n", sum);
    return 0;
}
