// Atomics in code of which no unwind tables speak, and no symbols.
// flags: -fno-asynchronous-unwind-tables -fno-exceptions -s
#include <omp.h>
#include <stdio.h>
static int x, y;
static double z;
int main(void) {
    int last = 0;
#pragma omp parallel for
    for (int i = 0; i < 300; i++) {
        int n;
#pragma omp atomic
        x += 1;
#pragma omp atomic
        z += .5;
#pragma omp atomic capture
        n = ++y;
        if (n == 300) last = 1;
    }
    printf("%d %g %d %d\n", x, z, y, last);
    return 0;
}
