// What tasks write to a full disk, one buffered and one not: they hear of it, whoever carries them out, and what others write is there.
// env: POLYRAIL_OMP_TASKS=always
#include <errno.h>
#include <stdio.h>
int main(void) {
    FILE *full = fopen("/dev/full", "w"), *late = fopen("/dev/full", "w"), *fine = tmpfile();
    setvbuf(full, NULL, _IONBF, 0);
    int heard = 0, kept = 0;
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < 40; i++)
#pragma omp task firstprivate(i) shared(heard, kept)
    {
        errno = 0;
        if (fprintf(full, "%d some line of text\n", i) < 0 && errno == ENOSPC) {
#pragma omp atomic
            heard++;
        }
        if (fprintf(late, "%d\n", i) > 0 && fprintf(fine, "%d\n", i) > 0) {
#pragma omp atomic
            kept++;
        }
    }
    int lines = 0, flushed = fflush(late);
    rewind(fine);
    for (int c; (c = getc(fine)) != EOF;) lines += c == '\n';
    printf("%d %d %d %d %d\n", heard, kept, lines, flushed, ferror(full) != 0);
    fclose(late);
    return 0;
}
