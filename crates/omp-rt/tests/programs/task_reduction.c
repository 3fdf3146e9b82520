// Reductions in tasks: task groups, taskloops, own operators.
#include <omp.h>
#include <stdio.h>
struct pair {
    long sum, product;
};
#pragma omp declare reduction(both : struct pair : omp_out.sum += omp_in.sum, omp_out.product *= omp_in.product)                \
    initializer(omp_priv = {0, 1})
static long deep;
static void add(int depth) {
#pragma omp task in_reduction(+ : deep) firstprivate(depth)
    {
        deep += depth;
        if (depth > 0) add(depth - 1);
    }
}
int main(void) {
    long x = 100, a[5] = {0}, loop = 0;
    struct pair p = {1, 1};
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskgroup task_reduction(+ : x, a) task_reduction(both : p)
        {
            for (int i = 1; i <= 10; i++)
#pragma omp task in_reduction(+ : x, a) in_reduction(both : p) firstprivate(i)
            {
                x += i, a[i % 5] += i, p.sum += i, p.product *= i % 3 + 1;
            }
        }
#pragma omp taskgroup task_reduction(+ : deep)
        add(6);
#pragma omp taskloop reduction(+ : loop) grainsize(9)
        for (int i = 0; i < 1000; i++) loop += i;
    }
    printf("%ld %ld %ld %ld %ld %ld\n", x, a[0], a[1], a[2], a[3], a[4]);
    printf("%ld %ld %ld %ld\n", p.sum, p.product, deep, loop);
    return 0;
}
