// What a parallel region costs, an ordinary OpenMP program.
//   omp_regions RESIDENT_MB REGIONS          regions in which nothing is written, with so much memory that was
//   omp_regions RESIDENT_MB REGIONS SHARE    of which each region writes SHARE parts in a thousand, a double in each of these pages
//   omp_regions 0 REGIONS reduction|critical|atomic|dynamic|barrier
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    const size_t megabytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    const int regions = argc > 2 ? atoi(argv[2]) : 1000;
    const char *what = argc > 3 ? argv[3] : "0";
    const double share = atof(what) / 1000;
    const size_t pages = megabytes * 256;
    double *memory = malloc(pages * 4096 + 8);
    for (size_t i = 0; i < pages * 512; i++)
        memory[i] = (double)i;
    double sum = 0;
    long count = 0;

    double best = 1e9, start = 0;
    // the first rounds send what is there
    for (int round = 0; round < 6; round++) {
        start = omp_get_wtime();
        for (int i = 0; i < regions; i++) {
            if (!strcmp(what, "reduction")) {
#pragma omp parallel reduction(+ : sum)
                sum += 1;
            } else if (!strcmp(what, "critical")) {
#pragma omp parallel
#pragma omp critical
                count++;
            } else if (!strcmp(what, "atomic")) {
#pragma omp parallel
#pragma omp atomic
                count++;
            } else if (!strcmp(what, "dynamic")) {
#pragma omp parallel for schedule(dynamic)
                for (int k = 0; k < 16; k++)
                    __asm__ volatile("");
            } else if (!strcmp(what, "barrier")) {
#pragma omp parallel
                {
                    __asm__ volatile("");
#pragma omp barrier
                }
            } else if (share > 0) {
                const size_t step = (size_t)(1 / share);
#pragma omp parallel for
                for (size_t page = 0; page < pages / step; page++)
                    memory[page * step * 512] += 1;
            } else {
#pragma omp parallel
                __asm__ volatile("");
            }
        }
        double took = (omp_get_wtime() - start) / regions;
        best = took < best ? took : best;
    }
    printf("%d threads, %zu MB resident, %s: %.2f us a region (%g %ld)\n", omp_get_max_threads(), megabytes, what, best * 1e6, sum, count);
    return 0;
}
