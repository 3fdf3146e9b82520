// Serial code that initializes much.
#include <stdio.h>
static double a[4 << 20];
int main(void) {
    for (int i = 0; i < 4 << 20; i++) a[i] = i % 17;
    double sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 4 << 20; i++) sum += a[i];
    printf("%g\n", sum);
    return 0;
}
