// Streams that serial code opened, to which all threads write, with and without exclusion.
#include <omp.h>
#include <stdio.h>
int main(void) {
    char line[100]; int n = 0;
    FILE *f = fopen("stream.txt", "w+");
    fprintf(f, "begin\n");
#pragma omp parallel
    {
        for (int i = 0; i < 10; i++) fprintf(f, "thread %d line %d\n", omp_get_thread_num(), i);
#pragma omp barrier
        for (int i = 0; i < 10; i++)
#pragma omp critical
            fprintf(f, "thread %d critical line %d\n", omp_get_thread_num(), i);
    }
    fprintf(f, "end\n");
    rewind(f);
    while (fgets(line, 100, f)) n++;
    printf("%d\n", n == 2 + 20 * omp_get_max_threads());
    fclose(f);
    remove("stream.txt");
    return 0;
}
