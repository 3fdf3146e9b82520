// sections: each once; more and fewer than threads; lastprivate; without a barrier.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int done[8] = {0}, last = 0, sum = 0;
#pragma omp parallel sections lastprivate(last) reduction(+ : sum)
    {
#pragma omp section
        done[0]++, last = 1, sum += 1;
#pragma omp section
        done[1]++, last = 2, sum += 10;
#pragma omp section
        done[2]++, last = 3, sum += 100;
    }
#pragma omp parallel
    {
#pragma omp sections nowait
        {
            done[3]++;
#pragma omp section
            done[4]++;
        }
#pragma omp sections
        {
#pragma omp section
            done[5]++;
        }
#pragma omp sections firstprivate(last)
        {
            done[6] += last;
#pragma omp section
            done[7] += last;
        }
    }
    for (int i = 0; i < 8; i++) printf("%d ", done[i]);
    printf("last %d sum %d\n", last, sum);
    return 0;
}
