// Reductions of arrays, sections of arrays of which the length is known at run time, long double, complex, own operators.
#include <complex.h>
#include <omp.h>
#include <stdio.h>
struct stats {
    long count;
    double sum, most;
    char tag;
};
static int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
static void merge(struct stats *into, const struct stats *from) {
    into->count += from->count;
    into->sum += from->sum;
    if (from->most > into->most) into->most = from->most, into->tag = from->tag;
}
#pragma omp declare reduction(merge : struct stats : merge(&omp_out, &omp_in)) initializer(omp_priv = {0, 0, -1, '?'})
#pragma omp declare reduction(gcd : int : omp_out = gcd(omp_out, omp_in)) initializer(omp_priv = 0)
static double work(int n, double *v) {
    double local[n], total = 0;
    for (int i = 0; i < n; i++) local[i] = 0;
#pragma omp parallel for reduction(+ : local[0:n], total) reduction(+ : v[1:n - 2])
    for (int i = 0; i < 1000; i++) {
        local[i % n] += i;
        total += 1;
        if (i % n > 0 && i % n < n - 1) v[i % n] += .5;
    }
    for (int i = 0; i < n; i++) total += local[i] * (i + 1);
    return total;
}
int main(void) {
    int histogram[16] = {0};
    long matrix[4][5] = {{0}};
    long double ld = 1;
    double complex z = 0;
    float complex y = 1;
    struct stats s = {0, 0, -1, '-'};
#pragma omp parallel for reduction(+ : histogram, matrix)
    for (int i = 0; i < 4000; i++) histogram[i * i % 16]++, matrix[i % 4][i % 5] += i;
    for (int i = 0; i < 16; i++) printf("%d ", histogram[i]);
    long all = 0;
    for (int i = 0; i < 20; i++) all = all * 3 + matrix[i / 5][i % 5];
    printf("%ld\n", all);
#pragma omp parallel for reduction(+ : ld)
    for (int i = 0; i < 100; i++) ld += i;
#pragma omp parallel for reduction(+ : z) reduction(* : y)
    for (int i = 0; i < 8; i++) z += i - 2 * i * I, y *= (i % 2 ? I : -I);
    printf("%Lg %g %g %g %g\n", ld, creal(z), cimag(z), crealf(y), cimagf(y));
#pragma omp parallel for reduction(merge : s)
    for (int i = 0; i < 300; i++) {
        struct stats one = {1, i, (i * 17) % 301, (char)('a' + i % 26)};
        merge(&s, &one);
    }
    printf("%ld %g %g %c\n", s.count, s.sum, s.most, s.tag);
    double v[10] = {0};
    printf("%g ", work(10, v));
    for (int i = 0; i < 10; i++) printf("%g ", v[i]);
    puts("");
    int d = 0;
#pragma omp parallel for reduction(gcd : d)
    for (int i = 1; i < 100; i++) d = gcd(d, i * 84);
    printf("gcd %d\n", d);
    return 0;
}
