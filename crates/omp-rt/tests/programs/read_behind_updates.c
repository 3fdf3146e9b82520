// What all threads have added to by atomic operations, one of them reads plainly behind all of these, ordered by turns or by a lock.
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 20 };
static long by_turns[ROUNDS], by_lock[ROUNDS], seen[2][ROUNDS];
static int come[ROUNDS];

int main(void) {
    int threads = 0;
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel
        {
            int all = omp_get_num_threads();
#pragma omp for ordered schedule(static, 1)
            for (int i = 0; i < all; i++) {
                // one of those in the middle is late
                if (i == 1 + round % all)
                    usleep(1000);
#pragma omp atomic
                by_turns[round] += i + 1;
#pragma omp ordered
                if (i == all - 1)
                    seen[0][round] = by_turns[round];
            }
            if (omp_get_thread_num() == round % all)
                usleep(1000);
#pragma omp atomic
            by_lock[round] += omp_get_thread_num() + 1;
#pragma omp critical
            if (++come[round] == all)
                seen[1][round] = by_lock[round];
#pragma omp single
            threads = all;
        }
    }
    int right = 0;
    for (int round = 0; round < ROUNDS; round++)
        right += (seen[0][round] == threads * (threads + 1) / 2) + (seen[1][round] == threads * (threads + 1) / 2);
    printf("%d of %d right\n", right, 2 * ROUNDS);
    return 0;
}
