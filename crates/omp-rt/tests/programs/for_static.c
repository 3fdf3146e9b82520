// Static loops: who does which iteration, for each kind of counter, step and chunk.
#include <limits.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
static int owner[256];
static void show(const char *name, int n) {
    printf("%s:", name);
    for (int i = 0; i < n; i++) printf(" %d", owner[i]), owner[i] = -1;
    puts("");
}
#define LOOP(T, from, cond, step, index, clause, name, count)                                                          \
    {                                                                                                                  \
        _Pragma(clause) for (T i = from; cond; step) owner[index] = omp_get_thread_num();                              \
        show(name, count);                                                                                             \
    }
int main(void) {
    for (int i = 0; i < 256; i++) owner[i] = -1;
    LOOP(int, 0, i < 17, i++, i, "omp parallel for schedule(static)", "int", 17)
    LOOP(int, 0, i < 2, i++, i, "omp parallel for schedule(static)", "few", 2)
    LOOP(int, 0, i < 0, i++, i, "omp parallel for schedule(static)", "none", 1)
    LOOP(int, 0, i < 17, i++, i, "omp parallel for schedule(static, 3)", "int,3", 17)
    LOOP(int, 0, i < 5, i++, i, "omp parallel for schedule(static, 100)", "int,100", 5)
    LOOP(int, 30, i >= 0, i -= 3, i / 3, "omp parallel for schedule(static)", "down", 11)
    LOOP(int, 30, i >= 0, i -= 3, i / 3, "omp parallel for schedule(static, 2)", "down,2", 11)
    LOOP(unsigned, 3000000000u, i < 3000000050u, i += 7, (i - 3000000000u) / 7, "omp parallel for schedule(static)", "unsigned", 8)
    LOOP(unsigned, 3000000000u, i < 3000000050u, i += 7, (i - 3000000000u) / 7, "omp parallel for schedule(static, 2)", "unsigned,2", 8)
    LOOP(int64_t, -5000000000, i <= -4999999990, i++, i + 5000000000, "omp parallel for schedule(static)", "long", 11)
    LOOP(int64_t, 5000000000, i > 4999999990, i -= 2, (5000000000 - i) / 2, "omp parallel for schedule(static, 1)", "long down,1", 5)
    LOOP(uint64_t, UINT64_MAX - 20, i < UINT64_MAX - 1, i += 2, (i - UINT64_MAX + 20) / 2, "omp parallel for schedule(static)", "ulong", 10)
    LOOP(uint64_t, UINT64_MAX - 20, i < UINT64_MAX - 1, i += 2, (i - UINT64_MAX + 20) / 2, "omp parallel for schedule(static, 3)", "ulong,3", 10)
    LOOP(signed char, -4, i < 9, i++, i + 4, "omp parallel for schedule(static)", "char", 13)
    LOOP(short, 0, i < 12, i += 5, i / 5, "omp parallel for schedule(static, 1)", "short,1", 3)
    LOOP(int, INT_MAX - 9, i < INT_MAX, i++, i - (INT_MAX - 9), "omp parallel for schedule(static)", "top", 9)
    LOOP(int, INT_MAX - 9, i < INT_MAX, i++, i - (INT_MAX - 9), "omp parallel for schedule(static, 2)", "top,2", 9)
    LOOP(int, INT_MIN + 9, i > INT_MIN, i--, i - INT_MIN - 1, "omp parallel for schedule(static, 2)", "bottom,2", 9)
    int a[100];
#pragma omp parallel for simd schedule(simd : static, 5)
    for (int i = 0; i < 100; i++) a[i] = i * i;
    long s = 0;
    for (int i = 0; i < 100; i++) s += a[i];
    printf("simd %ld\n", s);
    return 0;
}
