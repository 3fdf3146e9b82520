// What a thread writes while others of its rank leave critical sections: alone to std::cout, and with the stream locked.
#include <iostream>
#include <omp.h>
#include <stdio.h>
int main() {
    std::ios::sync_with_stdio(false);
    omp_lock_t begun, go;
    omp_init_lock(&begun), omp_init_lock(&go);
    int count = 0;
#pragma omp parallel
    {
        int me = omp_get_thread_num(), last = omp_get_num_threads() - 1;
#pragma omp master
        for (int i = 0; i < 20000; i++) std::cout << "line " << i << '\n';
        for (int i = 0; me && i < 200; i++)
#pragma omp critical
            count++;
#pragma omp barrier
#pragma omp master
        std::cout << std::flush;
        if (last) {
            if (me == 0) omp_set_lock(&begun);
            if (me == last) omp_set_lock(&go);
#pragma omp barrier
            if (me == 0) {
                flockfile(stdout);
                printf("one ");
                omp_unset_lock(&begun);
                omp_set_lock(&go);
                printf("line\n");
                omp_unset_lock(&go);
                funlockfile(stdout);
            } else if (me == last) {
                omp_set_lock(&begun);
#pragma omp critical
                count++;
                omp_unset_lock(&begun);
                omp_unset_lock(&go);
            }
        }
    }
    printf("%d\n", count == (omp_get_max_threads() - 1) * 200 + (omp_get_max_threads() > 1));
    return 0;
}
