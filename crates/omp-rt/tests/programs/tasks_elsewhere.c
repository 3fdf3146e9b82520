// Tasks that other threads may carry out: what they find on stacks of those who met them, in copies of theirs, on the heap; groups, dependences, locks, atomics, and what is around a task.
// env: POLYRAIL_OMP_TASKS=always
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int met[64];
static long fib(int n) {
    long a, b;
    if (n < 2) return n;
#pragma omp task shared(a)
    a = fib(n - 1);
#pragma omp task shared(b)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}
/* no taskwait: what is below is waited for by the group */
static void spread(int *cells, int from, int to) {
    if (to - from == 1) {
        cells[from] += from;
        return;
    }
    int middle = (from + to) / 2;
#pragma omp task
    spread(cells, from, middle);
#pragma omp task
    spread(cells, middle, to);
}
static void sort(int *a, int *room, int n) {
    if (n < 100) {
        for (int i = 1; i < n; i++)
            for (int k = i; k > 0 && a[k - 1] > a[k]; k--) {
                int t = a[k];
                a[k] = a[k - 1];
                a[k - 1] = t;
            }
        return;
    }
    int h = n / 2;
#pragma omp task
    sort(a, room, h);
#pragma omp task
    sort(a + h, room + h, n - h);
#pragma omp taskwait
    memcpy(room, a, n * sizeof *a);
    for (int i = 0, j = h, k = 0; k < n; k++) a[k] = j == n || (i < h && room[i] <= room[j]) ? room[i++] : room[j++];
}
/* children see what their parent was given, and change it */
static long inside(int given) {
    long out = 0;
    int array[50];
    for (int i = 0; i < 50; i++) array[i] = given + i;
#pragma omp task firstprivate(given, array) shared(out)
    {
        int copy = given;
        for (int k = 0; k < 3; k++) {
#pragma omp task shared(given, array, copy) firstprivate(k)
            {
#pragma omp atomic
                given += k;
                array[k] = 1000 * k;
#pragma omp critical
                copy += k * k;
            }
        }
#pragma omp taskwait
        out = given * 10000L + copy;
        for (int i = 0; i < 50; i++) out += array[i];
    }
#pragma omp taskwait
    return out;
}
int main(void) {
    long f = 0, in[4] = {0}, chain = 1, seen = 0;
    int cells[100] = {0}, *numbers = malloc(5000 * sizeof(int)), *room = malloc(5000 * sizeof(int)), threads = 0;
    static double blocks[6][6];
    char text[40] = "";
    omp_lock_t lock;
    omp_init_lock(&lock);
    for (int i = 0; i < 5000; i++) numbers[i] = (i * 7919L) % 5003;
#pragma omp parallel
    {
#pragma omp single
        {
            f = fib(13);
#pragma omp taskgroup
            spread(cells, 0, 100);
            long sum = 0;
            for (int i = 0; i < 100; i++) sum += cells[i];
            printf("spread %ld\n", sum);
            sort(numbers, room, 5000);
            for (int i = 0; i < 4; i++)
#pragma omp task
                in[i] = inside(i);
        }
        /* each thread has tasks of its own here */
        int own = omp_get_thread_num();
#pragma omp task shared(own)
        met[own] += own + 1;
#pragma omp taskwait
        met[own] *= 2;
#pragma omp barrier
#pragma omp single
        {
            for (int i = 1; i < 9; i++)
#pragma omp task depend(inout : chain) firstprivate(i)
            {
                chain = chain * 3 + i;
            }
            for (int i = 0; i < 3; i++)
#pragma omp task depend(in : chain)
            {
#pragma omp atomic
                seen += chain;
            }
#pragma omp task depend(inout : chain)
            chain++;
#pragma omp taskwait
            for (int k = 0; k < 6; k++)
                for (int i = 0; i < 6; i++)
                    for (int j = 0; j < 6; j++)
                        if (k == 0 || i > 0 || j > 0)
#pragma omp task depend(in : blocks[(i + 5) % 6][j], blocks[i][(j + 5) % 6]) depend(inout : blocks[i][j])
                            blocks[i][j] = blocks[i][j] * 0.5 + blocks[(i + 5) % 6][j] + 2 * blocks[i][(j + 5) % 6] + i + j;
            for (int i = 0; i < 4; i++)
#pragma omp task
            {
                omp_set_lock(&lock);
                size_t n = strlen(text);
                text[n] = 'x';
                text[n + 1] = 0;
                omp_unset_lock(&lock);
            }
#pragma omp task shared(threads) final(1)
            {
                threads = omp_in_final();
            }
        }
    }
    int sorted = 1;
    for (int i = 1; i < 5000; i++) sorted &= numbers[i - 1] <= numbers[i];
    double sum = 0;
    for (int i = 0; i < 36; i++) sum += blocks[i / 6][i % 6];
    int all = 0, expected = 0;
    for (int i = 0; i < omp_get_max_threads(); i++) all += met[i], expected += 2 * (i + 1);
    printf("fib %ld sorted %d inside %ld %ld %ld %ld\n", f, sorted, in[0], in[1], in[2], in[3]);
    printf("chain %ld seen %ld blocks %.6f text %s final %d own %d\n", chain, seen, sum, text, threads, all == expected);
    omp_destroy_lock(&lock);
    free(numbers);
    free(room);
}
