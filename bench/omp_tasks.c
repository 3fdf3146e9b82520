/* Tasks of OpenMP: a tree, a row from one thread, a task loop, tiny ones, blocks of a matrix that depend on each other.
 *
 *   omp_tasks tree TASKS MICROSECONDS | flat TASKS MICROSECONDS | loop ITERATIONS MICROSECONDS | fib N | blocks SIZE BLOCK
 *
 * Says how long it took, beside what the work itself takes (its loops are measured first), and checks what comes out. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long turns_of_a_microsecond;

/* not to be done once for all: it looks at memory */
static volatile double start = 1;
static double __attribute__((noinline)) turns(long count) {
    double x = start;
    for (long i = 0; i < count; i++) x = x * 0.999999 + 1e-6;
    return x;
}

static double busy(double microseconds) { return turns((long)(microseconds * turns_of_a_microsecond)); }

static void calibrate(void) {
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double begun = omp_get_wtime();
        volatile double keep = turns(2000000 + (begun < 0));
        (void)keep;
        double took = omp_get_wtime() - begun;
        if (took < best) best = took;
    }
    turns_of_a_microsecond = (long)(2000000 / (best * 1e6));
}

static long tree(long tasks, double microseconds) {
    long left = 0, right = 0, below = tasks - 1;
    if (busy(microseconds) > 2) return -1;
    if (below > 0) {
#pragma omp task shared(left)
        left = tree((below + 1) / 2, microseconds);
        if (below > 1) {
#pragma omp task shared(right)
            right = tree(below / 2, microseconds);
        }
#pragma omp taskwait
    }
    return left + right + 1;
}

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

/* A Cholesky decomposition of a matrix in blocks, each a piece of memory of its own. */
static void factor(double *a, int b) {
    for (int k = 0; k < b; k++) {
        a[k * b + k] = sqrt(a[k * b + k]);
        for (int i = k + 1; i < b; i++) a[i * b + k] /= a[k * b + k];
        for (int j = k + 1; j < b; j++)
            for (int i = j; i < b; i++) a[i * b + j] -= a[i * b + k] * a[j * b + k];
    }
}

static void solve(const double *l, double *a, int b) {
    for (int i = 0; i < b; i++)
        for (int k = 0; k < b; k++) {
            double x = a[i * b + k];
            for (int j = 0; j < k; j++) x -= a[i * b + j] * l[k * b + j];
            a[i * b + k] = x / l[k * b + k];
        }
}

static void update(const double *x, const double *y, double *a, int b) {
    for (int i = 0; i < b; i++)
        for (int j = 0; j < b; j++) {
            double sum = 0;
            for (int k = 0; k < b; k++) sum += x[i * b + k] * y[j * b + k];
            a[i * b + j] -= sum;
        }
}

static double blocks(int size, int b) {
    int n = size / b;
    double **at = malloc(sizeof *at * n * n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double *block = at[i * n + j] = malloc(sizeof *block * b * b);
            for (int k = 0; k < b * b; k++) {
                int row = i * b + k / b, column = j * b + k % b;
                block[k] = row == column ? 2.0 * size : 1.0 / (1 + abs(row - column));
            }
        }
#pragma omp parallel
#pragma omp single
    for (int k = 0; k < n; k++) {
        double *kk = at[k * n + k];
#pragma omp task depend(inout : *kk)
        factor(kk, b);
        for (int i = k + 1; i < n; i++) {
            double *ik = at[i * n + k];
#pragma omp task depend(in : *kk) depend(inout : *ik)
            solve(kk, ik, b);
        }
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j <= i; j++) {
                double *ik = at[i * n + k], *jk = at[j * n + k], *ij = at[i * n + j];
#pragma omp task depend(in : *ik, *jk) depend(inout : *ij)
                update(ik, jk, ij, b);
            }
    }
    /* the product of a row with itself is the diagonal */
    double worst = 0;
    for (int row = 0; row < size; row += 37) {
        double sum = 0;
        for (int column = 0; column <= row; column++) {
            double x = at[row / b * n + column / b][row % b * b + column % b];
            sum += x * x;
        }
        worst = fmax(worst, fabs(sum / (2.0 * size) - 1));
    }
    return worst;
}

int main(int count, char **words) {
    if (count < 3) return fprintf(stderr, "omp_tasks tree|flat|loop|fib|blocks NUMBER [NUMBER]\n"), 2;
    const char *what = words[1];
    long first = atol(words[2]);
    double second = count > 3 ? atof(words[3]) : 0, work = 0;
    int right = 0;
    calibrate();
    double begun = omp_get_wtime();
    if (!strcmp(what, "tree")) {
        long got = 0;
#pragma omp parallel
#pragma omp single
        got = tree(first, second);
        right = got == first;
        work = first * second * 1e-6;
    } else if (!strcmp(what, "flat") || !strcmp(what, "loop")) {
        int loop = !strcmp(what, "loop");
        double *out = calloc(first, sizeof *out);
#pragma omp parallel
#pragma omp single
        if (loop) {
#pragma omp taskloop
            for (long i = 0; i < first; i++) out[i] = busy(second) + i;
        } else {
            for (long i = 0; i < first; i++)
#pragma omp task
                out[i] = busy(second) + i;
        }
        right = 1;
        for (long i = 0; i < first; i++) right &= out[i] >= i && out[i] < i + 2;
        work = first * second * 1e-6;
    } else if (!strcmp(what, "fib")) {
        long got = 0, a = 0, b = 1;
#pragma omp parallel
#pragma omp single
        got = fib((int)first);
        for (long i = 0; i < first; i++) {
            long next = a + b;
            a = b;
            b = next;
        }
        right = got == a;
    } else if (!strcmp(what, "blocks")) {
        right = blocks((int)first, (int)second) < 1e-9;
    } else {
        return 2;
    }
    double took = omp_get_wtime() - begun;
    printf("%s: %.4f s, work %.4f s, %s\n", what, took, work, right ? "right" : "WRONG");
    return !right;
}
