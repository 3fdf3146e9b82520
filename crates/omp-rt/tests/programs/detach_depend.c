// A task that depends on a detached one comes when the event has been fulfilled, here by a task behind both.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int n = 0, m = 0, other = 0;
    omp_event_handle_t event;
    // one thread alone makes LLVM's own runtime fail
#pragma omp parallel num_threads(omp_get_max_threads() + 1)
#pragma omp single
    {
        for (int round = 0; round < 3; round++) {
            int add = round + 1;
#pragma omp task depend(out : n) detach(event)
#pragma omp atomic
            n += add;
#pragma omp task depend(inout : n) firstprivate(add)
            n *= add + 1;
#pragma omp task depend(in : n) depend(out : m)
            m += n;
#pragma omp task depend(out : other) firstprivate(event)
            {
                other++;
#pragma omp atomic
                n++;
                omp_fulfill_event(event);
            }
            add = 100;
#pragma omp taskwait
        }
    }
    printf("%d %d %d\n", n, m, other);
    return 0;
}
