// What the C library sorts in a region, which asks the system how much memory there is.
#include <stdio.h>
#include <stdlib.h>
enum { N = 4000, PARTS = 8 };
static int all[N];
static int by_value(const void *one, const void *other) { return *(const int *)one - *(const int *)other; }
int main(void) {
    for (int i = 0; i < N; i++)
        all[i] = (i * 7919 + 13) % 10007;
#pragma omp parallel for schedule(static)
    for (int part = 0; part < PARTS; part++)
        qsort(all + part * (N / PARTS), N / PARTS, sizeof *all, by_value);
    long sum = 0;
    for (int i = 0; i < N; i++)
        sum = (sum * 31 + all[i]) % 1000003;
    printf("%ld\n", sum);
    return 0;
}
