// Regions in constructors and destructors.
#include <omp.h>
#include <stdio.h>
static int values[1000];
__attribute__((constructor)) static void before(void) {
#pragma omp parallel for
    for (int i = 0; i < 1000; i++) values[i] = i;
}
static long sum(void) {
    long sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 1000; i++) sum += values[i];
    return sum;
}
__attribute__((destructor)) static void after(void) { printf("%ld in the end\n", sum()); }
int main(void) {
    printf("%ld\n", sum());
    return 0;
}
