// ordered: output and a chain of dependences, for each schedule; iterations without an ordered part.
#include <omp.h>
#include <stdio.h>
int main(void) {
    unsigned hash = 1, other = 1;
#define RUN(clause)                                                                                                    \
    _Pragma(clause) for (int i = 0; i < 40; i++) {                                                                     \
        int x = i * i;                                                                                                 \
        if (i % 5 != 3) {                                                                                              \
            _Pragma("omp ordered") {                                                                                   \
                hash = hash * 31 + x;                                                                                  \
                if (i % 8 == 0) printf("%d ", i);                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    printf("%s %u\n", clause, hash);
    RUN("omp parallel for ordered")
    RUN("omp parallel for ordered schedule(static)")
    RUN("omp parallel for ordered schedule(static, 3)")
    RUN("omp parallel for ordered schedule(dynamic)")
    RUN("omp parallel for ordered schedule(dynamic, 4)")
    RUN("omp parallel for ordered schedule(guided, 2)")
    RUN("omp parallel for ordered schedule(runtime)")
#pragma omp parallel
    {
#pragma omp for ordered schedule(dynamic) nowait
        for (long i = 10; i > 0; i -= 2) {
#pragma omp ordered
            hash = hash * 7 + i;
        }
#pragma omp for ordered schedule(static, 1)
        for (unsigned long i = 0; i < 9; i++) {
#pragma omp ordered
            other = other * 11 + i;
        }
    }
    printf("%u %u\n", hash, other);
    return 0;
}
