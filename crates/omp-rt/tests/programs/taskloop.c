// taskloop: grainsize, num_tasks, collapse, firstprivate, lastprivate, nogroup, all kinds of counters.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
static int times[500];
static void check(const char *name, int n) {
    int wrong = 0;
    for (int i = 0; i < 500; i++) wrong += times[i] != (i < n), times[i] = 0;
    printf("%s %s\n", name, wrong ? "WRONG" : "once each");
}
int main(void) {
    int last = -1, base = 1000, ok = 0;
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskloop
        for (int i = 0; i < 100; i++) times[i]++;
        check("plain", 100);
#pragma omp taskloop grainsize(7) lastprivate(last) firstprivate(base)
        for (int i = 0; i < 100; i++) times[i]++, last = base + i;
        check("grainsize", 100);
#pragma omp taskloop num_tasks(5)
        for (unsigned i = 0; i < 300; i += 3) times[i / 3]++;
        check("num_tasks", 100);
#pragma omp taskloop collapse(2) num_tasks(9)
        for (int i = 0; i < 10; i++)
            for (int j = 20; j > 0; j--) times[i * 20 + j - 1]++;
        check("collapse", 200);
#pragma omp taskloop nogroup
        for (uint64_t i = UINT64_MAX - 50; i < UINT64_MAX; i++) times[i - (UINT64_MAX - 50)]++;
#pragma omp taskwait
        check("nogroup", 50);
#pragma omp taskloop
        for (int64_t i = 99; i >= 0; i--) times[i]++;
        check("down", 100);
#pragma omp taskloop if (0) final(1)
        for (int i = 0; i < 40; i++) times[i]++, ok += omp_in_final();
        check("if", 40);
#pragma omp taskloop
        for (int i = 10; i < 10; i++) times[i]++;
        check("none", 0);
#pragma omp taskloop simd
        for (int i = 0; i < 64; i++) times[i]++;
        check("simd", 64);
    }
    printf("last %d finals %d\n", last, ok);
    return 0;
}
