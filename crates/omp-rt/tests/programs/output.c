// Output of regions: whole lines, in the order that the program gives them.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    printf("begin, ");
#pragma omp parallel
    {
#pragma omp for ordered
        for (int i = 0; i < 12; i++)
#pragma omp ordered
            printf("%d ", i);
#pragma omp single
        puts("single");
#pragma omp barrier
        for (int t = 0; t < omp_get_num_threads(); t++) {
            if (t == omp_get_thread_num()) {
                printf("thread %d\n", t);
                fflush(stdout);
            }
#pragma omp barrier
        }
#pragma omp critical
        puts("same line of each");
    }
    fprintf(stdout, "end\n");
    return 3;
}
