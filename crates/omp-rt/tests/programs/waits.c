// Flags that are only stored and loaded: messages forth and back, a lock by tickets, a barrier whose sense changes, counters that are added to. Nobody calls the function that
// has a fence: it is for each rank to have one thread.
// each: one
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
enum { N = 20 };
static int data[5000], flag, back, arrived;
static volatile int old;
static atomic_int next, serving, count, sense, taken;
static int x, y, far[4000], seen[64];
void fence(void) {
#pragma omp flush
}
static void wait_for(int *flag, int value) {
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value) {}
}
int main(void) {
    int threads = omp_get_max_threads(), got = 0, again = 0, bad = 0;
#pragma omp parallel reduction(+ : bad)
    {
        int thread = omp_get_thread_num(), last = threads - 1;
        // the first and the last, by turns
        for (int i = 1; threads > 1 && i <= N; i++) {
            if (thread == 0) {
                data[0] = data[4999] = i;
#pragma omp atomic write release
                flag = i;
                wait_for(&back, i);
                bad += data[2500] != i * 7;
            } else if (thread == last) {
                int is = 0;
                while (is != i) {
#pragma omp atomic read acquire
                    is = flag;
                }
                bad += data[0] != i || data[4999] != i;
                data[2500] = i * 7;
                __atomic_store_n(&back, i, __ATOMIC_RELEASE);
            }
        }
#pragma omp barrier
        for (int i = 0; i < N; i++) {
            int mine = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
            while (atomic_load_explicit(&serving, memory_order_acquire) != mine) sched_yield();
            x++;
            far[3999]++;
            atomic_store_explicit(&serving, mine + 1, memory_order_release);
        }
        // all have come when the sense changes
        for (int i = 0; i < N; i++) {
            int mine = !atomic_load_explicit(&sense, memory_order_relaxed);
            seen[thread] = i;
            if (atomic_fetch_add(&count, 1) == threads - 1) {
                atomic_store_explicit(&count, 0, memory_order_relaxed);
                atomic_store_explicit(&sense, mine, memory_order_release);
            } else {
                while (atomic_load_explicit(&sense, memory_order_acquire) != mine) usleep(10);
            }
            for (int other = 0; other < threads; other++) bad += seen[other] < i;
        }
        // looks before it tries to take the lock
        for (int i = 0; i < N; i++) {
            do {
                while (atomic_load_explicit(&taken, memory_order_relaxed)) __builtin_ia32_pause();
            } while (atomic_exchange_explicit(&taken, 1, memory_order_acquire));
            y++;
            far[0]++;
            atomic_store_explicit(&taken, 0, memory_order_release);
        }
        // nobody looks at what comes of the addition, and it is observed by loads
        data[100 * thread] = thread + 1;
        __atomic_fetch_add(&arrived, 1, __ATOMIC_RELEASE);
        if (thread == last) {
            while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < threads) {}
            for (int other = 0; other < threads; other++) bad += data[100 * other] != other + 1;
        }
        if (thread == 0) {
            wait_for(&arrived, threads);
            got = data[100 * last];
            old = 1;
        } else {
            while (!old) {}
        }
    }
    // a flag by pointer, on the stack, in another region
#pragma omp parallel
    if (omp_get_thread_num() == threads - 1) {
        again = 42;
        __atomic_store_n(&flag, -1, __ATOMIC_RELEASE);
    } else if (omp_get_thread_num() == 0) {
        int *at = &flag;
        wait_for(at, -1);
        got = got * 100 + again;
    }
    printf("%d bad, %d, %d %d %d %d\n", bad, got == threads * 100 + 42, x == N * threads, far[3999] == x, y == N * threads, far[0] == y);
    return 0;
}
