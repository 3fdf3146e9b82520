// omp locks: plain, nested, tested, with hints, in arrays.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    omp_lock_t lock, hinted, *many = malloc(64 * sizeof *many);
    omp_nest_lock_t nest;
    long sum = 0, cells[64] = {0}, depth = 0, tried = 0;
    int n = 1;
    omp_init_lock(&lock);
#ifdef __clang__ // libgomp has it from version 13 on
    omp_init_lock_with_hint(&hinted, omp_lock_hint_contended);
#else
    omp_init_lock(&hinted);
#endif
    omp_init_nest_lock(&nest);
    for (int i = 0; i < 64; i++) omp_init_lock(&many[i]);
    printf("test free %d ", omp_test_lock(&lock));
    printf("test held %d\n", omp_test_lock(&lock));
    omp_unset_lock(&lock);
#pragma omp parallel
    {
#pragma omp single
        n = omp_get_num_threads();
        for (int i = 0; i < 64; i++) {
            omp_set_lock(&many[i]);
            cells[i] += i;
            omp_unset_lock(&many[i]);
        }
        for (int i = 0; i < 10; i++) {
            omp_set_lock(&lock);
            sum++;
            omp_unset_lock(&lock);
            omp_set_lock(&hinted);
            sum += 0;
            omp_unset_lock(&hinted);
        }
        while (!omp_test_lock(&lock)) {
        }
        tried++;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nest);
        omp_set_nest_lock(&nest);
        depth += omp_test_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
        omp_unset_nest_lock(&nest);
    }
    long all = 0;
    for (int i = 0; i < 64; i++) all += cells[i], omp_destroy_lock(&many[i]);
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nest);
    printf("sum %ld cells %ld tried %ld depth %ld\n", sum / n, all / n, tried / n, depth / n);
    free(many);
    return 0;
}
