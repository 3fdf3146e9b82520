// Spin locks of the program's own: released by a plain store, and by an exchange.
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
enum { N = 40 };
static atomic_flag flag = ATOMIC_FLAG_INIT;
static int word, x, y, far[4000];
int main(void) {
#pragma omp parallel
    {
        for (int i = 0; i < N; i++) {
            while (atomic_flag_test_and_set_explicit(&flag, memory_order_acquire)) {}
            x++;
            far[3999]++;
            atomic_flag_clear_explicit(&flag, memory_order_release);
        }
        for (int i = 0; i < N; i++) {
            int free = 0;
            while (!__atomic_compare_exchange_n(&word, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) free = 0;
            y++;
            far[0]++;
            __atomic_exchange_n(&word, 0, __ATOMIC_RELEASE);
        }
    }
    int all = N * omp_get_max_threads();
    printf("%d %d %d %d\n", x == all, y == all, far[0] == all, far[3999] == all);
    return 0;
}
