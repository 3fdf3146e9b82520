// What a region writes to a full disk: the program hears of it, by whichever rank it was written.
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    int few = 0, lost = 0;
    for (int only = 0; only < 2; only++) {
        FILE *full = fopen("/dev/full", "w");
#pragma omp parallel for reduction(+ : few)
        for (int i = 0; i < 20; i++)
            if (!only || i == 19) few += fprintf(full, "%d some line of text\n", i) < 0;
        int flagged = ferror(full) != 0;
        errno = 0;
        int result = fclose(full);
        lost += result == EOF && errno == ENOSPC;
        printf("%d %d %s\n", few, result, strerror(errno));
        (void)flagged; // natively not yet
    }
    FILE *full = fopen("/dev/full", "w");
#pragma omp parallel for ordered
    for (int i = 0; i < 20; i++)
#pragma omp ordered
        fprintf(full, "%d\n", i);
    printf("%d %d\n", fflush(full), lost);
    fclose(full);
    return 0;
}
