// Detached tasks: complete when the event has been fulfilled, by the same or by another thread.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int before = 0, after = 0;
    omp_event_handle_t event;
    // one thread alone makes LLVM's own runtime fail
#pragma omp parallel num_threads(omp_get_max_threads() + 1)
#pragma omp single
    {
#pragma omp task detach(event) firstprivate(before)
        before++;
#pragma omp task
        omp_fulfill_event(event);
#pragma omp taskwait
        after = 1;
#pragma omp task detach(event)
        {
            after++;
            omp_fulfill_event(event);
        }
    }
    printf("%d %d\n", before, after);
    return 0;
}
