// What an exchange costs, an ordinary OpenMP program: the time from when the last thread has written its part until all have gone on, in seconds.
//   omp_exchange KILOBYTES REPETITIONS          all threads write, each a part of so much memory, all of it
//   omp_exchange KILOBYTES REPETITIONS serial   serial code writes it, and what is timed is the begin of the region behind
// Threads on several hosts need clocks that agree. What is written does not shrink if compressed.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15;
    return x ^ x >> 29;
}

static int smaller(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    const long words = argc > 1 ? atol(argv[1]) * 128 : 0;
    const int repetitions = argc > 2 ? atoi(argv[2]) : 10, serial = argc > 3 && !strcmp(argv[3], "serial");
    const int threads = omp_get_max_threads();
    uint64_t *memory = calloc(words + 1, 8);
    double *took = malloc(repetitions * sizeof *took), *done = calloc(threads, sizeof *done);

    // the first two bring pages into being
    for (int i = -2; i < repetitions; i++) {
        double last = 0, end;
        if (serial) {
            for (long k = 0; k < words; k++)
                memory[k] = mixed(k + i * words);
            last = omp_get_wtime();
        }
#pragma omp parallel
        {
            if (serial) {
                done[omp_get_thread_num()] = omp_get_wtime();
            } else {
#pragma omp for schedule(static) nowait
                for (long k = 0; k < words; k++)
                    memory[k] = mixed(k + i * words);
                done[omp_get_thread_num()] = omp_get_wtime();
            }
        }
        end = omp_get_wtime();
        if (serial)
            for (int t = (end = 0); t < threads; t++)
                end = done[t] > end ? done[t] : end;
        else
            for (int t = 0; t < threads; t++)
                last = done[t] > last ? done[t] : last;
        if (i >= 0)
            took[i] = end - last;
    }
    qsort(took, repetitions, sizeof *took, smaller);
    printf("%d threads, %ld KB: least %.6f median %.6f s\n", threads, words / 128, took[0], took[repetitions / 2]);
    return 0;
}
