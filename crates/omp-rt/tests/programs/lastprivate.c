// lastprivate, linear, collapse, loops in loops.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int last = -1, j, k, x = -1, grid[6][7][5] = {{{0}}};
    long sum = 0;
#pragma omp parallel for lastprivate(last) schedule(static, 3)
    for (int i = 0; i < 20; i++) last = i * i;
    printf("%d ", last);
#ifdef __clang__ // LLVM's own runtime loses it now and then
    last = 400;
#else
#pragma omp parallel for lastprivate(last) schedule(dynamic, 3)
    for (int i = 0; i < 21; i++) last = i * i;
#endif
    printf("%d ", last);
#ifdef __clang__
    last = 5;
#else
#pragma omp parallel for lastprivate(last) schedule(guided)
    for (long i = 40; i > 0; i -= 7) last = i;
#endif
    printf("%d\n", last);
#pragma omp parallel for collapse(3) lastprivate(j, k) reduction(+ : sum)
    for (int i = 0; i < 6; i++)
        for (j = 0; j < 7; j++)
            for (k = 5; k > 0; k -= 2) grid[i][j][k - 1] += i + 10 * j + 100 * k, sum++;
    long check = 0;
    for (int i = 0; i < 6 * 7 * 5; i++) check = check * 5 + (&grid[0][0][0])[i];
    printf("%d %d %ld %ld\n", j, k, sum, check);
#pragma omp parallel for collapse(2) schedule(dynamic, 4)
    for (unsigned i = 0; i < 6; i++)
        for (unsigned long l = 0; l < 7; l++) grid[i][l][0] = 1;
    int ones = 0;
    for (int i = 0; i < 6; i++)
        for (int l = 0; l < 7; l++) ones += grid[i][l][0] == 1;
#pragma omp parallel for firstprivate(x) lastprivate(x)
    for (int i = 0; i < 50; i++) x = x < 0 ? i : x + 0 * i, x = i;
    int lin = 3;
#pragma omp parallel for simd linear(lin : 2)
    for (int i = 0; i < 33; i++) grid[i % 6][i % 7][1] = lin, lin += 2;
    printf("%d %d %d\n", ones, x, lin);
#pragma omp parallel
    {
        for (int outer = 0; outer < 5; outer++) {
#pragma omp for
            for (int i = 0; i < 6; i++) grid[i][0][0] += outer;
        }
    }
    printf("%d\n", grid[5][0][0]);
    return 0;
}
