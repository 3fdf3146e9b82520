// Serial code that goes different ways on different ranks, and comes to no region any more: rank 0's way is the program's.
#include <stdio.h>
#include <unistd.h>
#include <x86intrin.h>
int main(void) {
    long sum = 0, none = 0;
#pragma omp parallel reduction(+ : sum)
    sum += 1;
    for (int i = 0; i < 60; i++) {
        if (__rdtsc() * 0x9e3779b97f4a7c15 >> 63 & 1) {
            none += access("/nowhere", 0);
        } else {
            none += chdir("/nowhere");
        }
    }
    // the others have gone their way by now
    usleep(300000);
    printf("%ld %ld\n", sum, none);
    return 3;
}
