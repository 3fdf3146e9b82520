// Regions of fewer threads than there are ranks are rank 0's alone; what they leave in the libraries' buffers, other ranks' serial code must not lack.
#include <stdio.h>
int main(int argc, char **argv) {
    long sum = 0;
    FILE *file = fopen(argv[1], "w");
    if (!file) return 1;
    fprintf(file, "serial\n");
    printf("serial\n");
#pragma omp parallel num_threads(2)
#pragma omp single
    printf("few\n"), fprintf(file, "few\n");
    // all ranks have made the same system calls when a region begins
#pragma omp parallel reduction(+ : sum)
    sum += 1;
    printf("all, %d\n", sum > 2);
#pragma omp parallel num_threads(2)
#pragma omp single
    printf("few again\n"), fprintf(file, "few again\n");
    printf("serial again\n");
    fclose(file);
#pragma omp parallel num_threads(2)
#pragma omp single
    printf("the last\n");
    return 0;
}
