// Streams that serial code opened, to which all threads write, with and without exclusion.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    char line[100], name[100], other[100];
    int n = 0, m = 0;
    sprintf(name, "/tmp/streams-%d.txt", (int)getpid());
    sprintf(other, "/tmp/streams-%d-unused.txt", (int)getpid());
    FILE *f = fopen(name, "w+"), *unused = fopen(other, "w+");
    fprintf(f, "begin\n");
#pragma omp parallel
    {
        for (int i = 0; i < 10; i++) fprintf(f, "thread %d line %d\n", omp_get_thread_num(), i);
#pragma omp barrier
        for (int i = 0; i < 10; i++)
#pragma omp critical
            fprintf(f, "thread %d critical line %d\n", omp_get_thread_num(), i);
        fprintf(unused, "thread %d\n", omp_get_thread_num());
    }
    fprintf(f, "end\n");
    rewind(f);
    while (fgets(line, 100, f)) n++;
    printf("%d\n", n == 2 + 20 * omp_get_max_threads());
    rewind(unused);
    while (fgets(line, 100, unused)) m++;
    printf("%d\n", m == omp_get_max_threads());
    fclose(f), fclose(unused);
    remove(name), remove(other);
    return 0;
}
