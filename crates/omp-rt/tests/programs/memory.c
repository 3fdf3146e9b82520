// Memory that neighbouring threads share a word, a page or a stack of; memory from malloc, in regions and outside.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char bytes[1000];
static short words[500];
int main(void) {
    int n = 1;
#pragma omp parallel
#pragma omp single
    n = omp_get_num_threads();
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < 1000; i++) bytes[i] = (char)(i % 100);
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < 500; i++) words[i] = (short)(i * 3);
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum += bytes[i];
    for (int i = 0; i < 500; i++) sum += words[i];
    printf("falseshare %ld\n", sum);
    double on_stack[700];
    for (int i = 0; i < 700; i++) on_stack[i] = -1;
#pragma omp parallel for
    for (int i = 0; i < 700; i++) on_stack[i] = i * .5;
    double d = 0;
    for (int i = 0; i < 700; i++) d += on_stack[i];
    printf("stackshared %g\n", d);
    char **lines = calloc(50, sizeof *lines);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 50; i++) {
        lines[i] = malloc(100 + i * 50);
        sprintf(lines[i], "line %d of memory that a thread asked for", i);
        char *scrap = malloc(1 << (i % 20));
        memset(scrap, i, 1 << (i % 20));
        free(scrap);
    }
    size_t length = 0;
    for (int i = 0; i < 50; i++) length += strlen(lines[i]);
#pragma omp parallel for
    for (int i = 0; i < 50; i++) {
        lines[i] = realloc(lines[i], 5000);
        strcat(lines[i], "!");
    }
    for (int i = 0; i < 50; i++) length += strlen(lines[i]), i % 2 ? free(lines[i]) : (void)0;
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < 50; i += 2) free(lines[i]);
    free(lines);
    printf("malloc_region %zu\n", length);
    int *big = malloc(4000000 * sizeof *big);
#pragma omp parallel for
    for (int i = 0; i < 4000000; i++) big[i] = i;
    long total = 0;
#pragma omp parallel for reduction(+ : total)
    for (int i = 0; i < 4000000; i++) total += big[4000000 - 1 - i];
    printf("big %ld\n", total);
    free(big);
    return n > 0 ? 0 : 1;
}
