// Iterations that wait for others: ordered(n) with depend(sink) and depend(source).
#include <omp.h>
#include <stdio.h>
int main(void) {
    static long a[41], g[20][20];
    a[0] = 1;
#pragma omp parallel for ordered(1) schedule(static, 2)
    for (int i = 1; i <= 40; i++) {
#pragma omp ordered depend(sink : i - 1)
        a[i] = (a[i - 1] * 3 + i) % 10007;
#pragma omp ordered depend(source)
    }
    for (int i = 0; i < 20; i++) g[0][i] = g[i][0] = i + 1;
#pragma omp parallel
    {
#pragma omp for ordered(2) schedule(dynamic)
        for (int i = 1; i < 20; i++)
            for (int j = 1; j < 20; j++) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
                g[i][j] = (g[i - 1][j] + g[i][j - 1]) % 1000003;
#pragma omp ordered depend(source)
            }
#pragma omp for
        for (int i = 0; i < 41; i++) a[i]++;
    }
    printf("%ld %ld\n", a[40], g[19][19]);
    return 0;
}
