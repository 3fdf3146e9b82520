// Serial code whose results differ between ranks: the processor's counter is nobody's to replace. Rank 0's count.
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <x86intrin.h>
static unsigned long table[64 << 10];
int main(void) {
    int right = 1;
    for (int round = 0; round < 5; round++) {
        unsigned long seed = __rdtsc(), first = seed | 1, seen[8] = {0};
        for (int i = 0; i < (64 << 10); i += round * 700 + 1) table[i] = seed += first;
#pragma omp parallel num_threads(2)
        seen[omp_get_thread_num()] = table[0] ^ table[(64 << 10) / (round * 700 + 1) * (round * 700 + 1) - (round * 700 + 1)] ^ first;
        right &= seen[0] == seen[1] && seen[0] != 0;
    }
    printf("%s\n", right ? "alike" : "different");
    return 0;
}
