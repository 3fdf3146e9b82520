// A thread waits for input that another writes later, and others go on meanwhile.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    int ends[2], n = omp_get_max_threads(), put = 0, got = 0, sum = 0;
    char text[8] = "";
    if (pipe(ends)) return 1;
#pragma omp parallel
    {
        int me = omp_get_thread_num();
        if (me == n - 2 || n == 1) {
            usleep(20000);
#pragma omp atomic
            sum++;
            put = (int)write(ends[1], "word", 4);
        }
        if (me == n - 1) got = (int)read(ends[0], text, 8);
    }
    printf("%d %d %s %d\n", put, got, text, sum);
    return 0;
}
