// Critical sections with and without names, inside each other, and what they protect.
#include <omp.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    long plain = 0, named = 0, other = 0, most = -1;
    int where = -1, n = 1;
    char text[64] = "";
#pragma omp parallel
    {
#pragma omp master
        n = omp_get_num_threads();
        for (int i = 0; i < 20; i++) {
#pragma omp critical
            plain += i;
#pragma omp critical(one)
            {
                named += 2;
#pragma omp critical(two)
                other += named > 0;
            }
        }
#pragma omp for
        for (int i = 0; i < 1000; i++) {
            long v = (i * 7919L) % 1009;
            if (v > 1000)
#pragma omp critical(argmax)
                if (v > most || (v == most && i < where)) most = v, where = i;
        }
#pragma omp for ordered
        for (int i = 0; i < 10; i++)
#pragma omp ordered
#pragma omp critical
            text[strlen(text)] = 'a' + i;
    }
    printf("%ld %ld %ld max %ld at %d %s\n", plain / n, named / n, other / n, most, where, text);
    return 0;
}
