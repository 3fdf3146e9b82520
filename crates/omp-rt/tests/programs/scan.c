// Prefix sums: reduction(inscan, ...).
// ranks: refused with gcc
// expect: refused: it keeps the threads' parts in memory of one process
#include <omp.h>
#include <stdio.h>
int main(void) {
    static int a[100], in[100], out[100];
    int s = 0, e = 0;
    for (int i = 0; i < 100; i++) a[i] = i % 7 + 1;
#pragma omp parallel for reduction(inscan, + : s)
    for (int i = 0; i < 100; i++) {
        s += a[i];
#pragma omp scan inclusive(s)
        in[i] = s;
    }
#pragma omp parallel for reduction(inscan, + : e)
    for (int i = 0; i < 100; i++) {
        out[i] = e;
#pragma omp scan exclusive(e)
        e += a[i];
    }
    long h = 0;
    for (int i = 0; i < 100; i++) h = h * 3 + in[i] - out[i] + (in[i] == out[i] + a[i]);
    printf("%d %d %ld\n", s, e, h);
    return 0;
}
