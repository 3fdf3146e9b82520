// Leagues on the host: how many teams there are is free, what they compute together is not.
#include <omp.h>
#include <stdio.h>
int main(void) {
    int done[40] = {0}, in_range = 1;
    long sum = 0;
#pragma omp teams num_teams(3) reduction(+ : sum)
    {
        if (omp_get_team_num() >= omp_get_num_teams()) in_range = 0;
#pragma omp distribute
        for (int i = 0; i < 40; i++) done[i]++, sum += i;
    }
#pragma omp teams distribute parallel for
    for (int i = 0; i < 40; i++) done[i] += 10;
#pragma omp teams distribute parallel for dist_schedule(static, 4) schedule(dynamic, 2) reduction(+ : sum)
    for (int i = 0; i < 40; i++) done[i] += 100, sum += i;
    int right = 0;
    for (int i = 0; i < 40; i++) right += done[i] == 111;
    printf("%d %ld %d\n", right, sum, in_range);
    return 0;
}
