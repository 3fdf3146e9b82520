// Targets without a device: the host carries them out.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int a[100], x = 5, on_host = 0;
    double sum = 0;
    for (int i = 0; i < 100; i++) a[i] = i;
#pragma omp target data map(tofrom : a)
    {
#pragma omp target map(tofrom : sum, on_host) firstprivate(x)
        {
            on_host = omp_is_initial_device();
            for (int i = 0; i < 100; i++) a[i] += x, sum += a[i];
            x = 0;
        }
#pragma omp target update from(a)
    }
#pragma omp target teams distribute parallel for map(tofrom : a) reduction(+ : sum)
    for (int i = 0; i < 100; i++) sum += a[i];
    printf("%d %g %d\n", x, sum, on_host);
    return 0;
}
