// What the C library gives pointers to and keeps: from serial code to regions, between regions' threads, and back.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int main(void) {
    time_t one = 1000000000, two = 500000000, three = 1700000000;
    char text[] = "a b c d e f";
    int bad = 0, last = omp_get_max_threads() - 1;
    setenv("TZ", "UTC+2", 1);
    struct tm *time = localtime(&one);
    char *said = asctime(time);
#pragma omp parallel reduction(+ : bad)
    bad += time->tm_year != 101 || time->tm_hour != 23 || strcmp(said, "Sat Sep  8 23:46:40 2001\n");
    printf("%d bad, %s", bad, strtok(text, " "));
#pragma omp parallel for ordered schedule(static, 1)
    for (int i = 0; i < 4; i++)
#pragma omp ordered
        printf(" %s", strtok(NULL, " "));
    printf(" %s\n", strtok(NULL, " "));
#pragma omp parallel
    if (omp_get_thread_num() == last) time = gmtime(&two);
    printf("%d %d %s", time->tm_year, time->tm_hour, asctime(time));
#pragma omp parallel
    if (omp_get_thread_num() == last) said = ctime(&three);
    printf("%s", said);
#pragma omp parallel
#pragma omp critical
    {
        time_t now = three + 86400 * omp_get_thread_num();
        bad += localtime(&now)->tm_mday != 14 + omp_get_thread_num();
    }
    printf("%d bad\n", bad);
    return 0;
}
