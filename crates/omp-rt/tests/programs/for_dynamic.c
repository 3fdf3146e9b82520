// Loops that are shared out at run time: each iteration once, for each kind of counter and step.
// env: OMP_SCHEDULE=guided,2
#include <limits.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
static int times[2000];
static void check(const char *name, int n) {
    int wrong = 0;
    for (int i = 0; i < 2000; i++) wrong += times[i] != (i < n), times[i] = 0;
    printf("%s %s\n", name, wrong ? "WRONG" : "once each");
}
#define LOOP(T, from, cond, step, index, clause, count)                                                                \
    {                                                                                                                  \
        _Pragma("omp parallel") {                                                                                      \
            _Pragma(clause) for (T i = from; cond; step) times[index]++;                                               \
        }                                                                                                              \
        check(#T " " clause, count);                                                                                   \
    }
#define ALL(T, from, cond, step, index, count)                                                                         \
    LOOP(T, from, cond, step, index, "omp for schedule(dynamic)", count)                                               \
    LOOP(T, from, cond, step, index, "omp for schedule(dynamic, 7)", count)                                            \
    LOOP(T, from, cond, step, index, "omp for schedule(guided) nowait", count)                                         \
    LOOP(T, from, cond, step, index, "omp for schedule(guided, 4)", count)                                             \
    LOOP(T, from, cond, step, index, "omp for schedule(runtime)", count)                                               \
    LOOP(T, from, cond, step, index, "omp for schedule(auto)", count)                                                  \
    LOOP(T, from, cond, step, index, "omp for schedule(monotonic : dynamic, 2)", count)                                \
    LOOP(T, from, cond, step, index, "omp for schedule(nonmonotonic : dynamic, 2) nowait", count)
int main(void) {
    ALL(int, 0, i < 1000, i++, i, 1000)
    ALL(int, 0, i < 0, i++, i, 0)
    ALL(int, 500, i >= -499, i--, 500 - i, 1000)
    ALL(unsigned, 4000000000u, i < 4000003000u, i += 3, (i - 4000000000u) / 3, 1000)
    ALL(int64_t, -3000000000000, i < -3000000000000 + 995, i += 5, (i + 3000000000000) / 5, 199)
    ALL(uint64_t, UINT64_MAX - 1000, i > UINT64_MAX - 2000, i -= 1, UINT64_MAX - 1000 - i, 1000)
    ALL(uint64_t, (uint64_t)INT64_MAX - 10, i < (uint64_t)INT64_MAX + 490, i += 1, i - INT64_MAX + 10, 500)
    ALL(short, 0, i < 300, i += 2, i / 2, 150)
    // as the combined directive, for which gcc has entry points of their own
#pragma omp parallel for schedule(dynamic, 3)
    for (int i = 0; i < 777; i++) times[i]++;
    check("parallel dynamic", 777);
#pragma omp parallel for schedule(guided)
    for (int i = 776; i >= 0; i--) times[i]++;
    check("parallel guided", 777);
#pragma omp parallel for schedule(runtime)
    for (int i = 0; i < 777; i++) times[i]++;
    check("parallel runtime", 777);
    // many without barriers between them
    int total = 0;
#pragma omp parallel reduction(+ : total)
    for (int k = 0; k < 100; k++) {
#pragma omp for schedule(dynamic, 2) nowait
        for (int i = 0; i < 10; i++) total += i + k;
    }
    printf("nowait %d\n", total);
    return 0;
}
