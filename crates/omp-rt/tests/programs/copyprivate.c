// copyprivate: scalars, a struct, an array, by every thread afterwards.
#include <omp.h>
#include <stdio.h>
struct point {
    double x, y;
    char name[40];
};
static int tp;
#pragma omp threadprivate(tp)
int main(void) {
    int wrong = 0, n = 1;
#pragma omp parallel reduction(+ : wrong)
    {
        for (int round = 0; round < 3; round++) {
            int a = -1, array[100];
            double d = -1;
            struct point p = {0};
            for (int i = 0; i < 100; i++) array[i] = -1;
#pragma omp single copyprivate(a, d, p, array, tp)
            {
                a = 42 + round;
                d = 3.25;
                p = (struct point){1, 2, "a point with a name"};
                for (int i = 0; i < 100; i++) array[i] = i * i + round;
                tp = 99 + round;
                n = omp_get_num_threads();
            }
            wrong += a != 42 + round || d != 3.25 || p.y != 2 || p.name[6] != 't' || tp != 99 + round;
            for (int i = 0; i < 100; i++) wrong += array[i] != i * i + round;
        }
    }
    printf("threads %d wrong %d\n", n, wrong);
    return 0;
}
