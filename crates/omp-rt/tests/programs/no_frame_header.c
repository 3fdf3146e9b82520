// Unwind tables without the index of them that the loader knows.
// flags: -Wl,--no-eh-frame-hdr -s
#include <omp.h>
#include <stdio.h>
int main(void) {
    int x = 0;
#pragma omp parallel for
    for (int i = 0; i < 300; i++) {
#pragma omp atomic
        x += 1;
    }
    printf("%d\n", x);
    return 0;
}
