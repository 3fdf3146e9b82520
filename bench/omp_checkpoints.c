/* Memory of which a little changes in each of some regions, with a rest after each in which a checkpoint comes to the disk.
 *
 *   omp_checkpoints MEGABYTES PERMILLE ROUNDS
 *
 * Regions have functions of their own: one that fills memory, one that changes it for the first times, one that is measured. Says a sum of all memory in the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, BEFORE = 8, REST = 400000 };

static unsigned char *memory;
static size_t pages, changed;

static size_t page_of(size_t k, int round) { return (k * (pages / changed) + (size_t)round * 37) % pages; }

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    pages = (size_t)atol(argv[1]) * 1000000 / PAGE;
    changed = pages * (size_t)atol(argv[2]) / 1000;
    int rounds = atoi(argv[3]);
    if (changed == 0 || !(memory = malloc(pages * PAGE))) return 2;
#pragma omp parallel for
    for (size_t page = 0; page < pages; page++) memset(memory + page * PAGE, (int)(page % 255) + 1, PAGE);
    usleep(REST);
    for (int round = 0; round < BEFORE; round++) {
#pragma omp parallel for
        for (size_t k = 0; k < changed; k++) memset(memory + page_of(k, round) * PAGE, round, PAGE);
        usleep(REST);
    }
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel for
        for (size_t k = 0; k < changed; k++) memset(memory + page_of(k, round) * PAGE, round + BEFORE, PAGE);
        usleep(REST);
    }
    unsigned long sum = 0;
    for (size_t page = 0; page < pages; page++) sum = sum * 31 + memory[page * PAGE] + memory[page * PAGE + PAGE - 1];
    printf("sum %lx\n", sum);
    return 0;
}
