// What omp_* functions say, where all runtimes must say the same.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    printf("%d %d %d %d\n", omp_get_level(), omp_get_active_level(), omp_get_ancestor_thread_num(0), omp_get_team_size(0));
    printf("%d %d %d\n", omp_get_dynamic(), omp_in_final(), omp_get_cancellation());
    printf("%d %d %d\n", omp_get_num_devices(), omp_is_initial_device(), omp_get_num_teams());
    printf("%d %d\n", omp_get_team_num(), omp_get_thread_limit() > 1000);
    printf("%d %d\n", omp_get_num_procs() > 0, omp_get_supported_active_levels() > 0);
    omp_set_dynamic(1);
    printf("dynamic %d ", omp_get_dynamic());
    omp_set_dynamic(0);
    printf("%d\n", omp_get_dynamic());
    double t = omp_get_wtime(), tick = omp_get_wtick();
    printf("time %d %d\n", omp_get_wtime() >= t, tick > 0 && tick < 1);
    int before = omp_get_max_threads(), changed = 0;
#pragma omp parallel reduction(+ : changed)
    {
        omp_set_num_threads(5);
        changed += omp_get_max_threads() != 5;
    }
    printf("own %d %d\n", changed, omp_get_max_threads() == before);
    omp_set_default_device(0);
    printf("device %d\n", omp_get_default_device());
    void *p = omp_alloc(1000, omp_default_mem_alloc);
    printf("alloc %d\n", p != NULL);
    omp_free(p, omp_default_mem_alloc);
    omp_alloctrait_t traits[] = {{omp_atk_alignment, 256}};
    omp_allocator_handle_t aligned = omp_init_allocator(omp_default_mem_space, 1, traits);
    p = omp_alloc(100, aligned);
    printf("aligned %d\n", (int)((size_t)p % 256));
    omp_free(p, aligned);
    omp_destroy_allocator(aligned);
    char text[100];
    omp_set_affinity_format("team %t of %T thread %0.4n of %N level %L");
    omp_capture_affinity(text, sizeof text, NULL);
    puts(text);
    size_t need = omp_get_affinity_format(text, 5);
    printf("%zu %s\n", need, text);
    return 0;
}
