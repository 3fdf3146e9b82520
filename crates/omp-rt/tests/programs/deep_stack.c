// Megabytes of stack in threads, and recursion.
// env: OMP_STACKSIZE=64m
#include <omp.h>
#include <stdio.h>
static long down(int n) {
    volatile char room[4096];
    room[n % 4096] = (char)n;
    return n == 0 ? 0 : room[n % 4096] - (char)n + 1 + down(n - 1);
}
int main(void) {
    long sum = 0;
    int n = 0;
#pragma omp parallel reduction(+ : sum, n)
    {
        volatile double local[500000];
        local[0] = local[499999] = 1;
        n++;
        sum += down(1000) + (long)(local[0] + local[499999]);
    }
    printf("%ld\n", sum / n);
    return 0;
}
