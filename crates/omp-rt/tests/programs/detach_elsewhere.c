// A detached task's event is fulfilled by another thread, which may be on another rank.
// ranks: refused
// expect: refused: the detached task is another rank's
#include <omp.h>
#include <stdio.h>
int main(void) {
    omp_event_handle_t event;
    int ready = 0, done = 0;
#pragma omp parallel num_threads(omp_get_max_threads() + 1)
    if (omp_get_thread_num() == 0) {
        omp_event_handle_t mine;
#pragma omp task detach(mine)
        done = 1;
        event = mine;
#pragma omp flush
#pragma omp atomic write
        ready = 1;
#pragma omp flush
#pragma omp taskwait
    } else if (omp_get_thread_num() == omp_get_num_threads() - 1) {
        int seen = 0;
        while (!seen) {
#pragma omp flush
#pragma omp atomic read
            seen = ready;
        }
#pragma omp flush
        omp_fulfill_event(event);
    }
    printf("%d\n", done);
    return 0;
}
