// What serial code tells the C library and regions ask it: the environment, the locale, the process; and random numbers, which are one row.
#include <locale.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
static char put[] = "TOLD_PUT=17";
__attribute__((constructor)) static void early(void) { setenv("TOLD_EARLY", "1", 1); }
static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}
int main(void) {
    int bad = 0, wide = 0, drawn[100], process = getpid();
    long sum = 0;
    double reals = 0;
    setenv("TOLD_NEW", "42", 1);
    putenv(put);
    unsetenv("HOME");
#pragma omp parallel reduction(+ : bad)
    bad += number("TOLD_EARLY") != 1 || number("TOLD_NEW") != 42 || number("TOLD_PUT") != 17 || getenv("HOME") || getpid() != process;
    setenv("TOLD_NEW", "43", 1);
    put[9] = '8';
    for (int i = 0; i < 100; i++) {
        char name[20];
        snprintf(name, sizeof name, "TOLD_%d", i);
        setenv(name, name + 5, 1);
    }
    if (!setlocale(LC_ALL, "C.UTF-8")) puts("no such locale");
#pragma omp parallel reduction(+ : bad, wide)
    {
        wchar_t text[20];
        wide += mbstowcs(text, "h\xc3\xa9llo \xe2\x82\xac", 20) + 100 * MB_CUR_MAX;
        bad += number("TOLD_NEW") != 43 || number("TOLD_PUT") != 87 || number("TOLD_99") != 99;
    }
    setlocale(LC_ALL, "C");
    clearenv();
#pragma omp parallel reduction(+ : bad)
    bad += getenv("TOLD_NEW") || getenv("PATH") || MB_CUR_MAX != 1;
    printf("%d bad, %d wide\n", bad, wide / omp_get_max_threads());
    srand(7);
#pragma omp parallel for ordered schedule(static, 3)
    for (int i = 0; i < 100; i++)
#pragma omp ordered
        drawn[i] = rand() % 1000;
    for (int i = 0; i < 100; i++) sum = sum * 31 + drawn[i];
    printf("%ld then %d\n", sum, rand());
    sum = 0;
#pragma omp parallel for
    for (int i = 0; i < 100; i++)
#pragma omp critical
        sum += random() % 1000;
    printf("%ld then %ld\n", sum, random());
    srand48(3);
    sum = 0;
#pragma omp parallel for
    for (int i = 0; i < 100; i++)
#pragma omp critical
    {
        reals += (int)(drand48() * 1024);
        sum += lrand48() % 1000 + mrand48() % 1000;
    }
    printf("%g %ld then %g\n", reals, sum, drand48());
    return 0;
}
