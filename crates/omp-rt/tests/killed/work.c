/* Works on, in regions or in tasks, until somebody ends it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static long shared[1 << 16];

static void tree(int depth) {
    if (depth == 0) {
        usleep(1000);
        return;
    }
#pragma omp task
    tree(depth - 1);
#pragma omp task
    tree(depth - 1);
#pragma omp taskwait
}

int main(int words, char **word) {
    int by_tasks = words > 1 && strcmp(word[1], "tasks") == 0;
    for (int turn = 0; turn < 100000; turn++) {
        if (by_tasks) {
#pragma omp parallel
#pragma omp single
            tree(6);
        } else {
#pragma omp parallel for
            for (int i = 0; i < 1 << 16; i++) shared[i] += i ^ turn;
        }
        if (turn == 0) {
            puts("begun");
            fflush(stdout);
        }
    }
    return 0;
}
