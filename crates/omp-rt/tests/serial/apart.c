// Serial code that goes different ways on different ranks, by the processor's counter: by system calls, or by regions.
#include <stdio.h>
#include <unistd.h>
#include <x86intrin.h>
static int chance(void) { return __rdtsc() * 0x9e3779b97f4a7c15 >> 63 & 1; }
int main(int argc, char **argv) {
    long sum = 0;
    for (int i = 0; i < 60; i++) {
        if (argc > 1) {
            if (chance()) {
#pragma omp parallel reduction(+ : sum)
                sum += 1;
            } else {
#pragma omp parallel reduction(+ : sum)
                sum += 2;
            }
        } else if (chance()) {
            sum += access("/nowhere", 0);
        } else {
            sum += chdir("/nowhere");
        }
    }
    // rank 0 does not end before the others have come here
#pragma omp parallel reduction(+ : sum)
    sum += 1;
    printf("%ld\n", sum);
    return 0;
}
