// Tasks: trees, firstprivate, taskwait, taskgroup, depend, priority, final, mergeable, if, untied, taskyield.
#include <omp.h>
#include <stdio.h>
static long fib(int n) {
    long a, b;
    if (n < 2) return n;
#pragma omp task shared(a) firstprivate(n) final(n < 5)
    a = fib(n - 1);
#pragma omp task shared(b) if (n > 6)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}
int main(void) {
    long f = 0, sum = 0, order = 0, chain = 1;
    int finals = 0, wide[20] = {0};
    struct big {
        double v[30];
    } big = {{0}};
#pragma omp parallel
    {
#pragma omp single
        {
            f = fib(15);
            for (int i = 0; i < 20; i++) {
                big.v[29] = i;
#pragma omp task firstprivate(i, big) priority(i) untied
                {
                    wide[i] = (int)big.v[29] + i;
#pragma omp taskyield
                }
            }
#pragma omp taskgroup
            {
                for (int i = 0; i < 10; i++)
#pragma omp task mergeable
                {
#pragma omp task
                    {
#pragma omp atomic
                        sum += i;
                    }
                }
            }
            order = sum;
            for (int i = 1; i < 6; i++)
#pragma omp task depend(inout : chain) firstprivate(i)
                chain = chain * 10 + i;
#pragma omp task depend(in : chain)
            order += chain;
#pragma omp taskwait depend(in : chain)
            printf("chain %ld\n", chain);
#pragma omp task final(1) shared(finals)
            {
                finals = omp_in_final();
#pragma omp task shared(finals)
                finals += 2 * omp_in_final();
            }
        }
    }
    int all = 0;
    for (int i = 0; i < 20; i++) all += wide[i];
    printf("%ld %ld %ld %d %d\n", f, sum, order, finals, all);
#pragma omp task shared(sum)
    sum = -1;
#pragma omp taskwait
    printf("serial %ld\n", sum);
    return 0;
}
